"""What processes of `rank_processes` are told to do: trials of the zoo and of the matrix of equivalence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rank_processes import Here
from small import assignment, go_on, metrics
from splits import Split, ids
from test_equivalence import Weighted
from zoo_entries import ENTRIES

from sweep.contract import Assignment
from trainables.devices.placement import place
from trainables.keras_trainable import session_of


@dataclass
class Trained:
    """The metrics of all epochs, and the first replica's state by path."""

    metrics: list[dict[str, float]]
    state: dict[str, np.ndarray[Any, Any]]

    def equals(self, other: Trained) -> bool:
        """Bit for bit."""
        return (
            self.metrics == other.metrics
            and self.state.keys() == other.state.keys()
            and all(
                np.array_equal(value, other.state[path], equal_nan=True)
                for path, value in self.state.items()
            )
        )


def trained(here: Here, name: str, given: Assignment) -> Trained:
    """A trial of an entry of the zoo, or of the matrix, in a process that may have trained others."""
    trainable = _of(here, name)
    trainable.begin(here.of(given))
    return outcome(trainable, metrics(go_on(trainable)))


def begun(here: Here, name: str, given: Assignment, epochs: int, folder: Path) -> Trained:
    """The first epochs of a trial, saved by rank 0."""
    trainable = _of(here, name)
    trainable.begin(here.of(given))
    found = metrics(go_on(trainable, pause_after=epochs))
    if here.devices.ranks is None or here.devices.ranks.rank == 0:
        trainable.save(folder)()
    return outcome(trainable, found)


def resumed(here: Here, name: str, given: Assignment, folder: Path) -> Trained:
    """The rest of it."""
    trainable = _of(here, name)
    trainable.begin(here.of(given))
    trainable.restore(folder)
    return outcome(trainable, metrics(go_on(trainable)))


def goes_on_with(here: Here, folder: Path) -> tuple[int, set[int], bool]:
    """The epoch of a checkpoint of `Split`, the examples that it would train on next, and whether it can be tested."""
    place(here.devices)  # as other trials of this process have
    trainable = Split()
    trainable.begin(assignment())
    return (
        trainable.restore(folder),
        ids(session_of(trainable).trial.walk.data),
        trainable.test() is not None,
    )


def _of(here: Here, name: str) -> Any:
    kind = Weighted if name == "Weighted" else ENTRIES[name].trainable
    return here.kept.setdefault(name, kind())


def outcome(trainable: Any, found: list[dict[str, float]]) -> Trained:
    """What a trial that has trained has come to."""
    arrays = session_of(trainable).trial.program.state.copy_all()
    return Trained(found, {path: parts[0] for path, parts in arrays.items()})
