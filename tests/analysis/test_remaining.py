"""How far trials come and how long it takes: by hand, and against whole sweeps of which the end is known."""

from __future__ import annotations

from statistics import median

import pytest
from passing import simulate

from sweep.analysis.remaining import Survival, seconds, survival
from sweep.space.termination import Asha, EarlyTermination, Hyperband, Median, NoTermination


def test_without_losses_all_train_to_the_end() -> None:
    all_of_them = survival({1: 5, 2: 5}, {}, {})
    assert (all_of_them.share(0, 9), all_of_them.epochs(0, 9), all_of_them.epochs(4, 9)) == (1.0, 9.0, 5.0)
    assert all_of_them.epochs(9, 9) == 0.0


def test_shares_multiply_along_the_epochs() -> None:
    half = Survival(((1, 0.5), (4, 0.25)))
    assert [half.after(epoch) for epoch in (0, 1, 3, 4, 99)] == [1.0, 0.5, 0.5, 0.25, 0.25]
    assert half.epochs(0, 10) == 1 + 0.5 * 3 + 0.25 * 6
    assert half.epochs(1, 10) == 3 + 0.5 * 6  # of one that has passed the first
    assert half.share(1, 10) == 0.5
    assert half.share(0, 1) == 1.0
    assert half.epochs(0, 4) == 1 + 0.5 * 3  # what happens after the last epoch does not matter


def test_what_was_seen_outweighs_what_the_rule_says() -> None:
    rule = {3: 1 / 3}
    assert survival({}, {}, rule).after(3) == pytest.approx(1 / 3)
    assert survival({3: 1000}, {3: 500}, rule).after(3) == pytest.approx(0.5, abs=0.001)


def test_trials_that_run_count_as_far_as_they_came() -> None:
    """Ten began, nine of them ended at epoch 1: the tenth tells that trials go on beyond."""
    seen = survival({1: 10, 2: 1, 3: 1}, {1: 9}, {})
    assert seen.after(1) == pytest.approx(0.1)
    assert seen.after(3) == seen.after(1)


def test_failures_before_the_first_epoch_count() -> None:
    assert survival({1: 3}, {0: 1}, {}).after(0) == pytest.approx(3 / 4)
    assert survival({}, {0: 4, 2: 0}, {}).after(0) == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("there", "waiting", "slots", "expected"),
    [
        ([], 0, 1, 0.0),
        ([5.0, 3.0], 0, 2, 5.0),
        ([5.0, 3.0], 1, 2, 13.0),
        ([5.0, 3.0], 2, 2, 15.0),
        ([], 4, 2, 20.0),
        ([2.0], 1, 4, 10.0),
        ([1.0, 1.0, 1.0], 3, 2, 11.0),  # more run than there were slots for
        ([0.0, 0.0], 10_001, 2, 50_010.0),
    ],
)
def test_free_workers_take_the_next_trial(there: list[float], waiting: int, slots: int, expected: float) -> None:
    assert seconds(there, waiting, 10.0, slots) == expected


RULES = [
    pytest.param(NoTermination(), 0.02, id="none"),
    pytest.param(Asha(1, None, 3), 0.35, id="asha"),
    pytest.param(Hyperband(min_iter=1), 0.35, id="hyperband"),
    pytest.param(Median(3), 0.55, id="median"),  # lets its first trials live, whatever they are
]


@pytest.mark.parametrize(("rule", "tolerance"), RULES)
@pytest.mark.parametrize(("trials", "epochs", "slots"), [(27, 27, 2), (60, 27, 8), (9, 10, 4)])
def test_what_is_thought_half_way_comes_about(
    rule: EarlyTermination, tolerance: float, trials: int, epochs: int, slots: int
) -> None:
    """The median of some sweeps, when half and three quarters of the time have passed; "about" is what we say."""
    passed = [simulate(rule, trials, epochs, slots, seed) for seed in range(7)]
    for share, within in ((0.5, tolerance), (0.75, tolerance * 0.7)):
        assert median(one.at(share)[0] for one in passed) == pytest.approx(1.0, abs=within)
    assert median(one.at(0.75)[1] for one in passed) == pytest.approx(1.0, abs=0.5)


def test_a_long_sweep_is_known_early() -> None:
    passed = [simulate(Asha(1, None, 3), 400, 27, 8, seed) for seed in range(3)]
    assert median(one.at(0.25)[0] for one in passed) == pytest.approx(1.0, abs=0.2)
    assert median(one.at(0.5)[1] for one in passed) == pytest.approx(1.0, abs=0.25)
