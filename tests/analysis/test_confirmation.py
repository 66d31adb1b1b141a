"""Who is raced: the best that completed, the baseline, and others where finalists break."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from sweep.analysis import confirmation
from sweep.analysis.confirmation import Rules, Run
from sweep.events import Role, Status

RULES = Rules(seeds=4, finalists=2, share=None, repeats=1, folds=None)
NUMBERS = iter(range(10**6))


def run(
    a: float,
    loss: float,
    role: Role = Role.SEARCH,
    repeat: int = 0,
    status: Status = Status.COMPLETED,
) -> Run:
    return Run(next(NUMBERS), {"a": a}, role, repeat, None, status, loss, 10)


def searched(losses: Sequence[float], **more: Status) -> list[Run]:
    return [run(a, loss, **more) for a, loss in enumerate(losses)]


def fresh(a: float, losses: Sequence[float], first: int = 1) -> list[Run]:
    return [run(a, loss, Role.CONFIRM, first + place) for place, loss in enumerate(losses)]


def raced(race_: confirmation.Race) -> list[float]:
    return [racer.params["a"] for racer in race_.racers]


def test_the_best_that_completed_get_the_first_fresh_seed() -> None:
    runs = [
        *searched([3.0, 1.0, 2.0]),
        run(9, 0.1, status=Status.PRUNED),
        run(8, math.nan),
        run(7, 5.0, Role.BASELINE),
    ]
    found = confirmation.run_race(runs, RULES)
    assert [(params["a"], repeat, fold) for params, repeat, fold in found.wanted] == [
        (1, 1, None),
        (2, 1, None),
        (7, 1, None),
    ]
    assert found.over == ""


def test_who_is_told_apart_gets_no_further_seed() -> None:
    runs = [*searched([1.0, 1.1]), run(7, 9.0, Role.BASELINE)]
    runs += [*fresh(0, [1.0, 1.3]), *fresh(1, [1.05, 1.2]), *fresh(7, [9.0, 9.4])]
    found = confirmation.run_race(runs, RULES)
    assert [params["a"] for params, _, _ in found.wanted] == [0, 1]
    assert found.racers[-1].params == {"a": 7}
    assert found.racers[-1].out == "told apart after 2 seeds"
    assert found.epochs == 60


def test_another_one_takes_the_place_of_a_finalist_that_breaks() -> None:
    runs = searched([1.0, 2.0, 3.0])
    runs += [run(0, math.nan, Role.CONFIRM, 1, Status.DIVERGED), *fresh(1, [2.0])]
    found = confirmation.run_race(runs, RULES)
    assert [params["a"] for params, _, _ in found.wanted] == [2]
    assert raced(found) == [1, 2, 0]
    assert found.racers[-1].out == confirmation.BROKEN


def test_where_only_one_is_left_its_seeds_and_the_epochs_of_those_that_broke_count() -> None:
    runs = [*searched([1.0, 2.0]), *fresh(0, [1.2, 1.4])]
    runs += [run(1, math.nan, Role.CONFIRM, 1, Status.FAILED)]
    found = confirmation.run_race(runs, RULES)
    assert raced(found) == [0, 1]
    assert found.racers[0].losses == (1.2, 1.4)
    assert found.epochs == 30
    assert found.over == "a single configuration is left to race: nothing to tell apart"


def test_a_race_does_not_depend_on_the_order_of_its_trials() -> None:
    runs = [*searched([1.0, 1.1]), *fresh(0, [1.0, 1.1, 0.9, 1.0]), *fresh(1, [1.2, 1.0, 1.1, 0.9])]
    one, other = confirmation.run_race(runs, RULES), confirmation.run_race(runs[::-1], RULES)
    assert one == other
    assert one.over == "2 are not told apart by 4 fresh seeds"


@pytest.mark.parametrize(("share", "count"), [(0.5, 2), (0.9, 2), (1.4, 4), (None, 5)])
def test_the_budget_decides_how_many_are_raced(share: float | None, count: int) -> None:
    rules = Rules(seeds=8, finalists=5, share=share, repeats=1, folds=None)
    found = confirmation.list_candidates(searched([1.0 + n for n in range(9)]), rules)
    assert (
        len(confirmation.finalists(found, rules, math.inf if share is None else share * 90))
        == count
    )


def test_repeats_of_the_search_leave_out_what_they_tell_from_the_best() -> None:
    rules = Rules(seeds=4, finalists=5, share=None, repeats=3, folds=None)
    runs = [
        run(a, loss + 0.1 * noise, repeat=repeat)
        for a, loss in ((0, 1.0), (1, 1.1), (2, 30.0))
        for repeat, noise in enumerate((0.0, 1.0 + a, -1.0))
    ]
    assert (
        len(confirmation.finalists(confirmation.list_candidates(runs, rules), rules, math.inf)) == 2
    )
    assert confirmation.run_race([run(5, 1.0)], RULES).over.startswith(
        "a single configuration is left"
    )
    assert confirmation.run_race([], RULES).over.startswith("no configuration is left")


def test_folds_of_a_repeat_are_one_score() -> None:
    rules = Rules(seeds=2, finalists=2, share=None, repeats=1, folds=2)
    whole = [
        Run(next(NUMBERS), {"a": a}, Role.SEARCH, 0, fold, Status.COMPLETED, float(a), 10)
        for a in (0, 1)
        for fold in (0, 1)
    ]
    found = confirmation.run_race(whole, rules)
    assert [(params["a"], repeat, fold) for params, repeat, fold in found.wanted] == [
        (0, 1, 0),
        (0, 1, 1),
        (1, 1, 0),
        (1, 1, 1),
    ]
    assert {racer.epochs for racer in found.racers} == {20}


def test_so_many_finalists_are_left_as_can_have_enough_seeds() -> None:
    assert confirmation.count_affordable([10] * 8, [], math.inf) == 8
    assert confirmation.count_affordable([10] * 8, [], 3 * 50) == 5
    # the baseline takes part as well
    assert confirmation.count_affordable([10] * 8, [10], 3 * 50) == 4
    assert confirmation.count_affordable([10] * 8, [], 0) == 2
    assert confirmation.count_affordable([10] * 8, [10], 0) == 1
    assert confirmation.count_affordable([10], [], 0) == 1
    assert confirmation.count_affordable([], [10], 0) == 0
