"""How a population trains: its size, its generations, and what is replaced."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a population trains."""

    size: int
    interval: int  # epochs of a generation
    epochs: int  # of the whole training
    quantile: float = 0.25  # the share that is replaced at the end of a generation
    resample: float = 0.25  # the chance of a value drawn anew in place of one that is moved
    perturb: tuple[str, ...] = ()  # the parameters that are moved; of none, all numbers

    @property
    def replaced(self) -> int:
        """How many members a generation replaces."""
        return min(max(math.floor(self.size * self.quantile), 1), self.size // 2)

    @property
    def most_trials(self) -> int:
        """Trials there can be, unless members fail."""
        return self.size + self.replaced * len(self.ends())

    def ends(self) -> tuple[int, ...]:
        """Return the epochs at which generations end, but for the last."""
        return tuple(range(self.interval, self.epochs, self.interval))
