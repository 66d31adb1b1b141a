"""What a search found by budget, by hand and against SciPy."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sweep.analysis.search_efficiency import compute_correlation, find_best_by_budget
from sweep.space.objectives import Objective

HIGH, LOW = Objective("acc", "maximize"), Objective("loss", "minimize")


@pytest.mark.parametrize("of", [HIGH, LOW])
def test_the_mean_over_orders_is_what_a_random_search_expects(of: Objective) -> None:
    scores = [0.1, 0.4, 0.9, 0.5]
    run = find_best_by_budget("epochs", [of.to_loss(score) for score in scores], [1.0] * 4, of)
    best = max if of.maximize else min
    for spent in range(1, 5):
        exact = np.mean([best(order[:spent]) for order in permutations(scores)])
        at = int(np.flatnonzero(np.array(run.budgets) >= spent - 1e-9)[0])
        assert run.expected[at] == pytest.approx(exact, abs=0.06)
        assert run.low[at] - 1e-9 <= run.expected[at] <= run.high[at] + 1e-9
        assert run.found[at] == best(scores[:spent])
    assert [run.expected[-1], run.low[-1], run.high[-1]] == pytest.approx([best(scores)] * 3)


def test_what_found_nothing_costs_all_the_same() -> None:
    run = find_best_by_budget("epochs", [math.nan, -0.5], [3.0, 1.0], HIGH)
    assert np.isnan(run.found[:-1]).all()
    assert run.found[-1] == 0.5
    assert math.isnan(run.expected[0])
    assert run.expected[10] == 0.5
    assert np.isnan(find_best_by_budget("epochs", [math.nan], [1.0], LOW).expected).all()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=20))
def test_rank_correlation_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    one, other = zip(*pairs, strict=True)
    told = compute_correlation(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert told is None
        return
    assert told is not None
    assert told.value == pytest.approx(stats.spearmanr(one, other).statistic)
    assert told.low is None or told.high is None or told.low <= told.value <= told.high


def test_of_two_nothing_is_told() -> None:
    assert compute_correlation([1, 2], [1, 2]) is None
    perfect = compute_correlation(range(9), range(9))
    assert perfect is not None
    assert (perfect.value, perfect.low) == (1.0, None)
