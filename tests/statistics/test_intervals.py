"""Intervals, against SciPy and published tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sweep.statistics.intervals import (
    compute_fold_correction,
    compute_mean_interval,
    compute_share_interval,
    compute_t_test,
)


@given(
    st.lists(
        st.integers(-(10**6), 10**6).map(lambda n: n / 1000), min_size=2, max_size=10, unique=True
    )
)
def test_the_interval_of_a_mean_is_that_of_scipy(values: list[float]) -> None:
    expected = stats.t.interval(
        0.95, len(values) - 1, loc=sum(values) / len(values), scale=stats.sem(values)
    )
    assert compute_mean_interval(values) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert compute_mean_interval(values[:1]) is None


def test_t_is_that_of_scipy() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, 9).tolist()
    assert compute_t_test(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert compute_t_test([0.0, 0.0, 0.0]) == 1.0
    assert compute_t_test([0.5, 0.5, 0.5]) == 0.0


def test_scores_of_folds_are_corrected() -> None:
    """Nadeau and Bengio: the variance of the mean is (1/J + n2/n1) s^2, here J = 10 and n2/n1 = 1/9."""
    values = np.random.default_rng(0).normal(0.3, 1, 10)
    statistic = values.mean() / np.sqrt((1 / 10 + 1 / 9) * values.var(ddof=1))
    assert compute_t_test(values.tolist(), compute_fold_correction(10)) == pytest.approx(
        2 * stats.t.sf(statistic, 9)
    )


def test_wilson_is_that_of_scipy_and_of_newcombes_table() -> None:
    """Newcombe, Statistics in Medicine 17, 1998, table I, method 3."""
    for hits, count, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
    ):
        assert compute_share_interval(hits, count) == pytest.approx((low, high), abs=6e-5)
        theirs = stats.binomtest(hits, count).proportion_ci(method="wilson")
        assert compute_share_interval(hits, count) == pytest.approx((theirs.low, theirs.high))
