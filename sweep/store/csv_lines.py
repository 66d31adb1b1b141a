"""A table as the lines of a CSV file, by RFC 4180.

UTF-8 without a mark; a null is an empty field and an empty text is ``""``; floats have the digits that read back the
same. A text that a spreadsheet would take for a formula gets an apostrophe in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import pyarrow as pa

_ROWS = 20_000  # at a time
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_QUOTED = (",", '"', "\r", "\n")


def lines(table: pa.Table) -> Iterator[str]:
    """The header and a line for each row, each with its end."""
    yield ",".join(map(_text, table.column_names)) + "\r\n"
    cells = [_cell(field.type) for field in table.schema]
    for start in range(0, table.num_rows, _ROWS):
        part = table.slice(start, _ROWS)
        columns = [
            [cell(value) for value in column.to_pylist()] for cell, column in zip(cells, part.columns, strict=True)
        ]
        for row in zip(*columns, strict=True):
            yield ",".join(row) + "\r\n"


def _cell(kind: pa.DataType) -> Callable[[object], str]:
    """How values of a type are written."""
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return lambda value: "" if value is None else repr(value)
    if pa.types.is_boolean(kind):
        return lambda value: "" if value is None else str(value).lower()
    if pa.types.is_timestamp(kind):
        return lambda value: value.isoformat() if isinstance(value, datetime) else ""
    return lambda value: "" if value is None else _text(str(value))


def _text(text: str) -> str:
    if text.startswith(_FORMULA):
        text = f"'{text}"
    if not text or any(character in text for character in _QUOTED) or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
