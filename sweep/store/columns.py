"""Collects events into rows, one per trial and one per epoch, in columns that grow; `tables` converts them to Arrow."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from sweep.events import (
    STEERED_COLUMNS,
    EpochReported,
    Event,
    ModelTested,
    SessionStarted,
    Status,
    SteeringEvent,
    TrialEnded,
    TrialStarted,
    Value,
    names_of_nulls,
)
from sweep.prices import COST
from sweep.store.ledger import TrialState
from sweep.store.sweep_info import Objectives, maximizes

T = TypeVar("T")


class Numbers:
    """Column of integers ("q") or floats ("d"), 9 bytes per row, that grows; rows that were not set are null."""

    def __init__(self, typecode: Literal["q", "d"]) -> None:
        self._values: array[float] = array(typecode)
        self._valid = bytearray()

    def set(self, row: int, value: float | None) -> None:
        """Set the value of the row with index ``row``, or make it null if ``value`` is None.

        Missing rows before it are added as nulls. In a column of integers, raises OverflowError for one of more than 64
        bits.
        """
        missing = row + 1 - len(self._valid)
        if missing > 0:
            self._values.frombytes(bytes(8 * missing))  # a value has 8 bytes with both type codes
            self._valid.extend(bytes(missing))
        if value is not None:
            # before it counts as valid, because this may raise OverflowError
            self._values[row] = value
        self._valid[row] = value is not None

    def get(self, row: int) -> float | None:
        """Return the value of the row with index ``row``; None if it is null or was never set."""
        if row < len(self._valid) and self._valid[row]:
            return self._values[row]
        return None

    @property
    def any(self) -> bool:
        """True if at least one row is not null."""
        return any(self._valid)

    def copy_rows(self, rows: int) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
        """Return copies of the first ``rows`` rows, as the arrays (values, whether each is null).

        Rows that were never set are null. The values are int64 or float64; those of null rows have no meaning.
        """
        if self._values.typecode == "q":
            dtype: npt.DTypeLike = np.int64
        else:
            dtype = np.float64
        values = np.zeros(rows, dtype=dtype)
        null = np.ones(rows, dtype=np.bool_)
        known = min(rows, len(self._valid))
        # Copied, because a column cannot grow as long as NumPy has a view of it.
        values[:known] = np.frombuffer(self._values, dtype=values.dtype)[:known]
        null[:known] = np.frombuffer(self._valid, dtype=np.uint8)[:known] == 0
        return values, null


class Objects(Generic[T]):
    """Column of values of any type that grows; rows that were not set are None. Equal short texts share memory."""

    def __init__(self) -> None:
        self._values: list[T | None] = []

    def set(self, row: int, value: T | None) -> None:
        """Set the value of the row with index ``row``; missing rows before it are added as None.

        A text of up to 40 characters is interned, so that equal ones share memory.
        """
        self._values.extend([None] * (row + 1 - len(self._values)))
        # Short texts, such as statuses and nodes, are the same in many rows; longer ones, such as errors, seldom are.
        if type(value) is str and len(value) <= 40:
            value = sys.intern(value)  # type: ignore[assignment]  # a str stays a T
        self._values[row] = value

    def get(self, row: int) -> T | None:
        """Return the value of the row with index ``row``; None if it was never set."""
        if row < len(self._values):
            return self._values[row]
        return None

    def copy_rows(self, rows: int) -> list[T | None]:
        """Return the first ``rows`` rows as a new list of that length; those that were never set are None."""
        return self._values[:rows] + [None] * (rows - len(self._values))


TRIAL_TEXTS = (
    *("role", "trial_id", "status", "status_reason", "error", "checkpoint"),
    *("node", "devices", "strategy", "precision", "data", "data_reads", "memo"),
    *("enqueued_by", "note"),
)
OF_COPIES = ("parent", "parent_epoch")  # columns that only populations have
TRIAL_INTEGERS = (
    *("trial", "repeat", "fold", "seed", "epochs", "num_replicas", "accumulate", "memo_epochs"),
    *("space_version", *OF_COPIES),
)
TRIAL_FLAGS = ("reproducible", "starred")
TRIAL_FLOATS = ("started_at", "ended_at", "duration_s", "train_s", "examples")
ENERGY = "energy_j"
ADDED_UP = (ENERGY, COST)  # measures of epochs that are summed for trials
CO2 = "co2_g"
LAST_OF_TRIALS = (
    *(
        "node",
        "devices",
        "strategy",
        "num_replicas",
        "reproducible",
        "precision",
        "accumulate",
        "data",
        "data_reads",
    ),
    *("examples_per_s", "checkpoint", "memo", "memo_epochs", *OF_COPIES, *STEERED_COLUMNS, "error"),
)
"""The last columns of the trials, in this order; some exist only in some sweeps."""
EPOCH_FIELDS = ("time_s", "timestamp", "learning_rate", "examples_per_s")
EPOCH_KEYS = ("sweep", "trial", "trial_id", "epoch")
NOT_MEASURED = (*EPOCH_KEYS, "timestamp")


def column_of_measure(name: str) -> str:
    """Return the column of metrics.parquet for the measure ``name``.

    It is ``name`` itself, or ``measure.NAME`` if ``name`` is that of a column that every sweep has or begins with
    ``metric.``.
    """
    is_taken = name in (*EPOCH_KEYS, *EPOCH_FIELDS) or name.startswith("metric.")
    if is_taken:
        return f"measure.{name}"
    return name


@dataclass(frozen=True, slots=True)
class EventTime:
    """Time of an event in seconds, without the time between sessions."""

    # seconds of all sessions until then, by the drivers' clocks; None in early logs
    by_driver_s: float | None
    by_times_s: float  # timestamp of the event, minus the pauses between sessions before it
    session_s: float  # seconds of the sessions before that of the event

    def since(self, earlier: EventTime) -> float:
        """Return the seconds from an earlier event to this one, at least 0, without the time between sessions.

        They are measured by the drivers' monotonic clocks if both events have a time of that clock, otherwise by the
        events' timestamps. The result is 0 if ``earlier`` is in fact later.
        """
        if self.by_driver_s is not None and earlier.by_driver_s is not None:
            return max(self.by_driver_s - earlier.by_driver_s, 0.0)
        return max(self.by_times_s - earlier.by_times_s, 0.0)

    def after(self, seconds: float) -> EventTime:
        """Return a copy that is ``seconds`` later, in the same session; an unknown `by_driver_s` stays None."""
        if self.by_driver_s is None:
            by_driver_s = None
        else:
            by_driver_s = self.by_driver_s + seconds
        return replace(self, by_driver_s=by_driver_s, by_times_s=self.by_times_s + seconds)


class ActiveTime:
    """Total seconds of all sessions, by the driver's own clock or, in logs of earlier versions, by event times."""

    def __init__(
        self, earlier_s: float = 0.0, session_s: float = 0.0, began: float | None = None
    ) -> None:
        self.earlier_s = earlier_s  # of the sessions before the present one
        self.session_s = session_s
        # start of the present session by event times; None if its own clock is known
        self.began = began

    @property
    def total_s(self) -> float:
        """Seconds of all sessions so far."""
        return self.earlier_s + self.session_s

    def observe(self, event: Event) -> None:
        """Extend the total to the time of ``event``, the next event of the log.

        That is the driver's own clock if the event has its time, otherwise the timestamp of the event. The time between
        two sessions does not count, and the total never becomes smaller. What a person does and evaluations on test
        data change nothing.
        """
        if isinstance(event, SteeringEvent | ModelTested):
            return
        if isinstance(event, SessionStarted):
            self.earlier_s = self.total_s
            self.session_s = 0.0
            self.began = event.time
        elif event.driven_s is not None:
            self.session_s = max(self.session_s, event.driven_s)
            self.began = None
        elif self.began is not None:  # a log of an earlier version, without `driven_s`
            # the clock may have been set back
            self.session_s = max(self.session_s, event.time - self.began)
        elif not self.total_s:  # likewise, and the log does not begin with a session
            self.began = event.time


class TrialRows:
    """The columns of ``trials.parquet``, filled by events: one row per trial, in the order in which trials started."""

    def __init__(self, objectives: Objectives) -> None:
        self._objectives = objectives
        # for each metric, whether larger values are better; None if that is unknown
        self._maximizes: dict[str, bool | None] = {}
        self.row: dict[int, int] = {}  # index of each trial's row
        self.texts: dict[str, Objects[str]] = {name: Objects() for name in TRIAL_TEXTS}
        self.integers = {name: Numbers("q") for name in TRIAL_INTEGERS}
        self.flags = {name: Numbers("q") for name in TRIAL_FLAGS}
        self.floats = {name: Numbers("d") for name in TRIAL_FLOATS}
        self.params: dict[str, Objects[Value]] = {}
        self.null_params: Objects[str] = Objects()  # JSON lists of names
        self.last: dict[str, Numbers] = {}
        self.best: dict[str, Numbers] = {}
        self.tested: dict[str, Numbers] = {}
        self.overhead: dict[str, Numbers] = {}
        self.numerics: dict[str, Objects[str]] = {}
        self.added_up: dict[str, Numbers] = {}  # over all epochs trained in this sweep
        self._epochs_s = Numbers("d")  # sum of the epochs' time_s
        self._start_times: Objects[EventTime] = Objects()  # start of the trial
        self._last_event_times: Objects[EventTime] = Objects()  # last event of the trial
        self._end_counts = Numbers("q")  # number of interruptions and ends
        self._others_share = Numbers("d")  # share of other trials of its group in the last epoch
        self._first_others_share = Numbers("d")  # the same for its first epoch
        # seconds of its duration charged to those other trials
        self._others_charged_s = Numbers("d")
        self._counted_s = Numbers("d")  # seconds in which examples were counted
        self.pauses_s = 0.0  # total seconds between sessions so far
        self.earlier_s = 0.0  # total seconds of earlier sessions

    def add_trial(self, event: TrialStarted) -> None:
        """Append the row of the trial that ``event`` starts, with the status ``running`` and 0 epochs.

        The trial must not have a row yet.
        """
        row = self.row[event.trial] = len(self.row)
        self.texts["trial_id"].set(row, event.trial_id)
        self.texts["role"].set(row, event.role.value)
        self.texts["status"].set(row, Status.RUNNING.value)
        self.texts["status_reason"].set(row, "")
        for name, value in (("trial", event.trial), ("repeat", event.repeat), ("seed", event.seed)):
            self.integers[name].set(row, value)
        self.integers["fold"].set(row, event.fold)
        if event.parent is not None and event.parent_epoch is not None:
            self.integers["parent"].set(row, event.parent)
            self.integers["parent_epoch"].set(row, event.parent_epoch)
        # null for the first space: the column only exists if the space was changed
        if event.space_version:
            self.integers["space_version"].set(row, event.space_version)
        self.texts["enqueued_by"].set(row, event.enqueued_by)
        self.integers["epochs"].set(row, 0)
        self.floats["started_at"].set(row, event.time)
        moment = self._make_event_time(event)
        self._start_times.set(row, moment)
        self._last_event_times.set(row, moment)
        for name, param in event.params.items():
            self.params.setdefault(name, Objects()).set(row, param)
        self.null_params.set(row, names_of_nulls(event.params))

    def add_epoch(self, trial: TrialState, event: EpochReported) -> int:
        """Update a trial's row with the epoch in ``event``; return the row's index.

        ``trial`` is the state of the trial after ``event``. If the status in the row is not ``running``, the trial has
        resumed: the status becomes ``running``, the reason ``""``, and ``ended_at``, ``duration_s`` and ``train_s``
        become null. An epoch that was trained in an earlier sweep (``event.memo``) is counted in ``memo_epochs``, and
        adds nothing to the seconds, energy and cost of the trial. Raises KeyError if the trial has no row.
        """
        row = self.row[event.trial]
        self.integers["epochs"].set(row, trial.reported)
        # otherwise it was trained in an earlier sweep, and has cost nothing in this one
        if event.memo is None:
            _add_amount(self._epochs_s, row, event.time_s)
            # Before the status changes below: whether the trial was interrupted matters here.
            # number of trials that were trained as one program
            together = event.measures.get("together", 1.0)
            self._charge_others(row, self._make_event_time(event), together, event.time_s)
            for name in ADDED_UP:
                if name in event.measures:
                    _add_amount(
                        self.added_up.setdefault(name, Numbers("d")), row, event.measures[name]
                    )
        else:
            self.texts["memo"].set(row, event.memo)
            self.integers["memo_epochs"].set(row, (self.integers["memo_epochs"].get(row) or 0) + 1)
        if event.examples_per_s is not None:  # of a memo, too
            # The mean is weighted by time, so the rate is converted to a number of examples.
            _add_amount(self._counted_s, row, event.time_s)
            _add_amount(self.floats["examples"], row, event.examples_per_s * event.time_s)
        for name, value in event.metrics.items():
            self._set_metric(row, name, value)
        if self.texts["status"].get(row) != Status.RUNNING:  # it has resumed
            self.texts["status"].set(row, Status.RUNNING.value)
            self.texts["status_reason"].set(row, "")
            for column in ("ended_at", "duration_s", "train_s"):
                self.floats[column].set(row, None)
        return row

    def set_end(self, event: TrialEnded) -> None:
        """Update a trial's row with its end or interruption: status, error, times, and the facts of its worker.

        Facts that are None leave their columns as they were. An ``error`` that is None removes that of an earlier try.
        The seconds of each part of the overhead are added to those of earlier ends. The times are those of
        `_set_times_at_end`. Raises KeyError if the trial has no row.
        """
        row = self.row[event.trial]
        moment = self._make_event_time(event)
        self._charge_others(row, moment)
        # even if it is None: the error of an earlier try is over
        self.texts["error"].set(row, event.error)
        facts = event.facts
        for name, text in (
            *(("status", event.status.value), ("status_reason", event.reason)),
            *(("node", facts.node), ("devices", facts.devices), ("strategy", facts.strategy)),
            *(("precision", facts.precision), ("checkpoint", facts.checkpoint)),
            *(("data", facts.data), ("data_reads", facts.data_reads), ("memo", event.memo)),
        ):
            if text is not None:
                self.texts[name].set(row, text)
        for name, number in (
            ("num_replicas", facts.num_replicas),
            ("accumulate", facts.accumulate),
        ):
            if number is not None:
                self.integers[name].set(row, number)
        if facts.strategy is not None:  # otherwise it is unknown how it was trained
            self.flags["reproducible"].set(row, facts.reproducible)
        # added up: a worker counts from the last resumption on
        for part, seconds in facts.overhead_s.items():
            column = self.overhead.setdefault(part.removesuffix("_s"), Numbers("d"))
            _add_amount(column, row, seconds)
        for name, text in facts.numerics.items():
            self.numerics.setdefault(name, Objects()).set(row, text)
        self._set_times_at_end(row, event, moment)

    def set_marks(self, trial: TrialState) -> None:
        """Copy the note and the star of ``trial`` to its row, which must exist; an empty note becomes null."""
        row = self.row[trial.number]
        self.texts["note"].set(row, trial.note or None)
        self.flags["starred"].set(row, trial.starred)

    def set_test_metrics(self, trial: TrialState) -> None:
        """Copy the metrics of ``trial`` on the test data to its row, which must exist; other columns stay."""
        _set_all(self.tested, self.row[trial.number], trial.tested)

    def _make_event_time(self, event: TrialStarted | EpochReported | TrialEnded) -> EventTime:
        """Return the time of ``event`` without the time between sessions, by means of `pauses_s` and `earlier_s`.

        It has no time by the driver's clock if the event has none, as in early logs.
        """
        if event.driven_s is None:
            by_driver_s = None
        else:
            by_driver_s = self.earlier_s + event.driven_s
        return EventTime(by_driver_s, event.time - self.pauses_s, self.earlier_s)

    def _set_times_at_end(self, row: int, event: TrialEnded, moment: EventTime) -> None:
        """Set ``ended_at``, ``duration_s`` and ``train_s`` in a trial's row; ``moment`` is the time of ``event``.

        If this is the trial's first end or interruption, and comes in the session in which the trial started,
        ``started_at`` is corrected to when its worker began, as far as that is known, and ``train_s`` is what the
        worker has measured. Otherwise, ``train_s`` becomes null. ``duration_s`` is the time since the start, without
        the time between sessions.
        """
        begun = self._start_times.get(row) or moment
        facts = event.facts
        is_first = not self._end_counts.get(row) and begun.session_s == moment.session_s
        if is_first and facts.started is not None:
            # A worker begins a trial later than the driver starts it.
            waited_s = facts.started - (self.floats["started_at"].get(row) or 0.0)
            # better: the clocks of two machines may differ, durations do not
            if facts.lived_s is not None:
                waited_s = moment.since(begun) - facts.lived_s
            # The wait is no longer part of the duration, so what `_charge_others` counted of it is taken back.
            first_share = self._first_others_share.get(row) or 0.0
            _add_amount(self._others_charged_s, row, -waited_s * first_share)
            self.floats["started_at"].set(row, facts.started)
            begun = begun.after(waited_s)
            self._start_times.set(row, begun)
        self._end_counts.set(row, int(self._end_counts.get(row) or 0) + 1)
        self.floats["ended_at"].set(row, event.time)
        self.floats["duration_s"].set(row, moment.since(begun))
        # A worker knows only what it has trained since the last interruption; the log knows all epochs.
        self.floats["train_s"].set(row, facts.train_s if is_first else None)

    def _charge_others(
        self, row: int, moment: EventTime, together: float | None = None, time_s: float = 0.0
    ) -> None:
        """Add to a trial's row the part of the time since its last event that is charged to trials trained with it.

        ``moment`` is the time of the present event, which becomes the last one. ``together`` is how many trials, at
        least 1, were trained together in the epoch that was reported; the part is 1 - 1/``together``. At the end it is
        None, and the part of the last epoch applies, 0 if there was none. ``time_s`` is the trial's own share of the
        epoch's seconds. If the trial was interrupted, only the epoch counts, not the time before it. Call this before
        the status in the row is changed, by which an interruption is recognized.
        """
        if together is None:
            others_share = self._others_share.get(row) or 0.0
        else:
            others_share = 1 - 1 / together  # each of them is charged the same part
        heard = self._last_event_times.get(row)
        if heard is None:
            since_s = 0.0
        else:
            since_s = moment.since(heard)
        if self.texts["status"].get(row) != Status.RUNNING:
            # It was interrupted, and when it resumed is not known: at most the epoch counts, whose seconds are `time_s`
            # times `together`. At an end without another epoch, where `together` is None, nothing counts.
            since_s = min(since_s, time_s * (together or 0.0))
        _add_amount(self._others_charged_s, row, since_s * others_share)
        # needed when the start of the trial is corrected
        if self._first_others_share.get(row) is None:
            self._first_others_share.set(row, others_share)
        self._others_share.set(row, others_share)
        self._last_event_times.set(row, moment)

    def _set_metric(self, row: int, name: str, value: float) -> None:
        """Set the last value of the metric ``name`` in a trial's row, and the best one if ``value`` is better.

        The direction is that of the objectives, otherwise it is told from the name. If it is unknown, there is no best
        value. Values that are not finite are never the best.
        """
        last = self.last.setdefault(name, Numbers("d"))
        last.set(row, value)
        if name not in self._maximizes:  # only once for each name, because words are searched in it
            self._maximizes[name] = maximizes(name, self._objectives)
        maximize = self._maximizes[name]
        if maximize is None or not math.isfinite(value):
            return
        best = self.best.setdefault(name, Numbers("d"))
        old = best.get(row)
        if old is None:
            is_better = True
        elif maximize:
            is_better = value > old
        else:
            is_better = value < old
        if is_better:
            best.set(row, value)

    def train_s(self, row: int) -> float:
        """Return the seconds of a trial's trained epochs, as its worker measured them or else by the log.

        ``row`` is the index of the trial's row. By the log, they are the sum of the seconds of all reported epochs that
        were not trained in an earlier sweep, 0 if there are none.
        """
        measured = self.floats["train_s"].get(row)
        if measured is None:
            return self._epochs_s.get(row) or 0.0
        return measured

    def overhead_s(self, row: int) -> float | None:
        """Return the seconds of a trial that were not spent on epochs, at least 0; None while it is running.

        They are its duration minus `train_s` and minus the time that is charged to other trials, which were trained
        together with this one. ``row`` is the index of the trial's row.
        """
        duration_s = self.floats["duration_s"].get(row)
        if duration_s is None:
            return None
        return max(duration_s - (self._others_charged_s.get(row) or 0.0) - self.train_s(row), 0.0)

    def examples_per_s(self, row: int) -> float | None:
        """Return the examples per second of a trial, over all its epochs that reported them; None if none did.

        It is the sum of their examples divided by the sum of their seconds; None too if that sum is 0. ``row`` is the
        index of the trial's row.
        """
        examples = self.floats["examples"].get(row)
        timed = self._counted_s.get(row)
        if examples is None or not timed:
            return None
        return examples / timed


class EpochRows:
    """The columns of ``metrics.parquet``, filled by events: one row per trial and epoch, in the order of reports."""

    def __init__(self) -> None:
        self.count = 0
        self.trial_row = Numbers("q")
        self.epoch = Numbers("q")
        self.fields = {name: Numbers("d") for name in EPOCH_FIELDS}
        self.metrics: dict[str, Numbers] = {}
        self.measures: dict[str, Numbers] = {}

    def add_epoch(self, trial_row: int, event: EpochReported) -> None:
        """Append the row of the epoch in ``event``; ``trial_row`` is the index of its trial's row in `TrialRows`."""
        row = self.count
        self.count += 1
        self.trial_row.set(row, trial_row)
        self.epoch.set(row, event.epoch)
        # as in `EPOCH_FIELDS`
        values = (
            event.time_s,
            event.time,
            event.learning_rate,
            event.examples_per_s,
        )
        for column, value in zip(self.fields.values(), values, strict=True):
            column.set(row, value)
        _set_all(self.metrics, row, event.metrics)
        _set_all(self.measures, row, event.measures)


def _set_all(columns: dict[str, Numbers], row: int, values: Mapping[str, float]) -> None:
    """Set ``values`` in the row ``row``, each in the column of its name; missing ones are added to ``columns``."""
    for name, value in values.items():
        columns.setdefault(name, Numbers("d")).set(row, value)


def _add_amount(column: Numbers, row: int, amount: float) -> None:
    """Add ``amount`` to the number in a row of a column; a null counts as 0."""
    column.set(row, (column.get(row) or 0.0) + amount)
