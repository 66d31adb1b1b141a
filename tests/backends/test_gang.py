"""Trials in two processes on Ray, of which one fails: the trial ends as what it is, or goes on and loses nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

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


def run(
    folder: Path, trainable: str, faults: list[str], more: str = "", never_comes: str = ""
) -> tuple[str, pd.DataFrame]:
    """What the sweep said, and its trials by their faults."""
    for name in ("rank_faults.py", "rank_net.py"):
        (folder / name).write_text((Path(__file__).parent / name).read_text())
    (folder / "gang.yaml").write_text(FILE.format(trainable=trainable, faults=json.dumps(faults), more=more))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "sweep", "run", "gang.yaml", "--no-memo"],
        cwd=folder,
        env={**os.environ, "NEVER_COMES": never_comes},
        capture_output=True,
        text=True,
        timeout=290,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "Traceback" not in ran.stdout + ran.stderr
    return ran.stdout + ran.stderr, sweep.load(folder / "results" / "gang").trials.set_index("param.fault")


def check(folder: Path, found: pd.DataFrame, expected: dict[str, tuple[str, str]]) -> None:
    """By fault: how its trial ended and why; all that completed have the numbers of the first."""
    for fault, (status, reason) in expected.items():
        assert found.loc[fault, "status"] == status, found.loc[fault, "status_reason"]
        assert re.fullmatch(reason, found.loc[fault, "status_reason"])
    metrics = sweep.load(folder / "results" / "gang").metrics.set_index("trial")["metric.loss"]
    completed = found[found["status"] == "completed"]
    expect = metrics.loc[completed["trial"].iloc[0]].tolist()
    for fault, trial in completed["trial"].items():
        if fault != "1 runs out of memory":
            assert metrics.loc[trial].tolist() == expect, fault


TOYS = {
    "nothing": ("completed", ""),
    "all diverges": ("diverged", "as all do"),
    "all stops early": ("completed", "the trainable stopped after epoch 1: as all do"),
    "1 dies": ("completed", ""),
    "1 raises": ("failed", r"ValueError: only this rank \(rank 1\)"),
    "0 exits": ("completed", ""),
    "1 differs": ("failed", r"RuntimeError: ranks must compute the same, and rank 1 trained \(1, '1.33.*"),
    "1 runs out of memory": ("completed", ""),
    "none": ("completed", ""),
}


def test_of_what_fails_on_one_rank_the_trial_ends_or_goes_on(tmp_path: Path) -> None:
    said, found = run(tmp_path, "rank_faults:Toy", [*TOYS])
    assert "without a password" in said
    assert "trial 3: worker lost: rank 1: killed from outside (SIGKILL or SIGTERM)" in said
    assert "trial 5: worker lost: exit code 3; it goes on from its checkpoint" in said
    assert "trial 7: out of memory; again with each batch in 2 parts" in said
    assert "On rank 1:" in found.loc["1 raises", "error"]
    assert found.loc["nothing", ["node", "devices"]].tolist() == ["here", "cpu:0;cpu:1"]
    stopped = found.drop("all stops early")
    check(tmp_path, stopped, {fault: end for fault, end in TOYS.items() if fault in stopped.index})
    joined = [line.split() for line in (tmp_path / "joined.txt").read_text().splitlines()]
    assert len(joined) == 2 * 6  # five gangs were lost; trials before shared theirs
    assert len({(pid, address) for _, pid, address in joined}) == len(joined)
