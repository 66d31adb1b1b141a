"""Grid search: every combination once, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterable

from sweep.events import Params
from sweep.searchers.streams import Stream
from sweep.space.domains import key
from sweep.space.space import Space


def build(space: Space, first: Iterable[Params] = ()) -> Stream:
    """A searcher whose first parameter varies slowest, after the points of ``first``."""
    points = space.grid()
    return Stream(lambda number, tried: next((p for p in points if key(p) not in tried), None), first)
