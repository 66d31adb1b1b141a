"""95 % intervals of means and probabilities, and the t-test of a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, stdev

from sweep.statistics.means import choose_scale, compute_mean, scale_up

ALPHA = 0.05
Z = NormalDist().inv_cdf(1 - ALPHA / 2)  # 1.96, for the 95 % interval of a normal mean

Interval = tuple[float, float]


def compute_mean_interval(values: Sequence[float], shared: float = 0.0) -> Interval | None:
    """Return the lower and upper end of the 95 % interval of a mean by Student's t; None for fewer than two values.

    The ends are limited to the largest floats. ``shared`` is the result of `compute_fold_correction` if the values are
    scores of folds, otherwise 0. Source: NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.5.2.
    """
    count = len(values)
    if count < 2:
        return None
    # only the quantile, because scipy.stats takes a second to import
    from scipy.special import (
        stdtrit,
    )

    scale = choose_scale(values)
    scaled = [value / scale for value in values]
    half = float(stdtrit(count - 1, 1 - ALPHA / 2)) * _compute_standard_error(scaled, shared)
    mean = compute_mean(scaled)
    return scale_up(mean - half, scale), scale_up(mean + half, scale)


def compute_t_test(differences: Sequence[float], shared: float = 0.0) -> float:
    """Return the two-sided p-value of a mean of paired differences by Student's t, for the hypothesis that it is 0.

    At least two differences are required; a StatisticsError is raised otherwise. If all of them are equal, the p-value
    is 1 if they are zero, otherwise 0. ``shared`` is as in `compute_mean_interval`.
    """
    from scipy.special import stdtr

    scale = choose_scale(differences)  # the p-value does not depend on it
    scaled = [difference / scale for difference in differences]
    mean = compute_mean(scaled)
    error = _compute_standard_error(scaled, shared)
    if not error:
        return 0.0 if mean else 1.0
    return float(2 * stdtr(len(scaled) - 1, -abs(mean) / error))


def compute_fold_correction(folds: int | None) -> float:
    """Return the variance correction for a mean of cross-validation scores, because their trainings share examples.

    ``folds`` is the number of folds of one cross-validation; a ZeroDivisionError is raised if it is 1. Without folds (0
    or None), the correction is 0. For n scores, the variance of the mean is 1/n plus this value, times that of a score.
    The value is the ratio of validated to trained examples: Nadeau and Bengio, Machine Learning 52, 2003; for repeated
    cross-validation Bouckaert and Frank, PAKDD 2004.
    """
    if not folds:
        return 0.0
    return 1 / (folds - 1)


def compute_share_interval(hits: float, count: int) -> Interval:
    """Return Wilson's 95 % interval of the probability of an event that was observed ``hits`` times in ``count``.

    ``hits`` must be between 0 and ``count``. The interval has the lower end first and is within 0 and 1. Raises
    ZeroDivisionError if ``count`` is 0. Source: Wilson, JASA 22, 1927.
    """
    share = hits / count
    scale = 1 + Z * Z / count
    middle = (share + Z * Z / (2 * count)) / scale
    variance = share * (1 - share) / count + Z * Z / (4 * count * count)
    half = Z / scale * math.sqrt(variance)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _compute_standard_error(values: Sequence[float], shared: float) -> float:
    """Return the standard error of a mean; ``shared`` is the correction for scores of folds, 0 without folds.

    Raises StatisticsError for fewer than two values.
    """
    return stdev(values) * math.sqrt(1 / len(values) + shared)
