"""The tables of a sweep as its log stands now: from their files, from these and the end of the log, or from the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sweep.store import log
from sweep.store.catching_up import caught_up, is_behind
from sweep.store.disk import storing
from sweep.store.folder import ResultsFolder
from sweep.store.tables import METADATA, History, TableBuilder, Tables


def read(folder: ResultsFolder, metrics: Sequence[str] | None = None) -> Tables:
    """The tables of a sweep as its log stands now; writes nothing.

    ``metrics`` are the columns wanted of that table, as far as it has them; None: all. Files that were made of another
    log are not looked at. Raises `StoreError`.
    """
    with ExitStack() as stack:
        # Each is opened once: a running sweep puts new ones in their place.
        files = _opened(folder, stack)
        history = _written(files)
        if history is not None and _is_of(history, folder.log):
            return _stored(files, folder, history, metrics)
        if history is not None and is_behind(history, folder.log):
            needed = metrics and ("trial", *metrics)
            found = caught_up(folder, _stored(files, folder, history, needed), needed)
            if found is not None:
                return Tables(found.trials, _only(found.metrics, metrics), found.history)
    builder = TableBuilder.of(folder)
    builder.follow(folder.log)
    return Tables(builder.trials(), _only(builder.metrics(), metrics), builder.history())


def _stored(
    files: Sequence[pq.ParquetFile], folder: ResultsFolder, history: History, metrics: Sequence[str] | None
) -> Tables:
    with storing(folder.trials):
        names = None if metrics is None else [name for name in files[1].schema_arrow.names if name in metrics]
        trials, epochs = files[0].read(), files[1].read(columns=names)
    return Tables(trials.replace_schema_metadata(), epochs.replace_schema_metadata(), history)


def _only(metrics: pa.Table, names: Sequence[str] | None) -> pa.Table:
    return metrics if names is None else metrics.select([name for name in metrics.column_names if name in names])


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
        trials, metrics = ((file.schema_arrow.metadata or {})[METADATA] for file in files)
        return History(**json.loads(trials)) if trials == metrics else None
    except (KeyError, TypeError, ValueError):
        return None


def _is_of(history: History, path: Path) -> bool:
    """Whether tables were made of the whole log, as it is; where it is gone, they are all there is."""
    if not path.exists():
        return True
    same = path.stat().st_size == history.log_bytes
    return same and (history.mark is None or log.mark(path, history.log_bytes) == history.mark)
