"""The rule of ``training.patience``: how many epochs a trial may train without a better objective."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sweep.events import Value

State: TypeAlias = dict[str, float | None]


@dataclass
class Plateau:
    """Counts the epochs in which the objective has not improved."""

    maximize: bool  # whether a larger objective is better
    best: float | None = None  # best objective so far
    waited: int = 0  # epochs since it was reached

    def count_epoch(self, value: float) -> None:
        """Count an epoch in which the objective is ``value``, which becomes `best` if it is better.

        `waited` becomes 0 then, and is one more otherwise. The first value is better than none; NaN never is, and a
        value that equals `best` is not.
        """
        if self.best is None:
            is_better = True
        elif self.maximize:
            is_better = value > self.best
        else:
            is_better = value < self.best
        if is_better and not math.isnan(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1

    def state(self) -> State:
        """Return the counter's `best` and `waited` by these names, to be saved in a checkpoint."""
        return {"best": self.best, "waited": self.waited}

    def restore(self, state: State) -> None:
        """Set `best` and `waited` to those of a ``state`` from a checkpoint; `maximize` stays as it is."""
        self.best = state["best"]
        self.waited = int(state["waited"] or 0)


def is_exhausted(plateau: Plateau, training: Mapping[str, Value]) -> bool:
    """Return whether the objective has not improved for ``training.patience`` epochs or more; False without that key.

    ``training`` has the keys of that block of the sweep file. A patience that is not a whole number counts as none.
    """
    patience = training.get("patience")
    return isinstance(patience, int) and plateau.waited >= patience
