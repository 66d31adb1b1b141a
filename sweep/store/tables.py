"""The two tables of a sweep, derived from its log; the one module that knows pyarrow.

``trials.parquet`` has a row per trial, ``metrics.parquet`` one per trial and epoch. The columns are listed
in results/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sweep.events import EpochReported, Event, SessionEnded, SessionStarted, TrialEnded, TrialStarted
from sweep.store import log
from sweep.store.columns import Numbers, Objects
from sweep.store.disk import replacing, storing
from sweep.store.folder import Objectives, ResultsFolder
from sweep.store.records import natural, plain
from sweep.store.rows import EpochRows, TrialRows

_TIME = pa.timestamp("us", tz="UTC")
_JSON = {b"encoding": b"json"}  # on a parameter column whose text is JSON
_METADATA = b"sweep"  # in both files: their history


@dataclass(frozen=True, slots=True)
class History:
    """How far the log had come when tables were made of it, and how its sessions went."""

    log_bytes: int = 0
    started: float | None = None  # seconds since 1970
    last: float | None = None  # time of the last event
    active_s: float = 0.0  # from the first to the last event, without the pauses between sessions
    ended: str | None = None  # why the last session ended; None: it runs, or was killed


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one sweep, in memory."""

    trials: pa.Table
    metrics: pa.Table
    history: History


class TableBuilder:
    """Takes the events of a log in order and makes tables of them, at any time and again.

    It keeps some 0.7 kB for a trial and 0.1 kB for an epoch. Raises `StoreError` for a log that cannot be:
    a report of a trial that was never started.
    """

    def __init__(self, sweep_name: str, objectives: Objectives) -> None:
        self._name = sweep_name
        self._objectives = objectives
        self._trials = TrialRows(objectives)
        self._epochs = EpochRows()
        self._started: float | None = None
        self._last: float | None = None
        self._ended: str | None = None
        self._log_bytes = 0

    @classmethod
    def of(cls, folder: ResultsFolder) -> TableBuilder:
        """A builder for the sweep in ``folder``, which has observed nothing yet."""
        return cls(str(folder.read_info().get("name", folder.name)), folder.objectives())

    def observe(self, event: Event) -> None:
        match event:
            case EpochReported():
                row = self._trials.report(event)
                if row is not None:
                    self._epochs.report(row, event)
            case TrialStarted():
                self._trials.start(event)
            case TrialEnded():
                self._trials.end(event)
            case SessionStarted():
                self._ended = None
                if self._last is not None:
                    self._trials.pauses_s += max(0.0, event.time - self._last)
            case SessionEnded():
                self._ended = event.reason
        self._started = event.time if self._started is None else self._started
        self._last = event.time if self._last is None else max(self._last, event.time)

    def follow(self, path: Path) -> int:
        """Observe what has come to a log since the last call; returns the bytes observed in all."""
        while path.exists():
            events, self._log_bytes = log.read_from(path, self._log_bytes)
            if not events:
                break
            for event in events:
                self.observe(event)
        return self._log_bytes

    def history(self) -> History:
        """How the log has gone so far."""
        active_s = (self._last or 0.0) - (self._started or 0.0) - self._trials.pauses_s
        return History(self._log_bytes, self._started, self._last, active_s, self._ended)

    def trials(self) -> pa.Table:
        """One row per trial, by number."""
        rows, count = self._trials, len(self._trials.row)
        texts = {name: _texts(column, count) for name, column in rows.texts.items()}
        whole = {name: _numbers(column, count) for name, column in rows.integers.items()}
        floats = {name: _numbers(column, count) for name, column in rows.floats.items()}
        params = {f"param.{name}": _params(column.filled(count)) for name, column in rows.params.items()}
        last = {f"metric.{name}": _numbers(column, count) for name, column in rows.last.items()}
        best = {f"best.{name}": _numbers(column, count) for name, column in rows.best.items()}
        first = self._objectives[0][0] if self._objectives else ""
        train_s = pa.array([rows.train_s(row) for row in range(count)], pa.float64())
        overhead_s = [
            None if (total := rows.floats["duration_s"].get(row)) is None else total - rows.train_s(row)
            for row in range(count)
        ]
        columns = {
            "sweep": pa.repeat(pa.scalar(self._name, pa.string()), count),
            "trial": whole["trial"],
            "trial_id": texts["trial_id"],
            "repeat": whole["repeat"],
            "seed": whole["seed"],
            "status": texts["status"],
            "status_reason": texts["status_reason"],
            **{name: column for name, (column, _) in params.items()},
            **last,
            **best,
            "objective": last.get(f"metric.{first}", pa.nulls(count, pa.float64())),
            "epochs": whole["epochs"],
            "started_at": _times(rows.floats["started_at"], count),
            "ended_at": _times(rows.floats["ended_at"], count),
            "duration_s": floats["duration_s"],
            "train_s": train_s,
            "overhead_s": pa.array(overhead_s, pa.float64()),
            **{f"overhead.{part}_s": _numbers(column, count) for part, column in rows.overhead.items()},
            "node": texts["node"],
            "devices": texts["devices"],
            "strategy": texts["strategy"],
            "num_replicas": whole["num_replicas"],
            "precision": texts["precision"],
            "accumulate": whole["accumulate"],
            "data": texts["data"],
            "examples_per_s": pa.array([rows.examples_per_s(row) for row in range(count)], pa.float64()),
            "checkpoint": texts["checkpoint"],
            "memo": texts["memo"],
            "memo_epochs": whole["memo_epochs"],
            "error": texts["error"],
        }
        encodings = {name: _JSON for name, (_, as_json) in params.items() if as_json}
        return _table(columns, encodings).sort_by("trial")  # they need not start by number

    def metrics(self) -> pa.Table:
        """One row per trial and epoch, sorted by both."""
        rows, count = self._epochs, self._epochs.count
        trial_row, _ = rows.trial_row.filled(count)
        epoch, _ = rows.epoch.filled(count)
        order = np.lexsort((epoch, trial_row))
        trials = len(self._trials.row)
        ids = _texts(self._trials.texts["trial_id"], trials)
        fields = {name: _numbers(column, count) for name, column in rows.fields.items()}
        fields["timestamp"] = _times(rows.fields["timestamp"], count)
        columns = {
            "sweep": pa.repeat(pa.scalar(self._name, pa.string()), count),
            "trial": _numbers(self._trials.integers["trial"], trials).take(pa.array(trial_row)),
            "trial_id": ids.take(pa.array(trial_row)),
            "epoch": pa.array(epoch),
            **fields,
            **{f"metric.{name}": _numbers(column, count) for name, column in rows.metrics.items()},
        }
        for name, column in rows.measures.items():
            taken = name in columns or name.startswith("metric.")
            columns[f"measure.{name}" if taken else name] = _numbers(column, count)
        return _table(columns, {}).take(pa.array(order))

    def write(self, folder: ResultsFolder) -> None:
        """Replace both Parquet files, each whole at every moment."""
        metadata = {_METADATA: json.dumps(asdict(self.history())).encode()}
        for path, make in ((folder.metrics, self.metrics), (folder.trials, self.trials)):
            table = make().replace_schema_metadata(metadata)
            with replacing(path) as aside:
                pq.write_table(table, aside, compression="zstd")


def read(folder: ResultsFolder) -> Tables:
    """The tables of a sweep as its log stands now; writes nothing.

    They come from the Parquet files where these hold the whole log, else from the log. Raises `StoreError`.
    """
    size = folder.log.stat().st_size if folder.log.exists() else None
    with ExitStack() as stack:
        # Each is opened once: a running sweep puts new ones in their place.
        files = _opened(folder, stack)
        history = _written(files)
        if history is not None and size in (None, history.log_bytes):
            with storing(folder.trials):
                trials, metrics = (file.read().replace_schema_metadata() for file in files)
            return Tables(trials, metrics, history)
    builder = TableBuilder.of(folder)
    builder.follow(folder.log)
    return Tables(builder.trials(), builder.metrics(), builder.history())


def rows(trials: pa.Table) -> list[dict[str, object]]:
    """The rows of a table of trials as plain Python: JSON parameters decoded, nulls left out."""
    as_json = [field.name for field in trials.schema if _JSON.items() <= (field.metadata or {}).items()]
    plain_rows = []
    for row in trials.to_pylist():
        row.update({name: natural(json.loads(row[name])) for name in as_json if row[name] is not None})
        plain_rows.append({name: value for name, value in row.items() if value is not None})
    return plain_rows


def _opened(folder: ResultsFolder, stack: ExitStack) -> list[pq.ParquetFile]:
    """Both Parquet files, trials first; none if one is absent or not Parquet: the log tells."""
    try:
        # Not as files of Python: Arrow's threads may still hold one when the interpreter ends, which then aborts.
        handles = [stack.enter_context(pa.OSFile(str(path))) for path in (folder.trials, folder.metrics)]
        return [stack.enter_context(pq.ParquetFile(handle)) for handle in handles]
    except (OSError, ValueError):
        return []


def _written(files: Sequence[pq.ParquetFile]) -> History | None:
    """What both files say of the log that they were made of; None if they do not agree, or are not ours."""
    try:
        trials, metrics = ((file.schema_arrow.metadata or {})[_METADATA] for file in files)
        return History(**json.loads(trials)) if trials == metrics else None
    except (KeyError, TypeError, ValueError):
        return None


def _table(columns: Mapping[str, pa.Array], metadata: Mapping[str, Mapping[bytes, bytes]]) -> pa.Table:
    fields = [pa.field(name, array.type, metadata=metadata.get(name)) for name, array in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _numbers(column: Numbers, rows: int) -> pa.Array:
    values, null = column.filled(rows)
    return pa.array(values, mask=null, from_pandas=False)  # NaN is a value here, not a null


def _times(column: Numbers, rows: int) -> pa.Array:
    values, null = column.filled(rows)
    return pa.array(np.rint(np.multiply(values, 1e6)).astype(np.int64), mask=null).cast(_TIME)


def _texts(column: Objects[str], rows: int) -> pa.Array:
    return _array(column.filled(rows), pa.string())


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # half a surrogate pair, out of a traceback or a file name
        text = [str(value).encode("utf-8", "backslashreplace").decode() for value in values]
        return pa.array(text, pa.string(), mask=np.array([value is None for value in values]))


def _params(values: Sequence[object]) -> tuple[pa.Array, bool]:
    """A typed column of one parameter, and whether it is JSON text because no one type holds its values."""
    kinds = frozenset(type(value) for value in values if value is not None)
    kind = _PARAM_TYPES.get(kinds)
    exact = 2**53 if float in kinds else 2**63 - 1
    if kind is None or any(type(value) is int and abs(value) > exact for value in values):
        text = [None if value is None else json.dumps(plain(value)) for value in values]
        return pa.array(text, pa.string()), True
    return _array(values, kind), False


_PARAM_TYPES = {
    frozenset[type](): pa.null(),
    frozenset[type]({bool}): pa.bool_(),
    frozenset[type]({int}): pa.int64(),
    frozenset[type]({float}): pa.float64(),
    frozenset[type]({int, float}): pa.float64(),
    frozenset[type]({str}): pa.string(),
}
