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

    maximize: bool
    best: float | None = None
    waited: int = 0

    def count_epoch(self, value: float) -> None:
        """Count an epoch in which the objective is ``value``; `waited` becomes 0 if that is better than `best`.

        The first value is better than none; NaN never is.
        """
        better = self.best is None or (value > self.best if self.maximize else value < self.best)
        if better and not math.isnan(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1

    def state(self) -> State:
        """Return the counter's state, to be saved in a checkpoint."""
        return {"best": self.best, "waited": self.waited}

    def restore(self, state: State) -> None:
        """Set the counter to a state from a checkpoint."""
        self.best = state["best"]
        self.waited = int(state["waited"] or 0)


def is_exhausted(plateau: Plateau, training: Mapping[str, Value]) -> bool:
    """Return whether the objective has not improved for ``training.patience`` epochs; False without that key."""
    patience = training.get("patience")
    return isinstance(patience, int) and plateau.waited >= patience
