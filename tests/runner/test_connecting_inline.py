"""Trials in the process of whoever runs a sweep: his terminal is his."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sampling import sampled

pytestmark = pytest.mark.keras

TRAINABLE = """
import numpy as np
import tensorflow as tf
import keras
from trainables.keras_trainable import KerasTrainable


class Loud(KerasTrainable):
    def data(self, hp):
        x = np.arange(40, dtype=np.float32).reshape(20, 2)
        return (x, x), (x, x)

    def model(self, hp):
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])

    def on_epoch_end(self, epoch, logs, model, hp):
        traced = tf.function(lambda number: tf.zeros([]) + number)
        for number in range(9):
            traced(number)  # of which TensorFlow warns
"""
SCRIPT = """
import sys
import sweep
{imports}
print("the run begins", file=sys.stderr, flush=True)  # what TensorFlow says as a script imports it comes before
if __name__ == "__main__":
    spec = {{"method": "grid", "parameters": {{"learning_rate": {{"values": [0.1, 0.2]}}}}, "epochs": 2,
            "metric": {{"name": "val_loss", "goal": "minimize"}}}}
    done = sweep.run(spec, trainable={trainable}, name="loud", inline=True)
    print(len(done.trials), "trials")
"""
FILE = (
    "trainable: loud:Loud\nmethod: grid\nepochs: 2\nparameters: {learning_rate: {values: [0.1]}}\n"
)
OF_TENSORFLOW = ("retracing", "tensorflow", "oneDNN", "absl", "I0000", "W0000", "E0000", "cuda")


def said(folder: Path, *command: str) -> tuple[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment = {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(folder)]),
    }
    (folder / "loud.py").write_text(TRAINABLE)
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", sampled(["the command", "a class", "a name"], 1))
def test_nothing_of_tensorflow_reaches_the_terminal(way: str, tmp_path: Path) -> None:
    if way == "the command":
        (tmp_path / "loud.yaml").write_text(FILE)
        told = said(tmp_path, "-m", "sweep", "run", "loud.yaml", "--inline")
    else:
        by_name = way == "a name"
        imports, trainable = ("", '"loud:Loud"') if by_name else ("from loud import Loud", "Loud")
        (tmp_path / "main.py").write_text(SCRIPT.format(imports=imports, trainable=trainable))
        told = said(tmp_path, "main.py")
        assert "2 trials" in told[0]
    for stream in told:
        assert [
            word for word in OF_TENSORFLOW if word in stream.rpartition("the run begins")[2]
        ] == [], stream
