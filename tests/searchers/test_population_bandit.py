"""The model of `method: pb2`: a process over time and hyperparameters, and what it chooses for copies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.events import Params
from sweep.searchers.population_bandit import (
    Kernel,
    MemberResult,
    Posterior,
    choose_point,
    compute_distances,
    compute_standing,
    fit_kernel,
    invert_matrix,
    make_row,
    make_training_data,
    standardize,
)
from sweep.space import Parameter, Space
from sweep.space.domains import IntUniform, LogUniform, Uniform
from sweep.space.draws import from_unit
from sweep.space.expressions import Expression

AXES = (Parameter("x", Uniform(0, 1)), Parameter("y", Uniform(0, 1)))
UNIT = st.floats(0, 1)
kernels = st.builds(Kernel, st.floats(0.05, 3), st.floats(0.01, 0.99), st.floats(0, 0.5))
tables = st.lists(st.tuples(st.integers(0, 9).map(float), UNIT, UNIT), min_size=1, max_size=12).map(
    np.array
)


def trained(*losses: float | None, before: float | None = 1.0) -> list[MemberResult]:
    return [MemberResult({"x": 0.5, "y": 0.5}, before, loss) for loss in losses]


def sample(count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Gains that are largest where the first hyperparameter is 0.3."""
    numbers = np.random.default_rng(0)
    points = np.column_stack((np.arange(count) // 6, numbers.random((count, 3))))
    values = -3 * np.abs(points[:, 2] - 0.3) + 0.1 * numbers.normal(size=count)
    return points, (values - values.mean()) / values.std()


@given(kernels, tables)
@settings(max_examples=50)
def test_the_kernel_is_positive_semidefinite(kernel: Kernel, points: np.ndarray) -> None:
    covariance = kernel.compute_covariances(points, points)
    assert np.allclose(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert np.allclose(np.diag(covariance), 1 - kernel.noise)


def test_generations_are_forgotten_by_the_root_of_what_is_left() -> None:
    points = np.array([[0.0, 0.2, 0.5], [4.0, 0.2, 0.5], [0.0, 0.2, 0.9]])
    covariance = Kernel(0.5, 0.1, 0.2).compute_covariances(points, points)
    assert covariance[0, 1] == pytest.approx(0.9 * 0.8**2)
    assert covariance[0, 2] == pytest.approx(0.9 * math.exp(-(0.4**2) / (2 * 0.5**2)))


@given(kernels, tables, tables)
@settings(max_examples=25)
def test_the_posterior_is_that_of_the_dense_formula(
    kernel: Kernel, seen: np.ndarray, asked: np.ndarray
) -> None:
    values = np.sin(np.arange(len(seen)))
    means, deviations = Posterior(kernel, seen, values).predict(asked)
    covariance = kernel.compute_covariances(seen, seen) + kernel.noise * np.eye(len(seen))
    for place, point in enumerate(asked):
        across = kernel.compute_covariances(seen, point[None])[:, 0]
        assert means[place] == pytest.approx(across @ np.linalg.solve(covariance, values), abs=1e-6)
        variance = 1 - kernel.noise - across @ np.linalg.solve(covariance, across)
        assert deviations[place] ** 2 == pytest.approx(variance, abs=1e-6)


@given(kernels, tables)
@settings(max_examples=25)
def test_an_inverse_is_one_and_has_its_determinant(kernel: Kernel, points: np.ndarray) -> None:
    matrix = kernel.compute_covariances(points, points) + kernel.noise * np.eye(len(points))
    inverse, logarithm = invert_matrix(matrix)
    assert np.allclose(inverse @ matrix, np.eye(len(points)), atol=1e-8)
    assert logarithm == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-8)


def test_the_derivatives_of_the_likelihood_are_its_differences() -> None:
    points, values = sample(20)
    distances, theta, step = compute_distances(points, points), np.array([-1.0, 0.4, 0.2]), 1e-6

    def compute_cost(moved: np.ndarray) -> tuple[float, list[float]]:
        return Kernel(math.exp(moved[0]), moved[1], moved[2]).compute_cost(distances, values)

    for place, slope in enumerate(compute_cost(theta)[1]):
        change = step * np.eye(3)[place]
        assert slope == pytest.approx(
            (compute_cost(theta + change)[0] - compute_cost(theta - change)[0]) / (2 * step),
            rel=1e-4,
        )


def test_the_kernel_that_fits_explains_more_than_another() -> None:
    points, values = sample()
    distances, found = compute_distances(points, points), fit_kernel(points, values)
    assert found == fit_kernel(points, values)
    assert (
        found.compute_cost(distances, values)[0]
        < Kernel(0.1, 0.9, 0.3).compute_cost(distances, values)[0]
    )
    assert fit_kernel(points, np.random.default_rng(1).normal(size=120)).noise > found.noise


def test_what_is_expected_of_pending_copies_changes_deviations_alone() -> None:
    points, values = sample()
    model, asked = (
        Posterior(Kernel(0.3, 0.2, 0.1), points, values),
        np.array([[10.0, 0.5, 0.3, 0.5]]),
    )
    expecting = model.condition_on_means(asked)
    assert expecting.predict(asked)[0] == pytest.approx(model.predict(asked)[0])
    assert expecting.predict(asked)[1] < model.predict(asked)[1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e308])
def test_standardized_gains_do_not_depend_on_the_unit_of_the_metric(scale: float) -> None:
    gains = np.array([0.1, 0.3, 0.2, -math.inf, 0.5, 0.45])
    assert standardize(gains * scale) == pytest.approx(standardize(gains))


def test_gains_are_standardized_and_the_largest_fall_is_the_best() -> None:
    _, values = make_training_data(
        [trained(5.0, 5.0), trained(0.1, 0.3), trained(0.2, before=0.25)], AXES
    )
    assert (values.mean(), values.std()) == pytest.approx((0.0, 1.0))
    assert values.argsort().tolist() == [2, 1, 0]
    assert standardize(np.array([0.5, 0.5])).tolist() == [0.0, 0.0]
    assert standardize(np.array([-math.inf])).tolist() == [0.0]


def test_a_member_that_diverged_is_the_worst_and_one_explosion_hides_nothing() -> None:
    found = standardize(np.array([0.9, 0.8, -math.inf, 0.7, -1e12]))
    assert found[2] == found.min()
    assert found[0] - found[1] > 0.1


def test_a_standing_is_the_share_that_was_better() -> None:
    assert [compute_standing(loss, trained(3.0, 1.0, None, 2.0)) for loss in (1.0, 2.0, 3.0)] == [
        0.0,
        0.5,
        1.0,
    ]
    assert compute_standing(None, trained(1.0, 2.0)) == compute_standing(1.0, []) == 0.5


def test_the_first_generation_counts_while_there_is_no_other() -> None:
    first = trained(1.0, 2.0, before=None)
    second = [*trained(0.5, None), *trained(0.4, before=None)]
    points, values = make_training_data([first], AXES)
    assert (points[:, 0].tolist(), values.tolist()) == ([0, 0], [1.0, -1.0])
    points, values = make_training_data([first, second], AXES)
    assert (points[:, 0].tolist(), len(values)) == ([1, 1], 2)
    assert make_training_data([], AXES)[0].shape == (0, 4)


def test_an_absent_parameter_is_in_the_middle() -> None:
    assert make_row(3, 0.2, {"y": 0.75}, AXES) == [3, 0.2, 0.5, 0.75]


def make(space: Space, units: Mapping[str, float]) -> Params | None:
    return space.complete_if_feasible(lambda one: from_unit(one.domain, units[one.name]))


def test_the_choice_is_where_gains_were_largest_and_meets_the_constraints() -> None:
    points, values = sample()
    model = Posterior(fit_kernel(points, values), points, values)
    start = make_row(10, 0.1, {"x": 0.9, "y": 0.1}, AXES)
    free = choose_point(model, AXES, start, partial(make, Space(AXES)), (0, 1))
    bound = choose_point(
        model, AXES, start, partial(make, Space(AXES, (Expression.parse("x > 0.6"),))), (0, 1)
    )
    assert free is not None
    assert bound is not None
    assert free["x"] == pytest.approx(0.3, abs=0.15)
    assert 0.6 < bound["x"] < 0.75
    assert choose_point(model, AXES, start, partial(make, Space(AXES)), (0, 1)) == free
    others = [
        make_row(10, 0.1, {"x": x, "y": y}, AXES)
        for x in np.linspace(0, 1, 30)
        for y in np.linspace(0, 1, 30)
    ]
    assert (
        model.compute_upper_bound(np.array([make_row(10, 0.1, free, AXES)]))
        >= model.compute_upper_bound(np.array(others)).max() - 1e-3
    )


def test_the_choice_is_beside_the_parent_where_hardly_a_point_is_allowed() -> None:
    points, values = sample()
    model = Posterior(Kernel(0.3, 0.2, 0.1), points, values)
    thin = Expression.parse("abs(x - 0.9) + abs(y - 0.1) < 1e-3")
    start = make_row(10, 0.1, {"x": 0.9, "y": 0.1}, AXES)
    found = choose_point(model, AXES, start, partial(make, Space(AXES, (thin,))), (0, 1))
    assert found is not None
    assert abs(found["x"] - 0.9) < 1e-3
    assert choose_point(model, AXES, start, lambda units: None, (0, 1)) is None


def test_choices_lie_on_the_steps_of_their_domains() -> None:
    axes = (Parameter("n", IntUniform(1, 5)), Parameter("rate", LogUniform(1e-3, 1.0)))
    points, values = sample(12)
    model = Posterior(Kernel(0.3, 0.2, 0.1), points, values)
    start = make_row(10, 0.1, {"n": 3, "rate": 0.1}, axes)
    found = choose_point(model, axes, start, partial(make, Space(axes)), (0, 1))
    assert found is not None
    assert isinstance(found["n"], int)
    assert 1e-3 <= found["rate"] <= 1.0
