"""Whatever a trial changes, wherever and whenever: the next one finds it as in a fresh process, or it is said."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import pytest
from sampling import sampled
from small import assignment

from sweep.backends import Ends, Job, Order
from sweep.backends.worker import Worker
from sweep.events import TrialEnded
from sweep.space.objectives import Objective
from trainables.state import author_globals

pytestmark = pytest.mark.keras

CARRIERS = [
    *(
        "number",
        "list",
        "dictionary",
        "set",
        "deque",
        "nested",
        "array",
        "another array",
        "class attribute",
    ),
    *(
        "class list",
        "nested class",
        "object",
        "namespace",
        "slots",
        "closure",
        "default",
        "function attribute",
    ),
    *(
        "cache",
        "cached result",
        "partial",
        "initializer",
        "optimizer",
        "metric",
        "variable",
        "random",
        "numpy",
    ),
    *(
        "keras seeds",
        "iterator",
        "os.environ",
        "umask",
        "recursion limit",
        "sys.path",
        "warnings",
        "logging",
    ),
    *("epsilon", "folder"),
]
MOMENTS = [
    *(
        "data",
        "model",
        "loss",
        "metrics",
        "optimizer",
        "augment",
        "schedule",
        "phases",
        "callbacks",
    ),
    *("on_train_begin", "on_epoch_begin", "on_epoch_end", "callback", "function"),
]


MODULES = {"Keeping": "keeping", "train": "keeping_function"}
"""By trainable, its module: what `data` of one leaves in a module stays, and the other would find it."""


class Project:
    """Two copies of `keeping.py`: a worker for the class of one, and one for the function of the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for module in MODULES.values():
            (folder / f"{module}.py").write_text(Path(__file__).with_name("keeping.py").read_text())
        self.cells = itertools.count()
        self.seeds = itertools.count(1)
        self.plan("", "")
        (folder / "results").mkdir()
        self.workers = {name: self.worker(name) for name in ("Keeping", "train")}
        self.modules: dict[str, Any] = {}

    def worker(self, name: str) -> Worker:
        objective = Objective("loss", "minimize")
        return Worker(
            Job("s", f"{MODULES[name]}:{name}", (self.folder,), self.folder / "results", objective)
        )

    def plan(self, moment: str, carrier: str) -> None:
        (self.folder / "plan.json").write_text(json.dumps({"moment": moment, "carrier": carrier}))

    def trial(self, cell: int, name: str) -> tuple[dict[str, list[Any]], TrialEnded]:
        """What a trial finds, by moment, and how it ends."""
        (self.folder / "looked.json").write_text("[]")
        sys.modules.update(self.modules)  # which a fixture of all tests has forgotten
        worker = self.workers[name]
        number = next(self.seeds)
        worker.take(
            Order(
                replace(assignment(epochs=2, seed=number, optimizer="sgd", cell=cell), trial=number)
            )
        )
        while not isinstance(last := worker.step(), Ends):
            pass
        self.modules[MODULES[name]] = sys.modules[MODULES[name]]
        found: dict[str, list[Any]] = {}
        for moment, looked in json.loads((self.folder / "looked.json").read_text()):
            found.setdefault(moment, []).append(looked)
        return found, last.end


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder, path = tmp_path_factory.mktemp("keeping"), list(sys.path)
    made = Project(folder)
    yield made
    for worker in made.workers.values():
        worker.close()
    sys.path[:] = path
    for module in MODULES.values():
        sys.modules.pop(module, None)


CELLS = [(carrier, moment) for carrier in CARRIERS for moment in MOMENTS]


@pytest.mark.parametrize(("carrier", "moment"), sampled(CELLS, 15, several=True))
def test_the_next_trial_finds_what_the_first_one_found(
    carrier: str, moment: str, project: Project
) -> None:
    project.plan(moment, carrier)
    outside = os.getcwd(), os.environ.get("KEEPING"), sys.getrecursionlimit()  # noqa: PTH109  # as it stands in the process
    cell, name = next(project.cells), "train" if moment == "function" else "Keeping"
    first, end = project.trial(cell, name)
    again, ended = project.trial(cell, name)
    assert outside == (os.getcwd(), os.environ.get("KEEPING"), sys.getrecursionlimit())  # noqa: PTH109  # as it stands in the process
    if end.status != "completed":  # refused, in a fresh process as in a used one
        assert (end.status, end.reason) == (ended.status, ended.reason)
        assert "has changed" in end.reason or "has set" in end.reason
        return
    assert ended.status == "completed", ended.error
    assert end.facts.reproducible, end.facts.numerics
    assert {"schedule", "callbacks", "callback", "on_epoch_end"} <= {*again} or moment == "function"
    for at, looks in again.items():
        assert looks == first[at], at
    if (
        moment in ("on_epoch_begin", "on_epoch_end", "callback", "function")
        and "cache" not in carrier
    ):
        # it does change something, which stays in the trial
        assert first[moment][0] != first[moment][1]


def test_what_is_found_again_is_what_a_fresh_process_has(project: Project) -> None:
    project.plan("", "")
    first, _ = project.trial(next(project.cells), "Keeping")
    del sys.modules["keeping"]
    project.modules.clear()
    project.workers = {name: project.worker(name) for name in project.workers}
    fresh, _ = project.trial(next(project.cells), "Keeping")
    for at, looks in first.items():
        assert looks == fresh[at], at


@pytest.fixture
def epsilon() -> Iterator[None]:
    before = keras.config.epsilon()
    yield
    keras.config.set_epsilon(before)


@pytest.mark.usefixtures("epsilon")
def test_hooks_go_on_with_what_they_have_left_when_their_trial_is_resumed_elsewhere(
    project: Project, tmp_path: Path
) -> None:
    """Plain values are in checkpoints; of all others it is said that they are lost."""
    for carrier, known in (
        ("number", True),
        ("nested", True),
        ("numpy", True),
        ("epsilon", True),
        ("set", False),
    ):
        project.plan("on_epoch_end", carrier)
        straight, _ = project.trial(next(project.cells), "Keeping")
        given = assignment(epochs=2, optimizer="sgd", cell=next(project.cells))
        (folder := tmp_path / carrier).mkdir()
        worker = project.workers["Keeping"]
        worker.release()
        trainable: Any = worker.trainable
        with worker.surroundings.inside():
            trainable.begin(given)
            trainable.train(lambda epoch: False)
            trainable.save(folder)()
            author_globals.end_trial()
        elsewhere = project.worker("Keeping")
        other: Any = elsewhere.trainable
        with elsewhere.surroundings.inside():
            other.begin(given)
            other.restore(folder)
            (project.folder / "looked.json").write_text("[]")
            other.train(lambda epoch: True)
            found = dict(json.loads((project.folder / "looked.json").read_text()))
            facts = other.facts()
            author_globals.end_trial()
        if known:
            assert found["on_epoch_end"] == straight["on_epoch_end"][1]
            assert facts.reproducible
        else:
            assert not facts.reproducible
            assert facts.numerics["differs"].startswith(
                "keeping.SET, changed by hooks or callbacks, is no plain value"
            )
