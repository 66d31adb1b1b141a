"""What became of each trial: the one fold of a sweep's log.

It alone knows that an interruption is no end, that ``again`` reopens a failed trial, which number a trial has in the
search, and which events cannot follow which. Who wants to know about trials observes a log with a `Ledger` and reads
its trials, or acts on the changes that it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from msgspec import structs

from sweep.errors import StoreError
from sweep.events import (
    UNFINISHED,
    EpochReported,
    Event,
    Facts,
    ModelTested,
    Params,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.store import log


class OutOfOrder(StoreError):
    """The event cannot follow those before it: no sweep writes such a log."""


@dataclass(slots=True, eq=False)
class TrialState:
    """One trial as the log has it so far; only its `Ledger` changes it."""

    start: TrialStarted
    status: Status = Status.RUNNING
    reason: str = ""
    epoch: int = 0  # the last one reported
    reported: int = 0  # how many were: fewer than `epoch` in a log that was repaired
    last: Mapping[str, float] = field(default_factory=dict)  # metrics of the last epoch
    epochs: dict[int, Mapping[str, float]] = field(default_factory=dict)  # metrics by epoch, if the ledger keeps them
    end: TrialEnded | None = None  # its end or its last interruption; None once it has gone on
    retries: int = 0  # times it was tried again, since somebody asked for that by hand
    reopened: bool = False  # it had failed for good, and was tried again
    tested: Mapping[str, float] = field(default_factory=dict)  # on the test data

    @property
    def number(self) -> int:
        return self.start.trial

    @property
    def params(self) -> Params:
        return self.start.params

    @property
    def role(self) -> Role:
        return self.start.role

    @property
    def place(self) -> int | None:
        """Its number in the search; None for a trial that the searcher has not chosen."""
        if self.start.role is not Role.SEARCH:
            return None
        return self.start.trial if self.start.index is None else self.start.index

    @property
    def started(self) -> float:
        """When it was started, in seconds since 1970."""
        return self.start.time

    @property
    def ended(self) -> float | None:
        """When it ended for good; None as long as it may go on."""
        return None if self.end is None or self.status in UNFINISHED else self.end.time

    @property
    def paused(self) -> bool:
        """Whether it waits at a rung for its rule to let it go on."""
        return self.status is Status.INTERRUPTED and self.end is not None and self.end.waits

    @property
    def facts(self) -> Facts:
        """Those of its end or of its last interruption."""
        return Facts() if self.end is None else self.end.facts


class Started(NamedTuple):
    """A trial began."""

    trial: TrialState
    event: TrialStarted


class Reported(NamedTuple):
    """A trial reported its next epoch; one that was interrupted has gone on."""

    trial: TrialState
    event: EpochReported


class Interrupted(NamedTuple):
    """A trial was interrupted, and may go on."""

    trial: TrialState
    event: TrialEnded


class Reopened(NamedTuple):
    """A trial that had failed for good is tried again."""

    trial: TrialState
    event: TrialEnded


class Ended(NamedTuple):
    """A trial ended for good."""

    trial: TrialState
    event: TrialEnded


class Tested(NamedTuple):
    """A trial's model was evaluated on the test data."""

    trial: TrialState
    event: ModelTested


class Session(NamedTuple):
    """A session began or ended."""

    event: SessionStarted | SessionEnded


Change: TypeAlias = Started | Reported | Interrupted | Reopened | Ended | Tested | Session
"""What an event means; all but a `Session` concern a trial."""


class Ledger:
    """All trials by number, in the order in which they were started.

    ``keep_epochs`` keeps the metrics of all epochs, not only of the last.
    """

    def __init__(self, *, keep_epochs: bool = True) -> None:
        self.trials: dict[int, TrialState] = {}
        self._keep_epochs = keep_epochs

    def follow(self, path: Path, offset: int = 0) -> Iterator[tuple[Change, int]]:
        """Observe what a log holds after byte ``offset``; yield each change and the byte at which its event ends.

        Raises `StoreError` that names the log.
        """
        with naming(path):
            for event, end in log.read_with_ends(path, offset) if path.exists() else ():
                yield self.observe(event), end

    def observe(self, event: Event) -> Change:
        """Take in the next event of the log. Raises `OutOfOrder`, and then changes nothing."""
        if type(event) is EpochReported:  # nearly all events are
            return self._report(event)
        match event:
            case TrialStarted(trial=number):
                if number in self.trials:
                    raise OutOfOrder(f"trial {number} was started before")
                trial = self.trials[number] = TrialState(event)
                return Started(trial, event)
            case TrialEnded():
                return self._end(event)
            case ModelTested():
                trial = self._find(event.trial)
                trial.tested = {**event.metrics, **trial.tested}  # the first evaluation stays: there is to be no other
                return Tested(trial, event)
            case SessionStarted() | SessionEnded():
                return Session(event)
        raise TypeError(f"{event!r} is no event")

    def _report(self, event: EpochReported) -> Reported:
        trial = self.trials.get(event.trial) or self._find(event.trial)
        if event.epoch <= trial.epoch:
            raise OutOfOrder(f"epoch {event.epoch} of trial {event.trial} was reported before")
        if trial.status is not Status.RUNNING:
            if trial.status is not Status.INTERRUPTED:
                raise OutOfOrder(f"trial {event.trial} has ended before")
            trial.status, trial.reason, trial.end = Status.RUNNING, "", None
        trial.epoch, trial.last = event.epoch, event.metrics
        trial.reported += 1
        if self._keep_epochs:
            trial.epochs[event.epoch] = event.metrics
        return Reported(trial, event)

    def _end(self, event: TrialEnded) -> Interrupted | Reopened | Ended:
        trial = self._find(event.trial)
        reopens = event.again and event.status is Status.INTERRUPTED and trial.status is Status.FAILED
        if trial.status not in UNFINISHED and not reopens:
            raise OutOfOrder(f"trial {event.trial} has ended before")
        trial.status, trial.reason, trial.end = event.status, event.reason, event
        if reopens:
            trial.reopened, trial.retries = True, 0
            return Reopened(trial, event)
        if event.status is Status.INTERRUPTED:
            trial.retries += event.again
            return Interrupted(trial, event)
        return Ended(trial, event)

    def _find(self, number: int) -> TrialState:
        trial = self.trials.get(number)
        if trial is None:
            raise OutOfOrder(f"trial {number} was never started")
        return trial


def searched(change: Change) -> Event | None:
    """Return the event as the search hears it, by its trial's place; None for a trial that it has not chosen."""
    if isinstance(change, Session):
        return change.event
    trial, event = change
    place = trial.place
    return None if place is None else event if place == trial.number else structs.replace(event, trial=place)


def ended(events: Iterable[Event]) -> list[TrialState]:
    """Return the trials of a log that came to an end, in the order in which they started."""
    ledger = Ledger()
    for event in events:
        ledger.observe(event)
    return [trial for trial in ledger.trials.values() if trial.ended is not None]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an `OutOfOrder` name the log whose events are observed, and the way out."""
    try:
        yield
    except OutOfOrder as error:
        raise StoreError(f"{path}: {error}; {log.way_out(path)}") from error
