"""Spaces: conditions, ties, constraints, and the grid over all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import finite_domains, spaces

from sweep.errors import InputError
from sweep.space import Between, Condition, OneOf, Parameter, Space
from sweep.space.domains import (
    Categorical,
    Constant,
    IntUniform,
    LogUniform,
    Tied,
    Uniform,
    contains,
    key,
)
from sweep.space.draws import from_unit
from sweep.space.expressions import Expression, ExpressionError, UndefinedError
from sweep.space.search_space import MAX_ENUMERATED

E = Expression.parse
OPTIMIZER = Parameter("optimizer", Categorical(("sgd", "adam")))
MOMENTUM = Parameter(
    "momentum", Categorical((0.8, 0.9)), when=Condition((("optimizer", OneOf(("sgd",))),))
)


def choose(**values: object):
    return lambda parameter: values[parameter.name]


def _drawing_from(numbers: Iterator[float]):
    return lambda parameter: from_unit(parameter.domain, next(numbers))


@pytest.mark.parametrize("others", [(True, False), (1.0, 0.0), (1, 0.0), (0, 1), (1, 0, 2)])
def test_values_of_other_types_make_another_space(others: tuple[object, ...]) -> None:
    space = Space((Parameter("x", Categorical((1, 0))),))
    assert space.is_same_as(Space((Parameter("x", Categorical((1, 0))),)))
    assert not space.is_same_as(Space((Parameter("x", Categorical(others)),)))


def test_absent_parameters_are_left_out_and_not_asked_for() -> None:
    space = Space((OPTIMIZER, MOMENTUM))
    assert space.complete(choose(optimizer="adam")) == {"optimizer": "adam"}
    assert space.complete(choose(optimizer="sgd", momentum=0.8)) == {
        "optimizer": "sgd",
        "momentum": 0.8,
    }


def test_points_are_in_file_order_also_if_conditions_look_ahead() -> None:
    space = Space(
        (
            MOMENTUM,
            Parameter("half", Tied(E("momentum / 2"))),
            OPTIMIZER,
            Parameter("n", Constant(3)),
        )
    )
    assert list(space.complete(choose(optimizer="sgd", momentum=0.8))) == [
        "momentum",
        "half",
        "optimizer",
        "n",
    ]
    assert space.complete(choose(optimizer="adam")) == {"optimizer": "adam", "n": 3}, (
        "a tie needs its source"
    )
    assert space.names == ("momentum", "half", "optimizer", "n")


def test_a_condition_on_an_absent_parameter_does_not_hold() -> None:
    nesterov = Parameter(
        "nesterov", Categorical((True, False)), when=Condition((("momentum", Between(min=0.5)),))
    )
    space = Space((OPTIMIZER, MOMENTUM, nesterov))
    assert "nesterov" not in space.complete(choose(optimizer="adam"))
    assert "nesterov" in space.complete(choose(optimizer="sgd", momentum=0.9, nesterov=True))


@pytest.mark.parametrize(
    ("test", "passing", "failing"),
    [
        (OneOf(("a", 1)), ["a", 1, 1.0], ["b", 2, None, True]),
        (OneOf((True,)), [True], [1, 1.0]),
        (Between(1, 2), [1, 1.5, 2], [0.99, 2.01, "1", None, True]),
        (Between(min=0), [0, 1e9], [-1]),
        (Between(max=0), [0, -1e9], [1]),
    ],
)
def test_tests(test: OneOf | Between, passing: list[object], failing: list[object]) -> None:
    assert all(test.passes(value) for value in passing)
    assert not any(test.passes(value) for value in failing)


def test_several_tests_must_all_pass() -> None:
    condition = Condition((("a", OneOf((1,))), ("b", Between(0, 1))))
    assert condition.holds({"a": 1, "b": 0.5})
    assert not condition.holds({"a": 1, "b": 2})
    assert not condition.holds({"a": 1})


def test_violated_names_the_constraints_that_do_not_hold() -> None:
    space = Space(
        (Parameter("a", IntUniform(0, 9)), OPTIMIZER, MOMENTUM),
        (E("a < 5"), E("10 / a > 2"), E("momentum > 1")),
    )
    assert space.list_violated({"a": 1, "optimizer": "adam"}) == []
    assert space.list_violated({"a": 7, "optimizer": "adam"}) == ["a < 5", "10 / a > 2"]
    assert space.list_violated({"a": 0, "optimizer": "adam"}) == ["10 / a > 2"], (
        "what has no result does not hold"
    )
    assert space.list_violated({"a": 1, "optimizer": "sgd", "momentum": 0.9}) == ["momentum > 1"]


def test_a_constraint_on_the_wrong_type_is_an_error_not_a_violation() -> None:
    with pytest.raises(ExpressionError, match="expected a number"):
        Space((OPTIMIZER,), (E("optimizer < 3"),)).list_violated({"optimizer": "sgd"})


def test_a_tie_without_result_makes_a_point_infeasible() -> None:
    space = Space(
        (Parameter("a", IntUniform(0, 2)), Parameter("inverse", Tied(E("6 // a")))), (E("a < 2"),)
    )
    with pytest.raises(UndefinedError):
        space.complete(choose(a=0))
    assert space.complete_if_feasible(choose(a=0)) is None
    assert space.complete_if_feasible(choose(a=2)) is None
    assert space.complete_if_feasible(choose(a=1)) == {"a": 1, "inverse": 6}
    assert list(space.grid()) == [{"a": 1, "inverse": 6}]
    assert space.grid_size() == space.cardinality == 1


def test_a_plain_grid_is_the_product_in_file_order() -> None:
    lists = {"lr": (1e-3, 5e-4, 1e-4), "wd": (1e-4, 1e-5), "aug": ("low", "high")}
    space = Space(tuple(Parameter(name, Categorical(values)) for name, values in lists.items()))
    assert [tuple(point.values()) for point in space.grid()] == list(
        itertools.product(*lists.values())
    )
    assert space.grid_size() == 12


def test_a_grid_takes_count_values_of_a_range() -> None:
    space = Space(
        (Parameter("lr", LogUniform(1e-4, 1e-2), grid_count=3), Parameter("b", IntUniform(1, 2)))
    )
    assert [tuple(p.values()) for p in space.grid()] == [
        (lr, b) for lr in (1e-4, 1e-3, 1e-2) for b in (1, 2)
    ]
    assert space.cardinality is None


def test_a_grid_over_a_continuous_range_is_refused() -> None:
    space = Space((Parameter("lr", Uniform(0, 1)),))
    with pytest.raises(ValueError, match="lr has too many values"):
        next(space.grid())
    with pytest.raises(ValueError, match="lr has too many values"):
        space.grid_size()


def test_large_grids_are_counted_without_being_walked_and_walked_lazily() -> None:
    parameters = tuple(Parameter(f"p{i}", IntUniform(1, 1000)) for i in range(8))
    space = Space((*parameters, OPTIMIZER, MOMENTUM), (E("p0 < 11"),))
    assert space.grid_size() == 10 * 1000**7 * 3
    assert next(space.grid())["p0"] == 1


def test_a_grid_with_more_combinations_to_check_than_we_visit_is_an_input_error() -> None:
    a, b = (Parameter(name, IntUniform(1, 999)) for name in "ab")
    when = Condition((("a", Between(1, 10)), ("b", Between(1, 10))))
    space = Space((a, b, Parameter("c", Constant(1), when=when)))
    assert MAX_ENUMERATED < 999**2
    with pytest.raises(InputError, match="more than 100,000 combinations"):
        space.grid_size()
    assert space.cardinality is None


@given(spaces(finite_domains))
def test_a_grid_is_complete_without_repeats_and_in_order(space: Space) -> None:
    points = list(itertools.islice(space.grid(), 300))
    keys = [key(point) for point in points]
    assert len(set(keys)) == len(keys)
    if len(points) < 300:
        assert space.grid_size() == space.cardinality == len(points)
        for u in range(10):  # no draw finds a point that the grid lacks
            numbers = itertools.cycle([(u * 0.137 + i * 0.311) % 1 for i in range(7)])
            drawn = space.complete_if_feasible(_drawing_from(numbers))
            assert drawn is None or key(drawn) in keys


@given(spaces(), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=10))
def test_every_completed_point_keeps_domains_conditions_and_ties(
    space: Space, numbers: list[float]
) -> None:
    cycle = itertools.cycle(numbers)
    point = space.complete(_drawing_from(cycle))
    assert list(point) == [name for name in space.names if name in point]
    for parameter in space.parameters:
        assert (parameter.name in point) == parameter.applies(point)
        assert parameter.name not in point or contains(parameter.domain, point[parameter.name])
    assert point["double"] == 2 * point["level"]


@pytest.mark.parametrize(
    ("parameters", "constraints", "message"),
    [
        ((OPTIMIZER, OPTIMIZER), (), "share a name"),
        ((MOMENTUM,), (), "wait for unknown ones or in a circle: .*momentum"),
        ((Parameter("a", Tied(E("b"))), Parameter("b", Tied(E("a")))), (), "circle"),
        ((OPTIMIZER,), (E("missing < 1"),), "unknown parameters: .*missing"),
    ],
)
def test_spaces_that_make_no_sense(
    parameters: tuple[Parameter, ...], constraints: tuple[Expression, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Space(parameters, constraints)


def test_a_space_without_choice_has_one_point() -> None:
    space = Space((Parameter("a", Constant(1)),))
    assert list(space.grid()) == list(space.points()) == [{"a": 1}]
    assert space.cardinality == 1
