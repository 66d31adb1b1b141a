"""Trials on parameter servers under Ray, of which a process is killed or freezes in the middle of an epoch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import sweep

pytestmark = [pytest.mark.ray, pytest.mark.keras, pytest.mark.exhaustive]

FILE = """
name: served
trainable: served_faults:Faulty
method: grid
metric: {{name: val_loss, goal: minimize}}
parameters:
  rank: {{value: {rank}}}
  how: {{value: {how}}}
  learning_rate: {{value: 0.003}}
  batch_size: {{value: 64}}
epochs: 6
checkpoint: {{every_s: 0}}
training: {{strategy: parameter_server}}
resources: {{workers: 2, servers: 2, cpus: 0.2}}
"""


def run(folder: Path, rank: int, how: str) -> tuple[str, pd.DataFrame, list[int]]:
    """What was said, the trial's row with its losses, and the ranks that joined."""
    (folder / "served_faults.py").write_text(
        (Path(__file__).parent / "served_faults.py").read_text()
    )
    (folder / "served.yaml").write_text(FILE.format(rank=rank, how=how))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "sweep", "run", "served.yaml"],
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    found = sweep.load(folder / "results" / "served")
    assert found.metrics["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    losses = found.metrics["metric.loss"].tolist()
    assert losses[-1] < losses[0]
    joined = [int(line.split()[0]) for line in (folder / "joined.txt").read_text().splitlines()]
    return said, found.trials, joined


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_worker_that_is_gone_is_replaced_and_its_trial_goes_on(how: str, tmp_path: Path) -> None:
    said, trials, joined = run(tmp_path, 1, how)
    assert "trial 0: worker 1 was lost and is replaced, the others train on: " in said
    assert "worker lost" not in said
    assert sorted(joined) == [0, 1, 1, 2, 3, 4]
    assert trials["status"].tolist() == ["completed"]
    assert trials["reproducible"].tolist() == [False]


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_server_that_is_gone_ends_the_gang_and_its_trial_goes_on_from_the_checkpoint(
    how: str, tmp_path: Path
) -> None:
    said, trials, joined = run(tmp_path, 3, how)
    assert "trial 0: worker lost: rank 3: a server, " in said
    assert sorted(joined) == sorted([0, 1, 2, 3, 4] * 2)
    assert trials["status"].tolist() == ["completed"]
