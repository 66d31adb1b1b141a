"""Numbers of which only those around one rank are asked for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Ranks:
    """Numbers in two heaps, which meet at a rank: adding one takes logarithmic time, looking none.

    ``below`` says how many of n numbers lie below the rank; it must not fall with n.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._low: list[float] = []  # negated, for the largest to be on top
        self._high: list[float] = []

    def __len__(self) -> int:
        return len(self._low) + len(self._high)

    def add(self, number: float) -> None:
        """Take a number in."""
        if self._low and number < -self._low[0]:
            heappush(self._low, -number)
        else:
            heappush(self._high, number)
        below = self._below(len(self))
        while len(self._low) > below:
            heappush(self._high, -heappop(self._low))
        while len(self._low) < below:
            heappush(self._low, -heappop(self._high))

    @property
    def lower(self) -> float | None:
        """The largest number below the rank."""
        return -self._low[0] if self._low else None

    @property
    def upper(self) -> float | None:
        """The smallest of the others."""
        return self._high[0] if self._high else None
