"""Races: bounds against SciPy, and what they cost and promise in simulated ones."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sweep.statistics.racing import compute_race_level, look_at_race

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import racing as benchmark


def test_two_racers_are_compared_by_a_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    losses = rng.normal(size=(2, 6)) + np.array([[0.0], [0.4]])
    looked = look_at_race(losses.tolist(), 8)
    test = stats.ttest_rel(losses[1 - looked.leader], losses[looked.leader])
    interval = test.confidence_interval(1 - compute_race_level(2, 8))
    other = 1 - looked.leader
    assert looked.behind[other] == pytest.approx(
        losses[other].mean() - losses[looked.leader].mean()
    )
    assert looked.half[other] == pytest.approx((interval.high - interval.low) / 2)


def test_the_residuals_are_those_of_two_ways() -> None:
    rng = np.random.default_rng(2)
    # seeds differ by far more than configurations
    losses = rng.normal(size=(4, 5)) + 10 * rng.normal(size=5)
    looked = look_at_race(losses.tolist(), 5)
    residuals = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0) + losses.mean()
    error = math.sqrt(2 * (residuals**2).sum() / 12 / 5)
    expected = stats.t(12).ppf(1 - compute_race_level(4, 5) / 2) * error
    assert min(looked.half) == pytest.approx(expected)


def test_one_with_a_far_larger_spread_is_judged_by_its_own() -> None:
    losses = np.random.default_rng(3).normal(size=(8, 8)) + 5.0
    losses[7] = 30.0 * losses[7] - 100.0
    looked = look_at_race(losses.tolist(), 8)
    assert looked.half[7] > 1.2 * min(looked.half)


def test_levels_add_up_to_five_percent() -> None:
    assert 7 * 28 * compute_race_level(8, 8) == pytest.approx(0.05)
    assert compute_race_level(1, 2) == 0.05


@pytest.mark.parametrize("losses", [[[1.0], [2.0]], [[1.0, 1.0]]])
def test_nobody_is_told_apart_by_one_seed_or_alone(losses: list[list[float]]) -> None:
    looked = look_at_race(losses, 8)
    assert looked.out == ()
    assert set(looked.half) == {math.inf}


def test_scores_without_any_noise_are_told_apart_and_equal_ones_are_not() -> None:
    assert look_at_race([[0.1 + 0.2] * 7, [0.3] * 7, [0.4] * 7], 8).out == (2,)


def test_a_simulated_race() -> None:
    """150 races each: the shares' standard errors are below 2 and 4 points; benchmarks/racing.py has 1,000."""
    rng = np.random.default_rng(7)
    nothing = benchmark.simulate("normal", 0.0, 8, 150, rng)
    assert nothing["told"] <= 0.07  # 2 % in 600
    found = benchmark.simulate("normal", 3.0, 16, 150, rng)
    assert found["trainings"] < 0.56  # 49 % in 600
    assert found["lost"] <= 0.02
    assert abs(found["picked"] - found["picked by all seeds"]) <= 0.02


@pytest.mark.parametrize(("left", "seeds"), [(2, 6), (3, 7), (4, 8)])
def test_equal_differences_tell_nothing_before_there_are_enough_seeds(
    left: int, seeds: int
) -> None:
    # of an accuracy, which has few values
    scores = [0.25 + 0.0028 * number for number in range(left)]
    for done in range(2, 9):
        found = look_at_race([[score] * done for score in scores], 8)
        assert (found.out == ()) == (done < seeds)
        assert math.isinf(found.half[-1]) == (done < seeds)
        assert look_at_race([[score] * done for score in scores], 8, equal_tells=True).out == tuple(
            range(1, left)
        )


@pytest.mark.filterwarnings("error")
def test_losses_near_the_largest_float_are_raced_like_others() -> None:
    losses = [[1.0, 1.0, 1.1, 1.05], [1.7, 1.6, 1.75, 1.65]]
    usual = look_at_race(losses, 4)
    assert usual.out == (1,)
    large = look_at_race([[one * 2.0**1023 for one in own] for own in losses], 4)
    assert (large.leader, large.out) == (usual.leader, usual.out)
    assert large.behind == tuple(one * 2.0**1023 for one in usual.behind)
    assert large.half == tuple(one * 2.0**1023 for one in usual.half)
    one_exploded = look_at_race([[1.0, 1.1, 1.2], [2.0, 2.1, 2.0], [1e200, 2.0, 2.0]], 4)
    assert all(1e199 < half < 1e203 for half in one_exploded.half)
    assert one_exploded.out == ()
