"""The protocols of searchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from sweep.events import Event, Params
from sweep.space import Space
from sweep.space.objectives import Objective
from sweep.store.ledger import TrialState


class Searcher(Protocol):
    """Chooses the hyperparameters of each trial.

    A suggestion depends only on the seed, the trial's number, the earlier trials that were learned from and the events
    observed so far. A searcher that learns and observes the same again therefore suggests the same.
    """

    @property
    def foresees(self) -> bool:
        """True if suggestions do not depend on events, so that trials may be suggested and started in any order."""

    def learn(self, past: Iterable[TrialState]) -> int:
        """Learn from ended trials of other sweeps, before any event; return how many of them are used.

        ``past`` comes from `sweep.store.ledger.list_ended_trials` and must be the same in every session. Trials outside
        of the searcher's space (`Space.adopt`) are ignored, as are completed and pruned ones without a finite value of
        an objective. A method that does not learn from results ignores all trials. The configurations of ``past`` may
        be suggested again.
        """

    def suggest(self, number: int) -> Params | None:
        """Return the parameters of trial ``number``, or None if there is nothing to suggest.

        For a trial that has started, they are the ones it started with. There is nothing to suggest if the space is
        exhausted or, in a population, if no copy is due. Calling this has no effect on other suggestions.
        """

    def observe(self, event: Event) -> None:
        """Learn from a trial's start, a reported epoch, or a trial's interruption or end; ignore other events.

        Searchers that keep a `Ledger` raise `OutOfOrder` for an event that cannot follow the events before it.
        """


@runtime_checkable
class SpaceChanging(Protocol):
    """A searcher that can continue in another space, which has the same parameters with other values.

    Later suggestions depend also on the position of the change among the events.
    """

    def change_space(self, space: Space) -> None:
        """Suggest points of ``space`` from now on. Trials that have started keep their parameters."""


@runtime_checkable
class Queueing(Protocol):
    """A searcher that can suggest configurations that a person has enqueued; all but populations can."""

    def enqueue(self, configurations: Sequence[Params]) -> None:
        """Suggest ``configurations`` next, after those that were enqueued earlier.

        They must not have started, nor wait since an earlier call. Later points that equal one of them are left out.
        When the space changes, enqueued configurations that have not started and lie outside of the new space are
        dropped.
        """


Factory: TypeAlias = Callable[[Space, tuple[Objective, ...], int], Searcher]
"""Type of the callable that ``method: module:Name`` names; it gets the space, the objectives and the seed."""
