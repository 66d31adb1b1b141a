"""A trial that has not ended for good, as the coordinator drives it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from msgspec import structs

from sweep.events import Facts, Status, TrialEnded, TrialStarted
from sweep.store.ledger import TrialState


@dataclass
class OpenTrial:
    """How far one trial has come, and what was decided about it."""

    state: TrialState
    epochs: int
    decisions: tuple[int, ...]  # epochs at which it can be pruned
    verdict: str | None = None  # the scheduler's reason to prune it at its last epoch
    diverged: str | None = None
    reached: str | None = None  # that it has the sweep's target, in words
    interrupted: bool = False  # and no worker has had it since
    restarts: int = 0  # in this session, of lost workers
    lost_nodes: int = 0  # in this session
    accumulate: int = 1  # parts of each batch that it is known to need, in this session
    outgrown: bool = False  # its worker gives it back, to be trained in another process
    moved: bool = False  # it was given back once
    unwanted: bool = False  # somebody asked that it be stopped

    @property
    def started(self) -> TrialStarted:
        return self.state.start

    def end(self, status: Status, reason: str, facts: Facts) -> TrialEnded:
        """The end of this trial, now."""
        return TrialEnded(trial=self.started.trial, status=status, reason=reason, time=time.time(), facts=facts)

    def dismissed(self, reason: str) -> TrialEnded:
        """The end of this trial because somebody asked for it."""
        return structs.replace(self.end(Status.PRUNED, reason, Facts()), asked=True)

    def overdue(self) -> TrialEnded | None:
        """The end that its epochs have come to."""
        if self.diverged:
            return self.end(Status.DIVERGED, self.diverged, Facts())
        if self.state.epoch >= self.epochs:
            return self.end(Status.COMPLETED, "", Facts())
        if self.reached:
            return structs.replace(self.end(Status.COMPLETED, self.reached, Facts()), at_target=True)
        if self.verdict:
            return self.end(Status.PRUNED, self.verdict, Facts())
        return None
