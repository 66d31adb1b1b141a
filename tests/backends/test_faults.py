"""Trainables that misbehave, each in its own way, under Ray: each ends as what it is, and the others complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from placed import without_place

import sweep
from sweep.store import log as store_log

pytestmark = [pytest.mark.ray, pytest.mark.slow]

LOST = r"worker lost: .+, after 1 restarts"
FATES = {
    # while it does, others end
    "hangs": (
        "failed",
        r"no epoch within 0\.2 minutes \(resources\.epoch_minutes\)",
    ),
    "raises in begin": ("failed", "RuntimeError: no beginning"),
    "raises in train": ("failed", "RuntimeError: no training"),
    "raises in save": ("failed", "RuntimeError: no saving"),
    "raises while it is saved": ("failed", "RuntimeError: in a thread"),
    "raises in facts": ("failed", "RuntimeError: no facts"),
    "cannot be restored": ("completed", ""),
    "raises what cannot be pickled": ("failed", "Unpicklable: stays here"),
    "raises ten thousand words": ("failed", "RuntimeError: (word ){50,58}word[.]{3}"),
    "raises control characters": ("failed", r"RuntimeError: red\\x07 \\udcff and more"),
    "raises KeyboardInterrupt": ("failed", "KeyboardInterrupt: by itself"),
    "raises SystemExit": ("failed", "SystemExit: enough"),
    "recurses": ("failed", "RecursionError: maximum recursion depth exceeded.*"),
    "exits in begin": ("failed", LOST),
    "exits": ("failed", LOST),
    "aborts": ("failed", LOST),
    "segfaults": ("failed", LOST),
    "is terminated": ("failed", LOST),
    "is killed": ("failed", LOST),
    "asks for a petabyte": ("oom", "MemoryError: .*"),
    "reports NaN": ("diverged", "score is nan in epoch 2"),
    "reports infinity": ("diverged", "score is -inf in epoch 2"),
    "reports None": ("failed", "TypeError: float.*"),
    "reports text": ("failed", "ValueError: could not convert string to float: 'high'"),
    "reports a word": ("failed", "AttributeError: 'str' object has no attribute 'epoch'"),
    "skips an epoch": (
        "failed",
        "ValueError: epoch 3 was reported after epoch 1; they come one by one",
    ),
    "repeats an epoch": (
        "failed",
        "ValueError: epoch 1 was reported after epoch 1; they come one by one",
    ),
    "gives a mapping as facts": ("failed", ".*"),
    "leaves threads behind": ("completed", ""),
    "changes the folder": ("completed", ""),
    "reads the current folder": ("completed", ""),
    "closes its output": ("completed", ""),
    "prints ten megabytes": ("completed", ""),
    "nothing": ("completed", ""),
}
FILE = """
name: faults
trainable: faults:Faulty
method: grid
metric: {{name: score, goal: minimize}}
parameters: {{fault: {{values: {faults}}}}}
epochs: 4
max_failures: 99
max_restarts: 1
resources: {{epoch_minutes: 0.2}}
checkpoint: {{every_s: 0}}
{more}
"""


def run(folder: Path, text: str) -> pd.DataFrame:
    """The trials of a sweep, by their faults."""
    (folder / "faults.py").write_text((Path(__file__).parent / "faults.py").read_text())
    (folder / "faults.yaml").write_text(text)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "sweep",
        "run",
        "faults.yaml",
        "--max-concurrent",
        "2",
    ]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1500)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "Traceback" not in ran.stdout + ran.stderr
    results = folder / "results" / "faults"
    assert not [path for path in results.iterdir() if path.name.startswith(".")]
    assert list(store_log.read(results / "log.jsonl"))[-1].reason == "finished"
    trials = sweep.load(results).trials
    kept = [f"{trial:05d}" for trial in trials.loc[trials["checkpoint"].notna(), "trial"]]
    assert sorted(path.name for path in (results / "checkpoints").iterdir()) == kept
    trials["status_reason"] = trials["status_reason"].map(without_place)
    return trials.set_index("param.fault")


RARE = {
    **dict.fromkeys(
        ("aborts", "segfaults", "is terminated", "is killed"),
        "as in test_worker_exits.py, but twice",
    ),
    "raises KeyboardInterrupt": "as there",
    "exits": "as in begin",
    "reports text": "as None",
    "repeats an epoch": "as one that skips one",
}


@pytest.fixture(scope="module")
def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> pd.DataFrame:
    """Of a sweep with the faults that tests of this run ask for."""
    asked = {
        item.callspec.params["fault"]
        for item in request.session.items
        if item.path == request.path and "trials" in item.fixturenames
    }
    faults = [fault for fault in FATES if fault in asked]
    return run(tmp_path_factory.mktemp("faults"), FILE.format(faults=json.dumps(faults), more=""))


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=pytest.mark.exhaustive if fault in RARE else ()) for fault in FATES],
)
def test_a_fault_ends_as_what_it_is(trials: pd.DataFrame, fault: str) -> None:
    status, reason = FATES[fault]
    found = trials.loc[fault]
    assert found["status"] == status
    assert re.fullmatch(reason, found["status_reason"])
    assert len(found["status_reason"]) < 400
    if status == "completed":
        assert found["epochs"] == 4


@pytest.mark.exhaustive
def test_what_fails_or_hangs_once_is_tried_again(tmp_path: Path) -> None:
    faults = ["fails once", "hangs once", "nothing", "raises in train", "hangs"]
    found = run(tmp_path, FILE.format(faults=json.dumps(faults), more="retries: 1"))
    assert found["status"].tolist() == ["completed"] * 3 + ["failed"] * 2
    assert found["epochs"].tolist()[:3] == [4, 4, 4]
    log = store_log.read(tmp_path / "results" / "faults" / "log.jsonl")
    reasons = {
        event.trial: without_place(event.reason) for event in log if getattr(event, "again", False)
    }
    hung = "no epoch within 0.2 minutes (resources.epoch_minutes); tried again, 1 of 1"
    failed = "RuntimeError: {}; tried again, 1 of 1"
    assert reasons == {
        0: failed.format("not yet"),
        1: hung,
        3: failed.format("no training"),
        4: hung,
    }
