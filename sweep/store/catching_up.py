"""Tables that lag behind their log, brought up to it without reading all of it again.

What had ended for good when they were written stays as it is. Only trials that had not are read again, from where the
first of them begins, and all that came later: a sweep that runs or was killed is looked at as fast as a finished one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sweep.errors import StoreError
from sweep.store import log
from sweep.store.folder import ResultsFolder
from sweep.store.records import decode
from sweep.store.rows import EPOCH_FIELDS
from sweep.store.tables import History, TableBuilder, Tables
from sweep.store.values import numbers

_TRIAL = re.compile(rb'\{"event":"[a-z_]+","trial":(\d+)[,}]')
_SESSION = b'{"event":"session_started"'
_HEAD = frozenset({"sweep", "trial", "trial_id", "role", "repeat", "fold", "seed", "status", "status_reason"})
_MIDDLE = frozenset({"objective", "epochs", "started_at", "ended_at", "duration_s", "train_s", "overhead_s"})
_ENERGY = frozenset({"energy_j", "co2_g"})
_EPOCH_HEAD = frozenset({"sweep", "trial", "trial_id", "epoch", *EPOCH_FIELDS})


def is_behind(history: History, path: Path) -> bool:
    """Whether tables were made of the beginning of a log, and tell what it takes to go on."""
    known = history.mark is not None and history.unfinished is not None and path.exists()
    return known and path.stat().st_size > history.log_bytes and log.mark(path, history.log_bytes) == history.mark


def caught_up(folder: ResultsFolder, stored: Tables, names: Sequence[str] | None = None) -> Tables | None:
    """The tables as the log stands now; None where only the whole log can tell.

    ``names`` are the columns of ``stored.metrics``, as far as there are such: none, or some with ``trial``; None: all.
    """
    builder = TableBuilder.of(folder)
    try:
        _replay(builder, folder.log, stored.history)
        builder.follow(folder.log)
    except StoreError:  # a trial that had ended goes on; or a damaged log, of which the reading of it all tells more
        return None
    fresh = builder.trials()
    again = numbers(fresh, "trial").astype(np.int64)
    trials = _merged(stored.trials, fresh, again, _trial_group)
    metrics = stored.metrics
    if names is None or names:
        epochs = builder.metrics()
        epochs = epochs.select([name for name in epochs.column_names if names is None or name in names])
        metrics = _merged(metrics, epochs, again, _epoch_group)
    return None if trials is None or metrics is None else Tables(trials, metrics, builder.history())


def _replay(builder: TableBuilder, path: Path, history: History) -> None:
    """Let a builder observe the unfinished trials up to where the tables end, with the pauses between sessions."""
    open_trials = dict(history.unfinished or ())
    pauses = dict(history.pauses)
    start = min(open_trials.values(), default=history.log_bytes)
    builder.go_on(History(log_bytes=start), max((total for at, total in pauses.items() if at < start), default=0.0))
    for place, line in _lines(path, start, history.log_bytes):
        found = _TRIAL.match(line)
        if found and int(found[1]) in open_trials:
            builder.observe(decode(line), place)
        elif line.startswith(_SESSION):
            builder.go_on(History(log_bytes=place), pauses.get(place, 0.0))
    builder.go_on(history, max(pauses.values(), default=0.0))


def _lines(path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        file.seek(start)
        while start < end:
            line = file.readline()
            yield start, line
            start += len(line)


def _merged(
    old: pa.Table, new: pa.Table, replaced: npt.NDArray[np.int64], group: Callable[[str], int]
) -> pa.Table | None:
    """All rows of trials that are not replaced, and the new ones, by the number of their trial."""
    keep = ~np.isin(numbers(old, "trial").astype(np.int64), replaced)
    count = int(keep.sum())
    kept = old.slice(0, count) if keep[:count].all() else old.filter(pa.array(keep))
    joined = _joined(kept, new, group)
    if joined is None:
        return None
    order = numbers(joined, "trial").astype(np.int64)
    in_order = bool((np.diff(order) >= 0).all())
    return joined if in_order else joined.take(pa.array(np.argsort(order, kind="stable")))


def _joined(first: pa.Table, second: pa.Table, group: Callable[[str], int]) -> pa.Table | None:
    """One table below the other, with the columns of both; None where a column has no type for all of its values."""
    names = list(dict.fromkeys([*first.column_names, *second.column_names]))
    fields, columns = [], []
    for name in sorted(names, key=group):
        parts = [table.schema.field(name) if name in table.column_names else None for table in (first, second)]
        field = _common([part for part in parts if part is not None and not pa.types.is_null(part.type)], name)
        if field is None:
            return None
        try:
            chunks = [_column(table, field).chunks for table in (first, second)]
        except pa.ArrowInvalid:  # a whole number that no float can be
            return None
        fields.append(field)
        columns.append(pa.chunked_array([chunk for part in chunks for chunk in part], field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    return table[field.name].cast(field.type)


def _common(fields: Sequence[pa.Field], name: str) -> pa.Field | None:
    """The type of a column that two tables have; None where their values have none in common."""
    if not fields:
        return pa.field(name, pa.null())
    kinds = {field.type for field in fields}
    if kinds == {pa.int64(), pa.float64()}:
        return pa.field(name, pa.float64())
    alike = len(kinds) == 1 and len({str(field.metadata) for field in fields}) == 1
    return fields[0] if alike else None


def _trial_group(name: str) -> int:
    """Where a column of the trials stands, as `TableBuilder.trials` puts them; within a group in their order."""
    prefixes = {"param.": 1, "metric.": 2, "best.": 3, "test.": 4, "overhead.": 6, "numerics.": 7}
    group = next((group for prefix, group in prefixes.items() if name.startswith(prefix)), 9)
    return 0 if name in _HEAD else 5 if name in _MIDDLE else 8 if name in _ENERGY else group


def _epoch_group(name: str) -> int:
    """As `_trial_group`, of the metrics."""
    return 0 if name in _EPOCH_HEAD else 1 if name.startswith("metric.") else 2
