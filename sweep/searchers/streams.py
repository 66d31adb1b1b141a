"""Searchers that need no results: the n-th suggestion is the n-th point of a stream.

A stream is a function of the space and the seed alone, so every suggestion is one too.
"""

from __future__ import annotations

from collections.abc import Iterator

from sweep.errors import SweepError
from sweep.events import Event, Params


class Stream:
    """Suggests the points of a stream in their order.

    A stream that ``ends`` is exhausted at its end. One that does not, but ends nevertheless, has found no
    further point that meets the constraints: `SweepError`.
    """

    def __init__(self, points: Iterator[Params], *, ends: bool) -> None:
        self._points = points
        self._ends = ends
        self._taken: list[Params] = []

    def suggest(self, number: int) -> Params | None:
        while len(self._taken) <= number:
            point = next(self._points, None)
            if point is None and self._ends:
                return None
            if point is None:
                raise SweepError("no further configuration was found that meets the constraints; loosen them")
            self._taken.append(point)
        return self._taken[number]

    def observe(self, event: Event) -> None:
        """Nothing to learn."""
