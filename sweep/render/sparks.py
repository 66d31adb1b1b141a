"""Curves and bars of a character's height, also where there is nothing but ASCII."""

from __future__ import annotations

import math
from collections.abc import Sequence

_LEVELS = {False: "▁▂▃▄▅▆▇█", True: "_.-'"}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_GAP = "x"  # for what is no number


def sparkline(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """One character per value, between the least and the greatest of them; ``x`` for NaN and infinities."""
    levels = _LEVELS[ascii_only]
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    # Halved, for the difference of two doubles need not be one.
    span = high / 2 - low / 2

    def level(value: float) -> str:
        if not math.isfinite(value):
            return _GAP
        share = (value / 2 - low / 2) / span if span else 0.5
        return levels[min(int(share * len(levels)), len(levels) - 1)]

    return "".join(map(level, values))


def bar(share: float, width: int, *, ascii_only: bool = False) -> tuple[str, str]:
    """The filled and the empty part of a bar of ``width`` characters; ``share`` is of 1."""
    share = min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    if ascii_only:
        inner = max(width - 2, 0)
        done = int(share * inner)
        return f"[{'#' * done}", f"{'-' * (inner - done)}]"
    eighths = int(share * width * 8)
    filled = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return filled, "░" * (width - len(filled))
