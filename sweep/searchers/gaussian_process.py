"""A Gaussian process with a Matern 5/2 kernel, in NumPy and SciPy.

Its parameters (a scale for each hyperparameter, the noise and the signal) are the most probable ones under log-normal
priors. They are optimized from two fixed starts, so that the same data give the same process.

Rasmussen and Williams (2006), "Gaussian Processes for Machine Learning", chapters 2 and 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

Array: TypeAlias = NDArray[np.float64]

ROOT5 = math.sqrt(5.0)
JITTER = 1e-6
FLAT = 1e10  # the loss of parameters for which the covariance matrix cannot be factorized
FIT_STEPS = 40


def matern(squares: Array) -> Array:
    """Return the Matern 5/2 kernel with signal 1 at the squared distances ``squares``, in units of the scales.

    The result has the shape of ``squares``. It is 1 at distance 0 and falls towards 0.
    """
    distances = ROOT5 * np.sqrt(squares)
    polynomial = 1.0 + distances + (5.0 / 3.0) * squares
    return np.asarray(polynomial * np.exp(-distances))


def matern_slope(squares: Array) -> Array:
    """Return the common factor of the kernel's derivatives by the log scales, at the squared distances ``squares``.

    The derivative by the log scale of a hyperparameter is this factor times the hyperparameter's part of the squared
    distance.
    """
    distances = ROOT5 * np.sqrt(squares)
    return np.asarray((5.0 / 3.0) * (1.0 + distances) * np.exp(-distances))


@dataclass(frozen=True, slots=True)
class KernelParameters:
    """The parameters of the kernel, as logarithms: a scale for each hyperparameter, the noise and the signal."""

    scales: Array  # for each hyperparameter, the distance over which it changes the value
    noise: float  # variance
    signal: float  # variance

    @classmethod
    def prior_center(cls, size: int) -> KernelParameters:
        """Return the center of the priors: scales of 0.4 times the root of ``size``, the noise 0.001, the signal 1.

        ``size`` is the number of hyperparameters. All are returned as logarithms.
        """
        return cls(np.full(size, math.log(0.4 * math.sqrt(size))), math.log(1e-3), 0.0)

    @classmethod
    def of_vector(cls, vector: Array) -> KernelParameters:
        return cls(vector[:-2], float(vector[-2]), float(vector[-1]))

    def vector(self) -> Array:
        return np.array([*self.scales, self.noise, self.signal])


class GaussianProcess:
    """A Gaussian process conditioned on values at some points; the values have mean 0 and deviation 1.

    ``features`` are the coordinates of the points, ``owners`` the hyperparameter to which each coordinate belongs.
    """

    def __init__(
        self, parameters: KernelParameters, owners: NDArray[np.intp], features: Array, values: Array
    ) -> None:
        self._parameters = parameters
        self._owners = owners
        self._features = features
        self._values = values
        self.signal = math.exp(parameters.signal)
        """The variance of the function far from all points."""
        matrix = self._covariance(features)
        # the jitter keeps the matrix positive definite, also if points are equal and the noise is tiny
        matrix[np.diag_indices_from(matrix)] += math.exp(parameters.noise) + JITTER
        self._factor: Array = cholesky(matrix, lower=True)  # of the covariance matrix
        # the inverse of the matrix times the values
        self._weights: Array = cho_solve((self._factor, True), values)

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return means and standard deviations of the function at each row of ``features``, without the noise.

        The deviations are at least 1e-5.
        """
        covariance = self._covariance(features)
        explained = solve_triangular(self._factor, covariance, lower=True)
        # what the known points do not explain; rounding may make it negative
        variances = self.signal - (explained**2).sum(axis=0)
        return covariance.T @ self._weights, np.sqrt(np.maximum(variances, 1e-10))

    def condition_on_means(self, features: Array) -> GaussianProcess:
        """Return the process conditioned on its own means at further points, which reduces its deviation there.

        The process itself is unchanged; it is returned if ``features`` has no rows.
        """
        if not len(features):
            return self
        values = np.concatenate([self._values, self.predict(features)[0]])
        return GaussianProcess(
            self._parameters, self._owners, np.vstack([self._features, features]), values
        )

    def _covariance(self, features: Array) -> Array:
        """Return the covariance of each point of the data with each row of ``features``, without the noise.

        The shape is (points of the data, rows of ``features``).
        """
        scales = np.exp(self._parameters.scales)[self._owners]
        return self.signal * matern(
            cdist(self._features / scales, features / scales, "sqeuclidean")
        )


def fit_kernel_parameters(
    owners: NDArray[np.intp], features: Array, values: Array
) -> KernelParameters:
    """Fit kernel parameters to ``values`` by maximizing their posterior probability from two fixed starts.

    The better of the two ends is returned, each reached after at most `FIT_STEPS` steps and within fixed bounds. The
    same arguments give the same parameters. ``values`` must have mean 0 and deviation 1. ``features`` has a row for
    each value; ``owners`` has for each of its columns the index of the hyperparameter to which it belongs.
    """
    size = int(owners.max()) + 1
    loss = NegativeLogPosterior(owners, features, values)
    # vectors hold logarithms: a length scale for each hyperparameter, then the noise and the signal
    smooth = loss.center
    rough = smooth.copy()  # shorter scales and more noise
    rough[:size] -= 1.0
    rough[size] = math.log(0.1)
    bounds_of_scales = [(-3.0, 4.0)] * size
    bounds_of_noise = (math.log(1e-6), 0.5)
    bounds_of_signal = (-4.0, 3.0)
    bounds = [*bounds_of_scales, bounds_of_noise, bounds_of_signal]
    ends = []
    for start in (smooth, rough):
        ends.append(
            minimize(
                loss,
                start,
                jac=True,  # `loss` returns its gradient as well
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": FIT_STEPS},
            )
        )
    best = min(ends, key=lambda end: float(end.fun))
    return KernelParameters.of_vector(best.x)


class NegativeLogPosterior:
    """The negative log posterior of kernel parameters, to be minimized by SciPy.

    A call with the parameters as a vector returns its value and its gradient.
    """

    def __init__(self, owners: NDArray[np.intp], features: Array, values: Array) -> None:
        self._values = values
        self._size = size = int(owners.max()) + 1
        self._identity = np.eye(len(values))
        # for each hyperparameter, the squared distances between all pairs of points in its coordinates
        squares_by_parameter = []
        for one in range(size):
            coordinates = features[:, owners == one]
            squares_by_parameter.append(cdist(coordinates, coordinates, "sqeuclidean"))
        self._squares_by_parameter = np.array(squares_by_parameter)
        self.center = KernelParameters.prior_center(size).vector()
        # standard deviations of the priors of the logarithms
        self._prior_deviations = np.array([1.0] * size + [2.0, 1.0])

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Return the negative log posterior at a vector of logarithms, up to a constant, and its gradient.

        The vector has a scale for each hyperparameter, then the noise and the signal. The result is `FLAT` with the
        gradient 0 if the covariance matrix cannot be factorized.
        """
        size, values = self._size, self._values
        precisions = np.exp(-2.0 * vector[:size])  # 1 / scale**2
        noise = math.exp(vector[-2])
        signal = math.exp(vector[-1])
        # squared distances in units of the scales
        squares = np.tensordot(precisions, self._squares_by_parameter, 1)
        kernel = signal * matern(squares)
        try:
            factor = cholesky(kernel + (noise + JITTER) * self._identity, lower=True)
        except LinAlgError:
            return FLAT, np.zeros_like(vector)
        # the negative log likelihood of the values, without its constant
        weights = cho_solve((factor, True), values)
        misfit = 0.5 * values @ weights + np.log(np.diag(factor)).sum()
        # its derivative by the entries of the kernel, times -2; the chain rule gives those by scales, noise and signal
        by_entry = np.outer(weights, weights) - cho_solve((factor, True), self._identity)
        by_square = by_entry * (signal * matern_slope(squares))
        by_scale = np.tensordot(self._squares_by_parameter, by_square, 2) * precisions
        by_noise = noise * np.trace(by_entry)
        by_signal = np.vdot(by_entry, kernel)
        gradient = -0.5 * np.array([*by_scale, by_noise, by_signal])
        # the normal priors of the logarithms
        off_center = (vector - self.center) / self._prior_deviations
        posterior = float(misfit + 0.5 * off_center @ off_center)
        return posterior, gradient + off_center / self._prior_deviations
