"""Novelty: nothing infeasible, nothing twice."""

from __future__ import annotations

from itertools import islice

import pytest

from sweep.errors import SweepError
from sweep.searchers.novelty import MAX_ATTEMPTS, first_new, uniform_draws
from sweep.space.domains import Categorical, IntUniform, Normal, Uniform, key
from sweep.space.expressions import Expression
from sweep.space.space import Parameter, Space

LETTERS = Space((Parameter("x", Categorical(tuple("abc"))),))


def always(value: object):
    while True:
        yield lambda parameter: value


def test_the_first_draw_that_is_feasible_and_new_is_taken() -> None:
    space = Space((Parameter("n", IntUniform(0, 9)),), (Expression.parse("n > 2"),))
    draws = [lambda parameter, n=n: n for n in (1, 5, 2, 7, 8)]
    assert first_new(space, draws, {key({"n": 5})}) == {"n": 7}


def test_a_finite_space_is_searched_through_when_draws_bring_nothing_new() -> None:
    assert first_new(LETTERS, always("a"), {key({"x": "a"})}) == {"x": "b"}
    assert first_new(LETTERS, always("a"), {key({"x": x}) for x in "abc"}) is None


def test_points_of_another_space_do_not_make_a_space_exhausted() -> None:
    assert first_new(LETTERS, always("a"), {key({"y": y}) for y in range(10)}) == {"x": "a"}


def test_a_space_without_a_feasible_point_is_an_error_that_names_its_constraints() -> None:
    space = Space((Parameter("x", Uniform(0, 1)),), (Expression.parse("x > 2"),))
    with pytest.raises(SweepError, match=r"none of 1,000 draws meets the constraints \(x > 2\)"):
        first_new(space, uniform_draws(0, 0), set())


def test_a_space_that_is_infinite_by_name_only_can_be_exhausted() -> None:
    space = Space((Parameter("x", Normal(0, 1, 1)),))
    tried = {key({"x": x}) for x in range(-9, 10)}
    assert first_new(space, uniform_draws(0, 0), tried) is None


def test_draws_depend_on_seed_and_number() -> None:
    def first(seed: int, number: int) -> list[object]:
        parameter = Parameter("x", Uniform(0, 1))
        return [draw(parameter) for draw in islice(uniform_draws(seed, number), 3)]

    assert first(0, 0) == first(0, 0)
    assert len({*first(0, 0), *first(0, 1), *first(1, 0)}) == 9


def test_no_more_draws_are_made_than_allowed() -> None:
    made = []
    draws = (made.append(n) or (lambda parameter: "a") for n in range(10 * MAX_ATTEMPTS))
    first_new(LETTERS, draws, {key({"x": "a"})})
    assert len(made) == MAX_ATTEMPTS
