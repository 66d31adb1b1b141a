"""The permutation of signs, against SciPy and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sweep.statistics import permutations


def scipys(values: np.ndarray) -> float:
    """SciPy goes through the same patterns."""
    found = stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=2**15)
    return float(found.pvalue)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=9).filter(any))
@settings(max_examples=15, deadline=None)
def test_p_is_that_of_scipy(values: list[int]) -> None:
    told = permutations.check_differences(np.array(values, dtype=float)[:, None])
    assert told.error is None
    assert told.p[0] == pytest.approx(scipys(np.array(values, dtype=float)))


def test_by_hand() -> None:
    """Of the 16 sums of +-1 +-2 +-3 +-4, 2 are as far from zero as 10, 4 as far as 8."""
    assert permutations.check_differences(
        np.array([[1, -1], [2, 2], [3, 3], [4, 4]])
    ).p.tolist() == [2 / 16, 4 / 16]
    assert permutations.check_differences(np.zeros((8, 1))).p.tolist() == [1.0]
    assert permutations.check_differences(np.ones((8, 1))).p.tolist() == [2 / 2**8]
    assert permutations.check_differences(np.ones((8, 0))).p.tolist() == []


def test_a_seed_that_one_comparison_has_not_changes_nothing_of_it() -> None:
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.5, 0.1])
    with_gaps = np.concatenate([values, [0.0, 0.0]])
    both = np.stack([with_gaps, np.arange(8.0) - 2], axis=1)
    assert (
        permutations.check_differences(both).p[0]
        == permutations.check_differences(values[:, None]).p[0]
    )


def test_many_seeds_are_drawn_and_the_error_is_told() -> None:
    values = np.random.default_rng(3).normal(0.4, 1, 24)
    told = permutations.check_differences(values[:, None])
    assert told.error == pytest.approx((0.05 * 0.95 / permutations.DRAWN) ** 0.5)
    # By meeting in the middle: of all 2^24 patterns, those with a sum as large.
    low, high = (
        np.array([1.0 - 2.0 * (np.arange(2**12)[:, None] >> np.arange(12) & 1)][0] @ half)
        for half in np.split(values, 2)
    )
    high.sort()
    far = abs(values.sum()) - 1e-12
    count = (len(high) - np.searchsorted(high, far - low)).sum() + np.searchsorted(
        high, -far - low, "right"
    ).sum()
    assert abs(told.p[0] - count / 2**24) < 4 * told.error


def t_of_furthest(scores: np.ndarray) -> float:
    """The statistic in the plainest way, of complete scores."""
    seeds, count = scores.shape
    leader = int(scores.mean(axis=0).argmax())
    pairs = [(a, b) for a in range(count) for b in range(a)]
    of_all_pairs = np.mean([np.var(scores[:, a] - scores[:, b], ddof=1) for a, b in pairs])
    gaps = [scores[:, leader] - scores[:, other] for other in range(count) if other != leader]
    return max(
        float(gap.mean() / np.sqrt((np.var(gap, ddof=1) + of_all_pairs) / 2 / seeds))
        for gap in gaps
    )


@pytest.mark.parametrize("count", [2, 3, 5])
def test_equality_is_that_of_every_pattern_by_hand(count: int) -> None:
    scores = np.random.default_rng(count).normal(size=(6, count)) + np.arange(count) / 3
    centred = scores - scores.mean(axis=1, keepdims=True)
    observed = t_of_furthest(scores)
    patterns = [np.array(signs)[:, None] for signs in itertools.product((1, -1), repeat=6)]
    beyond = [t_of_furthest(centred * signs) >= observed - 1e-6 for signs in patterns]
    found = permutations.check_equality(scores)
    assert found.p == pytest.approx(np.mean(beyond))
    assert found.error is None
    assert found.furthest != scores.mean(axis=0).argmax()


def test_of_two_it_is_the_paired_test() -> None:
    scores = np.random.default_rng(4).normal(size=(8, 2)) + np.array([0.0, 0.5])
    assert (
        permutations.check_equality(scores).p
        == permutations.check_differences(scores[:, :1] - scores[:, 1:]).p[0]
    )


def test_what_seeds_do_to_all_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(7, 4))
    moved = 3.0 * (scores + 100 * rng.normal(size=(7, 1)))
    assert permutations.check_equality(moved) == permutations.check_equality(scores)


def test_equal_scores_are_equal_and_always_the_same_gap_is_none() -> None:
    row = np.random.default_rng(6).normal(size=(8, 1))
    assert permutations.check_equality(np.repeat(row, 3, axis=1)).p == 1.0
    assert permutations.check_equality(np.hstack([row, row, row - 0.01])).p <= 4 / 2**8


def test_a_seed_that_one_alone_has_compares_nothing() -> None:
    scores = np.random.default_rng(7).normal(size=(8, 3)) + np.array([0.0, 0.0, 0.8])
    alone = np.full((2, 3), np.nan)
    alone[:, 1] = 5.0
    assert permutations.check_equality(np.vstack([scores, alone])) == permutations.check_equality(
        scores
    )
    gaps = np.vstack([scores, [[0.1, np.nan, 0.9]]])
    assert (
        permutations.check_equality(gaps).furthest == permutations.check_equality(scores).furthest
    )


def test_many_seeds_are_drawn_for_a_set_too(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(8).normal(size=(10, 4)) + np.array([0.0, 0.0, 0.0, 0.7])
    whole = permutations.check_equality(scores)
    monkeypatch.setattr(permutations, "ENUMERATED", 2**8)
    drawn = permutations.check_equality(scores)
    assert whole.error is None
    assert drawn.error is not None
    assert (drawn.furthest, drawn.p) == (whole.furthest, pytest.approx(whole.p, abs=0.01))


def test_memory_and_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(2).normal(size=(13, 40))
    whole = permutations.check_differences(table).p
    monkeypatch.setattr(permutations, "MOST_CELLS", 5000)
    assert permutations.check_differences(table).p == pytest.approx(whole)
    monkeypatch.setattr(permutations, "MOST_WORK", 40 * 2000)
    drawn = permutations.check_differences(table)
    assert drawn.error is not None
    assert np.abs(drawn.p - whole).max() < 0.06
    monkeypatch.setattr(permutations, "MOST_WORK_STEP_DOWN", 40**2 * 2000)
    assert permutations.check_equality(table).error is not None


@pytest.mark.parametrize("scale", [1e-165, 1e-300, 1e300])
def test_the_scale_changes_no_p_value(scale: float) -> None:
    differences = np.array([1.0, 1.2, 0.9, 1.1, 1.3, 0.8, -0.1])
    (expected,) = permutations.check_differences(differences[:, None]).p
    table = np.column_stack([differences * scale, differences, np.zeros(7)])
    assert permutations.check_differences(table).p.tolist() == [expected, expected, 1.0]
