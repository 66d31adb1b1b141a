"""Where a sweep stands, in the few numbers that dashboards show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """As of now; None where nobody knows yet."""

    trials: Mapping[str, int]  # by status, each of them
    total: int | None  # trials, where their number is known
    epochs: int  # trained, of all sessions
    epochs_per_s: float
    metric: str  # the first objective
    goal: str
    best: float | None = None  # of the trials that completed
    best_trials: tuple[int, ...] = ()  # several where it is the mean of repeats
    left_s: float | None = None  # an estimate

    @property
    def finished(self) -> int:
        """Trials that ended for good."""
        return sum(count for status, count in self.trials.items() if status != "running")
