"""What is known of each trial, as one record: the events of a log gathered by trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sweep.events import EpochReported, Event, Params, Status, TrialEnded, TrialStarted


@dataclass(slots=True)
class Record:
    """One trial: its parameters, when it started and ended, its state, and its metrics by epoch."""

    params: Params
    started: float
    ended: float | None = None
    status: Status = Status.RUNNING
    epochs: dict[int, Mapping[str, float]] = field(default_factory=dict)

    @property
    def last(self) -> Mapping[str, float]:
        """The metrics reported last; empty before the first epoch."""
        return self.epochs[max(self.epochs)] if self.epochs else {}


class History:
    """All trials by number.

    An interrupted trial stays as it was: it will go on or end. One that goes on keeps its epochs, and
    each epoch counts once, however often it is reported.
    """

    def __init__(self) -> None:
        self.trials: dict[int, Record] = {}

    def observe(self, event: Event) -> None:
        """Gather a started trial, a reported epoch, an ended trial; ignore the rest."""
        match event:
            case TrialStarted(trial=trial, params=params, time=time):
                self.trials.setdefault(trial, Record(params, time))
            case EpochReported(trial=trial, epoch=epoch, metrics=metrics) if trial in self.trials:
                self.trials[trial].epochs[epoch] = metrics
            case TrialEnded(trial=trial, status=status, time=time) if trial in self.trials:
                if status is not Status.INTERRUPTED:
                    self.trials[trial].status = status
                    self.trials[trial].ended = time


def ended(events: Iterable[Event]) -> list[Record]:
    """The trials of a log that came to an end, in the order in which they started, for `Searcher.learn`."""
    history = History()
    for event in events:
        history.observe(event)
    return [record for record in history.trials.values() if record.ended is not None]
