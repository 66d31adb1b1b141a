"""Searchers that need no results: the n-th suggestion is the n-th point of a stream.

A stream is a function of the space and the seed alone, so every suggestion is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from sweep.events import Event, Params
from sweep.space.domains import key
from sweep.store.ledger import TrialState


class Stream:
    """Suggests ``first``, then point after point, each given its number and the keys of those before it."""

    def __init__(self, point: Callable[[int, Collection[str]], Params | None], first: Iterable[Params] = ()) -> None:
        self._point = point
        self._points: list[Params] = list(first)
        self._keys: set[str] = set(map(key, self._points))

    foresees = True

    def learn(self, past: Iterable[TrialState]) -> int:
        """Nothing to learn."""
        return 0

    def suggest(self, number: int) -> Params | None:
        while len(self._points) <= number:
            point = self._point(len(self._points), self._keys)
            if point is None:
                return None
            self._points.append(point)
            self._keys.add(key(point))
        return self._points[number]

    def observe(self, event: Event) -> None:
        """Nothing to learn."""
