"""A model of where learning curves end: a Gaussian process of each rung, the higher ones built on the lower ones.

Many trials are known at the first rung, few at the end. What a configuration reaches at a rung is taken for a multiple
of what it reached at the rung below, and something of its own: recursive co-kriging (Le Gratiet and Garnier, 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sweep.searchers.gaussian_process import Array, GaussianProcess, KernelParameters, fit_kernel_parameters

FEWEST = 3
"""Results from which on a rung above the first counts."""
RIDGE = 2.0
"""How strongly the multiple is drawn to 1: as by so many trials that differ by a deviation at both rungs."""
FARTHEST = 3.0
"""How far beyond the best a loss counts, as a multiple of the median's distance from the best."""
MOST_POINTS = 240
"""Results of a rung that its process knows."""
MOST_FITTED = 100
"""Results of a rung from which the kernel's parameters are found, which takes the cube of their number."""


@dataclass(frozen=True, slots=True)
class Results:
    """What became of trials at one rung, in the order in which they came there."""

    trials: tuple[int, ...]
    losses: Array  # infinite for trials that came to nothing
    violations: Array  # how far each trial is from meeting the constraints


def comparable(results: Results) -> Array:
    """Return losses that a model can learn from: finite, none very far from the others.

    Losses far beyond the median count as `FARTHEST`. Trials that violate a constraint stand beyond these, by their
    violation; those that came to nothing are as bad as the worst.
    """
    meets = np.isfinite(results.losses) & (results.violations <= 0)
    violates = np.isfinite(results.losses) & np.isfinite(results.violations) & (results.violations > 0)
    known = results.losses[meets]
    best = float(known.min()) if len(known) else 0.0
    reach = FARTHEST * max(float(np.median(known)) - best, 1e-12) if len(known) else 1.0
    worst = min(float(known.max()), best + reach) if len(known) else 0.0
    unit = worst - best or 1.0
    most = float(results.violations[violates].max()) if violates.any() else 1.0
    found = np.full(len(results.losses), worst + unit if violates.any() or not len(known) else worst)
    found[meets] = np.minimum(known, best + reach)
    found[violates] = worst + unit * results.violations[violates] / most
    return found


@dataclass(frozen=True, slots=True)
class _Level:
    """A rung: ``slope`` times the loss at the rung below, ``offset``, and ``scale`` times what is its own."""

    trials: tuple[int, ...]
    own: Array  # with mean 0 and deviation 1
    slope: float
    offset: float
    scale: float


def _levels(rungs: Sequence[Results]) -> list[_Level]:
    """Split the losses of each rung into what follows from the rung below, and what is its own.

    Each trial of a rung has a result at all rungs below it. Losses of all rungs are in units of the deviation at the
    first one, so that a slope of 1 means the same gaps.
    """
    levels: list[_Level] = []
    below: dict[int, float] = {}
    unit = 1.0
    for results in rungs:
        losses = comparable(results)
        if not levels:
            unit = max(float(losses.std()), 1e-9)
        losses = losses / unit
        here = dict(zip(results.trials, losses.tolist(), strict=True))
        slope = 0.0
        if levels:
            if len(losses) < FEWEST:
                break
            lower = np.array([below[trial] for trial in results.trials])
            slope = _slope(lower, losses)
            losses = losses - slope * lower
        offset, scale = float(losses.mean()), max(float(losses.std()), 0.05)
        levels.append(_Level(results.trials, (losses - offset) / scale, slope, offset, scale))
        below = here
    return levels


def _slope(lower: Array, upper: Array) -> float:
    """Return the slope of a regression that is drawn to 1, from 0 to 2."""
    from_mean, reached = lower - lower.mean(), upper - upper.mean()
    slope = (from_mean @ reached + RIDGE) / (from_mean @ from_mean + RIDGE)
    return min(max(float(slope), 0.0), 2.0)


def spread_choice(values: Array, most: int) -> NDArray[np.intp]:
    """Return the places of at most so many values: the best half of them, and others evenly out of the rest."""
    if len(values) <= most:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    best, rest = order[: most // 2], np.sort(order[most // 2 :])
    evenly = np.linspace(0, len(rest) - 1, most - len(best)).round().astype(int)
    return np.sort(np.concatenate([best, rest[evenly]]))


def fit_rungs(rungs: Sequence[Results], features: Array, owners: NDArray[np.intp]) -> list[KernelParameters]:
    """Return the kernel's parameters of each rung that counts; ``features`` has a row for each trial."""
    found = []
    for level in _levels(rungs):
        chosen = spread_choice(level.own, MOST_FITTED)
        found.append(fit_kernel_parameters(owners, features[np.array(level.trials)[chosen]], level.own[chosen]))
    return found


class CurveModel:
    """Predicts how well configurations end, as far as the highest rung that counts shows that.

    ``features`` has a row for each trial, ``parameters`` are those of `fit_rungs`, of these results or of earlier ones,
    and ``pending`` are the trials of which each rung expects a result.
    """

    def __init__(
        self,
        rungs: Sequence[Results],
        pending: Sequence[Sequence[int]],
        features: Array,
        owners: NDArray[np.intp],
        parameters: Sequence[KernelParameters],
    ) -> None:
        self._levels = _levels(rungs)
        self._processes: list[GaussianProcess] = []
        unknown = KernelParameters.expected(int(owners.max()) + 1)
        for place, level in enumerate(self._levels):
            chosen = spread_choice(level.own, MOST_POINTS)
            known = parameters[place] if place < len(parameters) else unknown
            points = features[np.array(level.trials)[chosen]]
            process = GaussianProcess(known, owners, points, level.own[chosen])
            self._processes.append(process.believing(features[list(pending[place])]))
        started = sorted({trial for level in self._levels for trial in level.trials})
        means, _ = self.predict(features[started])
        self._best = float(means.min())
        self.ranked = [started[place] for place in np.argsort(means, kind="stable")]
        """Trials, the one that is predicted to end best first."""

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return mean and deviation of where these configurations end, in units of the first rung's deviation."""
        mean, variance = np.zeros(len(features)), np.zeros(len(features))
        for level, process in zip(self._levels, self._processes, strict=True):
            own, deviation = process.predict(features)
            mean = level.slope * mean + level.offset + level.scale * own
            variance = level.slope**2 * variance + (level.scale * deviation) ** 2
        return mean, np.sqrt(variance)

    def log_gains(self, features: Array) -> Array:
        """Return the logarithm of what each configuration is expected to gain on the best one.

        The best is what is predicted, not what was seen, so that noise does not win. The logarithm of the expected
        improvement also tells apart what has next to no chance (Ament et al., NeurIPS 2023).
        """
        mean, deviation = self.predict(features)
        z = (self._best - mean) / deviation
        log_density = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
        near = np.log(np.maximum(np.exp(log_density) + z * ndtr(z), 1e-300))
        far = log_density - 2.0 * np.log(np.maximum(-z, 1.0))
        return np.asarray(np.log(deviation) + np.where(z > -5.0, near, far))
