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

from sweep.searchers.gaussian_process import (
    Array,
    GaussianProcess,
    KernelParameters,
    fit_kernel_parameters,
)
from sweep.space.objectives import INFEASIBLE

FEWEST = 3
"""Minimum number of results for a rung above the first to count."""
RIDGE = 2.0
"""Weight of the prior that slopes are 1, in trials whose losses are one standard deviation from the mean."""
FARTHEST = 3.0
"""Maximum distance of a loss from the best one, as a multiple of the median's distance."""
MOST_POINTS = 240
"""Maximum number of results of a rung that its process uses."""
MOST_FITTED = 100
"""Maximum number of results of a rung for fitting the kernel's parameters, which takes the cube of their number."""
LEAST_UNKNOWN = 1e-9
"""Added to the share of a result that is unknown, so that its logarithm stays far above minus infinity."""


@dataclass(frozen=True, slots=True)
class RungResults:
    """The results of all trials at one rung, in the order of their arrival."""

    trials: tuple[int, ...]
    losses: Array  # infinite for trials without a usable loss
    violations: Array  # how far each trial is from meeting the constraints


def limit_losses(results: RungResults) -> Array:
    """Return finite losses without outliers for a model to learn from, one for each result, in their order.

    The losses of trials that meet the constraints are limited to the lowest of them plus `FARTHEST` times the distance
    of their median from it. A trial that violates the constraints gets a larger loss than all that meet them; the
    larger the violation, the larger the loss. A trial without a usable loss gets the largest one that any trial has;
    its loss or its violation is infinite or NaN. ``results`` is not changed.
    """
    # masks of the trials with a usable loss; all others keep the loss with which `limited` begins
    meets = np.isfinite(results.losses) & (results.violations <= 0)
    violates = (
        np.isfinite(results.losses) & np.isfinite(results.violations) & (results.violations > 0)
    )
    # beyond this bound, squares of losses are too large for a float
    losses = results.losses.clip(-INFEASIBLE, INFEASIBLE)
    feasible = losses[meets]
    if len(feasible):
        best = float(feasible.min())
        reach = FARTHEST * _typical_distance(feasible, best)
        worst = min(float(feasible.max()), best + reach)
    else:
        best = 0.0
        reach = 1.0
        worst = 0.0
    # what the largest violation costs; if all losses are equal, a violation still costs something
    cost = worst - best or 1.0
    # trials without a usable loss are as bad as the one that violates the constraints most, if any violates them
    if violates.any() or not len(feasible):
        limited = np.full(len(results.losses), worst + cost)
    else:
        limited = np.full(len(results.losses), worst)
    limited[meets] = np.minimum(feasible, best + reach)
    if violates.any():
        violations = results.violations[violates]
        limited[violates] = worst + cost * violations / float(violations.max())
    return limited


def _typical_distance(losses: Array, best: float) -> float:
    """Return the difference between the median loss and ``best``, the lowest one.

    If it is 0, return the median of all positive differences, or 0 if all losses are equal. ``losses`` must not be
    empty.
    """
    distances = losses - best
    typical = float(np.median(distances))
    if typical == 0 and distances.any():
        typical = float(np.median(distances[distances > 0]))
    return typical


def _compute_unit(losses: Array) -> float:
    """Return the standard deviation of the losses at the first rung, by which the losses of all rungs are divided.

    It is at least 1e-9 of the largest absolute loss, so that the model does not learn from rounding, and 1 if all are
    0. ``losses`` are those at the first rung, and must not be empty.
    """
    return max(float(losses.std()), 1e-9 * float(np.abs(losses).max())) or 1.0


@dataclass(frozen=True, slots=True)
class _RungModel:
    """A rung in the model: losses are ``slope`` times those of the rung below, plus ``offset + scale * own``."""

    trials: tuple[int, ...]
    own: Array  # with mean 0 and deviation 1
    slope: float
    offset: float
    scale: float


def _split_rungs(rungs: Sequence[RungResults]) -> list[_RungModel]:
    """Split the losses of each rung into a multiple of the losses of the rung below and a remainder of its own.

    ``rungs`` are ascending. Each trial of a rung must have a result at all rungs below; a KeyError is raised otherwise.
    Losses are those of `limit_losses`, in units of the deviation at the first rung, so that a slope of 1 means equal
    gaps. The result has a model for the lowest rung, and for the rungs above it up to, but without, the first that has
    fewer than `FEWEST` results.
    """
    levels: list[_RungModel] = []
    below: dict[int, float] = {}  # losses at the rung below, by trial
    unit = 1.0  # becomes the deviation at the first rung
    for results in rungs:
        losses = limit_losses(results)
        if not levels:
            unit = _compute_unit(losses)
        losses = losses / unit
        here = dict(zip(results.trials, losses.tolist(), strict=True))
        slope = 0.0  # the lowest rung has none below
        if levels:
            if len(losses) < FEWEST:
                break
            lower = np.array([below[trial] for trial in results.trials])
            slope = _fit_slope(lower, losses)
            losses = losses - slope * lower
        offset = float(losses.mean())
        # a tiny remainder, which is mostly noise, stays tiny
        scale = max(float(losses.std()), 0.05)
        levels.append(_RungModel(results.trials, (losses - offset) / scale, slope, offset, scale))
        below = here
    return levels


def _fit_slope(lower: Array, upper: Array) -> float:
    """Return the slope of the regression of ``upper`` on ``lower``, regularized towards 1 and limited to 0 to 2.

    They are the losses of the same trials at two rungs, in the same order.
    """
    lower_centered = lower - lower.mean()
    upper_centered = upper - upper.mean()
    # least squares, with a penalty for the squared distance from 1
    slope = (lower_centered @ upper_centered + RIDGE) / (lower_centered @ lower_centered + RIDGE)
    return min(max(float(slope), 0.0), 2.0)


def choose_spread_indices(values: Array, most: int) -> NDArray[np.intp]:
    """Choose at most ``most`` of ``values`` and return their indices, ascending.

    If there are more values, half of the chosen ones are the smallest, and the others are evenly spaced among the rest
    in the order of ``values``. Otherwise all are chosen.
    """
    if len(values) <= most:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    smallest = order[: most // 2]
    rest = np.sort(order[most // 2 :])  # indices again in the order of `values`
    evenly = np.linspace(0, len(rest) - 1, most - len(smallest)).round().astype(int)
    return np.sort(np.concatenate([smallest, rest[evenly]]))


def fit_rungs(
    rungs: Sequence[RungResults], features: Array, owners: NDArray[np.intp]
) -> list[KernelParameters]:
    """Fit a Gaussian process to each rung that the model uses; return the kernel parameters, lowest rung first.

    ``rungs`` are ascending. The first rung above the lowest that has fewer than `FEWEST` results is left out, with all
    rungs above it. At most `MOST_FITTED` results of a rung are used (`choose_spread_indices`). ``features`` has a row
    for each trial, to which `RungResults.trials` are indices. ``owners`` has for each column the index of its
    hyperparameter.
    """
    found = []
    for level in _split_rungs(rungs):
        chosen = choose_spread_indices(level.own, MOST_FITTED)
        found.append(
            fit_kernel_parameters(
                owners, features[np.array(level.trials)[chosen]], level.own[chosen]
            )
        )
    return found


class CurveModel:
    """Predicts the losses of configurations at the highest rung that has enough results.

    ``features`` has a row for each trial. ``parameters`` come from `fit_rungs`, called with these or with earlier
    results. ``pending`` has for each rung the trials whose result there is expected next; it is assumed to be the
    predicted one.
    """

    def __init__(
        self,
        rungs: Sequence[RungResults],
        pending: Sequence[Sequence[int]],
        features: Array,
        owners: NDArray[np.intp],
        parameters: Sequence[KernelParameters],
    ) -> None:
        self._levels = _split_rungs(rungs)  # from the lowest rung on
        # of losses, as in `_split_rungs`
        self._unit = _compute_unit(limit_losses(rungs[0]))
        self._processes: list[GaussianProcess] = []  # of each level's own part of the losses
        not_fitted = KernelParameters.prior_center(int(owners.max()) + 1)
        self._noises: list[float] = []  # variances of the noise of each level's own part
        for index, level in enumerate(self._levels):
            chosen = choose_spread_indices(level.own, MOST_POINTS)
            if index < len(parameters):
                kernel = parameters[index]
            else:  # the rung had too few results when the parameters were fitted
                kernel = not_fitted
            points = features[np.array(level.trials)[chosen]]
            process = GaussianProcess(kernel, owners, points, level.own[chosen])
            self._processes.append(process.condition_on_means(features[list(pending[index])]))
            self._noises.append(math.exp(kernel.noise))
        with_results = sorted({trial for level in self._levels for trial in level.trials})
        means, _ = self.predict(features[with_results])
        self._best = float(means.min())  # the lowest predicted loss of a trial
        self.ranked = [with_results[index] for index in np.argsort(means, kind="stable")]
        """Trials by their predicted loss, best first."""

    @property
    def rungs(self) -> int:
        """The number of rungs that the model uses, which may be fewer than it was given."""
        return len(self._levels)

    @property
    def noise(self) -> float:
        """The standard deviation of the losses of one configuration at the highest rung that the model uses.

        It is that between repeated trainings, as the kernel parameters have it, in the unit of the given losses.
        """
        variance = 0.0
        for level, noise in zip(self._levels, self._noises, strict=True):
            variance = level.slope**2 * variance + level.scale**2 * noise
        return math.sqrt(variance) * self._unit

    def expected_gain(self, features: Array, count: int) -> float:
        """Return the expected improvement of the best of ``count`` new configurations on the best trial.

        The configurations are chosen from the rows of ``features`` one after another: always the one with the greatest
        expected improvement, on the assumption that those before it end as predicted. If there are fewer than ``count``
        rows, one is chosen for each; a row may be chosen more than once. The best trial is the one with the lowest
        predicted loss. The result is in the unit of the given losses, without noise. Raises ValueError if ``features``
        is empty or ``count`` is 0.
        """
        processes = self._processes
        gains, deviations = [], []  # of the chosen configurations
        for _ in range(min(count, len(features))):
            means, deviations_here = self._predict(processes, features)
            chosen = int(np.argmax(_log_improvements(self._best - means, deviations_here)))
            gains.append(self._best - means[chosen])
            deviations.append(deviations_here[chosen])
            # lowers the deviations near the chosen row, so that the next one is not its neighbor
            processes = [process.condition_on_means(features[[chosen]]) for process in processes]
        return expected_maximum(np.array(gains), np.array(deviations)) * self._unit

    def expected_gain_of_groups(self, features: Array, count: int) -> float:
        """Return the mean expected improvement of the best of ``count`` configurations on the best trial.

        The mean is taken over consecutive groups of ``count`` rows of ``features``, which must not be empty. An
        incomplete last group is left out unless it is the only one. The best trial is the one with the lowest predicted
        loss. The result is in the unit of the given losses, without noise.
        """
        mean, deviation = self._predict(self._processes, features)
        # first rows of the groups; the last start leaves room for a whole group, if there is room for any
        starts = range(0, max(len(features) - count, 0) + 1, count)
        gains = []
        for start in starts:
            group = slice(start, start + count)
            gains.append(expected_maximum(self._best - mean[group], deviation[group]))
        return float(np.mean(gains)) * self._unit

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return means and standard deviations of configurations' losses at the highest rung that the model uses.

        ``features`` has a row for each configuration. Both results are in units of the first rung's deviation, the
        deviations without noise.
        """
        return self._predict(self._processes, features)

    def _predict(
        self, processes: Sequence[GaussianProcess], features: Array
    ) -> tuple[Array, Array]:
        return self._combine([process.predict(features) for process in processes])

    def _combine(self, predictions: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
        """Return means and standard deviations at the highest rung, from those of each rung's own part."""
        mean = np.zeros(len(predictions[0][0]))
        variance = np.zeros(len(mean))
        # from rung to rung upwards: a multiple of the losses below, plus a part of its own
        for level, (own, deviation) in zip(self._levels, predictions, strict=True):
            mean = level.slope * mean + level.offset + level.scale * own
            variance = level.slope**2 * variance + (level.scale * deviation) ** 2
        return mean, np.sqrt(variance)

    def log_gains(self, features: Array) -> Array:
        """Return the logarithm of the expected improvement of each configuration on the best trial.

        ``features`` has a row for each configuration. The best trial is the one with the lowest predicted loss, not the
        lowest observed one, which may be due to noise. The improvement is in units of the first rung's deviation. The
        logarithm also distinguishes configurations with almost no chance (Ament et al., NeurIPS 2023).
        """
        mean, deviation = self.predict(features)
        return _log_improvements(self._best - mean, deviation)

    def log_acquisition(self, features: Array) -> Array:
        """Return a score of each configuration as the next one to try: higher is better.

        It is `log_gains` plus the logarithm of the share of the result at the first rung that is unknown. Most trials
        stop at that rung, and are of use only by what their results teach. Without the second term, near copies of the
        best trial, whose results are known before, are suggested again and again. There is no second term while the
        model has a single rung: each trial is trained to its end, or too few have gone on from the first rung so far.
        A variant of augmented expected improvement: Huang, Allen, Notz and Miller (2006), "Sequential kriging
        optimization using multiple-fidelity evaluations".
        """
        predictions = [process.predict(features) for process in self._processes]
        mean, deviation = self._combine(predictions)
        gains = _log_improvements(self._best - mean, deviation)
        if len(self._levels) == 1:
            return gains
        _, first_deviation = predictions[0]
        unknown = first_deviation**2 / self._processes[0].signal
        return np.asarray(gains + np.log(unknown + LEAST_UNKNOWN))


def _log_improvements(gains: Array, deviations: Array) -> Array:
    """Return log E[max(x, 0)] for normal x with means ``gains`` and standard deviations ``deviations``, above 0."""
    z = gains / deviations  # the formulas are for deviation 1
    log_density = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    # far below 0, the two terms of the exact formula cancel; there, its leading term for large -z is used
    near = np.log(np.maximum(np.exp(log_density) + z * ndtr(z), 1e-300))
    far = log_density - 2.0 * np.log(np.maximum(-z, 1.0))
    return np.asarray(np.log(deviations) + np.where(z > -5.0, near, far))


def expected_maximum(means: Array, deviations: Array) -> float:
    """Return the expected value of the largest of independent normal variables, where negative values count as 0.

    It is the integral over x > 0 of the probability that at least one variable is larger than x, computed numerically
    from 513 points. ``means`` must not be empty, and ``deviations`` must be positive.
    """
    # beyond 8 deviations, the probability is below 1e-15
    most = max(float((means + 8.0 * deviations).max()), 0.0)
    if most == 0.0:
        return 0.0
    points = np.linspace(0.0, most, 513)
    # the probability that all variables are below each point
    all_below = ndtr((points[:, None] - means) / deviations).prod(axis=1)
    return float(np.trapezoid(1.0 - all_below, points))
