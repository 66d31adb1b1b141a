"""Computes the state of each trial from the events of the log.

Only this module decides when a trial has ended, whether ``again`` reopens a failed trial, which number a trial has in
the search, and which orders of events are impossible. Other code passes the events to a `Ledger` and reads its trials,
or acts on the changes that it returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from msgspec import structs

from sweep.errors import StoreError
from sweep.events import (
    ON_REQUEST,
    UNFINISHED,
    ConfigurationsEnqueued,
    EpochReported,
    Event,
    Facts,
    ModelTested,
    NoteWritten,
    OutputPrinted,
    Params,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    SteeringEvent,
    SweepChanged,
    TrialEnded,
    TrialStarred,
    TrialStarted,
    convert_to_json_types,
)
from sweep.progress import get_share
from sweep.store import log


class OutOfOrder(StoreError):
    """An event cannot follow the events before it; no sweep writes such a log."""


@dataclass(slots=True, eq=False)
class TrialState:
    """State of one trial according to the log so far; only its `Ledger` changes it."""

    start: TrialStarted
    status: Status = Status.RUNNING
    reason: str = ""
    epoch: int = 0  # last epoch reported
    reported: int = 0  # number of reported epochs: less than `epoch` if the log was repaired
    # share of its budget that it has used; None if its minutes are not limited
    share: float | None = None
    last: Mapping[str, float] = field(default_factory=dict)  # metrics of the last epoch
    # metrics by epoch, if the ledger keeps them
    epochs: dict[int, Mapping[str, float]] = field(default_factory=dict)
    end: TrialEnded | None = None  # its end or last interruption; None while it is running
    retries: int = 0  # retries since it started or was last reopened
    reopened: bool = False  # it had failed permanently and was tried again
    tested: Mapping[str, float] = field(default_factory=dict)  # metrics on the test data
    note: str = ""  # by a person; "" if there is none
    starred: bool = False  # by a person

    @property
    def number(self) -> int:
        """Number of the trial in the sweep."""
        return self.start.trial

    @property
    def params(self) -> Params:
        """Values of the parameters by name, with which the trial started."""
        return self.start.params

    @property
    def role(self) -> Role:
        """Whether the trial is of the search, the baseline or the confirmation."""
        return self.start.role

    @property
    def place(self) -> int | None:
        """Number of the trial within the search; None for a trial of the baseline or the confirmation."""
        if self.start.role is not Role.SEARCH:
            return None
        if self.start.index is None:
            return self.start.trial
        return self.start.index

    @property
    def started(self) -> float:
        """Time of the trial's first start, in seconds since 1970."""
        return self.start.time

    @property
    def ended(self) -> float | None:
        """Time of the trial's end, in seconds since 1970; None while it is running or interrupted."""
        if self.end is None or self.status in UNFINISHED:
            return None
        return self.end.time

    @property
    def paused(self) -> bool:
        """True if the trial is interrupted because its stopping rule or population has paused it."""
        return self.end is not None and self.end.pauses

    @property
    def facts(self) -> Facts:
        """Facts that the worker recorded at the trial's end or last interruption; `Facts()` while it is running."""
        if self.end is None:
            return Facts()
        return self.end.facts


class Started(NamedTuple):
    """A trial started."""

    trial: TrialState
    event: TrialStarted


class Reported(NamedTuple):
    """A trial reported an epoch; if it was interrupted, it has resumed."""

    trial: TrialState
    event: EpochReported


class Interrupted(NamedTuple):
    """A trial was interrupted and may resume."""

    trial: TrialState
    event: TrialEnded


class Reopened(NamedTuple):
    """A trial that had failed permanently is tried again."""

    trial: TrialState
    event: TrialEnded


class Ended(NamedTuple):
    """A trial ended permanently."""

    trial: TrialState
    event: TrialEnded


class Tested(NamedTuple):
    """A trial's model was evaluated on the test data."""

    trial: TrialState
    event: ModelTested


class Printed(NamedTuple):
    """A trial printed something."""

    trial: TrialState
    event: OutputPrinted


class SessionChange(NamedTuple):
    """A session began or ended."""

    event: SessionStarted | SessionEnded


class Steered(NamedTuple):
    """A person wrote a note, gave a star, added configurations, or changed the sweep file."""

    event: SteeringEvent


Change: TypeAlias = (
    Started | Reported | Interrupted | Reopened | Ended | Tested | Printed | SessionChange | Steered
)
"""The meaning of an event; all except `SessionChange` and `Steered` have a trial."""


class Queued(NamedTuple):
    """A configuration that a person added, and the user name of that person."""

    params: Params
    by: str


def format_configuration(params: Params) -> str:
    """Return a configuration as JSON text, which is the same for configurations with the same values in any order.

    ``1`` and ``1.0`` are different values here.
    """
    return json.dumps(convert_to_json_types(params), sort_keys=True)


class Ledger:
    """The states of all trials by number, in the order of their starts, computed from the events of a log.

    With ``keep_epochs``, a state has the metrics of all epochs of its trial, otherwise only those of the last epoch.
    """

    def __init__(self, *, keep_epochs: bool = True) -> None:
        self.trials: dict[int, TrialState] = {}
        self.requests: set[str] = set()
        """Identifiers of the requests of persons that were carried out."""
        self.note = ""
        """The note on the sweep that a person has written; "" if there is none."""
        self.queue: dict[str, Queued] = {}
        """Configurations that a person has added and that have not started, in the order in which they were added."""
        self.changes: list[Mapping[str, Any]] = []
        """The settings of each `SweepChanged` so far."""
        self._keep_epochs = keep_epochs

    def follow(self, path: Path, offset: int = 0) -> Iterator[tuple[Change, int]]:
        """Process the events of a log after byte ``offset``; yield each change and the byte at which its event ends.

        It ends at the end of the log; an incomplete or damaged last record is ignored. Each event is processed when its
        change is requested. The ledger must have processed the events before ``offset``. If there is no log, nothing is
        yielded. Raises StoreError naming the log if another record is damaged, or the log is shorter than ``offset`` or
        has an event that is impossible after those before it.
        """
        if not path.exists():
            return
        with naming(path):
            for event, end in log.read_with_ends(path, offset):
                yield self.observe(event), end

    def observe(self, event: Event) -> Change:
        """Process the next event of the log, changing the states of trials; return what the event means.

        Raises:
            OutOfOrder: if the event is impossible after those before it; nothing is changed then.
            TypeError: if it is no event.
        """
        if type(event) is EpochReported:  # fast path: nearly all events are epochs
            return self._report(event)
        match event:
            case SessionStarted() | SessionEnded():
                return SessionChange(event)
            case NoteWritten() | TrialStarred() | ConfigurationsEnqueued() | SweepChanged():
                return self._steer(event)
            case TrialStarted() | TrialEnded() | ModelTested() | OutputPrinted():
                return self._observe_trial(event)
        raise TypeError(f"{event!r} is no event")

    def _observe_trial(
        self, event: TrialStarted | TrialEnded | ModelTested | OutputPrinted
    ) -> Change:
        """Process an event of a trial other than an epoch and return the change.

        Printed text changes nothing. If a trial is tested several times, each metric keeps its first value. Raises
        `OutOfOrder` if the trial was never started, or if its start or end is impossible here: see `_start` and `_end`.
        """
        match event:
            case TrialStarted():
                return self._start(event)
            case TrialEnded():
                return self._end(event)
            case ModelTested():
                trial = self._get_trial(event.trial)
                # earlier values win: a model should be tested only once
                trial.tested = {**event.metrics, **trial.tested}
                return Tested(trial, event)
            case OutputPrinted():
                return Printed(self._get_trial(event.trial), event)

    def _start(self, event: TrialStarted) -> Started:
        """Add a trial, and remove its configuration from the queue if a person had added it.

        Raises `OutOfOrder` if the trial was started before.
        """
        if event.trial in self.trials:
            raise OutOfOrder(f"trial {event.trial} was started before")
        trial = self.trials[event.trial] = TrialState(event)
        if event.enqueued_by is not None:
            # It is not there any more if another trial of the configuration, as with repeats, has started before.
            self.queue.pop(format_configuration(event.params), None)
        return Started(trial, event)

    def _report(self, event: EpochReported) -> Reported:
        """Add a reported epoch to its trial; if that was interrupted, it has resumed and is running again.

        The trial's used share of its budget stays as it was if the epoch has no measures. Raises `OutOfOrder` if
        this or a later epoch was reported before, or the trial has ended or was never started.
        """
        # Nearly all events are epochs: `_get_trial` is only called for its error.
        trial = self.trials.get(event.trial) or self._get_trial(event.trial)
        if event.epoch <= trial.epoch:
            raise OutOfOrder(f"epoch {event.epoch} of trial {event.trial} was reported before")
        if trial.status is not Status.RUNNING:
            if trial.status is not Status.INTERRUPTED:
                raise OutOfOrder(f"trial {event.trial} has ended before")
            trial.status = Status.RUNNING
            trial.reason = ""
            trial.end = None
        trial.epoch = event.epoch
        trial.last = event.metrics
        if event.measures:
            trial.share = get_share(event.measures)
        trial.reported += 1
        if self._keep_epochs:
            trial.epochs[event.epoch] = event.metrics
        return Reported(trial, event)

    def _end(self, event: TrialEnded) -> Interrupted | Reopened | Ended:
        """End or interrupt a trial, or reopen a failed one, which is then interrupted.

        An interruption with ``again``, to try again after a failure, counts as one of the trial's `retries`. It reopens
        a trial that has failed permanently, which sets `retries` to 0. In a log of an early release, a trial that was
        stopped on request gets an event with ``asked``. Raises `OutOfOrder` if the trial was never started, or has
        ended before and is not reopened.
        """
        trial = self._get_trial(event.trial)
        # logs of early releases do not have ``asked``
        if event.status is Status.PRUNED and event.reason == ON_REQUEST:
            event = structs.replace(event, asked=True)
        reopens = (
            event.again and event.status is Status.INTERRUPTED and trial.status is Status.FAILED
        )
        if trial.status not in UNFINISHED and not reopens:
            raise OutOfOrder(f"trial {event.trial} has ended before")
        trial.status = event.status
        trial.reason = event.reason
        trial.end = event
        if reopens:
            trial.reopened = True
            trial.retries = 0
            return Reopened(trial, event)
        if event.status is Status.INTERRUPTED:
            trial.retries += event.again  # by 1 if it has failed and is tried again, else by 0
            return Interrupted(trial, event)
        return Ended(trial, event)

    def _steer(self, event: SteeringEvent) -> Steered:
        """Apply what a person did: a note, a star, added configurations, or changes of the sweep file.

        Added configurations join the queue, and those that a change of the file has dropped leave it. Raises
        `OutOfOrder` if the same request was carried out before, or names a trial that was never started.
        """
        if event.request in self.requests:
            raise OutOfOrder(f"request {event.request} was carried out before")
        match event:
            case NoteWritten(trial=None, text=text):
                self.note = text
            case NoteWritten(trial=int(number), text=text):
                self._get_trial(number).note = text
            case TrialStarred(trial=number, starred=starred):
                self._get_trial(number).starred = starred
            case ConfigurationsEnqueued():
                for params in event.configurations:
                    self.queue[format_configuration(params)] = Queued(params, event.by)
            case SweepChanged():
                self.changes.append(event.settings)
                for params in event.dropped:  # they are not in the new space
                    self.queue.pop(format_configuration(params), None)
        self.requests.add(event.request)
        return Steered(event)

    def _get_trial(self, number: int) -> TrialState:
        """Return the state of a trial. Raises `OutOfOrder` if it was never started."""
        trial = self.trials.get(number)
        if trial is None:
            raise OutOfOrder(f"trial {number} was never started")
        return trial


def renumber_for_search(change: Change) -> Event | None:
    """Return the event of a change as the searcher sees it: with the trial's number within the search.

    It is a copy if that number differs from the one in the sweep. Events of sessions are returned unchanged. None is
    returned for a trial of the baseline or the confirmation, for what a trial has printed, and for what a person did.
    """
    if isinstance(change, SessionChange):
        return change.event
    if isinstance(change, Steered | Printed):
        return None
    trial, event = change  # every other change has these two
    place = trial.place
    if place is None:
        return None
    if place == trial.number:
        return event
    return structs.replace(event, trial=place)


def list_ended_trials(events: Iterable[Event]) -> list[TrialState]:
    """Return the trials that have ended permanently according to all events of a log, in the order of their starts.

    A trial that is running or interrupted has not. Raises `OutOfOrder` if an event cannot follow the earlier ones.
    """
    ledger = Ledger()
    for event in events:
        ledger.observe(event)
    ended = []
    for trial in ledger.trials.values():
        if trial.ended is not None:
            ended.append(trial)
    return ended


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise a `StoreError` that names the log ``path`` and how to repair it if the block raises `OutOfOrder`.

    Other errors pass unchanged.
    """
    try:
        yield
    except OutOfOrder as error:
        raise StoreError(f"{path}: {error}; {log.make_repair_hint(path)}") from error
