"""Trials that share a GPU, on Ray: workers of one share end and others with the next one begin."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import sweep
from sweep.store import log as store_log

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FILE = """
name: packed
trainable: packed:Packed
method: grid
metric: {name: loss, goal: minimize}
parameters: {gb: {values: [1, 4]}, a: {values: [1, 2, 3, 4, 5]}}
epochs: 20
resources: {cpus: 0.25, gpus: auto}
"""


def test_shares_follow_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")
    shutil.copy(Path(__file__).with_name("packed.py"), tmp_path)
    (tmp_path / "packed.yaml").write_text(FILE)
    command = [
        sys.executable,
        "-m",
        "sweep",
        "run",
        "packed.yaml",
        "--results",
        "results",
        "--simulate-gpus",
        "1",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = sweep.load(tmp_path / "results" / "packed")
    assert set(loaded.trials["status"]) == {"completed"}
    epochs: pd.DataFrame = loaded.metrics
    assert (
        epochs.groupby("trial")["epoch"]
        .apply(list)
        .map(lambda each: each == list(range(1, 21)))
        .all()
    )
    assert epochs.iloc[0]["gpus"] == 1.0
    assert {1.0, 0.5} <= set(epochs["gpus"])
    large = loaded.trials.loc[loaded.trials["param.gb"] == 4, "trial"]
    assert epochs[epochs["trial"].isin(large)]["gpus"].ge(0.5).all()
    assert set(epochs["mps"]) == {50.0}, "workers have the variables of MPS"
    assert "2 trials a GPU from now on" in done.stdout
    assert len(list(store_log.read(tmp_path / "results" / "packed" / "log.jsonl"))) > 200
