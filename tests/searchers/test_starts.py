"""Configurations that are tried first, under every method."""

from __future__ import annotations

import pytest

from sweep.conformance.logs import drive, trial
from sweep.conformance.searchers import FINITE, LOSS, SPACE, assert_belongs, mixed_outcome
from sweep.events import Event, Params, Status, TrialStarted
from sweep.searchers.build import METHODS, build
from sweep.searchers.starts import drawn
from sweep.space.domains import IntUniform, Uniform, key
from sweep.space.expressions import Expression
from sweep.space.space import Parameter, Space

WHOLE = {"lr": 3e-4, "decay": 5e-5, "optimizer": "sgd", "momentum": 0.9, "units": 16, "schedule": "step"}
PART = {"optimizer": "adam", "units": 32}
every_method = pytest.mark.parametrize("method", [m for m in METHODS if m not in ("bayes", "gp")])


def suggested(log: list[Event]) -> list[Params]:
    return [event.params for event in log if isinstance(event, TrialStarted)]


@every_method
def test_they_come_first_and_only_once(method: str) -> None:
    searcher = build(method, SPACE, LOSS, 0, start_with=[WHOLE, PART])
    tried = suggested(drive(searcher, 20, mixed_outcome))
    assert tried[0] == {**WHOLE, "warm": 3e-4 / 10}
    assert PART.items() <= tried[1].items()
    assert len({key(params) for params in tried}) == len(tried)
    for params in tried[:1] if method == "grid" else tried:  # a grid's first is not one of its own points
        assert_belongs(params, SPACE)


@every_method
def test_each_is_trained_as_often_as_others(method: str) -> None:
    searcher = build(method, FINITE, LOSS, 0, repeats=2, start_with=[{"a": 4, "b": "x"}])
    tried = suggested(
        drive(searcher, 4, lambda number, params: trial(number, params, Status.COMPLETED, [1.0], number % 2))
    )
    assert tried[0] == tried[1] == {"a": 4, "b": "x"}
    assert tried[2] == tried[3] != tried[0]


def test_what_is_left_out_is_drawn_within_the_constraints() -> None:
    thin = Space(
        (Parameter("x", Uniform(0, 1)), Parameter("y", Uniform(0, 1)), Parameter("n", IntUniform(1, 3))),
        (Expression.parse("abs(x - y) < 1e-7"),),
    )
    (point,) = drawn(thin, [{"x": 0.25}], 0)
    assert point["x"] == 0.25
    assert thin.violated(point) == []
    assert drawn(thin, [{"x": 0.25}], 0) == [point]


def test_a_start_that_leaves_nothing_new_is_passed_over() -> None:
    assert drawn(FINITE, [{"a": 1, "b": "x"}, {"a": 1, "b": "x"}], 0) == [{"a": 1, "b": "x"}]


def test_a_grid_completes_them_by_what_comes_first_and_leaves_them_out_later() -> None:
    space = Space((Parameter("x", Uniform(0, 1), grid_count=3), Parameter("n", IntUniform(1, 2))))
    searcher = build("grid", space, LOSS, 0, start_with=[{"n": 2}, {"x": 0.3}])
    tried = suggested(drive(searcher, 20, mixed_outcome))
    assert tried[:2] == [{"x": 0.0, "n": 2}, {"x": 0.3, "n": 1}]
    assert [key(params) for params in tried[2:]] == [key(p) for p in space.grid() if key(p) != key(tried[0])]
