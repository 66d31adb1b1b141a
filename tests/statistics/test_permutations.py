"""The permutation of signs, against SciPy and by hand."""

from __future__ import annotations

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
    told = permutations.each(np.array(values, dtype=float)[:, None])
    assert told.error is None
    assert told.p[0] == pytest.approx(scipys(np.array(values, dtype=float)))


def test_by_hand() -> None:
    """Of the 16 sums of +-1 +-2 +-3 +-4, 2 are as far from zero as 10, 4 as far as 8."""
    assert permutations.each(np.array([[1, -1], [2, 2], [3, 3], [4, 4]])).p.tolist() == [2 / 16, 4 / 16]
    assert permutations.each(np.zeros((8, 1))).p.tolist() == [1.0]
    assert permutations.each(np.ones((8, 1))).p.tolist() == [2 / 2**8]
    assert permutations.each(np.ones((8, 0))).p.tolist() == []


def test_a_seed_that_one_comparison_has_not_changes_nothing_of_it() -> None:
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.5, 0.1])
    with_gaps = np.concatenate([values, [0.0, 0.0]])
    both = np.stack([with_gaps, np.arange(8.0) - 2], axis=1)
    assert permutations.each(both).p[0] == permutations.each(values[:, None]).p[0]


def test_many_seeds_are_drawn_and_the_error_is_told() -> None:
    values = np.random.default_rng(3).normal(0.4, 1, 24)
    told = permutations.each(values[:, None])
    assert told.error == pytest.approx((0.05 * 0.95 / permutations.DRAWN) ** 0.5)
    # By meeting in the middle: of all 2^24 patterns, those with a sum as large.
    low, high = (
        np.array([1.0 - 2.0 * (np.arange(2**12)[:, None] >> np.arange(12) & 1)][0] @ half)
        for half in np.split(values, 2)
    )
    high.sort()
    far = abs(values.sum()) - 1e-12
    count = (len(high) - np.searchsorted(high, far - low)).sum() + np.searchsorted(high, -far - low, "right").sum()
    assert abs(told.p[0] - count / 2**24) < 4 * told.error


def test_holm_is_that_of_published_numbers() -> None:
    """Worked example of R's ``p.adjust`` (method holm)."""
    assert permutations.holm([0.01, 0.02, 0.03, 0.04, 0.05]).tolist() == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert permutations.holm([0.04, 0.001, 0.9]).tolist() == pytest.approx([0.08, 0.003, 0.9])
    assert permutations.holm([]).tolist() == []


def test_the_largest_of_all_is_never_below_each_and_equals_it_for_one() -> None:
    table = np.random.default_rng(1).normal(size=(8, 6))
    each, largest = permutations.each(table).p, permutations.largest(table).p
    assert (largest >= each - 1e-12).all()
    assert permutations.largest(table[:, :1]).p == pytest.approx(each[:1])
    copies = np.repeat(table[:, :1], 5, axis=1)  # five times the same comparison is one
    assert permutations.largest(copies).p == pytest.approx(np.repeat(each[:1], 5))


def test_memory_and_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(2).normal(size=(13, 40))
    whole = permutations.largest(table).p
    monkeypatch.setattr(permutations, "_CELLS", 5000)
    assert permutations.largest(table).p == pytest.approx(whole)
    monkeypatch.setattr(permutations, "_WORK", 40 * 4 * 2000)
    drawn = permutations.largest(table)
    assert drawn.error is not None
    assert np.abs(drawn.p - whole).max() < 0.06
