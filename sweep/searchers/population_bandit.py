"""What copies in a population try under `method: pb2`: where a Gaussian process expects most of a generation.

Parker-Holder, Nguyen, Roberts (NeurIPS 2020), "Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits". The model is of how far the loss of a member falls in a generation, given
which generation it is, how the member stood when it began, and its hyperparameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweep.events import Params
from sweep.space import Parameter
from sweep.space.draws import to_unit

Array: TypeAlias = NDArray[np.float64]
Make: TypeAlias = Callable[[Mapping[str, float]], Params | None]  # a point of coordinates; None: may not be tried

ENOUGH = 2  # observations without which there is no model
NEWEST = 200  # observations that a model is of: its cost grows with their cube, and older ones are mostly forgotten
CANDIDATES, NEAR = 400, 50  # in the whole cube, and around the parent, where others may violate the constraints
BEST, STEPS = 4, 12  # the candidates that a round refines, and the normal steps that it tries from each, so wide:
WIDTHS = (0.1, 0.05, 0.02, 0.01)
MIDDLE = 0.5  # stands in for what is unknown: the coordinate of an absent parameter, the standing of the untrained

_BOUNDS = ((math.log(0.05), math.log(3.0)), (0.01, 0.99), (0.0, 0.5))  # of `Kernel`, the length by its logarithm
_STARTS = ((math.log(0.2), 0.3, 0.1), (math.log(1.0), 0.7, 0.1))


@dataclass(frozen=True, slots=True)
class MemberResult:
    """What a member did in one generation."""

    params: Params
    before: float | None  # its loss when the generation began; None of one that was untrained, or had none
    after: float | None  # None where it diverged


def compute_standing(loss: float | None, generation: Sequence[MemberResult]) -> float:
    """Return the share of the members of the generation before that were better, which no scale of losses changes."""
    losses = [one.after for one in generation if one.after is not None]
    if loss is None or len(losses) < 2:
        return MIDDLE
    return min(sum(one < loss for one in losses) / (len(losses) - 1), 1.0)


def observations(generations: Sequence[Sequence[MemberResult]], axes: Sequence[Parameter]) -> tuple[Array, Array]:
    """Return a row for each member of each generation, the newest last, and how far its loss fell, standardized.

    Before the first generation there is no loss to compare with: what it ends with tells while there is no other.
    """
    rows, fell = [], []
    for number in range(1 if len(generations) > 1 else 0, len(generations)):
        before = generations[number - 1] if number else []
        for one in generations[number]:
            if not number or one.before is not None:
                rows.append(row(number, compute_standing(one.before, before), one.params, axes))
                fell.append(-math.inf if one.after is None else (one.before or 0.0) - one.after)
    return np.array(rows[-NEWEST:]).reshape(-1, len(axes) + 2), standardized(np.array(fell[-NEWEST:]))


def standardized(values: Array) -> Array:
    """Return values with mean 0 and deviation 1, of which those that are not finite count as the worst.

    Beyond three robust deviations they are pulled in, so that one explosion does not make all others look the same.
    """
    finite = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    middle = float(np.median(finite))
    reach = 3 * 1.4826 * float(np.median(np.abs(finite - middle))) or math.inf
    pulled: Array = values.clip(max(middle - reach, finite.min()), min(middle + reach, finite.max()))
    return (pulled - float(pulled.mean())) / max(float(pulled.std()), 1e-12) if len(values) else values


def row(generation: float, stood: float, params: Params, axes: Sequence[Parameter]) -> list[float]:
    """Return a point of the model: a generation's number, the standing before it, hyperparameters from 0 to 1."""
    units = (to_unit(one.domain, params[one.name]) if one.name in params else MIDDLE for one in axes)
    return [generation, stood, *units]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The covariance of gains: squared exponential in all but time, of which each generation ``forgets`` a share.

    The time-varying one of Bogunovic, Scarlett, Cevher (AISTATS 2016), "Time-Varying Gaussian Process Bandit
    Optimization". Of the gains' variance of 1, ``noise`` is the share that the model does not explain.
    """

    length: float
    noise: float
    forgets: float

    def between(self, first: Array, second: Array) -> Array:
        """Return the covariances of the points of two tables, without noise."""
        return (1 - self.noise) * self._alike(*_distances(first, second))

    def _alike(self, apart: Array, squares: Array) -> Array:
        return np.exp(-squares / (2 * self.length**2)) * (1 - self.forgets) ** (apart / 2)

    def cost(self, distances: tuple[Array, Array], values: Array) -> tuple[float, list[float]]:
        """Return the negative log marginal likelihood, but for a constant, and its derivatives, as `_BOUNDS` are."""
        apart, squares = distances
        alike, unit = self._alike(apart, squares), np.eye(len(values))
        inverse, logarithm = inverted((1 - self.noise) * alike + self.noise * unit)
        weights = (inverse * values).sum(axis=1)
        outer = (inverse - np.outer(weights, weights)) / 2
        by_length = (1 - self.noise) * alike * squares / self.length**2
        by_forgetting = (self.noise - 1) * alike * apart / (2 * (1 - self.forgets))
        slopes = [float((outer * one).sum()) for one in (by_length, unit - alike, by_forgetting)]
        return (float((values * weights).sum()) + logarithm) / 2, slopes


def inverted(matrix: Array) -> tuple[Array, float]:
    """Return the inverse of a positive definite matrix, and the logarithm of its determinant."""
    # by Gauss-Jordan elimination, in one thread: NumPy's own wait for each other where trainings fill the cores
    found, logarithm = matrix.copy(), 0.0
    for place in range(len(found)):
        pivot, column = float(found[place, place]), found[:, place].copy()
        column[place], found[:, place], found[place, place] = 0.0, 0.0, 1.0
        found[place] /= pivot
        found -= column[:, None] * found[place]
        logarithm += math.log(pivot)
    return found, logarithm


def _distances(first: Array, second: Array) -> tuple[Array, Array]:
    apart = np.abs(first[:, None, 0] - second[None, :, 0])
    return apart, ((first[:, None, 1:] - second[None, :, 1:]) ** 2).sum(axis=2)


def fit_kernel(points: Array, values: Array) -> Kernel:
    """Return the kernel of the largest marginal likelihood."""
    from scipy.optimize import minimize  # half a second to import, which only sweeps with pb2 need

    distances, rule = _distances(points, points), {"jac": True, "method": "L-BFGS-B", "bounds": _BOUNDS}
    found = [minimize(lambda theta: _make_kernel(theta).cost(distances, values), start, **rule) for start in _STARTS]
    return _make_kernel(min(found, key=lambda one: float(one.fun)).x.round(3))  # digits that every machine agrees on


def _make_kernel(theta: Array) -> Kernel:
    length, noise, forgets = theta.tolist()
    return Kernel(math.exp(length), noise, forgets)


class Posterior:
    """A Gaussian process that has seen gains at some points."""

    def __init__(self, kernel: Kernel, points: Array, values: Array) -> None:
        self.kernel, self.points, self.values = kernel, points, values
        self._inverse, _ = inverted(kernel.between(points, points) + kernel.noise * np.eye(len(points)))
        self._weights = (self._inverse * values).sum(axis=1)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return the means and the standard deviations at other points, without noise."""
        across = self.kernel.between(points, self.points)
        known = np.einsum("ij,jk,ik->i", across, self._inverse, across)  # in one thread, as `inverted` is
        return (across * self._weights).sum(axis=1), np.sqrt(np.maximum(1 - self.kernel.noise - known, 0.0))

    def expecting(self, points: Array) -> Posterior:
        """Return the process as if its own means had been seen at points whose gains are not known yet.

        GP-BUCB: Desautels, Krause, Burdick (JMLR 2014), "Parallelizing Exploration-Exploitation Tradeoffs in Gaussian
        Process Bandit Optimization".
        """
        values = np.concatenate((self.values, self.predict(points)[0]))
        return Posterior(self.kernel, np.vstack((self.points, points)), values)

    def bound(self, points: Array) -> Array:
        """Return the upper confidence bound, which grows with the logarithm of the observations."""
        means, deviations = self.predict(points)
        return means + math.sqrt(0.2 * max(math.log(0.4 * len(self.values)), 1.0)) * deviations


def choose_point(
    model: Posterior, axes: Sequence[Parameter], start: Sequence[float], make: Make, seed: Sequence[int]
) -> Params | None:
    """Return the point of the highest bound among random ones and those around the best of them, or None of none.

    ``start`` is the row of a copy that is not moved. Bounds are of points that ``make`` has made of coordinates.
    """
    generation, stood, *centre = start
    numbers = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    near = np.array(centre) + WIDTHS[0] * numbers.normal(size=(NEAR, len(axes)))
    units = np.vstack((centre, near, numbers.random((CANDIDATES, len(axes)))))
    best: list[tuple[float, list[float], Params]] = []
    for width in (*WIDTHS, 0.0):
        named = [{axis.name: unit for axis, unit in zip(axes, one, strict=True)} for one in units.clip(0, 1).tolist()]
        made = [params for params in map(make, named) if params is not None]
        if made:
            rows = [row(generation, stood, params, axes) for params in made]
            best += zip(model.bound(np.array(rows)).tolist(), rows, made, strict=True)
            best = sorted(best, key=lambda one: -one[0])[:BEST]
        centres = np.array([one[1][2:] for one in best]).reshape(-1, 1, len(axes))
        units = (centres + width * numbers.normal(size=(len(best), STEPS, len(axes)))).reshape(-1, len(axes))
    return best[0][2] if best else None
