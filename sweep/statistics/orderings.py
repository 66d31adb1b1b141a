"""What a search found for what it spent, whatever the order in which luck brought its configurations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ORDERINGS = 200
POINTS = 40


@dataclass(frozen=True, slots=True)
class Course:
    """The best score found within each budget; NaN before the first, each array is (budgets,)."""

    budgets: Floats
    expected: Floats  # mean over orderings
    low: Floats  # of 95 % of them
    high: Floats
    found: Floats  # in the order in which it was


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation of two rows of scores, with its 95 % interval (Bonett and Wright, 2000)."""

    count: int
    value: float
    low: float | None
    high: float | None


def course(scores: Sequence[float] | Floats, costs: Sequence[float], *, maximize: bool, seed: int = 0) -> Course:
    """Return the best of ``scores`` by what was spent, over 200 orders of the same configurations.

    A score that is NaN costs and finds nothing. The mean is what a random search among these configurations expects
    (Dodge et al., Show Your Work, EMNLP 2019), here without replacement and by cost.
    """
    sign = -1.0 if maximize else 1.0
    losses = np.nan_to_num(sign * np.asarray(scores, dtype=np.float64), nan=math.inf)
    spent = np.asarray(costs, dtype=np.float64)
    budgets = np.linspace(0, spent.sum(), POINTS + 1)[1:]
    draws = np.random.default_rng(seed)
    runs = np.array([_best(losses, spent, draws.permutation(len(losses)), budgets) for _ in range(ORDERINGS)])
    # Until every ordering has found something its mean is of those that have.
    known = np.where(np.isfinite(runs), runs, np.nan)
    counts = np.isfinite(runs).sum(axis=0)
    mean = np.where(counts > 0, np.nansum(known, axis=0) / np.maximum(counts, 1), np.nan)
    bounds = np.full((2, len(budgets)), np.nan)
    for at in np.flatnonzero(counts):
        bounds[:, at] = np.quantile(known[np.isfinite(known[:, at]), at], [0.025, 0.975])
    low, high = -bounds[::-1] if maximize else bounds
    found = _best(losses, spent, np.arange(len(losses)), budgets)
    return Course(budgets, sign * mean, low, high, np.where(np.isfinite(found), sign * found, np.nan))


def correlation(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> Correlation | None:
    """How far two rows of scores agree on the order; None for fewer than three, or where one is the same for all."""
    count = len(one)
    if count < 3:
        return None
    ranks = [_ranks(np.asarray(values, dtype=np.float64)) for values in (one, other)]
    spreads = [float(np.std(values)) for values in ranks]
    if not all(spreads):
        return None
    value = float(np.mean((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())) / (spreads[0] * spreads[1]))
    value = max(min(value, 1.0), -1.0)
    if count < 5 or abs(value) > 1 - 1e-12:
        return Correlation(count, value, None, None)
    half = 1.959964 * math.sqrt((1 + value * value / 2) / (count - 3))
    return Correlation(count, value, math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half))


def _best(losses: Floats, spent: Floats, order: npt.NDArray[np.intp], budgets: Floats) -> Floats:
    """Return the least loss of those that were done by each budget."""
    done = np.cumsum(spent[order])
    least = np.concatenate([[math.inf], np.minimum.accumulate(losses[order])])
    return np.asarray(least[np.searchsorted(done, budgets * (1 + 1e-9), side="right")])


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, equal values with the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place])
