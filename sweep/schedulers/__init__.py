"""The contract of all schedulers, and of those that let trials pause; why trials end early, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from sweep.events import Event
from sweep.space.objectives import INFEASIBLE, Objective


class Scheduler(Protocol):
    """Decides which trials are stopped early.

    Its state is a function of the events observed, in their order: replaying a log restores its rungs.
    """

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which a trial of ``epochs`` epochs can be stopped, ascending."""

    def observe(self, event: Event) -> str | None:
        """Learn from an event; for a reported epoch, the reason to prune its trial, or None."""


@runtime_checkable
class Pausing(Protocol):
    """Lets trials pause at its decision epochs, saved, and says which of them go on: a scheduler, or a population.

    What it says follows from the events observed, so that it says the same after a kill. Trials are named by their
    numbers in the search.
    """

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which a trial of ``epochs`` epochs is saved and may pause, ascending."""

    def holds(self, trial: int) -> str | None:
        """Return why a trial pauses where it is, in one line; None for one that is to train on."""

    def last(self) -> int | None:
        """Return which trial that pauses trains on although it is held, for none trains and none is left to start."""

    def dropped(self, *, rest: bool) -> Mapping[int, str]:
        """Return the trials that pause and never train on, and why; ``rest``: none trains, and `last` has none."""


Factory: TypeAlias = Callable[[Objective, int], Scheduler]
"""What ``early_terminate: module:Name`` names: makes a scheduler of the first objective and the epochs of a trial.

The objective has the other ones of the sweep as its ``others``.
"""


def describe_reason(rule: str, objective: Objective, loss: float, epoch: int, cutoff: float) -> str:
    """For example: ``asha: val_accuracy 0.61 at epoch 3 below the cutoff 0.88``; the cutoff is a loss as well."""
    side = "below" if objective.maximize else "above"
    if loss >= INFEASIBLE:
        return f"{rule}: constraints not met at epoch {epoch}, and nearer to it by others"
    value, bound = objective.of_loss(loss), objective.of_loss(cutoff)
    return f"{rule}: {objective.name} {value:.6g} at epoch {epoch} {side} the cutoff {bound:.6g}"


def describe_standing(rule: str, objective: Objective, loss: float, epoch: int) -> str:
    """For example: ``pasha: val_accuracy 0.61 at epoch 3``."""
    if loss >= INFEASIBLE:
        return f"{rule}: constraints not met at epoch {epoch}"
    return f"{rule}: {objective.name} {objective.of_loss(loss):.6g} at epoch {epoch}"
