"""The two tables of a sweep, derived from its log; `reading` reads the files written here.

``trials.parquet`` has a row per trial, ``metrics.parquet`` one per trial and epoch. results/README.md lists the
columns. CSV files follow RFC 4180: UTF-8 without a byte order mark, texts in quotes, nulls as empty fields, and floats
with enough digits to be read back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sweep.events import (
    NULL_PARAMS,
    STEERED_COLUMNS,
    UNFINISHED,
    Event,
    NoteWritten,
    SessionEnded,
    SessionStarted,
    SteeringEvent,
    TrialStarred,
    convert_from_json_types,
    convert_to_json_types,
)
from sweep.store import ledger, log
from sweep.store.columns import (
    ADDED_UP,
    CO2,
    ENERGY,
    LAST_OF_TRIALS,
    OF_COPIES,
    ActiveTime,
    EpochRows,
    Numbers,
    Objects,
    TrialRows,
    column_of_measure,
)
from sweep.store.disk import replacing
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import (
    Ended,
    Interrupted,
    Ledger,
    Queued,
    Reopened,
    Reported,
    SessionChange,
    Started,
    Steered,
    Tested,
    format_configuration,
)
from sweep.store.sweep_info import VERSION, Objectives

_TIME = pa.timestamp("us", tz="UTC")
AS_JSON = {b"encoding": b"json"}  # metadata of parameter columns whose text is JSON
J_PER_KWH = 3.6e6
LAYOUT = 1  # 1: with a column of the parameters that are null, and durations by monotonic clocks
METADATA = b"sweep"  # key of the history in the metadata of both files


@dataclass(frozen=True, slots=True)
class History:
    """Up to which byte of the log tables were made, and what is needed to continue them from there."""

    log_bytes: int = 0
    started: float | None = None  # seconds since 1970
    last: float | None = None  # time of the last event
    active_s: float = 0.0  # total of all sessions, without the time between them
    ended: str | None = None  # why the last session ended; None: it is running or was killed
    mark: str | None = None  # `log.mark` of byte `log_bytes`; None in tables by an earlier version
    # first byte of each session, and the seconds between earlier ones
    pauses: Sequence[tuple[int, float]] = ()
    sessions: Sequence[tuple[int, float]] = ()  # the same, with the seconds within earlier sessions
    # unfinished trials, and the byte at which each begins
    unfinished: Sequence[tuple[int, int]] | None = None
    version: str | None = None  # of sweep; other versions may have made other columns
    session_s: float = 0.0  # of the last session
    began: float | None = None  # see `ActiveTime`
    layout: int = 0  # the `LAYOUT` with which the tables were made
    note: str = ""  # on the sweep, by a person
    # the ``settings`` of each `SweepChanged`, as JSON types
    changes: Sequence[Mapping[str, Any]] = ()
    # configurations added but not started, and who added each
    queue: Sequence[tuple[Mapping[str, Any], str]] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one sweep, in memory."""

    trials: pa.Table
    metrics: pa.Table
    history: History


class TableBuilder:
    """Observes the events of a log in order and makes tables of them, as often as needed.

    It uses about 1 kB per trial and 0.1 kB per epoch. Raises `StoreError` for an impossible log.
    """

    def __init__(
        self, sweep_name: str, objectives: Objectives, co2_g_per_kwh: float | None = None
    ) -> None:
        self._name = sweep_name
        self._co2_g_per_kwh = co2_g_per_kwh
        self._objectives = objectives
        self._ledger = Ledger(keep_epochs=False)
        self._trials = TrialRows(objectives)
        self._epochs = EpochRows()
        self._active = ActiveTime()
        self._started: float | None = None
        self._last: float | None = None  # time of the last event, as in `History`
        self._ended: str | None = None  # why the last session ended
        self._log_bytes = 0
        self._pauses: list[tuple[int, float]] = []
        self._sessions: list[tuple[int, float]] = []
        self._first_bytes: dict[
            int, int
        ] = {}  # byte of the log at which each trial begins, by its number

    @classmethod
    def of(cls, folder: ResultsFolder) -> TableBuilder:
        """Return a builder for the sweep in ``folder`` that has not observed anything yet.

        Raises `StoreError` if sweep.json cannot be read.
        """
        info = folder.read_info()
        return cls(info.name, info.objectives, info.co2_g_per_kwh)

    def observe(self, event: Event, place: int = 0) -> None:
        """Process the next event of the log, which begins at its byte ``place``.

        Raises `OutOfOrder`, without any change, if the event is impossible after those before it.
        """
        match self._ledger.observe(event):
            case Reported(trial, report):
                trial_row = self._trials.add_epoch(trial, report)
                self._epochs.add_epoch(trial_row, report)
            case Started(trial, start):
                self._first_bytes[trial.number] = place
                self._trials.add_trial(start)
            case Interrupted(trial, end) | Reopened(trial, end) | Ended(trial, end):
                self._trials.set_end(end)
            case Tested(trial):
                self._trials.set_test_metrics(trial)
            # `_last` and `_active` are still those of earlier sessions
            case SessionChange(SessionStarted()):
                self._ended = None
                if self._last is not None:
                    # the clock may have been set back
                    self._trials.pauses_s += max(0.0, event.time - self._last)
                # both totals until then, with the byte at which the session begins
                self._pauses.append((place, self._trials.pauses_s))
                self._trials.earlier_s = self._active.total_s
                self._sessions.append((place, self._trials.earlier_s))
            case SessionChange(SessionEnded(reason=reason)):
                self._ended = reason
            # A note on the sweep, whose trial is None, has no row.
            case Steered(NoteWritten(trial=int(number)) | TrialStarred(trial=number)):
                self._trials.set_marks(self._ledger.trials[number])
        self._observe_time(event)

    def _observe_time(self, event: Event) -> None:
        """Extend the times of the sweep to ``event``, unless that is what a person did, which may come at any time."""
        if isinstance(event, SteeringEvent):
            return
        self._active.observe(event)
        if self._started is None:
            self._started = event.time
        if self._last is None or event.time > self._last:  # the clock may have been set back
            self._last = event.time

    def follow(self, path: Path) -> int:
        """Process the events added to a log since the last call; return the byte up to which it has been read.

        An incomplete or damaged last record is left for the next call. If there is no log, nothing is processed. Raises
        `StoreError` if another record of the log is damaged, its events are out of order, or it is shorter than before.
        """
        if not path.exists():
            return self._log_bytes
        with ledger.naming(path):
            for event, end in log.read_with_ends(path, self._log_bytes):
                self.observe(event, self._log_bytes)  # it begins where the event before it ended
                self._log_bytes = end
        return self._log_bytes

    def continue_from(self, history: History, pauses_s: float, earlier_s: float) -> None:
        """Continue at the position in the log and with the session times of ``history``; keep the trials observed.

        The note, the changes of the sweep file and the queue of added configurations are replaced by those of
        ``history``. ``pauses_s`` and ``earlier_s`` are the seconds between and within the sessions before that
        position.
        """
        self._log_bytes = history.log_bytes
        self._pauses = list(history.pauses)
        self._started = history.started
        self._last = history.last
        self._ended = history.ended
        self._trials.pauses_s = pauses_s
        self._trials.earlier_s = earlier_s
        self._sessions = list(history.sessions)
        self._ledger.note = history.note
        self._ledger.changes = [_decode_settings(settings) for settings in history.changes]
        self._ledger.queue.clear()
        for params, by in history.queue:
            known = _decode_settings(params)
            self._ledger.queue[format_configuration(known)] = Queued(known, by)
        self._active = ActiveTime(earlier_s, history.session_s, history.began)

    def history(self) -> History:
        """Return how far the log has been read and what is needed to continue the tables from there.

        Its `mark` is None; `write` adds it in the files.
        """
        trials = self._ledger.trials
        unfinished = []
        for number, place in self._first_bytes.items():
            if trials[number].status in UNFINISHED:
                unfinished.append((number, place))
        return History(
            log_bytes=self._log_bytes,
            started=self._started,
            last=self._last,
            active_s=self._active.total_s,
            session_s=self._active.session_s,
            began=self._active.began,
            ended=self._ended,
            pauses=tuple(self._pauses),
            sessions=tuple(self._sessions),
            unfinished=unfinished,
            version=VERSION,
            layout=LAYOUT,
            note=self._ledger.note,
            changes=[_encode_settings(settings) for settings in self._ledger.changes],
            queue=[(_encode_settings(params), by) for params, by in self._ledger.queue.values()],
        )

    def tables(self) -> Tables:
        """Return both tables and the history of the events processed so far."""
        return Tables(self.trials(), self.metrics(), self.history())

    def trials(self) -> pa.Table:
        """Return the table with one row per observed trial, sorted by number.

        Its columns are those of ``trials.parquet``: see results/README.md. Some exist only if a trial has a value for
        them, such as those of each parameter, metric and part of the overhead.
        """
        rows = self._trials
        count = len(self._trials.row)
        texts = {name: _texts(column, count) for name, column in rows.texts.items()}
        integers = _make_number_arrays(rows.integers, count)
        flags = {}
        for name, column in rows.flags.items():
            flags[name] = make_numeric_array(*column.copy_rows(count), pa.bool_())
        floats = _make_number_arrays(rows.floats, count)
        # of each parameter, the column and whether its values are JSON texts
        params = {
            f"param.{name}": make_param_array(column.copy_rows(count))
            for name, column in rows.params.items()
        }
        last = _make_number_arrays(rows.last, count, "metric.")
        best = _make_number_arrays(rows.best, count, "best.")
        tested = _make_number_arrays(rows.tested, count, "test.")
        # sweep.json of an earlier release may name no objective: the column then has only nulls
        objective = ""
        if self._objectives:
            objective, _goal = self._objectives[0]
        null_params = {}
        if any(rows.null_params.copy_rows(count)):
            null_params[NULL_PARAMS] = _texts(rows.null_params, count)
        train_s = make_array([rows.train_s(row) for row in range(count)], pa.float64())
        overhead_s = [rows.overhead_s(row) for row in range(count)]
        examples_per_s = make_array(
            [rows.examples_per_s(row) for row in range(count)], pa.float64()
        )
        available = {**texts, **integers, **flags, "examples_per_s": examples_per_s}
        # Of `LAST_OF_TRIALS`, these are left out if they are empty in the whole sweep.
        absent = set()
        for name in OF_COPIES:
            if not rows.integers[name].any:
                absent.add(name)
        if not any(rows.texts["data_reads"].copy_rows(count)):
            absent.add("data_reads")
        for name in STEERED_COLUMNS:
            if available[name].null_count == count:
                absent.add(name)
        columns = {
            # without `pa.array`, which imports pandas
            "sweep": pa.repeat(_strings([self._name.encode()])[0], count),
            "trial": integers["trial"],
            "trial_id": texts["trial_id"],
            "role": texts["role"],
            "repeat": integers["repeat"],
            "fold": integers["fold"],
            "seed": integers["seed"],
            "status": texts["status"],
            "status_reason": texts["status_reason"],
            **{name: column for name, (column, _) in params.items()},
            **null_params,
            **last,
            **best,
            **tested,
            # the last value of the first objective
            "objective": last.get(f"metric.{objective}", pa.nulls(count, pa.float64())),
            "epochs": integers["epochs"],
            "started_at": _times(rows.floats["started_at"], count),
            "ended_at": _times(rows.floats["ended_at"], count),
            "duration_s": floats["duration_s"],
            "train_s": train_s,
            "overhead_s": make_array(overhead_s, pa.float64()),
            **{
                f"overhead.{part}_s": _make_number_array(column, count)
                for part, column in rows.overhead.items()
            },
            **{f"numerics.{name}": _texts(column, count) for name, column in rows.numerics.items()},
            **self._make_sums(count),
            **{name: available[name] for name in LAST_OF_TRIALS if name not in absent},
        }
        encodings = {name: AS_JSON for name, (_, as_json) in params.items() if as_json}
        table = _make_table(columns, encodings)
        numbers, _ = rows.integers["trial"].copy_rows(count)
        # the usual case: sorting imports pyarrow.compute, which takes long
        if (np.diff(numbers) > 0).all():
            return table
        return table.sort_by("trial")  # trials may start out of order

    def _make_sums(self, count: int) -> dict[str, pa.Array]:
        """Return, by name, the columns of measures that are summed over each trial's epochs, and of the CO2 in grams.

        Measures that no trial has are left out, and the CO2 if the energy or the grams per kWh are unknown.
        """
        sums = self._trials.added_up
        columns = {}
        for name in ADDED_UP:
            if name in sums:
                columns[name] = _make_number_array(sums[name], count)
        if ENERGY in columns and self._co2_g_per_kwh is not None:
            import pyarrow.compute as pc  # see `_escape_formulas`

            columns[CO2] = pc.multiply(columns[ENERGY], self._co2_g_per_kwh / J_PER_KWH)
        return columns

    def metrics(self) -> pa.Table:
        """Return the table with one row per observed trial and epoch, sorted by both.

        Its columns are those of ``metrics.parquet``: see results/README.md. A metric or measure that an epoch lacks is
        null.
        """
        rows = self._epochs
        count = self._epochs.count
        # of each epoch, the index of its trial among the trials, which are in the order in which they started
        trial_row, _ = rows.trial_row.copy_rows(count)
        epoch, _ = rows.epoch.copy_rows(count)
        trials = len(self._trials.row)
        trial_numbers, _ = self._trials.integers["trial"].copy_rows(trials)
        # by the trial's number first: the last key counts most
        order = np.lexsort((epoch, trial_numbers[trial_row]))
        ids = _texts(self._trials.texts["trial_id"], trials)
        fields = _make_number_arrays(rows.fields, count)
        fields["timestamp"] = _times(rows.fields["timestamp"], count)
        columns = {
            "sweep": pa.repeat(_strings([self._name.encode()])[0], count),
            "trial": _make_number_array(self._trials.integers["trial"], trials).take(
                make_numeric_array(trial_row)
            ),
            "trial_id": ids.take(make_numeric_array(trial_row)),
            "epoch": make_numeric_array(epoch),
            **fields,
            **{
                f"metric.{name}": _make_number_array(column, count)
                for name, column in rows.metrics.items()
            },
            **{
                column_of_measure(name): _make_number_array(column, count)
                for name, column in rows.measures.items()
            },
        }
        return _make_table(columns, {}).take(make_numeric_array(order))


def _encode_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings or parameters with their values converted to JSON types."""
    return {key: convert_to_json_types(value) for key, value in settings.items()}


def _decode_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings or parameters with their values converted back from JSON types."""
    return {key: convert_from_json_types(value) for key, value in settings.items()}


def build_tables(folder: ResultsFolder) -> Tables:
    """Build the tables of a sweep from its whole log, without writing them; if there is no log, they have no rows.

    Raises `StoreError` if sweep.json or the log cannot be read.
    """
    builder = TableBuilder.of(folder)
    builder.follow(folder.log)
    return builder.tables()


def write(folder: ResultsFolder, tables: Tables) -> None:
    """Replace both Parquet files of a sweep, whose metadata says up to which byte of the log they were made.

    Each file is complete at any time, but not replaced together with the other one: that of the metrics comes first.
    The metadata is the history as JSON, with the mark of the log. Checkpoints that were deleted are not named. Raises
    `StoreError` if one of the files cannot be written, or the log cannot be read.
    """
    history = tables.history
    trials = without_deleted_checkpoints(folder, tables.trials)
    # The mark tells readers later whether the log is still the one from which the tables were made.
    if folder.log.exists():
        mark = log.mark(folder.log, history.log_bytes)
    else:
        mark = None
    metadata = {METADATA: json.dumps(asdict(replace(history, mark=mark))).encode()}
    for path, table in ((folder.metrics, tables.metrics), (folder.trials, trials)):
        with replacing(path) as aside:
            pq.write_table(table.replace_schema_metadata(metadata), aside, compression="zstd")


def without_deleted_checkpoints(folder: ResultsFolder, trials: pa.Table) -> pa.Table:
    """Return the table of trials with null in place of each checkpoint that is no longer in the folder.

    The log, of which tables are made, only says what was saved. If results are in an object store, of which the folder
    has no checkpoints, the table is returned as it is.
    """
    name = "checkpoint"
    if name not in trials.column_names or trials[name].null_count == len(trials) or folder.store:
        return trials
    try:
        # Usually few of many trials have one: looking for each file would take long on a network's disk. These are the
        # folders of trials.
        present = {entry.name for entry in (folder.path / "checkpoints").iterdir()}
    except OSError:
        present = set()
    kept = []
    for path in trials[name].to_pylist():
        exists = path and Path(path).parent.name in present and (folder.path / path).exists()
        kept.append(path if exists else None)
    index = trials.column_names.index(name)
    return trials.set_column(index, trials.schema.field(name), _array(kept, pa.string()))


Kind: TypeAlias = Literal["param", "number", "integer", "text"]
"""Kind of the values of a column; the values of a parameter may have any type."""
Columns: TypeAlias = Mapping[str, tuple[Kind, Sequence[Any]]]

_KINDS = {"number": pa.float64(), "integer": pa.int64(), "text": pa.string()}


def write_configurations(folder: ResultsFolder, columns: Columns) -> None:
    """Replace the sweep's configurations.parquet by ``columns``: kind and values by name, a row per configuration.

    Values of the kind "param" for which no type fits become JSON text, which the metadata of the column says. All
    columns must have the same length. Raises `StoreError` if the file cannot be written.
    """
    arrays = {}
    as_json = {}
    for name, (kind, values) in columns.items():
        if kind == "param":
            arrays[name], is_json = make_param_array(values)
            if is_json:
                as_json[name] = AS_JSON
        else:
            arrays[name] = _array(values, _KINDS[kind])
    table = _make_table(arrays, as_json)
    with replacing(folder.configurations) as aside:
        pq.write_table(table, aside, compression="zstd")


def _make_table(
    columns: Mapping[str, pa.Array], metadata: Mapping[str, Mapping[bytes, bytes]]
) -> pa.Table:
    """Return a table with ``columns`` in their order; ``metadata`` is the metadata of some of them, by name."""
    fields = []
    for name, array in columns.items():
        fields.append(pa.field(name, array.type, metadata=metadata.get(name)))
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


# pa.array() imports pandas, which takes longer than all else in this module; the following functions make equal arrays.


def make_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow array of a type; None becomes null, NaN stays a value.

    The type must be null, string, int64, float64 or boolean, otherwise KeyError is raised. Raises UnicodeEncodeError
    for a text with half a surrogate pair.
    """
    if kind == pa.null():
        return pa.nulls(len(values))
    null = np.zeros(len(values), np.bool_)
    for index, value in enumerate(values):
        null[index] = value is None
    if kind == pa.string():
        texts = [(value or "").encode() for value in values]  # what stands for a null is never read
        return _strings(texts, null)
    numbers: npt.NDArray[Any] = np.array([value or 0 for value in values], _DTYPES[kind])
    return make_numeric_array(numbers, null, kind)


def _strings(texts: Sequence[bytes], null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return UTF-8 texts as an Arrow array of strings, with nulls where ``null`` is True; None: there are none.

    Raises ArrowCapacityError for more than 2 GiB.
    """
    offsets = np.cumsum([0, *map(len, texts)])
    if offsets[-1] > np.iinfo(np.int32).max:  # Arrow's strings have offsets of 32 bits
        raise pa.ArrowCapacityError("a column of more than 2 GiB of text")
    if null is None:
        validity = None
    else:
        validity = _pack_bits(~null)
    begins = pa.py_buffer(offsets.astype(np.int32))
    content = pa.py_buffer(b"".join(texts))
    return pa.Array.from_buffers(pa.string(), len(texts), [validity, begins, content])


def make_numeric_array(
    values: npt.NDArray[Any],
    null: npt.NDArray[np.bool_] | None = None,
    kind: pa.DataType | None = None,
) -> pa.Array:
    """Return numbers as an Arrow array, with nulls where ``null`` is True; NaN stays a value.

    Without ``null``, none is null. ``kind`` is by default their own type. If it is another one, which must have the
    same size, their bytes are taken as they are. Only for booleans, 0 becomes False and all else True.
    """
    if kind is None:
        kind = pa.from_numpy_dtype(values.dtype)
    if kind == pa.bool_():
        content = _pack_bits(values)
    else:
        content = pa.py_buffer(np.ascontiguousarray(values))
    validity = None
    if null is not None:
        validity = _pack_bits(~null)
    return pa.Array.from_buffers(kind, len(values), [validity, content])


def _pack_bits(values: npt.NDArray[Any]) -> pa.Buffer:
    """Return booleans as an Arrow bitmap, in which True is 1."""
    return pa.py_buffer(np.packbits(values.astype(np.bool_), bitorder="little"))


_DTYPES = {pa.int64(): np.int64, pa.float64(): np.float64, pa.bool_(): np.bool_}


def _make_number_array(column: Numbers, rows: int) -> pa.Array:
    """Return the first ``rows`` rows of a column of numbers as an Arrow array; rows that were never set are null."""
    return make_numeric_array(*column.copy_rows(rows))


def _make_number_arrays(
    columns: Mapping[str, Numbers], rows: int, prefix: str = ""
) -> dict[str, pa.Array]:
    """Return columns of numbers as Arrow arrays by name, with ``prefix`` before each name."""
    arrays = {}
    for name, column in columns.items():
        arrays[f"{prefix}{name}"] = _make_number_array(column, rows)
    return arrays


def _times(column: Numbers, rows: int) -> pa.Array:
    """Return the first ``rows`` rows of a column of seconds since 1970 as UTC timestamps, rounded to microseconds."""
    values, null = column.copy_rows(rows)
    return make_numeric_array(np.rint(np.multiply(values, 1e6)).astype(np.int64), null, _TIME)


def _texts(column: Objects[str], rows: int) -> pa.Array:
    """Return the first ``rows`` rows of a column of texts as an Arrow array; rows that were never set are null."""
    return _array(column.copy_rows(rows), pa.string())


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow array of a type; what is not valid Unicode in texts is escaped with backslashes.

    The types are those of `make_array`, and None becomes null.
    """
    try:
        return make_array(values, kind)
    except UnicodeEncodeError:  # a lone surrogate, from a traceback or a file name
        texts: list[str | None] = []
        for value in values:
            if value is None:
                texts.append(None)
            else:
                texts.append(str(value).encode("utf-8", "backslashreplace").decode())
        return make_array(texts, pa.string())


def make_param_array(values: Sequence[object]) -> tuple[pa.Array, bool]:
    """Return a parameter's values as an Arrow array, and whether they became JSON text because no type fits all.

    Integers among floats become floats. If an integer is too large for that to be exact, or for 64 bits, all values
    become JSON text; so do lists, mappings, and values of different types such as texts and numbers. None becomes null
    in any case. Without other values, the array has the type null.
    """
    kinds = frozenset(type(value) for value in values if value is not None)
    kind = _PARAM_TYPES.get(kinds)
    largest_exact = 2**53 if float in kinds else 2**63 - 1  # integer of a float, or of 64 bits
    is_too_large = any(type(value) is int and abs(value) > largest_exact for value in values)
    if kind is None or is_too_large:
        texts: list[str | None] = []
        for value in values:
            texts.append(None if value is None else json.dumps(convert_to_json_types(value)))
        return make_array(texts, pa.string()), True
    return _array(values, kind), False


_PARAM_TYPES = {
    frozenset[type](): pa.null(),
    frozenset[type]({bool}): pa.bool_(),
    frozenset[type]({int}): pa.int64(),
    frozenset[type]({float}): pa.float64(),
    frozenset[type]({int, float}): pa.float64(),
    frozenset[type]({str}): pa.string(),
}


_FORMULA = "^[=+@\t\r-]"  # what a spreadsheet takes for the beginning of a formula


def write_csv(table: pa.Table, path: Path) -> None:
    """Write a table as CSV to ``path``, replacing any file there.

    Texts and names of columns that a spreadsheet would take for formulas get an apostrophe in front. Raises OSError if
    the file cannot be written, which may then be incomplete.
    """
    from pyarrow import csv

    columns = []
    for column in table.columns:
        columns.append(_escape_formulas(column) if pa.types.is_string(column.type) else column)
    names = _escape_formulas(pa.array(table.column_names, pa.string())).to_pylist()
    csv.write_csv(pa.table(columns, names=names), path, csv.WriteOptions(eol="\r\n"))


def _escape_formulas(texts: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return texts with an apostrophe before those that a spreadsheet would take for formulas.

    These begin with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return.
    """
    import pyarrow.compute as pc  # takes as long to import as the rest of Arrow

    formulas = pc.match_substring_regex(texts, _FORMULA)
    return pc.if_else(formulas, pc.binary_join_element_wise("'", texts, ""), texts)
