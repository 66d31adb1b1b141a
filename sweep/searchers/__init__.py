"""The contract of all searchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from sweep.events import Event, Params
from sweep.space import Space
from sweep.space.objectives import Objective
from sweep.store.ledger import TrialState


class Searcher(Protocol):
    """Chooses the hyperparameters of each trial.

    A suggestion depends on the seed, the trial's number, the earlier sweeps learned from and the events
    observed so far and on nothing else: who learns and observes the same again, suggests the same.
    """

    @property
    def foresees(self) -> bool:
        """Whether suggestions depend on no event: then they may be asked for, and their trials start, in any order."""

    def learn(self, past: Iterable[TrialState]) -> int:
        """Learn from ended trials of other sweeps, before any event; returns how many of these count.

        Get them out of another sweep's log with `sweep.store.ledger.list_ended_trials`, the same ones in every session.
        Only those that lie in this space count (`Space.adopt`), and none for a method that learns from no result.
        Their configurations may be suggested again.
        """

    def suggest(self, number: int) -> Params | None:
        """Parameters for trial ``number``; None when the space is exhausted. Changes no state."""

    def observe(self, event: Event) -> None:
        """Learn from a started trial, a reported epoch, an ended trial; ignore the rest."""


Factory: TypeAlias = Callable[[Space, tuple[Objective, ...], int], Searcher]
"""What ``method: module:Name`` names: makes a searcher of the space, the objectives and the seed."""
