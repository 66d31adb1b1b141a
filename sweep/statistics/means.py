"""Means and spreads of numbers whose sums, differences or squares may be too large for a float."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

LARGE = 1e150
"""Squares of larger numbers are too large for a float."""


def compute_mean(values: Iterable[float]) -> float:
    """Return the mean of one or more numbers, with the bits of `fmean` unless their sum is too large for a float.

    Raises StatisticsError without any number.
    """
    numbers = list(values)
    try:
        return fmean(numbers)
    except OverflowError:
        mean = math.fsum(one / len(numbers) / 2 for one in numbers) * 2
        # rounding may carry the mean of the largest floats beyond them
        return min(max(mean, min(numbers)), max(numbers))


def compute_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample of numbers as `stdev` does, at most the largest float.

    Raises StatisticsError for fewer than two numbers.
    """
    scale = choose_scale(values)
    return scale_up(stdev(one / scale for one in values), scale)


def choose_scale(values: Iterable[float]) -> float:
    """Return the power of two to divide numbers by, so that differences and squares of them are not too large.

    It is 1 if no absolute value is above `LARGE`, and without any number. Otherwise, the absolute values of all divided
    numbers are below 2. The numbers must be finite.
    """
    largest = max(map(abs, values), default=0.0)
    if not largest > LARGE:  # so that it is 1 for NaN, too
        return 1.0
    exponent = math.frexp(largest)[
        1
    ]  # ``largest`` is below 2 to the power of it, and at least half of that
    return math.ldexp(1.0, exponent - 1)


def scale_up(value: float, scale: float) -> float:
    """Return ``value`` times ``scale``, limited to the largest float in both directions."""
    return min(max(value * scale, -sys.float_info.max), sys.float_info.max)
