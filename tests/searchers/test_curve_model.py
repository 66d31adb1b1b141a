"""The chain of processes over rungs."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from sweep.searchers import curve_model
from sweep.searchers.curve_model import (
    MOST_POINTS,
    CurveModel,
    RungResults,
    choose_spread_indices,
    fit_rungs,
    limit_losses,
)
from sweep.searchers.gaussian_process import Array, GaussianProcess

OWNERS = np.array([0, 1])
RNG = np.random.default_rng(0)
POINTS = RNG.random((40, 2))


def results(
    losses: Array, trials: list[int] | None = None, violations: list[float] | None = None
) -> RungResults:
    places = tuple(range(len(losses))) if trials is None else tuple(trials)
    return RungResults(
        places, losses, np.zeros(len(losses)) if violations is None else np.array(violations)
    )


def model(*rungs: RungResults, features: Array = POINTS) -> CurveModel:
    return CurveModel(
        rungs, [[]] * len(rungs), features, OWNERS, fit_rungs(rungs, features, OWNERS)
    )


@pytest.mark.parametrize(
    ("losses", "violations", "expected"),
    [
        ([1.0, 2.0, 3.0], [0, 0, 0], [1, 2, 3]),
        ([1.0, 2.0, 3.0, 1e9], [0, 0, 0, 0], [1, 2, 3, 5.5]),  # the best 1, the median 2.5
        ([1.0, 2.0, 3.0, math.inf], [0, 0, 0, 0], [1, 2, 3, 3]),
        ([1.0, 2.0, 3.0, 0.0], [0, 0, 0, 0.5], [1, 2, 3, 5]),  # violates, and is beyond all others
        ([1.0, 2.0, 3.0, 0.0, 0.0], [0, 0, 0, 0.5, 1], [1, 2, 3, 4, 5]),
        ([1.0, 2.0, 3.0, 0.0, math.inf], [0, 0, 0, 1, 0], [1, 2, 3, 5, 5]),
        ([9.0, 9.0], [1, 2], [0.5, 1]),
        ([9.0, 9.0], [1, math.inf], [1, 1]),
        ([math.inf, math.inf], [0, 0], [1, 1]),
        ([2.0, 2.0], [0, 0], [2, 2]),
        ([1.0, 1e200, -1e308], [0, 0, 0], [1, 1e100, -1e100]),  # whose squares are floats
        # the median is as good as the best
        (
            [0.0, 0.0, 0.0, 5.0, 10.0],
            [0, 0, 0, 0, 0],
            [0, 0, 0, 5, 10],
        ),
        ([0.0, 0.0, 0.0, 5.0, 1e9], [0, 0, 0, 0, 0], [0, 0, 0, 5, 1e9]),
    ],
)
def test_losses_become_comparable(
    losses: list[float], violations: list[float], expected: list[float]
) -> None:
    assert limit_losses(results(np.array(losses), violations=violations)) == pytest.approx(
        np.array(expected)
    )


@pytest.mark.parametrize("scale", [2.0**-50, 2.0**50])
def test_what_is_suggested_does_not_depend_on_the_unit_of_the_metric(scale: float) -> None:
    early = POINTS[:, 0] ** 2 + POINTS[:, 1]
    late = early[:10] + POINTS[:10, 1]
    others = np.random.default_rng(1).random((20, 2))
    plain = model(results(early), results(late))
    scaled = model(results(scale * early), results(scale * late))
    np.testing.assert_array_equal(scaled.log_gains(others), plain.log_gains(others))
    assert scaled.expected_gain(others, 8) == scale * plain.expected_gain(others, 8)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_losses_that_differ_by_rounding_alone_teach_nothing(value: float) -> None:
    rounded = np.full(40, value)
    rounded[::2] = np.nextafter(value, 1e7)
    mean, _ = model(results(rounded)).predict(POINTS)
    assert np.ptp(mean) < 1e-3


def test_few_ends_are_predicted_from_many_starts() -> None:
    ends = (POINTS[:, 0] - 0.3) ** 2 + (POINTS[:, 1] - 0.6) ** 2
    starts = 0.5 + ends + 0.2 * POINTS[:, 0]  # the quick starters are not quite the best
    known = [0, 1, 2, 3, 4, 5]
    chained = model(results(starts), results(ends[known], known))
    alone = model(results(ends[known], known))
    fresh = RNG.random((200, 2))
    truth = (fresh[:, 0] - 0.3) ** 2 + (fresh[:, 1] - 0.6) ** 2
    by_chain, by_ends = (
        np.corrcoef(one.predict(fresh)[0], truth)[0, 1] for one in (chained, alone)
    )
    assert by_chain > 0.95
    assert by_chain > by_ends
    assert chained.ranked[0] == int(np.argmin(ends))


def test_a_rung_with_two_trials_does_not_count() -> None:
    starts = results(POINTS[:, 0])
    two = results(np.array([5.0, 1.0]), [0, 1])
    fresh = RNG.random((5, 2))
    assert model(starts, two).predict(fresh)[0] == pytest.approx(model(starts).predict(fresh)[0])


def test_the_gain_is_the_expected_improvement_also_where_it_is_next_to_nothing() -> None:
    one = model(results(POINTS[:, 0]))
    fresh = np.array([[0.0, 0.5], [0.5, 0.5], [1.0, 1.0]])
    means, deviations = one.predict(fresh)
    best = one.predict(POINTS)[0].min()
    gains = one.log_gains(fresh)
    for mean, deviation, gain in zip(means, deviations, gains, strict=True):
        if (best - mean) / deviation > -5:
            expected, _ = quad(
                lambda at, m=mean, d=deviation: max(best - at, 0) * norm.pdf(at, m, d),
                mean - 9 * deviation,
                best,
            )
            assert gain == pytest.approx(math.log(expected), abs=0.01)
    assert np.isfinite(gains).all()
    # of the others, the one with the larger deviation may have more
    assert gains[0] > max(gains[1:])


def test_what_the_first_rung_would_show_counts_only_as_far_as_it_is_unknown() -> None:
    starts = results((POINTS[:8, 0] - 0.3) ** 2, list(range(8)))
    ends = results((POINTS[:6, 0] - 0.3) ** 2, list(range(6)))
    copy, corner = POINTS[[0]] + 1e-3, np.array([[1.0, 1.0]])
    two_rungs = model(starts, ends)
    for_copy, for_corner = (
        float((two_rungs.log_acquisition(one) - two_rungs.log_gains(one))[0])
        for one in (copy, corner)
    )
    assert for_copy < math.log(0.01)
    assert math.log(0.05) < for_corner <= 0
    # with one rung, each trial is trained to its end
    fresh = RNG.random((5, 2))
    assert model(starts).log_acquisition(fresh) == pytest.approx(model(starts).log_gains(fresh))


def test_of_many_results_the_best_and_an_even_part_of_the_others_are_known() -> None:
    values = np.arange(1000.0)[::-1]
    chosen = choose_spread_indices(values, 100)
    assert len(chosen) == len(set(chosen.tolist())) == 100
    assert set(range(950, 1000)) <= set(chosen.tolist())
    assert chosen[0] == 0
    assert np.diff(chosen[:50]).max() < 25
    assert list(choose_spread_indices(values[:5], 100)) == [0, 1, 2, 3, 4]


class CountedProcess(GaussianProcess):
    """Notes of how many points each process knows."""

    counts: ClassVar[list[int]] = []

    def __init__(self, parameters: Any, owners: Any, features: Any, values: Any) -> None:
        self.counts.append(len(values))
        super().__init__(parameters, owners, features, values)


def test_many_results_are_no_burden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_model, "GaussianProcess", CountedProcess)
    monkeypatch.setattr(CountedProcess, "counts", [])
    points = RNG.random((5 * MOST_POINTS, 2))
    one = model(results(points[:, 0]), features=points)
    assert CountedProcess.counts == [MOST_POINTS]
    assert np.corrcoef(one.predict(POINTS)[0], POINTS[:, 0])[0, 1] > 0.99
