"""Paired permutation by signs: if two configurations are alike, each difference could as well be its negative.

Fisher, The Design of Experiments, 1935, section 21. Adjusted for many comparisons by Holm (Scandinavian Journal of
Statistics 6, 1979) and by the step-down of the largest statistic (Westfall and Young, 1993, algorithm 4.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ENUMERATED = 2**14
"""Patterns of signs that are all gone through; of more, some are drawn, and a p-value has an error."""
DRAWN = 2**16
_CELLS = 2**20  # of one piece of the patterns by comparisons, 8 MB
_WORK = 2**26  # patterns by comparisons at most: about a second


@dataclass(frozen=True, slots=True)
class Signs:
    """The two-sided p-values of many paired comparisons, (comparisons,)."""

    p: Floats
    error: float | None  # standard error of a p of 0.05, where patterns are drawn; None where all are gone through


def each(differences: npt.ArrayLike) -> Signs:
    """Test whether paired differences, (seeds, comparisons), are around zero; 0 for a seed that one has not.

    The statistic is the sum over the root of the sum of squares, which changing signs leaves alone.
    """
    patterns, table = _prepared(differences, _WORK)
    observed = _observed(table)
    count = np.zeros(len(observed))
    for sums in patterns.times(table):
        count += (sums >= observed).sum(axis=0)
    return Signs(patterns.share(count), patterns.error)


def largest(differences: npt.ArrayLike) -> Signs:
    """Return the same, adjusted for all of them: how often any would be as large by luck (step-down).

    All signs of a seed change together, so that comparisons stay as they depend on each other.
    """
    patterns, table = _prepared(differences, _WORK // 4)
    order = np.argsort(-_observed(table), kind="stable")
    observed = _observed(table)[order]
    count = np.zeros(len(observed))
    for sums in patterns.times(table[:, order]):
        rest = np.maximum.accumulate(sums[:, ::-1], axis=1)[:, ::-1]  # the largest of those that come not before
        count += (rest >= observed).sum(axis=0)
    p = np.ones(len(observed))
    p[order] = np.maximum.accumulate(patterns.share(count))
    return Signs(p, patterns.error)


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Signs by seed, (patterns, seeds); all of them, or so many draws."""

    signs: Floats
    drawn: bool

    def times(self, table: Floats) -> Iterator[Floats]:
        """Yield the absolute sums of a table, (patterns, comparisons), in pieces."""
        pieces = max(math.ceil(len(self.signs) * table.shape[1] / _CELLS), 1)
        for rows in np.array_split(self.signs, pieces):
            yield np.abs(rows @ table)

    def share(self, count: Floats) -> Floats:
        """Return the p-value; the pattern that was seen is one of those drawn, lest it be 0."""
        more = int(self.drawn)
        return np.asarray((count + more) / (len(self.signs) + more))

    @property
    def error(self) -> float | None:
        return math.sqrt(0.05 * 0.95 / len(self.signs)) if self.drawn else None


def _prepared(differences: npt.ArrayLike, work: int) -> tuple[_Patterns, Floats]:
    table = np.asarray(differences, dtype=np.float64)
    seeds, comparisons = table.shape
    norms = np.sqrt((table**2).sum(axis=0))
    table = table / np.where(norms > 0, norms, 1.0)
    room = work // max(comparisons, 1)
    if 2**seeds <= ENUMERATED and 2 ** (seeds - 1) <= max(room, 1000):
        number = np.arange(2 ** (seeds - 1))[:, None]  # opposite patterns say the same: the last sign stays
        return _Patterns(1.0 - 2.0 * (number >> np.arange(seeds) & 1).astype(np.float64), False), table
    draws = np.random.default_rng(0).integers(0, 2, (max(min(DRAWN, room), 1000), seeds))
    return _Patterns(1.0 - 2.0 * draws.astype(np.float64), True), table


def _observed(table: Floats) -> Floats:
    return np.asarray(np.abs(table.sum(axis=0)) - 1e-9)  # lest a sum in another order be less than itself


def holm(p: npt.ArrayLike) -> Floats:
    """Holm's adjusted p-values: the k-th smallest of m times m - k + 1, never less than one before it, at most 1."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)), 1.0)
    return adjusted
