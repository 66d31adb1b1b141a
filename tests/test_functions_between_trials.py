"""What a function changes for the whole process, or keeps in its modules, is not there in the next trial of its worker.

What of the process classes change is in `tests/trainables/state/test_between_trials.py`, with a function beside them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.backends import Ends, Job, Order, WorkerNode
from sweep.backends.worker import Worker
from sweep.contract import Assignment
from sweep.events import EpochReported, TrialEnded
from sweep.functions import load_trainable
from sweep.space.objectives import Objective

SWITCHES = """
import os, sys, keras, tensorflow as tf
HISTORY, STREAM = [], (number for number in range(100))
def train(hp, report):
    if hp.changes:
        keras.config.set_floatx("float64")
        keras.config.set_image_data_format("channels_first")
        keras.config.set_dtype_policy("mixed_float16")
        tf.config.run_functions_eagerly(True)
        os.environ.pop("HOME", None)
    HISTORY.append(1)
    report(
        floatx=float(keras.config.floatx() == "float64"),
        first=float(keras.config.image_data_format() == "channels_first"),
        policy=float(keras.config.dtype_policy().name == "mixed_float16"),
        eager=float(tf.config.functions_run_eagerly()),
        home=float("HOME" in os.environ),
        history=len(HISTORY),
    )
def goes_on(hp, report):
    report(loss=next(STREAM))
"""


@pytest.fixture
def worker_of(tmp_path: Path) -> Iterator[Any]:
    made: list[Worker] = []

    def make(text: str, name: str = "train", *, alone: bool = False, seed: int = 0) -> Worker:
        (tmp_path / "some_function.py").write_text(text)
        sys.modules.pop("some_function", None)
        job = Job(
            "s",
            f"some_function:{name}",
            (tmp_path,),
            tmp_path,
            Objective("loss", "minimize"),
            data_seed=seed,
        )
        made.append(Worker(job, node=WorkerNode() if alone else None))
        return made[-1]

    here = Path.cwd()
    yield make
    for worker in made:
        worker.close()
    os.chdir(here)


def trial(worker: Worker, number: int, **params: Any) -> tuple[dict[str, float], TrialEnded, Any]:
    worker.take(
        Order(
            Assignment(
                trial=number, params=params, seed=0, epochs=1, data_seed=worker.job.data_seed
            )
        )
    )
    epochs: list[EpochReported] = []
    while True:
        progress = worker.step()
        epochs += progress.epochs
        if isinstance(progress, Ends):
            return dict(epochs[0].metrics), progress.end, progress


@pytest.mark.keras
@pytest.mark.parametrize("alone", [False, True], ids=["with its caller", "alone"])
def test_switches_of_keras_and_tensorflow_are_those_of_the_first_trial(
    worker_of: Any, alone: bool
) -> None:
    import keras

    worker = worker_of(SWITCHES, alone=alone)
    home = "HOME" in os.environ
    usual = {
        "floatx": 0.0,
        "first": 0.0,
        "policy": 0.0,
        "eager": 0.0,
        "home": float(home),
        "history": 1.0,
    }
    assert trial(worker, 0, changes=False)[0] == usual
    assert trial(worker, 1, changes=True)[0] == {**dict.fromkeys(usual, 1.0), "home": 0.0}
    assert (keras.config.floatx(), "HOME" in os.environ) == ("float32", home)
    assert trial(worker, 2, changes=False)[0] == usual


@pytest.mark.keras
def test_what_was_collected_in_a_module_is_told_to_be_put_back(worker_of: Any) -> None:
    worker = worker_of(SWITCHES)
    trial(worker, 0, changes=False)
    # for whoever is in this process to look at
    assert len(sys.modules["some_function"].HISTORY) == 1
    progress = trial(worker, 1, changes=False)[2]
    assert progress.notices == (
        "some_function.HISTORY, which a trial has changed, is as before for the next one: trials share nothing "
        "(docs/limits.md)",
    )


@pytest.mark.keras
def test_what_was_collected_in_a_class_is_told_by_its_full_name(worker_of: Any) -> None:
    worker = worker_of(
        "class Seen:\n    values = []\n\n"
        "def train(hp, report):\n    Seen.values.append(1)\n    report(loss=len(Seen.values))\n"
    )
    trial(worker, 0, changes=False)
    assert any(
        "some_function.Seen.values" in notice
        for notice in trial(worker, 1, changes=False)[2].notices
    )


@pytest.mark.keras
def test_what_cannot_be_put_back_is_said_and_replaces_a_worker(
    worker_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.state import trials

    monkeypatch.setattr(trials, "resisting", set())
    said = "some_function.STREAM, changed by an earlier trial, cannot be put back"
    worker = worker_of(SWITCHES, "goes_on")
    first, second = trial(worker, 0), trial(worker, 1)
    assert [first[0], second[0]] == [{"loss": 0.0}, {"loss": 1.0}]
    assert first[1].facts.reproducible
    assert (second[1].facts.reproducible, second[1].facts.numerics) == (False, {"differs": said})
    monkeypatch.setattr(trials, "resisting", set())
    assert trial(worker_of(SWITCHES, "goes_on", alone=True), 0)[2].spoilt == said


DRAWING = """
import random, secrets, numpy as np
A, B, C = random.random(), float(np.random.normal()), float(np.random.default_rng().normal())
def train(hp, report):
    report(a=A, b=B, c=C)
"""
MACHINE = DRAWING + "D = secrets.randbits(8)\n"


def test_what_a_module_draws_when_it_is_imported_follows_the_sweeps_seed(worker_of: Any) -> None:
    found = []
    for seed in (0, 0, 1):
        random.random(), np.random.random()  # elsewhere other code has drawn before
        metrics, end, _ = trial(worker_of(DRAWING, seed=seed), 0)
        assert end.facts.reproducible
        found.append(metrics)
    assert found[0] == found[1]
    assert all(found[0][name] != found[2][name] for name in "abc")
    job = worker_of(DRAWING, seed=3).job
    # as for another sweep of this process
    load_trainable(job.trainable, job.import_folders, seed=4)
    other = Worker(job)
    _, end, _ = trial(other, 0)
    other.close()
    assert not end.facts.reproducible
    assert "was imported under seed 4 in this process" in end.facts.numerics["differs"]


TENSORFLOW = """
import keras, tensorflow as tf
A, B = float(tf.random.normal(())), float(keras.random.normal((), seed=keras.random.SeedGenerator()))
def train(hp, report):
    report(a=A, b=B)
"""


@pytest.mark.keras
def test_what_a_module_draws_by_tensorflow_when_it_is_imported_follows_the_sweeps_seed(
    worker_of: Any, tmp_path: Path
) -> None:
    import tensorflow as tf

    tf.random.set_seed(3)
    expected = [float(tf.random.normal(())) for _ in range(2)]
    tf.random.set_seed(3)
    drawn = [float(tf.random.normal(()))]
    found = [trial(worker_of(TENSORFLOW, seed=seed), 0)[0] for seed in (0, 1)]
    assert all(found[0][name] != found[1][name] for name in "ab")
    # others go on as if nothing had been drawn
    assert [
        *drawn,
        float(tf.random.normal(())),
    ] == expected
    code = (
        "from sweep.functions import load_trainable; load_trainable('some_function:train', ['.'], seed=0);"
        "import some_function; print(some_function.A, some_function.B)"
    )
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert [float(word) for word in told.split()] == [found[0]["a"], found[0]["b"]]


def test_what_a_module_takes_from_the_machine_is_told_with_its_line(worker_of: Any) -> None:
    _, end, _ = trial(worker_of(MACHINE), 0)
    assert not end.facts.reproducible
    assert (
        end.facts.numerics["differs"]
        == "some_function.py:6 draws from the machine when some_function is imported"
    )


def test_modules_that_are_imported_later_draw_the_same(worker_of: Any, tmp_path: Path) -> None:
    (tmp_path / "some_later.py").write_text("import random\nDRAWN = random.random()\n")
    body = "    import some_later\n    report(a=some_later.DRAWN, b=random.random())\n"
    text = f"import random\ndef train(hp, report):\n{body}"
    found = []
    for _ in range(2):
        worker = worker_of(text)
        sys.modules.pop("some_later", None)
        found += [trial(worker, 0)[0], trial(worker, 1)[0]]
    assert found == [found[0]] * 4  # the import is no part of what the trial draws


KEEPING = """
import functools
@functools.cache
def known(key):
    return []
def more(seen=[]):
    seen.append(1)
    return len(seen)
def train(hp, report):
    known(1).append(1)
    report(a=more(), b=len(known(1)))
"""


def test_defaults_and_caches_of_functions_are_as_before(worker_of: Any) -> None:
    worker = worker_of(KEEPING)
    assert [trial(worker, number)[0] for number in range(3)] == [{"a": 1.0, "b": 1.0}] * 3


BY_HAND = """
import importlib.util
import sys
from pathlib import Path

def loaded():
    if "some_plugin" not in sys.modules:
        spec = importlib.util.spec_from_file_location("some_plugin", Path(__file__).with_name("some_plugin.py"))
        sys.modules["some_plugin"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["some_plugin"])
    return sys.modules["some_plugin"]

def train(hp, report):
    report(a=loaded().make())
"""


def test_a_module_that_a_trial_loads_by_hand_is_loaded_again_by_the_next_one(
    worker_of: Any, tmp_path: Path
) -> None:
    (tmp_path / "some_plugin.py").write_text(
        "MADE = []\ndef make():\n    MADE.append(1)\n    return len(MADE)\n"
    )
    worker = worker_of(BY_HAND)
    try:
        assert [trial(worker, number)[0] for number in range(3)] == [{"a": 1.0}] * 3
    finally:
        sys.modules.pop("some_plugin", None)


NESTED = """
class Settings:
    def __init__(self, inner):
        self.inner = inner
        self.used = 0

SETTINGS = Settings(Settings(Settings(Settings(Settings(Settings(None))))))

def train(hp, report):
    innermost = SETTINGS.inner.inner.inner.inner.inner
    innermost.used += 1
    report(a=innermost.used)
"""


def test_settings_within_settings_are_put_back_and_change_nothing_by_themselves(
    worker_of: Any,
) -> None:
    worker = worker_of(NESTED)
    for number in range(3):
        metrics, end, _ = trial(worker, number)
        assert metrics == {"a": 1.0}
        assert end.facts.reproducible
