"""The protocols of schedulers, and the texts that say why trials end early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from sweep.events import Event
from sweep.space.objectives import INFEASIBLE, Objective


class Scheduler(Protocol):
    """Decides which trials are stopped early.

    Its state depends only on the observed events and their order, so that replaying a log restores it.
    """

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which a trial of ``epochs`` epochs can be stopped, in ascending order.

        They are empty for a scheduler that stops no trial.
        """

    def observe(self, event: Event) -> str | None:
        """Update the state by an event; return why its trial must be pruned, in one line, or None.

        Only an event that reports an epoch can have a reason.
        """


@runtime_checkable
class Pausing(Protocol):
    """A scheduler or a population that pauses trials at its decision epochs and decides which of them continue.

    Paused trials are saved in checkpoints. Its answers depend only on the observed events, so they are the same after a
    kill. Trials are identified by their numbers in the search.
    """

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which a trial of ``epochs`` epochs is saved and may pause, in ascending order."""

    def holds(self, trial: int) -> str | None:
        """Return why a trial must pause at its present epoch, in one line; None if it may continue or is unknown."""

    def last(self) -> int | None:
        """Return the paused trial to resume when no other is running or left to start; None if none should resume."""

    def dropped(self, *, rest: bool) -> Mapping[int, str]:
        """Return the paused trials that will never continue, each with the reason in one line.

        ``rest`` tells that no trial is running and `last` has returned None, so that all paused trials are to end.
        Without it, most schedulers return an empty mapping, as any of their paused trials may still continue.
        """


Factory: TypeAlias = Callable[[Objective, int], Scheduler]
"""Type of the callable that ``early_terminate: module:Name`` names; it gets the first objective and a trial's epochs.

The objective has the other objectives of the sweep as its ``others``.
"""


def describe_reason(rule: str, objective: Objective, loss: float, epoch: int, cutoff: float) -> str:
    """Return why a trial is pruned, such as ``asha: val_accuracy 0.61 at epoch 3 below the cutoff 0.88``.

    ``rule`` is the name of the rule. ``loss`` and ``cutoff`` are losses, of which lower is better, and the trial's is
    above the cutoff; the text has the metric's values. If ``loss`` encodes violated constraints (`INFEASIBLE`), the
    text says that these are not met instead, and has no value.
    """
    if loss >= INFEASIBLE:
        return f"{rule}: constraints not met at epoch {epoch}, and nearer to it by others"
    # of the cutoff the trial is; a high loss is a low value of a metric that is maximized
    side = "below" if objective.maximize else "above"
    value = objective.from_loss(loss)
    bound = objective.from_loss(cutoff)
    return f"{rule}: {objective.name} {value:.6g} at epoch {epoch} {side} the cutoff {bound:.6g}"


def describe_standing(rule: str, objective: Objective, loss: float, epoch: int) -> str:
    """Return a rule and a trial's value at an epoch as text, such as ``pasha: val_accuracy 0.61 at epoch 3``.

    ``rule`` is the name of the rule. ``loss`` is the loss, of which lower is better; the text has the metric's value,
    or says that the constraints are not met.
    """
    if loss >= INFEASIBLE:
        return f"{rule}: constraints not met at epoch {epoch}"
    return f"{rule}: {objective.name} {objective.from_loss(loss):.6g} at epoch {epoch}"
