"""The main job on a real Ray instance, as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest
from waiting import until

import sweep
from sweep.store.folder import ResultsFolder

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.ray, pytest.mark.keras, pytest.mark.slow]


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sweep", *arguments]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_the_main_job(tmp_path: Path) -> None:
    process = start("run", "search_spaces/lr_wd_aug.yaml", "--results", str(tmp_path))
    output, errors = process.communicate(timeout=1500)
    assert (process.returncode, errors) == (
        0,
        "lr_wd_aug: grid, 27 trials of at most 10 epochs, 270 together\n",
    )
    assert "Ray dashboard: http://127.0.0.1" in output
    folder = tmp_path / "lr_wd_aug"
    loaded = sweep.load(folder)
    assert loaded.trials["status"].tolist() == ["completed"] * 27
    assert len(loaded.metrics) == 270
    assert loaded.trials["best.val_accuracy"].max() > 0.93
    assert loaded.trials["node"].notna().all()
    metrics = str(folder / "metrics.parquet")
    assert len(pd.read_parquet(metrics)) == 270
    assert pl.read_parquet(metrics).height == 270
    assert duckdb.sql(f"select count(*) from '{metrics}'").fetchall() == [(270,)]


@pytest.mark.exhaustive
def test_interrupted_killed_and_resumed(tmp_path: Path) -> None:
    given = [
        "search_spaces/lr_wd_aug.yaml",
        "--results",
        str(tmp_path),
        "--run-cap",
        "4",
        "--set",
        "epochs=30",
    ]
    folder = ResultsFolder(tmp_path / "lr_wd_aug")
    process = start("run", *given)
    _wait_for_epochs(folder, 3)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=1500)
    assert process.returncode == 130
    assert errors.endswith(f"go on with: python -m sweep resume {folder.path}\n")
    process = start("resume", "lr_wd_aug", "--results", str(tmp_path))
    _wait_for_epochs(folder, 40)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=1500)
    time.sleep(4)  # a killed driver's local Ray is gone within three seconds
    process = start("resume", "lr_wd_aug", "--results", str(tmp_path))
    process.communicate(timeout=1500)
    assert process.returncode == 0
    loaded = sweep.load(folder.path)
    assert loaded.trials["status"].tolist() == ["completed"] * 4
    assert len(loaded.metrics) == 120
    assert not loaded.metrics.duplicated(["trial", "epoch"]).any()


def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    process = start(
        "run",
        "search_spaces/lr_wd_aug.yaml",
        "--results",
        str(tmp_path),
        "--set",
        "resources.gpus=64",
    )
    _, errors = process.communicate(timeout=1500)
    assert process.returncode == 2
    assert "resources.gpus: a trial takes 64, this machine has" in errors
    assert not (tmp_path / "lr_wd_aug").exists()


@pytest.mark.exhaustive
def test_simulated_gpus_mirror(tmp_path: Path) -> None:
    changes = [
        "--set",
        "resources.gpus=2",
        "--set",
        "epochs=2",
        "--run-cap",
        "2",
        "--simulate-gpus",
        "2",
    ]
    process = start("run", "search_spaces/lr_wd_aug.yaml", "--results", str(tmp_path), *changes)
    output, _ = process.communicate(timeout=1500)
    assert process.returncode == 0
    assert "rehearsal: 2 logical CPU devices" in output
    trials = sweep.load(tmp_path / "lr_wd_aug").trials
    assert trials["strategy"].tolist() == ["mirrored"] * 2
    assert trials["num_replicas"].tolist() == [2, 2]


def _wait_for_epochs(folder: ResultsFolder, count: int) -> None:
    until(
        lambda: folder.log.exists() and folder.log.read_text().count('"epoch_reported"') >= count,
        every_s=0.2,
    )
