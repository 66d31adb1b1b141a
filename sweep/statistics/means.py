"""The mean of numbers whose sum may be too large for a float."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean


def compute_mean(values: Iterable[float]) -> float:
    """Return the mean of one or more numbers, with the bits of `fmean` unless their sum is too large for a float."""
    numbers = list(values)
    try:
        return fmean(numbers)
    except OverflowError:
        mean = math.fsum(one / len(numbers) / 2 for one in numbers) * 2
        # rounding may carry the mean of the largest floats beyond them
        return min(max(mean, min(numbers)), max(numbers))
