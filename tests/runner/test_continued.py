"""Trials that an earlier sweep has begun are gone on with, and come out as if they had been trained from the start."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from curves import Watcher, ends, resume, run

import sweep
from sweep.backends import checkpoints
from sweep.events import EpochReported, Event
from sweep.functions import load_trainable
from sweep.runner import Outcome
from sweep.store import log as store_log

TRAINABLE = '''
import json, random
from sweep.contract import EpochReported, Facts

TRAINED, DATA = [], []

class Walk:
    """A random walk of which each step hangs on all before."""
    def begin(self, assignment):
        self.given, self.done, self.place = assignment, 0, assignment.params["a"]
        self.rng = random.Random(assignment.seed)
    def train(self, report):
        while self.done < self.given.params.get("stop", self.given.epochs):
            self.done += 1
            self.place = 0.7 * self.place + 0.1 * self.rng.random()
            TRAINED.append((self.given.trial, self.done))
            metrics = {"score": self.place, "other": 1 - self.place}
            if not report(EpochReported(trial=0, epoch=self.done, metrics=metrics, time=0.0, time_s=0.1)):
                return
    def save(self, folder):
        (folder / "state.json").write_text(json.dumps([self.done, self.place, self.rng.getstate()]))
    def restore(self, folder):
        self.done, self.place, (version, state, gauss) = json.loads((folder / "state.json").read_text())
        self.rng.setstate((version, tuple(state), gauss))
        return self.done
    def facts(self):
        extends = self.given.params.get("lr_schedule") != "cosine"
        return Facts(extends=extends, data=DATA[0] if DATA else "one")
'''
FILE = """
name: short
trainable: stroll:Walk
method: grid
metric: {name: score, goal: minimize}
parameters: {a: {values: [3, 1, 2]}}
epochs: 3
"""
LONG = FILE.replace("short", "long").replace("epochs: 3", "epochs: 6")
ONE = LONG.replace("[3, 1, 2]", "[1]")


class Killed(BaseException):
    pass


class Killer(Watcher):
    """Ends the process, as it were, at an event."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def on(self, event: Event) -> None:
        super().on(event)
        if len(self.seen) == self.at:
            raise Killed


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "stroll.py").write_text(TRAINABLE)
    load_trainable("stroll:Walk", [tmp_path])
    trained()
    sys.modules["stroll"].DATA.clear()
    return tmp_path


def trained() -> list[tuple[int, int]]:
    """Trial and epoch of all that was trained since the last call."""
    told = list(sys.modules["stroll"].TRAINED)
    sys.modules["stroll"].TRAINED.clear()
    return told


def numbers(outcome: Outcome) -> list[tuple[int, int, object]]:
    reports = (
        event for event in store_log.read(outcome.folder.log) if isinstance(event, EpochReported)
    )
    return sorted((event.trial, event.epoch, event.metrics) for event in reports)


def taken(outcome: Outcome) -> dict[int, str]:
    """The trials that hold another sweep's epochs, and whose."""
    reports = (
        event for event in store_log.read(outcome.folder.log) if isinstance(event, EpochReported)
    )
    return {event.trial: event.memo for event in reports if event.memo}


def test_more_epochs_go_on_from_the_checkpoints(project: Path) -> None:
    run(project, FILE)
    trained()
    watcher = Watcher()
    long = run(project, LONG, watcher, memo=True)
    assert trained() == [(trial, epoch) for trial in range(3) for epoch in (4, 5, 6)]
    assert watcher.said == ["3 trials continued from short"]
    assert numbers(long) == numbers(run(project, LONG.replace("long", "plain")))


def test_checkpoints_that_are_taken_over_are_compared_with_the_constraints(project: Path) -> None:
    most = [
        text.replace("minimize", "maximize").replace("[3, 1, 2]", "[3]") for text in (FILE, LONG)
    ]
    run(project, most[0])
    long = run(project, most[1] + "constraints: [other > 0.2]\n", memo=True)
    assert set(taken(long).values()) == {"short/0"}
    assert numbers(long)[2][2]["other"] < 0.2 < numbers(long)[-1][2]["other"]
    # the third has more, and does not meet them
    assert checkpoints.list_names(long.folder.path, 0) == ["epoch-000006"]


def test_without_a_checkpoint_it_is_trained_anew(project: Path) -> None:
    short = run(project, FILE + "checkpoint: {trials: 1}\n")
    trained()
    watcher = Watcher()
    long = run(project, LONG, watcher, memo=True)
    assert [epoch for trial, epoch in trained() if trial == 1] == [4, 5, 6]
    assert watcher.said == [
        "trials of short that differ only in their number of epochs (3) cannot be continued to 6 and are trained "
        "again: their checkpoints were deleted; a sweep keeps only those of its best trials (checkpoint.trials)",
        "1 trial continued from short",
    ]
    assert numbers(long) == numbers(run(project, LONG.replace("long", "plain")))
    original = checkpoints.read_verified_manifest(short.folder.checkpoints / "00001/epoch-000003")
    assert original.reports[-1].memo is None  # the copy was given a manifest of its own
    trials = sweep.load(long.folder.path).trials
    assert [None if memo != memo else memo for memo in trials["memo"]] == [None, "short/1", None]
    assert trials["memo_epochs"].fillna(0).tolist() == [0, 3, 0]
    assert trials["status"].tolist() == ["completed"] * 3
    assert trials["train_s"].round(3).tolist() == [0.6, 0.3, 0.6]
    assert [path.name for path in (long.folder.checkpoints / "00001").iterdir()] == ["epoch-000006"]
    shutil.rmtree(project / "results" / "short")
    shutil.rmtree(project / "results" / "plain")  # the latest, which would answer
    trained()
    longer = run(
        project, ONE.replace("long", "longer").replace("epochs: 6", "epochs: 7"), memo=True
    )
    assert trained() == [(0, 7)]
    assert taken(longer) == {0: "long/1"}
    reports = [
        event for event in store_log.read(longer.folder.log) if isinstance(event, EpochReported)
    ]
    assert [event.memo for event in reports] == ["short/1"] * 3 + ["long/1"] * 3 + [None]


@pytest.mark.parametrize("memo", [True, False])
@pytest.mark.parametrize(("killed", "kept"), [(2, 2), (3, 2), (3, 3), (4, 4), (5, 5), (6, 6)])
def test_a_kill_at_any_moment_costs_nothing(
    project: Path, killed: int, kept: int, memo: bool
) -> None:
    """The events: 1 session, 2 trial, 3 to 5 taken over after the copy was made, 6 to 8 trained in a step."""
    run(project, FILE)
    with pytest.raises(Killed):
        run(project, ONE, Killer(killed), memo=True)
    log = project / "results" / "long" / "log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:kept]))
    shutil.rmtree(project / "results" / "short") if not memo else None
    trained()
    outcome = resume(project, name="long", memo=memo)
    began = not memo and killed == 2
    assert [epoch for _, epoch in trained()] == {6: []}.get(
        killed, list(range(1 if began else 4, 7))
    )
    assert numbers(outcome) == numbers(run(project, ONE.replace("long", "plain")))
    assert taken(outcome) == ({} if began else {0: "short/1"})


def test_a_rung_ends_it_before_anything_is_trained(project: Path) -> None:
    run(project, FILE.replace("[3, 1, 2]", "[1, 2]"))
    trained()
    rule = "early_terminate: {type: asha, min_iter: 1, eta: 2}\n"
    text = LONG.replace("[3, 1, 2]", "[0, 1]") + rule
    outcome = run(project, text, memo=True)
    assert trained() == [(0, epoch) for epoch in range(1, 7)]
    assert ends(outcome.folder) == {0: "completed", 1: "pruned"}
    assert [(trial, epoch) for trial, epoch, _ in numbers(outcome)][6:] == [(1, 1)]
    assert not (outcome.folder.checkpoints / "00001").exists()
    assert ends(run(project, text.replace("long", "plain")).folder) == ends(outcome.folder)


@pytest.mark.parametrize("data", ["one", "other"])
def test_other_data_leave_no_trace(project: Path, data: str) -> None:
    held = sys.modules["stroll"].DATA
    held[:] = ["one"]
    run(project, FILE)
    trained()
    held[:] = [data]
    outcome = run(project, ONE, memo=True)
    assert len(trained()) == (3 if data == "one" else 6)
    assert taken(outcome) == ({0: "short/1"} if data == "one" else {})
    assert numbers(outcome) == numbers(run(project, ONE.replace("long", "plain")))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            "lr_schedule: {value: cosine}",
            "what they did may depend on the number of epochs (lr_schedule is cosine)",
        ),
        ("stop: {value: 2}", "they ended early"),
    ],
)
def test_what_is_not_gone_on_with_is_told(project: Path, change: str, reason: str) -> None:
    run(project, FILE.replace("parameters: {", f"parameters: {{{change}, "))
    watcher = Watcher()
    outcome = run(
        project, LONG.replace("parameters: {", f"parameters: {{{change}, "), watcher, memo=True
    )
    (said,) = watcher.said
    assert said.endswith(f"(3) cannot be continued to 6 and are trained again: {reason}")
    assert taken(outcome) == {}


def test_a_damaged_checkpoint_is_left_alone(project: Path) -> None:
    short = run(project, FILE)
    (short.folder.checkpoints / "00001/epoch-000003/state.json").write_text("{")
    trained()
    watcher = Watcher()
    outcome = run(project, ONE, watcher, memo=True)
    assert len(trained()) == 6
    assert watcher.said[0].startswith("trial 0 is trained from its beginning: ")
    assert taken(outcome) == {}


def test_epochs_may_be_a_parameter(project: Path) -> None:
    def text(name: str, epochs: str) -> str:
        return ONE.replace("long", name).replace("a: {", f"epochs: {{values: {epochs}}}, a: {{")

    run(project, text("short", "[2, 4]"))
    trained()
    outcome = run(project, text("long", "[4, 6]"), memo=True)
    assert trained() == [(1, 5), (1, 6)]
    assert taken(outcome) == {0: "short/1", 1: "short/1"}


def test_what_is_taken_over_is_on_no_budget_and_judged_anew(project: Path) -> None:
    run(project, FILE)
    text = ONE.replace("score, goal: minimize", "other, goal: maximize") + "budget: {epochs: 4}\n"
    with pytest.raises(Killed):
        run(project, text, Killer(3), memo=True)
    copied = checkpoints.read_verified_manifest(
        project / "results/long/checkpoints/00000/epoch-000003"
    )
    assert copied.loss == -copied.reports[-1].metrics["other"]
    outcome = resume(project, name="long")
    assert (outcome.completed, outcome.stopped) == (1, None)


KERAS = """
import keras, numpy as np
from trainables.keras_trainable import KerasTrainable

class Tiny(KerasTrainable):
    def data(self, hp):
        x = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")
        return (x, x.argmax(axis=1)), (x, x.argmin(axis=1))
    def model(self, hp):
        hidden = keras.layers.Dense(8, activation="relu")
        return keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dropout(0.3), keras.layers.Dense(4)])
"""


@pytest.mark.keras
def test_a_keras_model_comes_out_bit_for_bit(project: Path) -> None:
    (project / "tiny.py").write_text(KERAS)

    def text(name: str, epochs: int) -> str:
        file = (
            FILE.replace("stroll:Walk", "tiny:Tiny")
            .replace("score", "val_loss")
            .replace("short", name)
        )
        schedule = (
            "lr_schedule: {value: plateau}, lr_patience: {value: 1}, learning_rate: {value: 0.1}"
        )
        return file.replace("a: {values: [3, 1, 2]}", schedule).replace(
            "epochs: 3", f"epochs: {epochs}"
        )

    run(project, text("short", 3))
    long, plain = run(project, text("long", 5), memo=True), run(project, text("plain", 5))
    assert taken(long) == {0: "short/0"}
    assert numbers(long) == numbers(plain)
    (held,), (expected,) = (
        [*outcome.folder.checkpoints.rglob("epoch-000005/state.npz")] for outcome in (long, plain)
    )
    with np.load(held) as arrays, np.load(expected) as others:
        assert arrays.files == others.files
        assert all(arrays[name].tobytes() == others[name].tobytes() for name in arrays.files)
