"""Novelty: nothing infeasible, nothing twice."""

from __future__ import annotations

from itertools import islice, repeat

import pytest

from sweep.searchers.novelty import MAX_ATTEMPTS, first_new, uniform_draws, uniform_numbers
from sweep.space import Parameter, Space
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
    assert first_new(LETTERS, always("a"), {key({"x": x}) for x in "abc"}, uniform_numbers(0, 0)) is None


def test_points_of_another_space_do_not_make_a_space_exhausted() -> None:
    assert first_new(LETTERS, always("a"), {key({"y": y}) for y in range(10)}, uniform_numbers(0, 0)) == {"x": "a"}


THIN = Space((Parameter("x", Uniform(0, 1)), Parameter("y", Uniform(0, 1))), (Expression.parse("abs(x - y) < 1e-7"),))


def test_where_hardly_a_draw_is_feasible_the_first_one_is_moved_there() -> None:
    def draws(parameter: Parameter) -> float:
        return 0.25 if parameter.name == "x" else 0.26

    moved = first_new(THIN, repeat(draws), set(), uniform_numbers(0, 0), walk=False)
    assert moved is not None
    assert THIN.violated(moved) == []
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
