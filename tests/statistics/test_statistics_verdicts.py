"""Verdicts of tables of scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sweep import statistics
from sweep.statistics import Verdict, compare

BEST, TIES, WORSE, UNDECIDED = Verdict


def table(*means: float, seeds: int = 8, noise: float = 0.1, start: int = 0) -> dict[int, dict[int, float]]:
    draws = np.random.default_rng(start).normal(0, noise, (len(means), seeds))
    return {at: {seed: mean + draws[at, seed] for seed in range(seeds)} for at, mean in enumerate(means)}


def told(scores: dict[int, dict[int, float]], **how: object) -> list[Verdict]:
    return [one.verdict for one in compare(scores, **{"maximize": True, **how}).values()]


def test_the_better_the_equal_and_the_worse() -> None:
    scores = table(0.8, 0.8, 0.2, start=2)
    found = compare(scores, maximize=True)
    assert sorted(one.verdict for one in found.values()) == [BEST, TIES, WORSE]
    best = max((0, 1), key=lambda name: sum(scores[name].values()))
    assert found[best].verdict is BEST
    worse = found[2]
    assert worse.difference == pytest.approx(np.mean([*scores[2].values()]) - np.mean([*scores[best].values()]))
    assert worse.difference_low < worse.difference < worse.difference_high < 0
    assert (worse.p, worse.p_holm, worse.more) == (2**-7, 2 * 2**-7, None)


def test_goals_are_mirrored() -> None:
    scores = table(0.8, 0.5, 0.2)
    mirrored = {name: {seed: -score for seed, score in row.items()} for name, row in scores.items()}
    assert told(scores) == told(mirrored, maximize=False) == [BEST, WORSE, WORSE]
    assert told(scores, maximize=False) == [WORSE, WORSE, BEST]


@pytest.mark.parametrize(("seeds", "expected"), [(5, UNDECIDED), (6, WORSE)])
def test_two_configurations_need_six_seeds(seeds: int, expected: Verdict) -> None:
    assert told(table(0.9, 0.1, seeds=seeds))[1] is expected
    assert 2 * 2.0**-5 > statistics.ALPHA >= 2 * 2.0**-6


@pytest.mark.parametrize("others", [1, 2, 3, 4, 8, 26])
def test_seeds_for_is_where_holm_can_tell_first(others: int) -> None:
    needed = statistics.seeds_for(others)
    assert others * 2.0 ** (1 - needed) <= statistics.ALPHA
    assert needed == statistics.LEAST or others * 2.0 ** (2 - needed) > statistics.ALPHA
    means = (0.9, *[0.1] * others)
    below = compare(table(*means, seeds=needed - 1, noise=1e-3), maximize=True)
    assert {one.verdict for one in below.values()} == {UNDECIDED}
    assert {one.more for one in below.values()} == {None, 1}
    assert told(table(*means, seeds=needed, noise=1e-3)).count(UNDECIDED) == 0


def test_seeds_that_would_tell_do_tell() -> None:
    few = table(0.55, 0.5, seeds=4, noise=0.05, start=3)
    first, second = compare(few, maximize=True).values()
    more = (first.more or second.more or 0) + 4
    assert statistics.LEAST <= more < 100
    told_apart = sum(WORSE in told(table(0.55, 0.5, seeds=min(more, 30), noise=0.05, start=at)) for at in range(20))
    assert told_apart >= 5


def test_only_common_seeds_are_compared() -> None:
    scores = table(0.9, 0.1, seeds=12)
    unpaired = {0: scores[0], 1: {seed + 100: score for seed, score in scores[1].items()}}
    apart = compare(unpaired, maximize=True)[1]
    assert (apart.verdict, apart.seeds, apart.p, apart.difference) == (UNDECIDED, 0, None, None)
    assert apart.undecided == "no seed in common with the best"
    some = {0: scores[0], 1: {seed + 7: score for seed, score in scores[1].items()}}
    assert (compare(some, maximize=True)[1].seeds, told(some)) == (5, [UNDECIDED, UNDECIDED])
    enough = {0: scores[0], 1: {seed: score for seed, score in scores[1].items() if seed < 7}}
    seen = compare(enough, maximize=True)[1]
    assert (seen.seeds, seen.verdict, seen.p) == (7, WORSE, 2**-6)
    assert seen.difference == pytest.approx(np.mean([scores[1][s] - scores[0][s] for s in range(7)]))


def test_equal_scores_tie_and_equal_differences_do_not() -> None:
    row = dict(enumerate((0.5, 0.6, 0.7, 0.8, 0.5, 0.6, 0.7, 0.8)))
    same = compare({"a": row, "b": dict(row)}, maximize=True)["b"]
    assert (same.verdict, same.p, same.difference, same.more) == (TIES, 1.0, 0.0, None)
    always = compare({"a": row, "b": {seed: score - 0.001 for seed, score in row.items()}}, maximize=True)["b"]
    assert (always.verdict, always.p) == (WORSE, 2**-7)


def test_one_alone_and_none() -> None:
    assert compare({}, maximize=True) == {}
    alone = compare({"a": {0: 1.0}}, maximize=True)["a"]
    assert (alone.verdict, alone.undecided) == (UNDECIDED, "nothing to compare with")


def test_one_seed_each_needs_so_many_more() -> None:
    found = compare({name: {0: name / 10} for name in range(4)}, maximize=True)
    assert {one.verdict for one in found.values()} == {UNDECIDED}
    assert found[0].more == statistics.seeds_for(3) - 1
    assert (found[0].difference, found[0].difference_low) == (pytest.approx(-0.3), None)


def test_folds_are_no_independent_seeds() -> None:
    scores = table(0.56, 0.5, seeds=10, noise=0.03, start=5)
    assert told(scores) == [BEST, WORSE]
    folded = compare(scores, maximize=True, folds=10)[1]
    as_seeds = compare(scores, maximize=True)[1]
    assert folded.difference_high - folded.difference_low > 1.4 * (as_seeds.difference_high - as_seeds.difference_low)
    assert told(table(0.9, 0.1, seeds=10, noise=0.01), folds=10) == [BEST, WORSE]


def test_many_seeds_and_many_configurations() -> None:
    found = compare(table(0.9, *[0.5] * 29, seeds=20, noise=0.05), maximize=True)
    assert [one.verdict for one in found.values()] == [BEST, *[WORSE] * 29]
    assert found[1].p_error is not None
    assert len(compare(table(*[0.5] * 300, seeds=6), maximize=True)) == 300


def test_a_front_has_verdicts() -> None:
    quality = table(0.9, 0.5, 0.4, 0.89, seeds=10, noise=0.02)
    cost = table(9.0, 1.0, 2.0, 9.05, seeds=10, noise=0.2, start=1)
    found = statistics.compare_fronts([quality, cost], maximize=[True, False], front=[0, 1])
    assert [one.verdict for one in found.values()] == [BEST, BEST, WORSE, TIES]
    few = [{name: dict(list(row.items())[:5]) for name, row in one.items()} for one in (quality, cost)]
    undecided = statistics.compare_fronts(few, maximize=[True, False], front=[0, 1])
    assert {(one.verdict, one.more) for one in undecided.values()} == {(UNDECIDED, statistics.seeds_for(6) - 5)}
    assert statistics.compare_fronts(few, maximize=[True, False], front=[0, 1])[0].undecided == "too few seeds"


def test_no_false_worse_more_often_than_promised() -> None:
    """300 tables without any difference: at most 5 %, and 15 of 300 by luck up to 25 in one of 200 runs."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(300):
        draws = rng.standard_exponential((4, 8))
        found = compare({at: dict(enumerate(row)) for at, row in enumerate(draws)}, maximize=True)
        wrong += any(one.verdict is WORSE for one in found.values())
    assert wrong <= 25


def test_seeds_for_one_comparison_is_the_least() -> None:
    assert statistics.seeds_for(0) == statistics.seeds_for(1) == statistics.LEAST == 6
    assert math.isclose(2.0 ** (1 - 6), 0.03125)


def test_many_configurations_of_a_cross_validation_are_bounded_and_not_compared_pair_by_pair() -> None:
    count = statistics._ALL_PAIRS + 20
    scores = table(0.9, *[0.5] * count, seeds=10, noise=1e-3)
    found = compare(scores, maximize=True, folds=5)
    beside = [one for name, one in found.items() if name]
    assert {one.verdict for one in beside} == {WORSE}
    for one in beside:
        assert one.p is not None
        assert one.p_any == pytest.approx(min(one.p * count * (count + 1) / 2, 1.0))
