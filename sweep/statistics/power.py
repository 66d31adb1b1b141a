"""Computes the differences that a number of seeds can detect, and the number of seeds that a difference needs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from statistics import fmean, variance

from sweep.statistics.intervals import ALPHA
from sweep.statistics.means import compute_deviation, compute_mean

LEAST = 6
"""Minimum number of common seeds for a verdict: with five, no p-value is below 0.06."""
MOST = 1000  # maximum number of further seeds that `estimate_more_seeds` tries


def estimate_more_seeds(
    differences: Sequence[float], comparisons: int, shared: float = 0.0
) -> int | None:
    """Return how many further seeds would make a difference significant about half the time.

    ``differences`` are the paired differences so far, ``comparisons`` the number of configurations compared with the
    best, and ``shared`` the correction for folds, as in `compute_mean_interval`.

    The mean and the spread of the differences are taken as measured. More seeds do not lower the part of the error that
    folds have in common, so with folds, no number of seeds may suffice. With fewer than two differences, or if all are
    equal, there is no spread; then the result is how many seeds any verdict still needs, at least 1. If the difference
    is significant already, the result is that number as well, or 1 if no more seeds are needed. Returns None if the
    mean is 0, or if a thousand further seeds would not suffice.
    """
    count = len(differences)
    # NaN is not 0: without differences, any verdict needs `LEAST`
    mean = compute_mean(differences) if count else math.nan
    if mean == 0:
        return None
    spread = compute_deviation(differences) if count > 1 else 0.0
    within = range(max(count + 1, LEAST), count + MOST)
    if not spread:
        return within.start - count if within else None

    def tells(seeds: int) -> bool:
        """Return whether the difference would be significant with ``seeds`` seeds in all."""
        # of the mean of the differences
        standard_error = spread * math.sqrt(1 / seeds + shared)
        return abs(mean) / standard_error >= compute_critical_value(comparisons + 1, seeds)

    at = bisect_left(within, True, key=tells)  # the first number that tells; from there on, all do
    if at < len(within):
        return within[at] - count
    return None


def compute_critical_value(configurations: int, seeds: int) -> float:
    """Return about how many standard errors a difference must have to be significant, with ``seeds`` seeds for each.

    ``configurations`` is the number of configurations that are compared with each other, ``seeds`` at least 2. This is
    Student's t over all pairs, on the pooled spread. With 6 to 12 seeds of 2 to 27 configurations, it is within 7 % of
    the quantile of the statistic in normal noise.
    """
    from scipy.special import stdtrit

    pairs = max(configurations * (configurations - 1) / 2, 1)
    freedom = max(configurations - 1, 1) * (seeds - 1)
    return float(stdtrit(freedom, 1 - ALPHA / pairs / 2))


def compute_detectable_difference(
    spread: float, seeds: int, configurations: int, shared: float = 0.0
) -> float:
    """Return the difference between two means, over ``seeds`` seeds each, that is significant about half the time.

    ``spread`` is the standard deviation over seeds, ``configurations`` the number of configurations that are compared
    with each other, ``seeds`` at least 2. Scores with equal seeds are taken as independent; if they are correlated,
    smaller differences are detectable. If ``seeds`` counts the scores of all folds, ``shared`` is the correction for
    folds, as in `compute_mean_interval`.
    """
    error = compute_error_of_difference(spread, seeds, shared)
    return compute_critical_value(configurations, seeds) * error


def compute_error_of_difference(spread: float, seeds: int, shared: float = 0.0) -> float:
    """Return the standard error of the difference between two means; the arguments are as in the function above."""
    return spread * math.sqrt(2 * (1 / seeds + shared))


def compute_spread(scores: Iterable[Sequence[float]]) -> float | None:
    """Return the root of the mean of the configurations' variances over seeds; None if none has two scores.

    ``scores`` has the scores of each configuration. Configurations with fewer than two are left out; all others have
    the same weight.
    """
    several = [values for values in scores if len(values) > 1]
    if not several:
        return None
    try:
        return math.sqrt(fmean(map(variance, several)))
    except OverflowError:  # the squares are too large for a float
        return math.hypot(
            *(compute_deviation(values) / math.sqrt(len(several)) for values in several)
        )


def count_seeds_needed(comparisons: int) -> int:
    """Return the smallest number of seeds with which one of ``comparisons`` pairs can be significant.

    The p-value is adjusted for all pairs. The result is at least `LEAST`.
    """
    return max(LEAST, 1 + math.ceil(math.log2(max(comparisons, 1) / ALPHA)))
