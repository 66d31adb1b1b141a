"""Grid search: every combination once, in the order of the file."""

from __future__ import annotations

from sweep.searchers.streams import Stream
from sweep.space.space import Space


def build(space: Space) -> Stream:
    """A searcher whose first parameter varies slowest."""
    points = space.grid()
    return Stream(lambda number, tried: next(points, None))
