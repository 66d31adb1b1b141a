"""Tables of tests of which every day's run takes a part: some rows, evenly spaced; the rest is `exhaustive`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(rows: Iterable[Any], count: int, *, several: bool = False) -> list[Any]:
    """The rows of a table, all but ``count`` of them marked as exhaustive; ``several``: a row has several arguments."""
    given = [
        row if hasattr(row, "marks") else pytest.param(*(row if several else [row])) for row in rows
    ]
    free = [place for place, row in enumerate(given) if not _is_exhaustive(row)]
    count = min(count, len(free))
    kept = {free[i * len(free) // count] for i in range(count)}
    return [
        row
        if place in kept or _is_exhaustive(row)
        else pytest.param(*row.values, marks=(*row.marks, pytest.mark.exhaustive), id=row.id)
        for place, row in enumerate(given)
    ]


def chosen(rows: Iterable[Any], *names: Any) -> list[Any]:
    """The rows of a table, all but these marked as exhaustive: the same every day, in whichever order files came."""
    given = [row if hasattr(row, "marks") else pytest.param(row) for row in rows]
    return [
        row
        if row.values[0] in names or _is_exhaustive(row)
        else pytest.param(*row.values, marks=(*row.marks, pytest.mark.exhaustive), id=row.id)
        for row in given
    ]


def _is_exhaustive(row: Any) -> bool:
    return any(mark.name == "exhaustive" for mark in row.marks)
