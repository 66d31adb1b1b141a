"""What trials report, as numbers of which smaller ones are better."""

from __future__ import annotations

from sweep.events import EpochReported, Event
from sweep.space.objectives import Objective


class Losses:
    """Reads the objective out of events; an epoch that is reported once more, as after a resume, is none."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._last: dict[int, int] = {}

    def of(self, event: Event) -> tuple[int, int, float] | None:
        """Trial, epoch and loss; None for all but a new epoch with a finite objective."""
        if not isinstance(event, EpochReported) or event.epoch <= self._last.get(event.trial, 0):
            return None
        value = self._objective.value(event.metrics)
        if value is None:
            return None
        self._last[event.trial] = event.epoch
        return event.trial, event.epoch, self._objective.sign * value
