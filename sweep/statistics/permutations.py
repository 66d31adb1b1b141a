"""Paired permutation tests by signs: if two configurations are alike, each difference is as likely as its negative.

Fisher, The Design of Experiments, 1935, section 21.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sweep.statistics.means import LARGE

Floats = npt.NDArray[np.float64]

ENUMERATED = 2**14
"""Maximum number of sign patterns that are enumerated. Of more, a sample is drawn, and p-values have an error."""
DRAWN = 2**16
"""Maximum size of a random sample of patterns."""
FEWEST_DRAWN = 1000
"""Number of patterns that are used in any case, even if the limits on work allow fewer."""
MOST_CELLS = 2**20
"""Maximum size of a piece of (patterns, comparisons), 8 MB."""

MOST_WORK = 2**26
"""Maximum of patterns times comparisons, about a second."""

MOST_WORK_STEP_DOWN = 2**22
"""Maximum of patterns times configurations squared, about a second for a whole step-down."""


@dataclass(frozen=True, slots=True)
class SignTest:
    """The two-sided p-values of many paired comparisons, of shape (comparisons,)."""

    p: Floats
    # standard error of a p of 0.05, if patterns were drawn; None if all were enumerated
    error: float | None


def check_differences(differences: npt.ArrayLike) -> SignTest:
    """Test for each comparison whether its paired differences are centered at zero; return one p-value for each.

    ``differences`` has shape (seeds, comparisons). Each comparison is tested alone, two-sided, and its p-value is not
    adjusted for their number. It is 1 if all differences of a comparison are 0. A missing seed must have the difference
    0. NaN must not occur: it is not checked, and makes a p-value too small. If there are too many patterns of signs to
    try all of them, a random sample of fixed seed is tried, and the result has the error of the p-values by that
    (`SignTest.error`).

    The statistic is the absolute sum of a comparison's differences. It is divided by the root of their sum of squares,
    which is the same for all patterns of signs, so that this changes no p-value.
    """
    patterns, table = _prepare_patterns(differences, MOST_WORK)
    observed = _compute_observed_sums(table)
    # in each comparison, the number of patterns with a statistic at least as large as the observed one
    count = np.zeros(len(observed))
    for sums in patterns.times(table):
        count += (sums >= observed).sum(axis=0)
    return SignTest(patterns.share(count), patterns.error)


@dataclass(frozen=True, slots=True)
class Equality:
    """The result of a test of whether configurations are equally good."""

    p: float
    furthest: int  # index of the one furthest behind the best, in standard errors
    error: float | None  # as in `SignTest`


def check_equality(scores: Floats) -> Equality:
    """Test whether all configurations are equally good; return a p-value and the one furthest behind the best.

    ``scores`` has shape (seeds, configurations), with NaN for missing scores; larger scores are better. There must be
    at least two configurations, and each must have a score in a seed in which another one has a score. Patterns of
    signs are tried as in `check_differences`: all, or a random sample of fixed seed.

    The statistic is the largest distance of a configuration from the best one, in standard errors. All signs of a seed
    change together, and the best one is chosen again for each pattern, as it is chosen by the scores that are compared.
    The variance is the mean of two: that of the pair and that of all pairs. The first alone has few degrees of freedom;
    with the second alone, a configuration with much noise looks far behind. With any variance, permuting signs keeps
    the error at its level.
    """
    # a seed with a single score compares nothing
    scores = _scale_down_large(scores[np.isfinite(scores).sum(axis=1) > 1])
    there = np.isfinite(scores)
    centred = np.nan_to_num(scores - np.nanmean(scores, axis=1, keepdims=True))
    # scaled to a mean square of 1, to which `_LEAST_VARIANCE` refers; if all scores are equal, they stay 0
    centred = centred / max(float(np.sqrt((centred**2).mean())), np.finfo(np.float64).tiny)
    patterns = _make_patterns(*scores.shape)
    counts = there.sum(axis=0)
    # of shape (patterns, configurations), as all that follows from it
    means = patterns.signs @ centred / counts
    variances = _compute_variances((centred**2).sum(axis=0), means, counts)
    configurations = scores.shape[1]
    # a difference has twice the variance of a score; centring has taken a degree of freedom from each seed
    of_all_pairs = 2 * variances.sum(axis=1) / (configurations - 1)
    leaders = means.argmax(axis=1)
    largest = np.empty(len(leaders))
    furthest = 0
    # patterns with the same leader are computed together
    for leader in map(int, np.unique(leaders)):
        rows = np.flatnonzero(leaders == leader)
        both = there & there[:, [leader]]
        # 1 where they have no seed in common, whose sums are 0
        shared = np.maximum(both.sum(axis=0), 1)
        gaps = np.where(both, centred[:, [leader]] - centred, 0.0)
        behind = patterns.signs[rows] @ gaps / shared
        own = _compute_variances((gaps**2).sum(axis=0), behind, shared)
        variance = (own + of_all_pairs[rows, None]) / 2
        t = behind / np.sqrt((variance + _LEAST_VARIANCE) / shared)
        t[:, leader] = -np.inf  # it is not behind itself
        largest[rows] = t.max(axis=1)
        if rows[0] == 0:  # the first pattern, which changes no sign
            furthest = int(t[0].argmax())
    count = float((largest >= largest[0] - _ROUNDING * abs(largest[0])).sum())
    return Equality(count / len(largest), furthest, patterns.error)


def _scale_down_large(table: Floats) -> Floats:
    """Return a table divided by its largest absolute value, if the squares would otherwise be too large for a float.

    A table without values beyond `LARGE` is returned unchanged. The test does not depend on the scale. NaN stands for a
    missing score.
    """
    largest = np.abs(table).max(initial=0.0, where=~np.isnan(table))
    return table / largest if largest > LARGE else table


def _compute_variances(squares: Floats, means: Floats, counts: npt.NDArray[np.int_]) -> Floats:
    """Return the unbiased variances of samples from their sums of squares, means and counts; 0 for a count of 1.

    A variance that rounding makes negative is 0. The arrays are broadcast against each other.
    """
    of_sample = np.maximum(squares / counts - means**2, 0.0)
    return np.asarray(of_sample * counts / np.maximum(counts - 1, 1))


_LEAST_VARIANCE = 1e-9  # for scores with a mean square of 1; less is rounding
_ROUNDING = 1e-6  # tolerance, since a sum in another order can be smaller


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The patterns of signs to permute with, of shape (patterns, seeds): all of them, or a random sample."""

    signs: Floats  # 1, or -1 if the seed changes its sign
    drawn: bool  # whether they are a random sample

    def times(self, table: Floats) -> Iterator[Floats]:
        """Yield the absolute sums of a table's columns for each pattern, in pieces of consecutive patterns.

        ``table`` has shape (seeds, comparisons), a piece (patterns in it, comparisons).
        """
        pieces = max(math.ceil(len(self.signs) * table.shape[1] / MOST_CELLS), 1)
        for rows in np.array_split(self.signs, pieces):
            yield np.abs(rows @ table)

    def share(self, count: Floats) -> Floats:
        """Return p-values; ``count`` has the number of patterns that reach the observed statistic in each comparison.

        The result has the same shape as ``count``: its shares of all patterns. If the patterns are a random sample, the
        observed one counts in addition to them, so that no p-value is 0.
        """
        observed = int(self.drawn)  # 1 if the pattern without changes is to be added
        return np.asarray((count + observed) / (len(self.signs) + observed))

    @property
    def error(self) -> float | None:
        """The standard error of a p-value of 5 % by sampling; None if all patterns are used."""
        if not self.drawn:
            return None
        return math.sqrt(0.05 * 0.95 / len(self.signs))


def _prepare_patterns(differences: npt.ArrayLike, work: int) -> tuple[_Patterns, Floats]:
    """Return the patterns of signs for all seeds, and the differences scaled to a sum of squares of 1.

    The scaled differences have shape (seeds, comparisons); a column of zeros stays so. Of two opposite patterns, one is
    left out, unless there are too many patterns and a random sample of fixed seed is drawn, of at most `DRAWN`.
    ``work`` limits the number of patterns times the number of comparisons, down to `FEWEST_DRAWN` patterns.
    """
    table = np.asarray(differences, dtype=np.float64)
    # The squares below may be too large or too small for a float. Such comparisons are first divided by their largest
    # difference. Each is divided by its own: if one number divided all comparisons, small differences of others could
    # become 0.
    largest = np.abs(table).max(axis=0, initial=0.0)
    is_extreme = (largest > LARGE) | ((largest < 1 / LARGE) & (largest > 0))
    table = table / np.where(is_extreme, largest, 1.0)
    seeds, comparisons = table.shape
    norms = np.sqrt((table**2).sum(axis=0))
    table = table / np.where(norms > 0, norms, 1.0)
    allowed_patterns = max(work // max(comparisons, 1), FEWEST_DRAWN)
    # Opposite patterns give the same absolute sums, so the last sign stays, and half of all patterns are enough.
    enumerated = 2 ** (seeds - 1)
    # `ENUMERATED` limits all patterns, with the opposite ones; ``work`` limits those that are computed.
    if 2**seeds <= ENUMERATED and enumerated <= allowed_patterns:
        numbers = np.arange(enumerated)[:, None]  # one for each pattern
        # bit k of a number tells whether seed k changes its sign
        is_negative = numbers >> np.arange(seeds) & 1
        return _Patterns(1.0 - 2.0 * is_negative.astype(np.float64), drawn=False), table
    sample_size = min(DRAWN, allowed_patterns)
    is_negative = np.random.default_rng(0).integers(0, 2, (sample_size, seeds))
    return _Patterns(1.0 - 2.0 * is_negative.astype(np.float64), drawn=True), table


def _compute_observed_sums(table: Floats) -> Floats:
    """Return the absolute sums of the columns, minus a tolerance for rounding of 1e-9."""
    # a sum of the same numbers in another order can be a little smaller
    return np.asarray(np.abs(table.sum(axis=0)) - 1e-9)


def _make_patterns(seeds: int, configurations: int) -> _Patterns:
    """Return the patterns of signs for tests of sets of configurations; the first one changes no sign.

    They are all patterns or, if these are too many, a random sample of fixed seed, smaller for more configurations.
    ``seeds`` and ``configurations`` are their numbers. Both of two opposite patterns are used, because they are not
    equivalent here: the best configuration becomes the worst.
    """
    allowed_patterns = max(MOST_WORK_STEP_DOWN // configurations**2, FEWEST_DRAWN)
    if 2**seeds <= min(ENUMERATED, allowed_patterns):
        numbers = np.arange(2**seeds)[:, None]  # one for each pattern
        # bit k of a number tells whether seed k changes its sign
        is_negative = numbers >> np.arange(seeds) & 1
        return _Patterns(1.0 - 2.0 * is_negative.astype(np.float64), drawn=False)
    sample_size = min(DRAWN, allowed_patterns)
    is_negative = np.random.default_rng(0).integers(0, 2, (sample_size, seeds))
    is_negative[0] = 0  # the observed scores, whose statistic the caller compares with the others
    return _Patterns(1.0 - 2.0 * is_negative.astype(np.float64), drawn=True)
