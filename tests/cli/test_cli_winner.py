"""The winner of a real sweep: exported, loaded by somebody who has nothing of ours, and trained again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sweep.cli import main

pytestmark = [pytest.mark.keras, pytest.mark.slow]

FILE = """
name: digits
trainable: trainables.digits_cnn:DigitsCNN
method: grid
metric: {name: val_accuracy, goal: maximize}
parameters:
  learning_rate: {values: [1e-3, 1e-2]}
  dropout: {value: 0.1}
  augmentation: {value: low}
  ema_momentum: {value: 0.9}
  batch_size: {value: 64}
epochs: 2
"""
STRANGER = """
import json, sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sweep", "trainables"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nothing())
import keras, numpy as np, onnxruntime, tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
x, y = load_digits(return_X_y=True)
x = (x.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
_, x, _, y = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
served = tf.saved_model.load("out/saved_model").signatures["serving_default"]
session = onnxruntime.InferenceSession("out/model.onnx")
given = {
    "keras": keras.models.load_model("out/model.keras").predict(x, verbose=0),
    "saved_model": next(iter(served(inputs=tf.constant(x)).values())).numpy(),
    "onnx": session.run(None, {"inputs": x})[0],
}
assert all(predictions.dtype == np.float32 for predictions in given.values())
print(json.dumps({name: float((np.argmax(p, -1) == y).mean()) for name, p in given.items()}))
"""


def run(line: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stdout


def test_the_winner_in_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.yaml").write_text(FILE)
    run("run digits.yaml --inline -q")
    told = json.loads(run("best digits --export out --format keras,saved_model,onnx --json"))
    trial, reached = told["export"]["trial"], told["rows"][0]["scores"][0]["mean"]
    assert max(told["export"]["exported"]["differences"].values()) <= 1e-5
    assert told["export"]["exported"]["metrics"]["val_accuracy"] == pytest.approx(reached, abs=1e-9)

    done = subprocess.run(
        [sys.executable, "-c", STRANGER], capture_output=True, text=True, check=False, timeout=1500
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == dict.fromkeys(
        ("keras", "saved_model", "onnx"), pytest.approx(reached, abs=1e-6)
    )

    run("run out/sweep.yaml --inline -q --no-memo")
    (one,) = json.loads(run(f"compare digits-trial-{trial} --json"))["rows"]
    (again,) = one["trials"]
    (first,) = (t for t in told["rows"][0]["trials"] if t["trial"] == trial)
    assert (again["metrics"], again["params"], again["seed"]) == (
        first["metrics"],
        first["params"],
        first["seed"],
    )

    run("retrain digits --epochs 3 --seeds 2 --all-data --inline -q")
    (row,) = json.loads(run("best digits-retrain --export all --format keras --json"))["rows"]
    assert (row["epochs"], len(row["trials"]), row["scores"][0]["metric"]) == (3, 2, "accuracy")
    card = (tmp_path / "all" / "MODEL_CARD.md").read_text()
    assert "Trained on all data: nothing was held out" in card
    assert f"| `retrained from` | `digits, trial {trial}` |" in card
    assert "| `training` | `1,797 examples" in card
