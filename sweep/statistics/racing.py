"""Races over seeds: which configurations can be left out before all seeds are trained.

In a race, all configurations that are left train with the next seed, and those that are clearly worse than the leader
drop out. The scores of one seed are a block, as in F-Race (Birattari et al., GECCO 2002), which tests after each block
without correcting for that.

Here the bound is fixed before the race. It is Student's t on the residuals of all configurations that are left, or on
the spread of a difference if that is clearly larger. It is two-sided at 5 %, divided among all looks and all pairs
(Bonferroni), since any two configurations could come to lead and to be compared. So all intervals of a race hold
together with 95 %, whenever it stops, and the best one drops out in at most 5 % of races. What is left is a subset that
contains the best one, as defined by Gupta (Technometrics 7, 1965).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.statistics.intervals import ALPHA
from sweep.statistics.means import choose_scale, scale_up

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CLEARLY = 0.9  # confidence of the lower bound of a spread
FIRST_SEEDS = 2  # number of seeds at the first look; fewer show no spread
_ROUNDING = 1e-9  # differences up to this share of the largest mean may be errors of rounding


@dataclass(frozen=True, slots=True)
class RaceState:
    """The state of a race after some of its seeds; smaller losses are better."""

    leader: int  # index of the configuration with the smallest mean loss
    behind: tuple[float, ...]  # for each configuration, its mean minus the leader's
    # for each, half the width of the interval of that difference; infinite if nothing can be told yet
    half: tuple[float, ...]
    out: tuple[int, ...]  # those that are clearly worse than the leader


def look_at_race(
    losses: Sequence[Sequence[float]], seeds: int, *, equal_tells: bool = False
) -> RaceState:
    """Return the state of a race after some of its seeds: the leader, and the configurations that drop out.

    Configurations are named by their indices in ``losses``. The leader is the one with the smallest mean, the first of
    several. Another one drops out if its mean is further from the leader's than half the width of the interval of
    this difference. With one seed, or one configuration, all half widths are infinite and none drops out. Losses must
    be finite.

    Arguments:
        losses: of shape (configurations left, seeds so far), neither of them 0; lower is better.
        seeds: the number of seeds if the race runs to its end.
        equal_tells: whether differences to the leader that are equal in all seeds tell configurations apart even if the
            seeds are few, as in the first version of the race.
    """
    import numpy as np

    # only the quantiles (of chi-square and of Student's t), because scipy.stats takes a second to import
    from scipy.special import chdtri, stdtrit

    # sums and squares of the largest floats are too large for a float
    scale = choose_scale(loss for own in losses for loss in own)
    table: npt.NDArray[np.float64] = np.asarray(losses, dtype=np.float64) / scale
    left, done = table.shape  # configurations that are left, and seeds so far
    means = table.mean(axis=1)
    leader = int(means.argmin())
    behind = means - means[leader]
    rounding = _ROUNDING * float(np.abs(means).max())
    # A configuration drops out if it is further behind than half the width of its interval.
    half = np.full(left, math.inf)
    freedom = (left - 1) * (done - 1)  # of the residuals below
    if freedom and done >= FIRST_SEEDS:
        # The variance of the difference of two configurations in one seed, from all of them: what is left of a loss
        # after the means of its configuration and its seed, and twice that, because a difference has two losses.
        residuals = table - means[:, None] - table.mean(axis=0) + table.mean()
        pooled_variance = 2 * float((residuals**2).sum()) / freedom
        # The same for each configuration from its differences to the leader alone. It counts only where it is clearly
        # larger, so this is its lower bound with the confidence `CLEARLY`: few seeds may show a large one by chance.
        gaps = table - table[leader]
        own_variances = gaps.var(axis=1, ddof=1) * (done - 1) / chdtri(done - 1, 1 - CLEARLY)
        # standard errors of the mean differences
        errors = np.sqrt(np.maximum(pooled_variance, own_variances) / done)
        level = compute_race_level(left, seeds)
        half = float(stdtrit(freedom, 1 - level / 2)) * errors
        # If all differences are equal, the spread is 0, which may be by chance. Then nothing can be told, unless the
        # leader was ahead in enough seeds.
        if not (equal_tells or can_tell_without_spread(left, done)):
            half[errors <= rounding] = math.inf
    out = tuple(map(int, np.flatnonzero(behind > half + rounding)))
    return RaceState(leader, _scale_all_up(behind, scale), _scale_all_up(half, scale), out)


def _scale_all_up(values: npt.NDArray[np.float64], scale: float) -> tuple[float, ...]:
    """Return the values times ``scale``, finite ones limited to the largest float; others stay as they are."""
    scaled = []
    for value in values.tolist():
        if math.isfinite(value):
            value = scale_up(value, scale)
        scaled.append(value)
    return tuple(scaled)


def can_tell_without_spread(left: int, done: int) -> bool:
    """Return whether ``done`` equal differences, which have no spread, are enough to tell two configurations apart.

    ``done`` is the number of seeds so far, ``left`` the number of configurations that are still in the race. Scores
    such as an accuracy have few values, so a few equal differences do not mean that there is no spread. So this is a
    two-sided sign test in which the leader was ahead in all seeds, at 5 % divided by the number of pairs. That level is
    not divided among the looks too, because a leader that was ahead in all seeds was so at each earlier look.
    """
    return 2.0 ** (1 - done) <= ALPHA / _count_pairs(left)


def _count_pairs(left: int) -> float:
    """Return the number of pairs of ``left`` configurations; 1 for a single one."""
    return max(left * (left - 1) / 2, 1)


def compute_race_level(left: int, seeds: int) -> float:
    """Return the probability of error of each interval, with which at most 5 % of races have any interval that misses.

    The 5 % are divided among the looks of a race over ``seeds`` seeds, of which the first is after `FIRST_SEEDS`, and
    among the pairs of the ``left`` configurations that are still in the race. Using fewer pairs once some have dropped
    out is valid by the sequential rejection of Goeman and Solari, Annals of Statistics 38, 2010.
    """
    looks = max(seeds - FIRST_SEEDS + 1, 1)
    return ALPHA / looks / _count_pairs(left)
