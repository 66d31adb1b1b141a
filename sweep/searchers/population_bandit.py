"""The Gaussian process that chooses the hyperparameters of copies in a population, for `method: pb2`.

Parker-Holder, Nguyen, Roberts (NeurIPS 2020), "Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits". The model predicts how far the loss of a member falls in a generation, from the number of the
generation, the member's standing at its start (see `compute_standing`) and its hyperparameters.
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
# makes a point from coordinates by name; None if it is not allowed
Make: TypeAlias = Callable[[Mapping[str, float]], Params | None]

ENOUGH = 2  # minimum number of observations
NEWEST = 200  # maximum number of observations: the cost grows with their cube, and older ones hardly count
# random points in the unit cube, and around the parent, where more may meet the constraints
CANDIDATES, NEAR = (
    400,
    50,
)
# candidates that a round refines, and normal steps from each; their deviations by round:
BEST, STEPS = (
    4,
    12,
)
WIDTHS = (0.1, 0.05, 0.02, 0.01)
MIDDLE = 0.5  # for what is unknown: the coordinate of an absent parameter, the standing of an untrained member

# of `Kernel`'s fields, the length as logarithm
_BOUNDS = (
    (math.log(0.05), math.log(3.0)),
    (0.01, 0.99),
    (0.0, 0.5),
)
_STARTS = ((math.log(0.2), 0.3, 0.1), (math.log(1.0), 0.7, 0.1))


@dataclass(frozen=True, slots=True)
class MemberResult:
    """The hyperparameters of a member in one generation, and its loss before and after the generation."""

    params: Params
    # its loss at the start of the generation; None if it was untrained or had none
    before: float | None
    after: float | None  # its loss at the end; None if it diverged or has none


def compute_standing(loss: float | None, generation: Sequence[MemberResult]) -> float:
    """Return the fraction of a generation's other members with a lower loss than ``loss``, from 0 (best) to 1.

    Of the members, those with a loss at the end of the generation count, and ``loss`` should be that of one of them.
    The result does not depend on the scale of the loss. It is 0.5 if ``loss`` is None, or if fewer than two members
    have a loss.
    """
    losses = []
    for one in generation:
        if one.after is not None:
            losses.append(one.after)
    if loss is None or len(losses) < 2:
        return MIDDLE
    # limited, because ``loss`` need not be one of these losses, and may be above all of them
    lower = sum(one < loss for one in losses)
    return min(lower / (len(losses) - 1), 1.0)


def make_training_data(
    generations: Sequence[Sequence[MemberResult]], axes: Sequence[Parameter]
) -> tuple[Array, Array]:
    """Return the data from which the model learns: a row and a decrease of the loss for each member and generation.

    ``generations`` are in their order, ``axes`` the parameters in the model. Rows are those of `make_row`. The first
    array has a row, the second a number for each entry, of which the last `NEWEST` are kept; the decreases are
    standardized (`standardize`). Members without a loss at the start of a generation are left out, as are all of the
    first generation. While the first is the only one, its final losses are used instead. A member without a loss at the
    end of a generation has the smallest decrease.
    """
    rows, decreases = [], []
    only_first = len(generations) == 1
    for number, generation in enumerate(generations):
        if number == 0 and not only_first:
            continue
        previous: Sequence[MemberResult] = [] if only_first else generations[number - 1]
        for one in generation:
            if one.before is None and not only_first:
                continue
            rows.append(make_row(number, compute_standing(one.before, previous), one.params, axes))
            if one.after is None:
                decreases.append(-math.inf)  # `standardize` counts it as the smallest decrease
            else:
                # without an earlier loss, the final one alone ranks the members of the first generation
                decreases.append((one.before or 0.0) - one.after)
    # `reshape` is for the case that there are no rows
    points = np.array(rows[-NEWEST:]).reshape(-1, len(axes) + 2)
    return points, standardize(np.array(decreases[-NEWEST:]))


def standardize(values: Array) -> Array:
    """Return values scaled to mean 0 and deviation 1; minus infinity counts as the smallest finite value.

    Values that are farther from the median than three robust deviations are clipped first, so that one explosion does
    not make all others look alike. If all values are equal, all become 0. An empty array is returned as it is.
    ``values`` must have no NaN, and is not changed.
    """
    if np.isfinite(values).any():
        finite = values[np.isfinite(values)]
    else:
        finite = np.zeros(1)  # if all are minus infinity, all become 0
    # a power of two, which changes no bit, so that the result does not depend on the metric's unit
    unit = 2.0 ** (math.frexp(float(np.abs(finite).max()))[1] - 1)
    values, finite = values / unit, finite / unit
    middle = float(np.median(finite))
    # 1.4826 times the median distance is the deviation of a normal sample; if the distance is 0, nothing is clipped
    reach = 3 * 1.4826 * float(np.median(np.abs(finite - middle))) or math.inf
    low = max(middle - reach, finite.min())
    high = min(middle + reach, finite.max())
    clipped: Array = values.clip(low, high)
    if len(values):
        return (clipped - float(clipped.mean())) / max(float(clipped.std()), 1e-12)
    return values


def make_row(
    generation: float, stood: float, params: Params, axes: Sequence[Parameter]
) -> list[float]:
    """Return the model's input for a member: ``generation``, ``stood``, and its hyperparameters from 0 to 1.

    ``generation`` is its index, from 0, and ``stood`` the member's standing at its start (`compute_standing`). The
    hyperparameters are those of ``axes``, in that order, converted by `to_unit`; an absent one is 0.5.
    """
    numbers = [generation, stood]
    for axis in axes:
        numbers.append(to_unit(axis.domain, params[axis.name]) if axis.name in params else MIDDLE)
    return numbers


@dataclass(frozen=True, slots=True)
class Kernel:
    """The covariance of decreases of the loss, squared exponential in all coordinates but time.

    It decreases with time: each generation ``forgets`` a share, as in Bogunovic, Scarlett, Cevher (AISTATS 2016),
    "Time-Varying Gaussian Process Bandit Optimization". The variance is 1, of which ``noise`` is the share that the
    model does not explain.
    """

    length: float  # the distance of two points at which their correlation has fallen to exp(-1/2)
    noise: float
    forgets: float

    def compute_covariances(self, first: Array, second: Array) -> Array:
        """Return the covariance of each row of ``first`` with each row of ``second``, without noise."""
        return (1 - self.noise) * self._compute_correlations(*compute_distances(first, second))

    def _compute_correlations(self, apart: Array, squares: Array) -> Array:
        by_distance: Array = np.exp(-squares / (2 * self.length**2))
        by_time: Array = (1 - self.forgets) ** (apart / 2)
        return by_distance * by_time

    def compute_cost(
        self, distances: tuple[Array, Array], values: Array
    ) -> tuple[float, list[float]]:
        """Return the negative log marginal likelihood of ``values``, up to a constant, and its derivatives.

        ``distances`` are those of `compute_distances` between the points of the values. The derivatives are by the
        logarithm of the length, the noise, and the share that a generation forgets, in this order. Raises ValueError if
        the covariance matrix is numerically not positive definite.
        """
        apart, squares = distances  # in time, and squared in all other coordinates
        alike = self._compute_correlations(apart, squares)
        unit = np.eye(len(values))
        # the inverse of the covariance matrix, and the logarithm of its determinant
        inverse, logarithm = invert_matrix((1 - self.noise) * alike + self.noise * unit)
        weights = (inverse * values).sum(axis=1)
        # the derivatives of the cost by the entries of the matrix; those of the entries by the parameters follow
        by_entry = (inverse - np.outer(weights, weights)) / 2
        by_length = (1 - self.noise) * alike * squares / self.length**2
        by_forgetting = (self.noise - 1) * alike * apart / (2 * (1 - self.forgets))
        slopes = []
        for one in (by_length, unit - alike, by_forgetting):
            slopes.append(float((by_entry * one).sum()))
        return (float((values * weights).sum()) + logarithm) / 2, slopes


def invert_matrix(matrix: Array) -> tuple[Array, float]:
    """Return the inverse of a positive definite matrix, and the natural logarithm of the matrix's determinant.

    ``matrix`` is not changed. Raises ValueError if a pivot is not positive, so that it is not positive definite.
    """
    # Gauss-Jordan elimination in one thread: NumPy's threads wait for each other when trainings occupy the cores
    found = matrix.copy()
    logarithm = 0.0
    for place in range(len(found)):
        pivot = float(found[place, place])
        column = found[:, place].copy()
        # in place: a column of the unit matrix, from which the inverse grows, replaces the one that is eliminated
        column[place], found[:, place], found[place, place] = 0.0, 0.0, 1.0
        found[place] /= pivot
        found -= column[:, None] * found[place]
        logarithm += math.log(pivot)
    return found, logarithm


def compute_distances(first: Array, second: Array) -> tuple[Array, Array]:
    """Return the distances of all pairs of rows as two matrices: in time, and squared in all other coordinates.

    The first coordinate of a row is the time. The matrices have a row for each row of ``first``, and a column for each
    row of ``second``. The squared distances of the other coordinates are added.
    """
    apart = np.abs(first[:, None, 0] - second[None, :, 0])
    squares = (first[:, None, 1:] - second[None, :, 1:]) ** 2
    return apart, squares.sum(axis=2)


def fit_kernel(points: Array, values: Array) -> Kernel:
    """Return the kernel that fits ``values`` at ``points`` best, by maximizing the marginal likelihood from two starts.

    ``values`` are standardized, and ``points`` are rows as in `make_row`. The optimized parameters, in which the length
    is a logarithm, are kept within `_BOUNDS` and rounded to three decimals. Of equally good results, that of the first
    start is used.
    """
    from scipy.optimize import minimize  # importing it takes half a second, and only pb2 needs it

    distances = compute_distances(points, points)
    rule = {"jac": True, "method": "L-BFGS-B", "bounds": _BOUNDS}

    def compute_cost(theta: Array) -> tuple[float, list[float]]:
        return _make_kernel(theta).compute_cost(distances, values)

    found = []
    for start in _STARTS:
        found.append(minimize(compute_cost, start, **rule))
    best = min(found, key=lambda one: float(one.fun))
    return _make_kernel(best.x.round(3))  # digits that are the same on every machine


def _make_kernel(theta: Array) -> Kernel:
    length, noise, forgets = theta.tolist()
    return Kernel(math.exp(length), noise, forgets)


class Posterior:
    """A Gaussian process conditioned on observed values at some points."""

    def __init__(self, kernel: Kernel, points: Array, values: Array) -> None:
        self.kernel = kernel
        self.points = points
        self.values = values
        # of the covariance matrix of the observed values, which have noise
        self._inverse, _ = invert_matrix(
            kernel.compute_covariances(points, points) + kernel.noise * np.eye(len(points))
        )
        self._weights = (self._inverse * values).sum(axis=1)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return means and standard deviations at other points, without noise.

        Points are rows as in `make_row`. A deviation may be 0.
        """
        across = self.kernel.compute_covariances(points, self.points)
        # in one thread, as `invert_matrix` is
        known = np.einsum("ij,jk,ik->i", across, self._inverse, across)
        means = (across * self._weights).sum(axis=1)
        deviations = np.sqrt(np.maximum(1 - self.kernel.noise - known, 0.0))
        return means, deviations

    def condition_on_means(self, points: Array) -> Posterior:
        """Return a new process conditioned on this one's means at further points, whose values are not known yet.

        The means stay the same, and the deviations near these points fall.

        GP-BUCB: Desautels, Krause, Burdick (JMLR 2014), "Parallelizing Exploration-Exploitation Tradeoffs in Gaussian
        Process Bandit Optimization".
        """
        values = np.concatenate((self.values, self.predict(points)[0]))
        return Posterior(self.kernel, np.vstack((self.points, points)), values)

    def compute_upper_bound(self, points: Array) -> Array:
        """Return the upper confidence bound at each of ``points``.

        It is the mean plus a multiple of the deviation; the factor grows slowly with the number of observations, and
        points that `condition_on_means` has added count as well.
        """
        means, deviations = self.predict(points)
        squared_factor = 0.2 * max(math.log(0.4 * len(self.values)), 1.0)
        return means + math.sqrt(squared_factor) * deviations


def choose_point(
    model: Posterior,
    axes: Sequence[Parameter],
    start: Sequence[float],
    make: Make,
    seed: Sequence[int],
) -> Params | None:
    """Return the candidate with the highest upper confidence bound of ``model``; None if ``make`` allows no candidate.

    Candidates are random points, ``start``, which is the row of an unchanged copy (`make_row`), and points around it;
    then points around the best of these, with smaller and smaller steps. ``make`` gets coordinates from 0 to 1 by the
    names of ``axes``, and returns the point, for which the bound is computed, or None if it is not allowed. ``seed``
    has the numbers that seed the random numbers; the same seed gives the same result.
    """
    # `start` is a row as in `make_row`: the generation, the standing, and a number from 0 to 1 for each axis
    generation, stood, *centre = start
    numbers = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    near = np.array(centre) + WIDTHS[0] * numbers.normal(size=(NEAR, len(axes)))
    units = np.vstack((centre, near, numbers.random((CANDIDATES, len(axes)))))
    names = [axis.name for axis in axes]
    # of the best candidates so far, the bound, the row and the point
    best: list[tuple[float, list[float], Params]] = []
    # each round rates ``units``, and makes those of the next round by steps of ``width``; the last round needs none
    for width in (*WIDTHS, 0.0):
        coordinates = []
        for one in units.clip(0, 1).tolist():
            coordinates.append(dict(zip(names, one, strict=True)))
        made = []
        for params in map(make, coordinates):
            if params is not None:
                made.append(params)
        if made:
            rows = []
            for params in made:
                rows.append(make_row(generation, stood, params, axes))
            best += zip(model.compute_upper_bound(np.array(rows)).tolist(), rows, made, strict=True)
            best = sorted(best, key=lambda one: -one[0])[:BEST]
        # their rows without generation and standing; as no point may have been allowed yet, the shape is given
        centres = np.array([row[2:] for _, row, _ in best]).reshape(-1, 1, len(axes))
        steps = width * numbers.normal(size=(len(best), STEPS, len(axes)))
        units = (centres + steps).reshape(-1, len(axes))
    if not best:
        return None
    _, _, point = best[0]
    return point
