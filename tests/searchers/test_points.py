"""Points that are feasible and new, and the three methods that are streams of points: grid, random, sobol."""

from __future__ import annotations

from itertools import islice, repeat

import numpy as np
import pytest
from scipy.stats import qmc

from sweep.searchers.points import (
    MAX_ATTEMPTS,
    PointStream,
    first_new,
    grid_search,
    random_search,
    sobol_search,
    uniform_draws,
    uniform_numbers,
)
from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import Categorical, IntUniform, Normal, Uniform, key
from sweep.space.expressions import Expression

LETTERS = Space((Parameter("x", Categorical(tuple("abc"))),))


def always(value: object):
    while True:
        yield lambda parameter: value


def test_the_first_draw_that_is_feasible_and_new_is_taken() -> None:
    space = Space((Parameter("n", IntUniform(0, 9)),), (Expression.parse("n > 2"),))
    draws = [lambda parameter, n=n: n for n in (1, 5, 2, 7, 8)]
    assert first_new(space, draws, {key({"n": 5})}, uniform_numbers(0, 0)) == {"n": 7}


def test_a_finite_space_is_searched_through_when_draws_bring_nothing_new() -> None:
    assert first_new(LETTERS, always("a"), {key({"x": "a"})}, uniform_numbers(0, 0)) == {"x": "b"}
    assert (
        first_new(LETTERS, always("a"), {key({"x": x}) for x in "abc"}, uniform_numbers(0, 0))
        is None
    )


def test_points_of_another_space_do_not_make_a_space_exhausted() -> None:
    assert first_new(
        LETTERS, always("a"), {key({"y": y}) for y in range(10)}, uniform_numbers(0, 0)
    ) == {"x": "a"}


THIN = Space(
    (Parameter("x", Uniform(0, 1)), Parameter("y", Uniform(0, 1))),
    (Expression.parse("abs(x - y) < 1e-7"),),
)


def test_where_hardly_a_draw_is_feasible_the_first_one_is_moved_there() -> None:
    def draws(parameter: Parameter) -> float:
        return 0.25 if parameter.name == "x" else 0.26

    moved = first_new(THIN, repeat(draws), set(), uniform_numbers(0, 0), walk=False)
    assert moved is not None
    assert THIN.list_violated(moved) == []
    assert [moved["x"], moved["y"]] == pytest.approx([0.25, 0.25], abs=0.02)


def test_a_space_without_a_feasible_point_is_exhausted() -> None:
    space = Space((Parameter("x", Uniform(0, 1)),), (Expression.parse("x > 2"),))
    assert first_new(space, uniform_draws(0, 0), set(), uniform_numbers(0, 0)) is None


def test_a_space_that_is_infinite_by_name_only_can_be_exhausted() -> None:
    space = Space((Parameter("x", Normal(0, 1, 1)),))
    tried = {key({"x": x}) for x in range(-9, 10)}
    assert first_new(space, uniform_draws(0, 0), tried, uniform_numbers(0, 0)) is None


def test_draws_depend_on_seed_and_number() -> None:
    def first(seed: int, number: int) -> list[object]:
        parameter = Parameter("x", Uniform(0, 1))
        return [draw(parameter) for draw in islice(uniform_draws(seed, number), 3)]

    assert first(0, 0) == first(0, 0)
    assert len({*first(0, 0), *first(0, 1), *first(1, 0)}) == 9


def test_no_more_draws_are_made_than_allowed() -> None:
    made = []
    draws = (made.append(n) or (lambda parameter: "a") for n in range(10 * MAX_ATTEMPTS))
    first_new(LETTERS, draws, {key({"x": "a"})}, uniform_numbers(0, 0))
    assert len(made) == MAX_ATTEMPTS


SQUARE = Space((Parameter("x", Uniform(0, 1)), Parameter("y", Uniform(0, 1))))


def test_a_stream_is_taken_in_its_order_however_it_is_asked() -> None:
    searcher = PointStream(lambda number, tried: {"n": number} if number < 5 else None)
    assert searcher.suggest(3) == {"n": 3}
    assert searcher.suggest(0) == {"n": 0}
    assert searcher.suggest(5) is None
    assert searcher.suggest(4) == {"n": 4}


def test_a_stream_is_told_what_it_gave() -> None:
    seen: list[list[str]] = []

    def point(number: int, tried: object) -> dict[str, int]:
        seen.append(sorted(tried))
        return {"n": number}

    PointStream(point).suggest(2)
    assert seen == [[], ['{"n": 0}'], ['{"n": 0}', '{"n": 1}']]


def test_a_grid_is_in_file_order() -> None:
    space = Space((Parameter("a", IntUniform(1, 2)), Parameter("b", Categorical(("x", "y")))))
    searcher = grid_search(space, 0)
    assert [searcher.suggest(n) for n in range(5)] == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
        None,
    ]


def test_random_points_do_not_depend_on_what_was_asked_before() -> None:
    assert random_search(SQUARE, 7).suggest(5) == random_search(SQUARE, 7).suggest(5)
    jumping, walking = random_search(SQUARE, 7), random_search(SQUARE, 7)
    walked = [walking.suggest(n) for n in range(6)]
    assert jumping.suggest(5) == walked[5]


def test_sobol_points_are_spread_more_evenly_than_random_ones() -> None:
    def discrepancy(searcher: PointStream) -> float:
        return qmc.discrepancy(np.array([list(searcher.suggest(n).values()) for n in range(128)]))

    assert discrepancy(sobol_search(SQUARE, 0)) < discrepancy(random_search(SQUARE, 0)) / 5


@pytest.mark.parametrize("index", range(4))
def test_sobol_fills_every_stratum(index: int) -> None:
    searcher = sobol_search(
        Space((Parameter("c", Categorical(("a", "b", "c", "d"))), *SQUARE.parameters)), index
    )
    drawn = [searcher.suggest(n)["c"] for n in range(16)]
    assert all(drawn.count(value) == 4 for value in "abcd")


def test_sobol_skips_infeasible_points_and_ignores_absent_dimensions() -> None:
    when = Condition((("x", OneOf(("a",))),))
    space = Space(
        (Parameter("x", Categorical(("a", "b"))), Parameter("y", Uniform(0, 1), when=when)),
        (Expression.parse("y < 0.5"),),
    )
    searcher = sobol_search(space, 0)
    points = [searcher.suggest(n) for n in range(20)]
    assert all(point["y"] < 0.5 for point in points if point["x"] == "a")
    assert [point for point in points if point["x"] == "b"] == [{"x": "b"}], (
        "only one point without y"
    )


def test_an_enqueued_point_that_a_change_has_removed_may_come_back() -> None:
    numbers = Space((Parameter("x", IntUniform(1, 4)),))
    searcher = grid_search(numbers, 0)
    searcher.enqueue([{"x": 4}])
    searcher.change_space(Space((Parameter("x", IntUniform(1, 2)),)))
    searcher.change_space(numbers)
    assert [searcher.suggest(trial) for trial in range(5)] == [
        {"x": 1},
        {"x": 2},
        {"x": 3},
        {"x": 4},
        None,
    ]
