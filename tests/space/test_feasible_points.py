"""Points of spaces that hardly a random point belongs to."""

from __future__ import annotations

import random
from itertools import islice
from statistics import fmean

import pytest

from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import (
    Categorical,
    Domain,
    IntUniform,
    LogUniform,
    Normal,
    Tied,
    Uniform,
    key,
)
from sweep.space.expressions import Expression
from sweep.space.feasible_points import find_feasible_point, generate_feasible_points


def space(domains: dict[str, Domain], *constraints: str) -> Space:
    parameters = tuple(Parameter(name, domain) for name, domain in domains.items())
    return Space(parameters, tuple(map(Expression.parse, constraints)))


UNIT = Uniform(0.0, 1.0)
TWELVE = {f"p{index}": UNIT for index in range(12)}
THIN = {
    "a band": space({"a": UNIT, "b": UNIT}, "abs(a - b) < 1e-5"),
    "a corner of many dimensions": space(TWELVE, " + ".join(TWELVE) + " < 1"),
    "a product": space(dict.fromkeys("abc", LogUniform(1e-6, 1.0)), "1e-9 < a * b * c < 1.001e-9"),
    "numbers that divide another": space(dict.fromkeys("ab", IntUniform(1, 2000)), "a * b == 1024"),
    "texts": space(
        {**dict.fromkeys("abcdef", Categorical(tuple("uvwxyz"))), "x": UNIT},
        *(f"{name} == 'w'" for name in "abcdef"),
    ),
    "a ring": space(dict.fromkeys("ab", Uniform(-1.0, 1.0)), "0.81 < a * a + b * b < 0.8101"),
    "two corners": space({"a": UNIT, "b": UNIT}, "a < 1e-4 or not a <= 0.9999", "b * a < 1e-5"),
    "a tail": space({"a": Normal(), "b": Normal()}, "a > 4.5 if b > 0 else a < -4.5"),
    "where others have no value": space({"a": UNIT, "b": UNIT}, "sqrt(a - 0.999) >= 0"),
    "through a tie": space(
        {"a": UNIT, "t": Tied(Expression.parse("sqrt(a - 0.999)")), "b": UNIT}, "t < b / 100"
    ),
}


@pytest.mark.parametrize("thin", THIN.values(), ids=THIN)
def test_points_are_allowed_different_and_the_same_every_time(thin: Space) -> None:
    assert find_feasible_point(thin) == find_feasible_point(thin) is not None
    points = list(islice(generate_feasible_points(thin, {}, random.Random(1).random), 8))
    assert points == list(islice(generate_feasible_points(thin, {}, random.Random(1).random), 8))
    assert not any(thin.list_violated(point) for point in points)
    assert len({key(point) for point in points}) > 1
    assert len(points) == 8


def test_without_an_allowed_point_there_is_none() -> None:
    never = space({"a": UNIT, "b": UNIT}, "a + b > 2.5")
    assert find_feasible_point(never) is None
    assert list(generate_feasible_points(never, {"a": 0.5}, random.Random(0).random)) == []


def test_a_walk_forgets_the_border_at_which_a_repair_ends() -> None:
    corner = space(TWELVE, " + ".join(TWELVE) + " < 1")
    sums = []
    for seed in range(60):
        (point,) = islice(generate_feasible_points(corner, {}, random.Random(seed).random), 1)
        sums.append(sum(float(str(value)) for value in point.values()))
    # of the uniform distribution; its deviation is 0.01
    assert fmean(sums) == pytest.approx(12 / 13, abs=0.025)


def test_without_a_walk_the_first_point_is_near_its_start() -> None:
    band = space({"a": UNIT, "b": UNIT, "free": UNIT}, "abs(a - b) < 1e-6")
    (point,) = islice(
        generate_feasible_points(
            band, {"a": 0.3, "b": 0.31, "free": 0.7}, random.Random(0).random, walk=False
        ),
        1,
    )
    assert [point["a"], point["b"], point["free"]] == pytest.approx([0.3, 0.3, 0.7], abs=0.02)


def test_a_parameter_that_is_absent_is_left_alone() -> None:
    parameters = (
        Parameter("kind", Categorical(("sgd", "adam"))),
        Parameter("momentum", UNIT, when=Condition((("kind", OneOf(("sgd",))),))),
        Parameter("rate", UNIT),
    )
    thin = Space(
        parameters, (Expression.parse("momentum + rate < 1e-5"), Expression.parse("kind == 'sgd'"))
    )
    for point in islice(
        generate_feasible_points(thin, {"kind": "adam", "rate": 0.5}, random.Random(0).random), 5
    ):
        assert point.keys() == {"kind", "momentum", "rate"}
        assert thin.list_violated(point) == []
