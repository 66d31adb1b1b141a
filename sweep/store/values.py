"""Columns of a table as plain Python and as numbers, without pandas: to import it takes longer than to read them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sweep.store.records import natural
from sweep.store.tables import AS_JSON


def columns(table: pa.Table, names: Iterable[str]) -> dict[str, list[object]]:
    """Columns as plain Python, of those names that the table has: JSON parameters decoded, None for null."""
    found: dict[str, list[object]] = {}
    for name in names:
        if name in table.column_names:
            values = table[name].to_pylist()
            is_json = AS_JSON.items() <= (table.schema.field(name).metadata or {}).items()
            found[name] = [None if v is None else natural(json.loads(v)) for v in values] if is_json else values
    return found


_KINDS = {pa.float64(): np.float64, pa.int64(): np.int64}


def numbers(table: pa.Table, name: str, *, missing: float = 0.0) -> npt.NDArray[np.float64]:
    """A column of numbers; ``missing`` for null, and all of it where the table has no such column."""
    if name not in table.column_names:
        return np.full(table.num_rows, missing)
    column = table[name].combine_chunks()
    if column.type not in _KINDS:
        column = column.cast(pa.float64())
    bits, content = column.buffers()  # `to_numpy` and `fill_null` import pandas, a cast the library of computations
    kind = _KINDS[column.type]
    found = np.frombuffer(content, kind, len(column), 8 * column.offset) if len(column) else np.zeros(0)
    values = found.astype(np.float64, copy=False)
    if not column.null_count:
        return values
    valid = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[column.offset :][: len(column)]
    return np.where(valid, values, missing)
