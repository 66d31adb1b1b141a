"""Which differences so many seeds can tell from luck, and how many seeds it takes to tell one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev, variance

from sweep.statistics.intervals import ALPHA

LEAST = 6
"""Seeds in common below which there is no verdict: with five, no p-value is below 0.06."""
MOST = 1000  # further seeds that are looked for


def more_seeds(differences: Sequence[float], comparisons: int, shared: float = 0.0) -> int | None:
    """Return the further seeds that would tell a difference about half the time, if it and its spread are as they seem.

    Of fewer than two differences no spread is known: then what is needed for any verdict. None where there is no
    difference, where it is told already or where a thousand would not do.
    """
    count = len(differences)
    mean = fmean(differences) if count else math.nan
    if mean == 0:
        return None
    spread = stdev(differences) * math.sqrt(1 + count * shared) if count > 1 else 0.0
    within = range(max(count + 1, LEAST), count + MOST)
    if not spread:
        return within.start - count if within else None

    def tells(seeds: int) -> bool:
        return abs(mean) / spread * math.sqrt(seeds) >= quantile(comparisons + 1, seeds)

    at = bisect_left(within, True, key=tells)
    return within[at] - count if at < len(within) else None


def quantile(configurations: int, seeds: int) -> float:
    """Return about how many standard errors a difference must have to be told from luck, by so many seeds of each.

    Student's t over all pairs, on the spread of all. With 6 to 12 seeds of 2 to 27 configurations, it is within 7 % of
    the quantile of the statistic in normal noise.
    """
    from scipy.special import stdtrit

    pairs = max(configurations * (configurations - 1) / 2, 1)
    return float(stdtrit(max(configurations - 1, 1) * (seeds - 1), 1 - ALPHA / pairs / 2))


def detectable_difference(spread: float, seeds: int, configurations: int) -> float:
    """Return the difference of two means that a verdict tells about half the time.

    ``spread`` is the standard deviation over seeds, and equal seeds have nothing in common: what they have in common
    makes smaller differences detectable.
    """
    return quantile(configurations, seeds) * spread * math.sqrt(2 / seeds)


def spread_over_seeds(scores: Iterable[Sequence[float]]) -> float | None:
    """Return the standard deviation over seeds, all configurations together; None where each has one score."""
    variances = [variance(values) for values in scores if len(values) > 1]
    return math.sqrt(fmean(variances)) if variances else None


def seeds_for(comparisons: int) -> int:
    """Return the seeds from which so many comparisons of pairs, each adjusted for all, can tell anything."""
    return max(LEAST, 1 + math.ceil(math.log2(max(comparisons, 1) / ALPHA)))
