"""A model of the losses at which learning curves end, with a Gaussian process for each rung.

Many trials reach the first rung, and few the end. The loss at a rung is modeled as a multiple of the loss at the rung
below plus a part of its own: recursive co-kriging (Le Gratiet and Garnier, 2014).
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
"""Minimum number of results for a rung above the first to count."""
RIDGE = 2.0
"""Strength of the pull of the multiple towards 1, as of this many trials one deviation from the mean at both rungs."""
FARTHEST = 3.0
"""Maximum distance of a loss from the best one, as a multiple of the median's distance."""
MOST_POINTS = 240
"""Maximum number of results of a rung that its process uses."""
MOST_FITTED = 100
"""Maximum number of results of a rung for fitting the kernel's parameters, which takes the cube of their number."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of trials at one rung, in the order in which they came."""

    trials: tuple[int, ...]
    losses: Array  # infinite for trials without a usable loss
    violations: Array  # how far each trial is from meeting the constraints


def comparable(results: Results) -> Array:
    """Return losses that a model can learn from, which are finite and not very far from each other.

    Losses far beyond the median are reduced to `FARTHEST`. Trials that violate a constraint are placed beyond these, by
    their violation. Trials without a usable loss count as the worst.
    """
    meets = np.isfinite(results.losses) & (results.violations <= 0)
    violates = np.isfinite(results.losses) & np.isfinite(results.violations) & (results.violations > 0)
    known = results.losses[meets]
    best = float(known.min()) if len(known) else 0.0
    if len(known):
        reach = FARTHEST * _typical_distance(known, best)
        worst = min(float(known.max()), best + reach)
    else:
        reach = 1.0
        worst = 0.0
    unit = worst - best or 1.0
    if violates.any():
        most = float(results.violations[violates].max())
    else:
        most = 1.0
    if violates.any() or not len(known):
        found = np.full(len(results.losses), worst + unit)
    else:
        found = np.full(len(results.losses), worst)
    found[meets] = np.minimum(known, best + reach)
    found[violates] = worst + unit * results.violations[violates] / most
    return found


def _typical_distance(losses: Array, best: float) -> float:
    """Return how far the median loss is from the best; if that is as good, the median of those that are worse."""
    distances = losses - best
    typical = float(np.median(distances))
    if typical == 0 and distances.any():
        typical = float(np.median(distances[distances > 0]))
    return max(typical, 1e-12)


@dataclass(frozen=True, slots=True)
class _Level:
    """A rung, at which losses are ``slope`` times those of the rung below, plus ``offset``, plus ``scale * own``."""

    trials: tuple[int, ...]
    own: Array  # with mean 0 and deviation 1
    slope: float
    offset: float
    scale: float


def _levels(rungs: Sequence[Results]) -> list[_Level]:
    """Split the losses of each rung into a part that follows from the rung below and a part of its own.

    Each trial of a rung must have a result at all rungs below. Losses are in units of the deviation at the first rung,
    so that a slope of 1 means equal gaps. The list ends before the first rung, above the lowest, that has fewer than
    `FEWEST` results.
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
        offset = float(losses.mean())
        scale = max(float(losses.std()), 0.05)
        levels.append(_Level(results.trials, (losses - offset) / scale, slope, offset, scale))
        below = here
    return levels


def _slope(lower: Array, upper: Array) -> float:
    """Return the slope of a regression with a pull towards 1, limited to 0 to 2."""
    from_mean = lower - lower.mean()
    reached = upper - upper.mean()
    slope = (from_mean @ reached + RIDGE) / (from_mean @ from_mean + RIDGE)
    return min(max(float(slope), 0.0), 2.0)


def spread_choice(values: Array, most: int) -> NDArray[np.intp]:
    """Return the indices of at most ``most`` values, one half of them the smallest, the other evenly from the rest."""
    if len(values) <= most:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    best = order[: most // 2]
    rest = np.sort(order[most // 2 :])
    evenly = np.linspace(0, len(rest) - 1, most - len(best)).round().astype(int)
    return np.sort(np.concatenate([best, rest[evenly]]))


def fit_rungs(rungs: Sequence[Results], features: Array, owners: NDArray[np.intp]) -> list[KernelParameters]:
    """Return the kernel's parameters for each rung that counts; ``features`` has a row for each trial."""
    found = []
    for level in _levels(rungs):
        chosen = spread_choice(level.own, MOST_FITTED)
        found.append(fit_kernel_parameters(owners, features[np.array(level.trials)[chosen]], level.own[chosen]))
    return found


class CurveModel:
    """Predicts the losses of configurations at the highest rung that counts.

    ``features`` has a row for each trial. ``parameters`` come from `fit_rungs`, for these results or earlier ones.
    ``pending`` has for each rung the trials from which a result is expected.
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
        self._unit = max(float(comparable(rungs[0]).std()), 1e-9)  # of losses, as in `_levels`
        self._processes: list[GaussianProcess] = []
        unknown = KernelParameters.expected(int(owners.max()) + 1)
        self._noises: list[float] = []  # variances of the noise of each level's own part
        for place, level in enumerate(self._levels):
            chosen = spread_choice(level.own, MOST_POINTS)
            if place < len(parameters):
                known = parameters[place]
            else:
                known = unknown
            points = features[np.array(level.trials)[chosen]]
            process = GaussianProcess(known, owners, points, level.own[chosen])
            self._processes.append(process.believing(features[list(pending[place])]))
            self._noises.append(math.exp(known.noise))
        started = sorted({trial for level in self._levels for trial in level.trials})
        means, _ = self.predict(features[started])
        self._best = float(means.min())
        self.ranked = [started[place] for place in np.argsort(means, kind="stable")]
        """Trials by their predicted loss, best first."""

    @property
    def rungs(self) -> int:
        """The number of rungs that count."""
        return len(self._levels)

    @property
    def noise(self) -> float:
        """The deviation of the losses of one configuration at the highest rung that counts, as losses are given."""
        variance = 0.0
        for level, noise in zip(self._levels, self._noises, strict=True):
            variance = level.slope**2 * variance + level.scale**2 * noise
        return math.sqrt(variance) * self._unit

    def expected_gain(self, features: Array, count: int) -> float:
        """Return how far the best of ``count`` new configurations is expected to be below the best trial's loss.

        The configurations are taken from ``features`` one after another: the one with the greatest expected
        improvement, on the assumption that those before it end as predicted. Losses are as they were given, without
        noise.
        """
        processes = self._processes
        gains, deviations = [], []
        for _ in range(min(count, len(features))):
            mean, deviation = self._predict(processes, features)
            chosen = int(np.argmax(_log_improvements(self._best - mean, deviation)))
            gains.append(self._best - mean[chosen])
            deviations.append(deviation[chosen])
            processes = [process.believing(features[[chosen]]) for process in processes]
        return expected_maximum(np.array(gains), np.array(deviations)) * self._unit

    def mean_gain(self, features: Array, count: int) -> float:
        """Return the mean of the same over groups of ``count`` configurations, in the order of ``features``."""
        mean, deviation = self._predict(self._processes, features)
        starts = range(0, max(len(features) - count, 0) + 1, count)
        groups = [slice(start, start + count) for start in starts]
        found = []
        for group in groups:
            found.append(expected_maximum(self._best - mean[group], deviation[group]))
        return float(np.mean(found)) * self._unit

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return mean and deviation of the losses of configurations, in units of the first rung's deviation."""
        return self._predict(self._processes, features)

    def _predict(self, processes: Sequence[GaussianProcess], features: Array) -> tuple[Array, Array]:
        mean = np.zeros(len(features))
        variance = np.zeros(len(features))
        for level, process in zip(self._levels, processes, strict=True):
            own, deviation = process.predict(features)
            mean = level.slope * mean + level.offset + level.scale * own
            variance = level.slope**2 * variance + (level.scale * deviation) ** 2
        return mean, np.sqrt(variance)

    def log_gains(self, features: Array) -> Array:
        """Return the logarithm of the expected improvement of each configuration on the best trial.

        The best trial is the one with the lowest predicted loss, not the lowest observed one, which may be due to
        noise. The logarithm also distinguishes configurations with almost no chance (Ament et al., NeurIPS 2023).
        """
        mean, deviation = self.predict(features)
        return _log_improvements(self._best - mean, deviation)


def _log_improvements(gains: Array, deviations: Array) -> Array:
    """Return the logarithm of the expected positive part of normal numbers with these means and deviations."""
    z = gains / deviations
    log_density = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    near = np.log(np.maximum(np.exp(log_density) + z * ndtr(z), 1e-300))
    far = log_density - 2.0 * np.log(np.maximum(-z, 1.0))
    return np.asarray(np.log(deviations) + np.where(z > -5.0, near, far))


def expected_maximum(means: Array, deviations: Array) -> float:
    """Return the expected positive part of the largest of independent normal numbers.

    It is the integral over x > 0 of the chance that one of them is larger than x.
    """
    most = max(float((means + 8.0 * deviations).max()), 0.0)
    if most == 0.0:
        return 0.0
    points = np.linspace(0.0, most, 513)
    below = ndtr((points[:, None] - means) / deviations).prod(axis=1)
    return float(np.trapezoid(1.0 - below, points))
