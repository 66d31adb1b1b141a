"""The contract of all schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from sweep.events import Event
from sweep.space.objectives import Objective


class Scheduler(Protocol):
    """Decides which trials are stopped early.

    Its state is a function of the events observed, in their order: replaying a log restores its rungs.
    """

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which a trial of ``epochs`` epochs can be stopped, ascending."""

    def observe(self, event: Event) -> str | None:
        """Learn from an event; for a reported epoch, the reason to prune its trial, or None."""


Factory: TypeAlias = Callable[[Objective, int], Scheduler]
"""What ``early_terminate: module:Name`` names: makes a scheduler of the first objective and the epochs of a trial."""
