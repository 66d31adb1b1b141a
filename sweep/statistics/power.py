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
MOST = 1000  # `estimate_more_seeds` tries fewer further seeds than this


def estimate_more_seeds(
    differences: Sequence[float], comparisons: int, shared: float = 0.0
) -> int | None:
    """Return how many further seeds would make a difference significant about half the time.

    ``differences`` are the paired differences so far, one for each seed. ``comparisons`` is the number of
    configurations compared with the best, and ``shared`` the result of `compute_fold_correction`, 0 without folds.

    The mean and the spread of the differences are taken as measured. The result is at least 1, and at least what is
    missing to `LEAST` seeds in all. It is that minimum if the difference is significant already, and if there is no
    spread: with fewer than two differences, or if all are equal. Returns None if the mean of the differences is 0, or
    if 999 further seeds would not suffice. With folds that may be so for any number of seeds, because more seeds do not
    lower the part of the error that folds have in common.
    """
    count = len(differences)
    # NaN is not 0: without differences, any verdict needs `LEAST`
    mean = compute_mean(differences) if count else math.nan
    if mean == 0:
        return None
    spread = compute_deviation(differences) if count > 1 else 0.0
    fewest = max(count + 1, LEAST)  # seeds in all, as everywhere below
    if not spread:
        return fewest - count

    def tells(seeds: int) -> bool:
        """Return whether the difference would be significant with ``seeds`` seeds in all."""
        standard_error = spread * math.sqrt(1 / seeds + shared)
        return abs(mean) / standard_error >= compute_critical_value(comparisons + 1, seeds)

    candidates = range(fewest, count + MOST)
    # the index of the first number of seeds that tells; from there on, all do
    first = bisect_left(candidates, True, key=tells)
    if first == len(candidates):
        return None
    return candidates[first] - count


def compute_critical_value(configurations: int, seeds: int) -> float:
    """Return about how many standard errors a difference must have to be significant, with ``seeds`` seeds for each.

    ``configurations`` is the number of configurations that are compared with each other; fewer than 2 count as 2.
    ``seeds`` must be at least 2. The result is the two-sided 5 % quantile of Student's t, adjusted for all pairs, with
    the degrees of freedom of the pooled spread. With 6 to 12 seeds of 2 to 27 configurations, it is within 7 % of the
    quantile of the statistic in normal noise.
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
    smaller differences are detectable. ``shared`` is 0 without folds. With folds, it is the result of
    `compute_fold_correction`, and ``seeds`` is the number of scores, one for each seed and fold.
    """
    error = compute_error_of_difference(spread, seeds, shared)
    return compute_critical_value(configurations, seeds) * error


def compute_error_of_difference(spread: float, seeds: int, shared: float = 0.0) -> float:
    """Return the standard error of the difference between two means, over ``seeds`` independent scores each.

    ``spread`` is the standard deviation of the scores. ``shared`` is the result of `compute_fold_correction` if they
    are scores of folds, otherwise 0.
    """
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
    except OverflowError:  # the squares are too large for a float, but `hypot` does without them
        weight = math.sqrt(len(several))
        return math.hypot(*(compute_deviation(values) / weight for values in several))


def count_seeds_needed(comparisons: int) -> int:
    """Return the smallest number of seeds with which one of ``comparisons`` pairs can be significant.

    The pairs are tested by permuting signs, and the p-value is multiplied by their number; 0 pairs count as 1. The
    result is at least `LEAST`.
    """
    # the smallest p-value with n seeds is 2 ** (1 - n)
    return max(LEAST, 1 + math.ceil(math.log2(max(comparisons, 1) / ALPHA)))
