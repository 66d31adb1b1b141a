"""Rungs, checkpoints and resume within the first pass over the data, on a real Ray instance."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sweep
from sweep.events import EpochReported
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder

pytestmark = [pytest.mark.ray, pytest.mark.keras, pytest.mark.slow]

MODEL = """
import keras
import numpy as np
import tensorflow as tf

from trainables.keras_trainable import KerasTrainable


class Lines(KerasTrainable):
    def data(self, hp):
        x = np.random.default_rng(0).normal(size=(4000, 8)).astype("float32")
        y = (x[:, :3].argmax(axis=1)).astype("int32")
        return tf.data.Dataset.from_tensor_slices((x[:3600], y[:3600])), (x[3600:], y[3600:])

    def model(self, hp):
        body = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.1)]
        return keras.Sequential([keras.Input((8,)), *body, keras.layers.Dense(3)])

    def on_epoch_end(self, epoch, logs, model, hp):
        __import__("time").sleep(0.01)  # so that there is a middle
"""
FILE = """
name: lines
trainable: lines:Lines
method: random
metric: {name: val_loss, goal: minimize}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}
  batch_size: {value: 16}
  steps_per_epoch: {value: 2}
  validation_steps: {value: 1}
epochs: 81
run_cap: 6
max_restarts: 9
checkpoint: {every_s: 0.1}
early_terminate: {type: asha, min_iter: 3, eta: 3}
resources: {max_concurrent: 2}
"""  # a pass has 225 updates, a trial 162


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sweep", *arguments]
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=said, start_new_session=True
        )


@pytest.mark.exhaustive
def test_asha_prunes_within_a_pass_and_killed_trials_go_on_in_the_middle_of_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "lines.py").write_text(MODEL)
    (tmp_path / "lines.yaml").write_text(FILE)
    folder = ResultsFolder(tmp_path / "results" / "lines")
    driver = start(tmp_path, "run", "lines.yaml")
    deadline = time.monotonic() + 200
    while epochs(folder) < 20:
        assert driver.poll() is None, (tmp_path / "said").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    time.sleep(4)  # a killed driver's local Ray is gone within three seconds
    assert start(tmp_path, "resume", "lines").wait(1500) == 0, (tmp_path / "said").read_text()
    (tmp_path / "whole.yaml").write_text(FILE.replace("early_terminate: ", "# "))
    whole = start(tmp_path, "run", "whole.yaml", "--name", "whole", "--inline", "--no-memo")
    assert whole.wait(1500) == 0, (tmp_path / "said").read_text()
    found, expected = (sweep.load(tmp_path / "results" / name) for name in ("lines", "whole"))
    assert set(found.trials["status"]) == {"completed", "pruned"}
    pruned = found.trials[found.trials["status"] == "pruned"]
    assert set(pruned["epochs"]) <= {3, 9, 27}
    columns = ["metric.loss", "metric.val_loss", "metric.accuracy", "passes", "learning_rate"]
    rows, reference = (
        loaded.metrics.set_index(["trial", "epoch"])[columns] for loaded in (found, expected)
    )
    assert not rows.index.duplicated().any()
    assert rows.equals(reference.loc[rows.index])
    assert reference["passes"].max() == 162 / 225


def epochs(folder: ResultsFolder) -> int:
    if not folder.log.exists():
        return 0
    return sum(isinstance(event, EpochReported) for event in store_log.read_from(folder.log, 0)[0])
