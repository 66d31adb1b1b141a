"""Reads the tables of a sweep, up to date with its log: from the table files, with what the log has beyond them.

Outdated tables are updated without reading the whole log: the rows of trials that had ended when the tables were
written are kept, and the log is read from the beginning of the first other trial. So a running or killed sweep is read
as fast as a finished one, and a long one is resumed without rebuilding all its tables. While the sweep runs, a thread
keeps the files up to date without delaying it. Columns are read without pandas, whose import takes longer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sweep.errors import StoreError, in_short
from sweep.events import NULL_PARAMS, convert_from_json_types, decode
from sweep.store import log
from sweep.store.columns import ADDED_UP, CO2, EPOCH_FIELDS, EPOCH_KEYS, LAST_OF_TRIALS
from sweep.store.disk import storing
from sweep.store.folder import ResultsFolder
from sweep.store.follower import Follower
from sweep.store.sweep_info import VERSION
from sweep.store.tables import (
    AS_JSON,
    LAYOUT,
    METADATA,
    History,
    TableBuilder,
    Tables,
    build_tables,
    make_numeric_array,
    without_deleted_checkpoints,
    write,
)


def read_tables(folder: ResultsFolder, metrics: Sequence[str] | None = None) -> Tables:
    """Return the tables of a sweep as its log is now, without writing anything.

    ``metrics`` lists the columns of the metrics table to read, of which missing ones are left out; None reads all.
    Table files that are missing, unusable or made from another log are ignored, and the log is read instead. If there
    is no log, the files are read as they are; without files either, the tables have no rows. Checkpoints that were
    deleted are not named. Raises `StoreError` if a file, the log or sweep.json is damaged or cannot be read, or if
    there is no log and the files do not belong together.
    """
    found = _read_as_logged(folder, metrics)
    return replace(found, trials=without_deleted_checkpoints(folder, found.trials))


def _read_as_logged(folder: ResultsFolder, metrics: Sequence[str] | None) -> Tables:
    """Return the tables as `read_tables` does, with all checkpoints that the log and the files name, even deleted ones.

    Raises the same errors.
    """
    with ExitStack() as stack:
        # Each file is opened only once, because a running sweep replaces them.
        files = _open_tables(folder, stack)
        history = _read_history(files, folder)
        if history is None:  # no usable files
            behind = None
        else:
            behind = count_bytes_behind(history, folder.log)  # None if they are of another log
        if history is not None and behind == 0:
            return _read_stored(files, folder, history, metrics)
        if history is not None and behind and _is_of_this_version(history):
            # Rows are merged by trial, so its column is needed too, unless no columns ([]) or all (None) are read.
            if metrics:
                needed: Sequence[str] | None = ("trial", *metrics)
            else:
                needed = metrics
            found = update_tables(folder, _read_stored(files, folder, history, needed), needed)
            if found is not None:
                return Tables(found.trials, _select_columns(found.metrics, metrics), found.history)
    if not folder.log.exists() and (folder.trials.exists() or folder.metrics.exists()):
        # otherwise the sweep would be shown as one without trials
        raise StoreError(
            f"{folder.trials}: cannot be read with {folder.metrics.name}, and {folder.log.name} is missing; "
            "put the log back, or both tables of one session"
        )
    found = build_tables(folder)
    return Tables(found.trials, _select_columns(found.metrics, metrics), found.history)


def _read_stored(
    files: Sequence[pq.ParquetFile],
    folder: ResultsFolder,
    history: History,
    metrics: Sequence[str] | None,
) -> Tables:
    """Read both tables from open files (trials, metrics), and return them with their ``history``.

    ``metrics`` lists the columns of the metrics table to read, of which missing ones are skipped; None reads all.
    Raises `StoreError` if the disk fails or a file is damaged.
    """
    with storing(folder.trials), _naming_damaged_tables(folder):
        names = None
        if metrics is not None:
            names = []
            for name in files[1].schema_arrow.names:
                if name in metrics:
                    names.append(name)
        trials = files[0].read()
        epochs = files[1].read(columns=names)
    # The metadata are the stored history, which would be wrong as soon as the tables are updated.
    return Tables(trials.replace_schema_metadata(), epochs.replace_schema_metadata(), history)


@contextmanager
def _naming_damaged_tables(folder: ResultsFolder) -> Iterator[None]:
    """Raise a `StoreError` that names both table files if Arrow cannot decode what the block reads from them.

    If there is a log, its message says to delete the files. Errors of the disk and other exceptions pass unchanged.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        # the disk fails: Arrow's own errors have no number
        if isinstance(error, OSError) and error.errno is not None:
            raise
        hint = ""
        if folder.log.exists():
            hint = "; delete both: they are made again from the log"
        raise StoreError(
            f"{folder.trials} or {folder.metrics.name}: damaged ({in_short(error)}){hint}"
        ) from error


def _select_columns(metrics: pa.Table, names: Sequence[str] | None) -> pa.Table:
    """Return ``metrics`` with only those of its columns that are in ``names``, or with all if ``names`` is None."""
    if names is None:
        return metrics
    return metrics.select([name for name in metrics.column_names if name in names])


def _open_tables(folder: ResultsFolder, stack: ExitStack) -> list[pq.ParquetFile]:
    """Open both Parquet files and return [trials, metrics]; return [] if one is missing or not Parquet.

    ``stack`` closes the files.
    """
    try:
        # Not as Python files: Arrow's threads may still hold one when the interpreter ends, which then aborts.
        handles = []
        for path in (folder.trials, folder.metrics):
            handles.append(stack.enter_context(pa.OSFile(str(path))))
        tables = []
        for handle in handles:
            tables.append(stack.enter_context(pq.ParquetFile(handle)))
        return tables
    except (OSError, ValueError):  # the caller then reads the log
        return []


def _read_history(files: Sequence[pq.ParquetFile], folder: ResultsFolder) -> History | None:
    """Return the history in the metadata of both files: up to which point of the log they were made.

    None is returned if there are no files, if they disagree or were not made by sweep, or if this version does not know
    the fields of their history. If there is a log, None is also returned for files of an early version in which the
    column of a parameter has nulls: they do not tell a parameter that is null from one that the trial does not have.
    Raises StoreError if such files are damaged.
    """
    try:
        trials, metrics = ((file.schema_arrow.metadata or {})[METADATA] for file in files)
        if trials == metrics:
            history = History(**json.loads(trials))
        else:
            history = None
    # ValueError also for no files, TypeError for another version's fields
    except (KeyError, TypeError, ValueError):
        return None
    if history is None or history.layout == LAYOUT or not folder.log.exists():
        return history
    # Tables of layout 0 do not tell a parameter that is null from one that the trial does not have.
    names = []
    for name in files[0].schema_arrow.names:
        if name.startswith("param."):
            names.append(name)
    with _naming_damaged_tables(folder):
        params = files[0].read(columns=names)
    has_nulls = any(column.null_count for column in params.columns)
    if has_nulls:
        return None
    return history


def _is_of_this_version(history: History) -> bool:
    """Return whether this version of sweep has made the tables, and thus would make the same columns."""
    return (history.version, history.layout) == (VERSION, LAYOUT)


def count_bytes_behind(history: History, path: Path) -> int | None:
    """Return how many bytes of the log ``path`` the tables lack; None if they were made from another log.

    The length of the log and, if the tables have one, the mark of their end in it are compared (`log.mark`). Tables
    without a mark count as made from another log if its length differs at all. 0 is returned if there is no log,
    because the tables cannot be outdated then.
    """
    if not path.exists():
        return 0
    beyond = path.stat().st_size - history.log_bytes
    if history.mark is None:  # made by an early version
        return None if beyond else 0
    if log.was_replaced(path, history.log_bytes, history.mark):
        return None
    return beyond


def read_columns(table: pa.Table, names: Iterable[str]) -> dict[str, list[object]]:
    """Return the named columns as lists of Python values by name: JSON decoded, nulls as None.

    Only texts of columns that are marked as JSON are decoded. Columns that the table lacks are left out.
    """
    values_by_name: dict[str, list[object]] = {}
    for name in names:
        if name not in table.column_names:
            continue
        values = table[name].to_pylist()
        # The metadata of the column may have more than this.
        is_json = AS_JSON.items() <= (table.schema.field(name).metadata or {}).items()
        if is_json:
            for index, text in enumerate(values):
                if text is not None:
                    values[index] = convert_from_json_types(json.loads(text))
        values_by_name[name] = values
    return values_by_name


_KINDS = {pa.float64(): np.float64, pa.int64(): np.int64}  # with the same bytes in Arrow and NumPy


def total(table: pa.Table, name: str) -> float | None:
    """Return the sum of a column of numbers, in which nulls count as 0; None if the table has no such column.

    For a column of nulls alone or without rows, it is 0.
    """
    if name not in table.column_names:
        return None
    return float(numbers(table, name).sum())


def numbers(table: pa.Table, name: str, *, missing: float = 0.0) -> npt.NDArray[np.float64]:
    """Return a column of numbers as floats; ``missing`` takes the place of nulls, or of a column that the table lacks.

    Booleans become 0 and 1. The array may be read-only, because it may share the memory of the table.
    """
    if name not in table.column_names:
        return np.full(table.num_rows, missing)
    column = table[name].combine_chunks()
    if column.type not in _KINDS:
        column = column.cast(pa.float64())
    # Read from its memory: `to_numpy` and `fill_null` import pandas, `cast` the library of computations.
    # ``bits`` has a bit for each row, 1 unless it is null; there may be none if no row is null.
    bits, content = column.buffers()
    kind = _KINDS[column.type]
    if len(column):  # part of a table may begin within its buffers, at `offset`
        stored = np.frombuffer(content, kind, len(column), 8 * column.offset)
    else:  # without rows, there may be no buffer
        stored = np.zeros(0)
    values = stored.astype(np.float64, copy=False)
    if not column.null_count:
        return values
    all_bits = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    is_valid = all_bits[column.offset : column.offset + len(column)]
    return np.where(is_valid, values, missing)


# beginnings of records: of a trial's event, and of the start of a session
_TRIAL = re.compile(rb'\{"event":"[a-z_]+","trial":(\d+)[,}]')
_SESSION = b'{"event":"session_started"'
# the columns of trials and of metrics by their place in the tables: see `_trial_group` and `_epoch_group`
_HEAD = frozenset(
    {"sweep", "trial", "trial_id", "role", "repeat", "fold", "seed", "status", "status_reason"}
)
_MIDDLE = frozenset(
    {"objective", "epochs", "started_at", "ended_at", "duration_s", "train_s", "overhead_s"}
)
_LAST = (*ADDED_UP, CO2, *LAST_OF_TRIALS)  # columns that are known one by one, in their order
_EPOCH_HEAD = frozenset({*EPOCH_KEYS, *EPOCH_FIELDS})


def update_tables(
    folder: ResultsFolder, stored: Tables, names: Sequence[str] | None = None
) -> Tables | None:
    """Return stored tables updated to the end of the log; None if that requires reading the whole log.

    That is required if a trial that had ended in ``stored`` continues, the log is damaged, or a column has no type that
    fits its old and new values. ``stored`` must come from this log and this version of sweep. ``names`` lists the
    columns that ``stored.metrics`` has, including ``trial``; None if it has all. If ``names`` is empty, the metrics
    table is not updated. Nothing is written.
    """
    try:
        builder = _resume_builder(folder, stored.history)
        builder.follow(folder.log)
    # an ended trial continues, or the log is damaged: reading all of it tells more
    except StoreError:
        return None
    return _merge_tables(stored, builder, names)


def _resume_builder(folder: ResultsFolder, history: History) -> TableBuilder:
    """Return a builder that has observed the unfinished trials up to ``history.log_bytes`` and can go on from there.

    It has no rows of other trials. ``history`` is that of the stored tables.

    Raises:
        StoreError: if the log is damaged, a trial that had ended continues in it, or sweep.json cannot be read.
    """
    builder = TableBuilder.of(folder)
    # by trial: the byte of the log at which it begins
    open_trials = dict(history.unfinished or ())
    # Two totals, in seconds, by the byte of the log at which a session begins: of the pauses between earlier sessions,
    # and of these sessions themselves. They grow from session to session.
    pauses_before = dict(history.pauses)
    sessions_before = dict(history.sessions)
    # Read from the first open trial on. The rows of its events need the totals of the session in which they were
    # written, so the builder gets these now, and again where another session begins. All else in its history is
    # replaced at the end, so until then one with nothing but a position will do.
    start = min(open_trials.values(), default=history.log_bytes)
    builder.continue_from(
        History(log_bytes=start),
        _get_total_before(pauses_before, start),
        _get_total_before(sessions_before, start),
    )
    for place, line in _read_lines(folder.log, start, history.log_bytes):
        found = _TRIAL.match(line)
        if found and int(found[1]) in open_trials:  # lines of other trials are not even decoded
            builder.observe(decode(line), place)
        elif line.startswith(_SESSION):
            builder.continue_from(
                History(log_bytes=place),
                pauses_before.get(place, 0.0),
                sessions_before.get(place, 0.0),
            )
    # From here on, the builder follows the log in the last session, whose totals are the largest.
    builder.continue_from(
        history,
        max(pauses_before.values(), default=0.0),
        max(sessions_before.values(), default=0.0),
    )
    return builder


def _merge_tables(
    stored: Tables, builder: TableBuilder, names: Sequence[str] | None = None
) -> Tables | None:
    """Return ``stored`` with the builder's rows added, in place of the rows of the same trials.

    ``names`` lists the columns that ``stored.metrics`` has, including ``trial``; None if it has all. If it is empty,
    the metrics table is returned as it is. None is returned if a column has no type that fits both.
    """
    fresh = builder.trials()
    fresh_numbers = numbers(fresh, "trial").astype(np.int64)
    trials = _merge_table(stored.trials, fresh, fresh_numbers, _trial_group)
    metrics = stored.metrics
    if names is None or names:  # not for an empty list: no metrics are asked for
        epochs = builder.metrics()
        epochs = epochs.select(
            [name for name in epochs.column_names if names is None or name in names]
        )
        metrics = _merge_table(metrics, epochs, fresh_numbers, _epoch_group)
    if trials is None or metrics is None:
        return None
    return Tables(trials, metrics, builder.history())


def _read_lines(path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (byte at which it begins, line) for each line of a file from byte ``start`` to byte ``end``.

    Both must be beginnings of lines, or ``end`` the end of the file. Lines have their line feeds. If the file ends
    before ``end``, as when it was replaced, no more are yielded.
    """
    with path.open("rb") as file:
        file.seek(start)
        while start < end:
            line = file.readline()
            if not line:
                return
            yield start, line
            start += len(line)


def _merge_table(
    old: pa.Table, new: pa.Table, replaced: npt.NDArray[np.int64], group: Callable[[str], int]
) -> pa.Table | None:
    """Return the rows of ``old`` except those of the ``replaced`` trials, and all rows of ``new``, sorted by trial.

    ``replaced`` has numbers of trials. Rows of the same trial keep their order. ``group`` returns for the name of a
    column the key by which columns are sorted. None is returned if a column has no type that fits both tables.
    """
    keep = ~np.isin(numbers(old, "trial").astype(np.int64), replaced)
    count = int(keep.sum())
    # the usual case, as the replaced trials are the latest: nothing is copied
    if keep[:count].all():
        kept = old.slice(0, count)
    else:
        kept = old.take(make_numeric_array(np.flatnonzero(keep)))
    joined = _append_table(kept, new, group)
    if joined is None:
        return None
    trial_numbers = numbers(joined, "trial").astype(np.int64)
    in_order = bool((np.diff(trial_numbers) >= 0).all())
    if in_order:
        return joined
    # Stable: the epochs of a trial keep their order.
    return joined.take(make_numeric_array(np.argsort(trial_numbers, kind="stable")))


def _get_total_before(totals: Mapping[int, float], place: int) -> float:
    """Return the total that holds just before byte ``place`` of the log; 0 if there is none.

    ``totals`` has each total by the byte from which on it holds. They must grow with the byte.
    """
    # the last one, as they grow
    return max((total for noted_at, total in totals.items() if noted_at < place), default=0.0)


def _append_table(
    first: pa.Table, second: pa.Table, group: Callable[[str], int]
) -> pa.Table | None:
    """Return the rows of ``first``, then those of ``second``, with the columns of both sorted by ``group``.

    ``group`` returns for the name of a column the key by which columns are sorted. A column that one of them lacks is
    null in its rows. None is returned if a column has no type that fits both tables.
    """
    names = list(dict.fromkeys([*first.column_names, *second.column_names]))
    fields, columns = [], []
    for name in sorted(names, key=group):
        present_fields = []
        for table in (first, second):
            if name in table.column_names:
                present_fields.append(table.schema.field(name))
        # A column of nulls alone has the type null, and fits any other one.
        typed_fields = [one for one in present_fields if not pa.types.is_null(one.type)]
        field = _get_common_field(typed_fields, name)
        if field is None:
            return None
        chunks = []
        try:
            for table in (first, second):
                chunks.extend(_cast_column(table, field).chunks)
        except pa.ArrowInvalid:  # a whole number that no float can represent
            return None
        fields.append(field)
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _cast_column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """Return the column of a field, converted to the field's type; nulls if the table lacks it.

    Raises ArrowInvalid if a value does not fit the type.
    """
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table[field.name]
    if column.type == field.type:
        return column
    return column.cast(field.type)


def _get_common_field(fields: Sequence[pa.Field], name: str) -> pa.Field | None:
    """Return a field named ``name`` whose type fits all ``fields``, which are 0 to 2; None if there is none.

    For no fields, its type is null; for integers and floats, float. Otherwise the fields must have the same type, and
    the same metadata.
    """
    if not fields:
        return pa.field(name, pa.null())
    kinds = {field.type for field in fields}
    if kinds == {pa.int64(), pa.float64()}:
        return pa.field(name, pa.float64())
    # The metadata say whether texts are JSON.
    metadata = {str(field.metadata) for field in fields}
    if len(kinds) > 1 or len(metadata) > 1:
        return None
    return fields[0]


def _trial_group(name: str) -> int:
    """Return the sort key of a column of the trials, for the order of `TableBuilder.trials`.

    Raises ValueError for a name that no such column can have.
    """
    # `_MIDDLE`, whose names have no prefix in common, comes between the tests and the overheads.
    prefixes = {
        "param.": 1,
        NULL_PARAMS: 2,
        "metric.": 3,
        "best.": 4,
        "test.": 5,
        "overhead.": 7,
        "numerics.": 8,
    }
    if name in _HEAD:
        return 0
    if name in _MIDDLE:
        return 6
    if name in _LAST:
        return 9 + _LAST.index(name)
    for prefix, group in prefixes.items():
        if name.startswith(prefix):
            return group
    raise ValueError(f"{name} has no place among the columns of trials")


def _epoch_group(name: str) -> int:
    """Return the sort key of a column of the metrics, for the order of `TableBuilder.metrics`.

    It is 0 for the columns that every sweep has, 1 for metrics and 2 for measures.
    """
    if name in _EPOCH_HEAD:
        return 0
    if name.startswith("metric."):
        return 1
    return 2


FIRST_S = 2.0
"""Least pause between two updates of the table files, and before the first one."""


class TableWriter(Follower):
    """Keeps both table files of a running sweep up to date, without reading again trials that had ended in them."""

    def __init__(self, folder: ResultsFolder, *, first_s: float = FIRST_S) -> None:
        self._folder = folder
        # What `_open_stored` returns: the tables in the files, and a builder for what the log has beyond them. The
        # tables are None if the builder reads the whole log. None until the files are opened.
        self._parts: tuple[Tables | None, TableBuilder] | None = None
        # bytes of the log that the files cover; -1 if there are no usable files, so that any log has more
        self._written = -1
        super().__init__("tables", first_s)

    def update(self) -> None:
        """Write both table files again if the log has events that they lack, or if they are missing or unusable.

        The rows of trials that had ended in the files are kept if possible; otherwise the whole log is read. Raises
        `StoreError` if the log or sweep.json is damaged, or a file cannot be written.
        """
        if self._parts is None:
            self._parts = self._open_stored()
        stored, builder = self._parts
        # the new tables, or None if the stored ones cannot be updated
        tables: Tables | None = None
        try:
            end = builder.follow(self._folder.log)
            if end == self._written:  # the log has nothing that the files lack
                return
            if stored is None:
                tables = builder.tables()
            else:
                tables = _merge_tables(stored, builder)  # None if a column has other values now
        except StoreError:
            # If the builder was reading the whole log, this is damaged. Otherwise, a trial that had ended in the
            # stored tables may continue: then reading the whole log helps, and if it is damaged, that says how.
            if stored is None:
                raise
        if tables is None:
            self._parts = (None, TableBuilder.of(self._folder))
            # Not again and again: without stored tables, the next call returns, writes or raises.
            self.update()
            return
        write(self._folder, tables)
        self._written = tables.history.log_bytes

    def drop(self) -> None:
        """Discard the tables in memory, so that the next update reads the files again."""
        self._parts = None

    def _open_stored(self) -> tuple[Tables | None, TableBuilder]:
        """Return the stored tables, and a builder for the trials that had not ended in them.

        If the files are missing or unusable, return None and a builder for the whole log. Sets `_written` to the bytes
        of the log that the files cover, or -1. Raises `StoreError` if sweep.json cannot be read.
        """
        folder = self._folder
        self._written = -1
        with ExitStack() as stack:
            files = _open_tables(folder, stack)
            history = _read_history(files, folder)  # None if there are no usable files
            if (
                history is not None
                and _is_of_this_version(history)
                and count_bytes_behind(history, folder.log) is not None  # else it is of another log
            ):
                with suppress(StoreError, ValueError):  # damaged files: read the log instead
                    stored = _read_stored(files, folder, history, None)
                    builder = _resume_builder(folder, history)
                    self._written = history.log_bytes
                    return stored, builder
        return None, TableBuilder.of(folder)
