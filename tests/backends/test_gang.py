"""Trials in two processes on Ray, of which one fails: the trial ends as what it is, or goes on and loses nothing."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from placed import without_place

import sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILE = """
name: gang
trainable: {trainable}
method: grid
metric: {{name: val_loss, goal: minimize}}
parameters: {{fault: {{values: {faults}}}{more}}}
epochs: 6
max_failures: 99
checkpoint: {{every_s: 0}}
resources: {{workers: 2, cpus: 0.5, max_concurrent: 1}}
"""


LONG = ", learning_rate: {value: 0.01}, batch_size: {value: 4}"  # many updates in an epoch


def run(
    folder: Path, trainable: str, faults: list[str], more: str = "", never_comes: str = ""
) -> tuple[str, pd.DataFrame]:
    """What the sweep said, and its trials by their faults."""
    for rank in range(2):
        (folder / f"read_by_{rank}.txt").write_text("1")
    for name in ("rank_faults.py", "rank_net.py"):
        (folder / name).write_text((Path(__file__).parent / name).read_text())
    (folder / "gang.yaml").write_text(
        FILE.format(trainable=trainable, faults=json.dumps(faults), more=more)
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "sweep", "run", "gang.yaml", "--no-memo"],
        cwd=folder,
        env={**os.environ, "NEVER_COMES": never_comes},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "Traceback" not in ran.stdout + ran.stderr
    return ran.stdout + ran.stderr, sweep.load(folder / "results" / "gang").trials.set_index(
        "param.fault"
    )


def check(folder: Path, found: pd.DataFrame, expected: dict[str, tuple[str, str]]) -> None:
    """By fault: how its trial ended and why; all that completed have the numbers of the first."""
    for fault, (status, reason) in expected.items():
        assert found.loc[fault, "status"] == status, found.loc[fault, "status_reason"]
        assert re.fullmatch(reason, without_place(found.loc[fault, "status_reason"]))
    metrics = sweep.load(folder / "results" / "gang").metrics.set_index("trial")["metric.loss"]
    completed = found[found["status"] == "completed"]
    expect = metrics.loc[completed["trial"].iloc[0]].tolist()
    for fault, trial in completed["trial"].items():
        if fault != "1 runs out of memory":
            assert metrics.loc[trial].tolist() == expect, fault


FAST = {
    "nothing": ("completed", ""),
    "all diverges": ("diverged", "as all do"),
    "1 dies": ("completed", ""),
    "1 raises": ("failed", r"ValueError: only this rank \(rank 1\)"),
    "1 runs out of memory": ("completed", ""),
}
MORE = {
    "nothing": ("completed", ""),
    "0 exits": ("completed", ""),
    "1 differs": (
        "failed",
        r"RuntimeError: ranks must compute the same, and rank 1 trained \(1, '1.33.*",
    ),
    "0 raises": ("failed", "ValueError: only this rank"),
    "1 loads other data": (
        "failed",
        "RuntimeError: ranks must compute the same, and rank 1 has loaded other data .*",
    ),
    "1 fails once": ("completed", ""),
}


def test_of_what_fails_on_one_rank_the_trial_ends_or_goes_on(tmp_path: Path) -> None:
    said, found = run(tmp_path, "rank_faults:Toy", [*FAST])
    assert "without a password" in said
    assert "trial 2: worker lost: rank 1: killed from outside (SIGKILL or SIGTERM)" in said
    assert "trial 4: out of memory; again with each batch in 2 parts" in said
    assert "On rank 1:" in found.loc["1 raises", "error"]
    assert found.loc["nothing", ["node", "devices"]].tolist() == ["here", "cpu:0;cpu:1"]
    check(tmp_path, found, FAST)
    events = [
        json.loads(line)
        for line in (tmp_path / "results" / "gang" / "log.jsonl").read_text().splitlines()
    ]
    ends = [event["facts"]["inputs"] for event in events if event.get("status") == "completed"]
    assert ends
    for read in ends:
        assert {"./read_by_0.txt", "./read_by_1.txt"} <= read["files"].keys()
    joined = [line.split() for line in (tmp_path / "joined.txt").read_text().splitlines()]
    assert len(joined) == 2 * 4  # three gangs were lost; trials before shared theirs
    assert len({(pid, address) for _, pid, address in joined}) == len(joined)


@pytest.mark.exhaustive
def test_more_of_what_may_fail(tmp_path: Path) -> None:
    said, found = run(tmp_path, "rank_faults:Toy", [*MORE], never_comes="1")
    assert "trial 0: worker lost: " in said
    assert "trial 1: worker lost: exit code 3; it has no checkpoint and begins anew" in said
    check(
        tmp_path, found, {**MORE, "1 fails once": ("failed", r"ValueError: not again \(rank 1\)")}
    )


SUDDEN = [
    "nothing",
    "1 dies in the next",
    "1 freezes in the next",
    "0 dies in the next",
    "0 freezes in the next",
]


@pytest.mark.exhaustive
@pytest.mark.keras
@pytest.mark.parametrize("never_comes", ["", "1", "0"])
def test_ranks_that_wait_for_one_another_wait_no_longer_than_they_must(
    tmp_path: Path, never_comes: str
) -> None:
    faults = SUDDEN if not never_comes else ["nothing"]
    said, found = run(tmp_path, "rank_net:Net", faults, LONG, never_comes)
    assert len(re.findall("worker lost: ", said)) == (4 if not never_comes else 1)
    check(tmp_path, found, dict.fromkeys(faults, ("completed", "")))
    log = [
        json.loads(line)
        for line in (tmp_path / "results" / "gang" / "log.jsonl").read_text().splitlines()
    ]
    times = [event["time"] for event in log]
    # mostly the start of new processes, on a machine with little to spare
    assert max(b - a for a, b in itertools.pairwise(times)) < 240


@pytest.mark.exhaustive
@pytest.mark.keras
def test_what_fails_on_one_rank_that_others_wait_for_is_what_is_reported(tmp_path: Path) -> None:
    expected = {
        "nothing": ("completed", ""),
        "1 raises": ("failed", r"ValueError: only this rank \(rank 1\)"),
        "1 runs out of memory": ("completed", ""),
        "1 dies": ("completed", ""),
    }
    _, found = run(tmp_path, "rank_net:Net", [*expected], LONG)
    check(tmp_path, found, expected)
    assert found.loc["nothing", ["strategy", "num_replicas", "devices"]].tolist() == [
        "multi_worker",
        2,
        "cpu:0;cpu:0",
    ]
