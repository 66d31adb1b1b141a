"""The Gaussian process: exact where nothing is uncertain, and against formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from sweep.searchers.gaussian_process import (
    GaussianProcess,
    KernelParameters,
    NegativeLogPosterior,
    fit_kernel_parameters,
    matern,
)

RNG = np.random.default_rng(0)
POINTS = RNG.random((30, 3))
OWNERS = np.array([0, 1, 1])  # the second hyperparameter has two coordinates
SMOOTH = np.sin(6 * POINTS[:, 0])
SMOOTH = (SMOOTH - SMOOTH.mean()) / SMOOTH.std()


def test_the_gradient_is_that_of_the_loss() -> None:
    loss = NegativeLogPosterior(OWNERS, POINTS, SMOOTH)
    for vector in (loss.center, np.array([-0.5, 0.3, math.log(0.05), 0.4])):
        numeric = approx_fprime(vector, lambda at: loss(at)[0], 1e-6)
        assert loss(vector)[1] == pytest.approx(numeric, rel=1e-4, abs=1e-3)


def test_it_knows_what_it_was_told_and_is_unsure_elsewhere() -> None:
    process = GaussianProcess(fit_kernel_parameters(OWNERS, POINTS, SMOOTH), OWNERS, POINTS, SMOOTH)
    mean, deviation = process.predict(POINTS)
    assert mean == pytest.approx(SMOOTH, abs=0.05)
    assert deviation.max() < 0.1
    _, far = process.predict(np.full((1, 3), 9.0))
    assert far[0] > 5 * deviation.max()


def test_it_finds_which_hyperparameter_matters() -> None:
    scales = fit_kernel_parameters(OWNERS, POINTS, SMOOTH).scales
    assert scales[1] > scales[0] + 1
    process = GaussianProcess(fit_kernel_parameters(OWNERS, POINTS, SMOOTH), OWNERS, POINTS, SMOOTH)
    fresh = RNG.random((50, 3))
    truth = np.sin(6 * fresh[:, 0])
    assert np.corrcoef(process.predict(fresh)[0], truth)[0, 1] > 0.98


def test_noise_is_told_from_a_function() -> None:
    points, owner = np.linspace(0, 1, 60)[:, None], np.array([0])
    noisy = np.sin(6 * points[:, 0]) + 0.5 * RNG.normal(size=60)
    noisy = (noisy - noisy.mean()) / noisy.std()
    assert 0.1 < math.exp(fit_kernel_parameters(owner, points, noisy).noise) < 0.8
    assert math.exp(fit_kernel_parameters(OWNERS, POINTS, SMOOTH).noise) < 0.05


def test_one_that_believes_its_means_is_surer_and_no_wiser() -> None:
    process = GaussianProcess(KernelParameters.prior_center(2), OWNERS, POINTS, SMOOTH)
    fresh = RNG.random((4, 3))
    believing = process.condition_on_means(fresh)
    elsewhere = RNG.random((20, 3))
    assert believing.predict(elsewhere)[0] == pytest.approx(process.predict(elsewhere)[0], abs=1e-2)
    assert np.all(believing.predict(fresh)[1] < process.predict(fresh)[1])
    assert process.condition_on_means(np.empty((0, 3))) is process


def test_the_same_points_twice_do_not_stop_it() -> None:
    points = np.repeat(POINTS[:5], 4, axis=0)
    values = np.tile([1.0, -1.0], 10)
    process = GaussianProcess(fit_kernel_parameters(OWNERS, points, values), OWNERS, points, values)
    assert np.isfinite(process.predict(points)[0]).all()
    assert process.predict(points)[0] == pytest.approx(np.zeros(20), abs=0.3)


def test_the_kernel_is_matern_with_five_halves() -> None:
    distance = 0.7
    expected = (1 + math.sqrt(5) * distance + 5 / 3 * distance**2) * math.exp(
        -math.sqrt(5) * distance
    )
    assert matern(np.array([distance**2]))[0] == pytest.approx(expected)
