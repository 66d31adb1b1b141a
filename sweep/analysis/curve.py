"""A learning curve in little memory, however many epochs it has."""

from __future__ import annotations

MOST = 128  # points that are kept


class Curve:
    """Every value first, then every second one, every fourth one ..., and always the last."""

    __slots__ = ("_count", "_kept", "_last", "_stride")

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._count, self._stride = 0, 1
        self._last = 0.0

    def add(self, value: float) -> None:
        """Take the value of the next epoch in."""
        if self._count % self._stride == 0:
            self._kept.append(value)
            if len(self._kept) >= MOST:
                del self._kept[1::2]
                self._stride *= 2
        self._count, self._last = self._count + 1, value

    def points(self, most: int) -> list[float]:
        """At most so many values, evenly spread, the last one of them the latest."""
        if not self._count or most < 1:
            return []
        values = self._kept if (self._count - 1) % self._stride == 0 else [*self._kept, self._last]
        if len(values) <= most:
            return list(values)
        return [values[round((at + 1) * len(values) / most) - 1] for at in range(most)]
