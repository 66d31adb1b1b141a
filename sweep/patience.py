"""The rule of ``training.patience``: how long a trial of any kind may train without a better objective."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sweep.events import Value

State: TypeAlias = dict[str, float | None]


@dataclass
class Plateau:
    """Counts the epochs since the objective was at its best."""

    maximize: bool
    best: float | None = None
    waited: int = 0

    def hear(self, value: float) -> None:
        """Count one epoch; NaN is no improvement."""
        better = self.best is None or (value > self.best if self.maximize else value < self.best)
        if better and not math.isnan(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1

    def state(self) -> State:
        """Return what a checkpoint must hold."""
        return {"best": self.best, "waited": self.waited}

    def restore(self, state: State) -> None:
        """Go on from a checkpoint."""
        self.best, self.waited = state["best"], int(state["waited"] or 0)


def is_exhausted(plateau: Plateau, training: Mapping[str, Value]) -> bool:
    """Return whether a trial has trained the epochs of ``training.patience`` without a better objective."""
    patience = training.get("patience")
    return isinstance(patience, int) and plateau.waited >= patience
