"""The page about other backends of Keras: its example runs on JAX, and goes on from its checkpoints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import sweep
from sweep.runner import checking
from sweep.spec import load_spec

PAGE = (Path(__file__).parents[1] / "docs" / "other_backends.md").read_text()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page, in the current folder."""
    (tmp_path / "digits_on_jax.py").write_text(
        re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    )
    (tmp_path / "digits.yaml").write_text(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_is_accepted_also_with_folds(project: Path) -> None:
    for change in ((), ("folds=5",)):
        checking.check_trainable(
            load_spec(project / "digits.yaml", change), "digits.yaml", [project]
        )


def run(*arguments: str) -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "sweep", *arguments, "--inline"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_the_example_trains_on_jax_and_goes_on_as_if_it_had_not_stopped(project: Path) -> None:
    changes = [
        "--set",
        "run_cap=2",
        "--set",
        "early_terminate=null",
        "--set",
        "checkpoint.every_s=0",
    ]
    run("run", "digits.yaml", "--name", "whole", *changes)
    whole = sweep.load("whole")
    assert list(whole.trials["status"]) == ["completed", "completed"]
    assert whole.trials["objective"].max() > 0.8

    run("run", "digits.yaml", "--name", "folded", "--set", "epochs=1", "--set", "folds=2", *changes)
    assert list(sweep.load("folded").trials["fold"]) == [0, 1, 0, 1]

    train_in_two_parts = """
import sys
from pathlib import Path
from sweep.contract import Assignment
from sweep.functions import FunctionTrainable
import digits_on_jax, json, keras
assert keras.config.backend() == "jax"
params, folder = json.loads(sys.argv[1]), Path("half")
folder.mkdir()
given = Assignment(trial=0, params=params, seed=0, epochs=6, objective="val_accuracy", maximize=True)
first, second = FunctionTrainable(digits_on_jax.train), FunctionTrainable(digits_on_jax.train)
seen = []
first.begin(given)
first.train(lambda epoch: seen.append(epoch) or epoch.epoch < 3)
first.save(folder)
first.end_trial()
second.begin(given)
assert second.restore(folder) == 3
second.train(lambda epoch: seen.append(epoch) or epoch.epoch < 6)
second.end_trial()
print(json.dumps([epoch.metrics["val_loss"] for epoch in seen]))
"""
    params = {
        name: whole.trials.iloc[0][f"param.{name}"].item() for name in ("learning_rate", "units")
    }
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", train_in_two_parts, json.dumps(params)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    metrics = whole.metrics
    uninterrupted = list(metrics[metrics["trial"] == 0]["metric.val_loss"])
    assert json.loads(ran.stdout.splitlines()[-1]) == pytest.approx(uninterrupted, rel=1e-6)
