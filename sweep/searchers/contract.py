"""The contract of all searchers."""

from __future__ import annotations

from typing import Protocol

from sweep.events import Event, Params


class Searcher(Protocol):
    """Chooses the hyperparameters of each trial.

    A suggestion depends on the seed, the trial's number and the events observed so far and on nothing
    else: who observes the same log again, suggests the same.
    """

    def suggest(self, number: int) -> Params | None:
        """Parameters for trial ``number``; None when the space is exhausted. Changes no state."""

    def observe(self, event: Event) -> None:
        """Learn from a started trial, a reported epoch, an ended trial; ignore the rest."""
