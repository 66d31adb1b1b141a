"""A table as a CSV file, by RFC 4180.

UTF-8 without a mark; texts are in quotes, and a null is an empty field; floats have the digits that read back the same.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_FORMULA = "^[=+@\t\r-]"


def write(table: pa.Table, path: Path) -> None:
    """Write a table; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    columns = [_guarded(column) if pa.types.is_string(column.type) else column for column in table.columns]
    names = _guarded(pa.array(table.column_names, pa.string())).to_pylist()
    csv.write_csv(pa.table(columns, names=names), path, csv.WriteOptions(eol="\r\n"))


def _guarded(texts: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    formulas = pc.match_substring_regex(texts, _FORMULA)
    return pc.if_else(formulas, pc.binary_join_element_wise("'", texts, ""), texts)
