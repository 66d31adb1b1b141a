"""Streams, and the three methods that are streams: grid, random, sobol."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import qmc

from sweep.searchers import grid_random_sobol
from sweep.searchers.grid_random_sobol import Stream
from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import Categorical, IntUniform, Uniform
from sweep.space.expressions import Expression

SQUARE = Space((Parameter("x", Uniform(0, 1)), Parameter("y", Uniform(0, 1))))


def test_a_stream_is_taken_in_its_order_however_it_is_asked() -> None:
    searcher = Stream(lambda number, tried: {"n": number} if number < 5 else None)
    assert searcher.suggest(3) == {"n": 3}
    assert searcher.suggest(0) == {"n": 0}
    assert searcher.suggest(5) is None
    assert searcher.suggest(4) == {"n": 4}


def test_a_stream_is_told_what_it_gave() -> None:
    seen: list[list[str]] = []

    def point(number: int, tried: object) -> dict[str, int]:
        seen.append(sorted(tried))
        return {"n": number}

    Stream(point).suggest(2)
    assert seen == [[], ['{"n": 0}'], ['{"n": 0}', '{"n": 1}']]


def test_a_grid_is_in_file_order() -> None:
    space = Space((Parameter("a", IntUniform(1, 2)), Parameter("b", Categorical(("x", "y")))))
    searcher = grid_random_sobol.grid_search(space)
    assert [searcher.suggest(n) for n in range(5)] == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
        None,
    ]


def test_random_points_do_not_depend_on_what_was_asked_before() -> None:
    assert grid_random_sobol.random_search(SQUARE, 7).suggest(5) == grid_random_sobol.random_search(SQUARE, 7).suggest(
        5
    )
    jumping, walking = grid_random_sobol.random_search(SQUARE, 7), grid_random_sobol.random_search(SQUARE, 7)
    walked = [walking.suggest(n) for n in range(6)]
    assert jumping.suggest(5) == walked[5]


def test_sobol_points_are_spread_more_evenly_than_random_ones() -> None:
    def discrepancy(searcher: Stream) -> float:
        return qmc.discrepancy(np.array([list(searcher.suggest(n).values()) for n in range(128)]))

    assert (
        discrepancy(grid_random_sobol.sobol_search(SQUARE, 0))
        < discrepancy(grid_random_sobol.random_search(SQUARE, 0)) / 5
    )


@pytest.mark.parametrize("index", range(4))
def test_sobol_fills_every_stratum(index: int) -> None:
    searcher = grid_random_sobol.sobol_search(
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
    searcher = grid_random_sobol.sobol_search(space, 0)
    points = [searcher.suggest(n) for n in range(20)]
    assert all(point["y"] < 0.5 for point in points if point["x"] == "a")
    assert [point for point in points if point["x"] == "b"] == [{"x": "b"}], "only one point without y"
