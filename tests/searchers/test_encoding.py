"""Points as rows of numbers, and back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sweep.conformance.searchers import SPACE
from sweep.events import Params, Value
from sweep.searchers.encoding import Encoding
from sweep.searchers.points import uniform_draws
from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Uniform,
)
from sweep.space.draws import Belief
from sweep.space.expressions import Expression

SGD = Condition((("kind", OneOf(("sgd",))),))
CONDITIONAL = Space(
    (
        Parameter("kind", Categorical(("sgd", "adam", "lion"))),
        Parameter("momentum", Uniform(0, 0.99), when=SGD),
        Parameter("nesterov", Categorical((True, False)), when=SGD),
        Parameter("units", IntUniform(16, 64, 16)),
    )
)
DOMAINS = [
    Uniform(-3, 5),
    Uniform(0, 1, 0.1),
    LogUniform(1e-5, 1e-1),
    LogUniform(1e-3, 1, 1e-3),
    IntUniform(1, 5),
    IntUniform(16, 512, log=True),
    Normal(1, 2),
    Normal(0, 1, 0.5),
    LogNormal(0, 1),
    Beta(2, 5),
    Categorical(("a", "b", "c")),
    Categorical((64, 16, 32)),
    Categorical((1e-4, 1e-3, 1e-1)),
    Categorical((1, 1.0, 2)),
    Categorical((1, True, "1", None, [1])),
    Categorical(("a", "b", "c"), (0.5, 0.0, 0.5)),
]


def distances(encoding: Encoding, first: Params, second: Params) -> list[float]:
    """Return how far two configurations are apart in each parameter."""
    features = encoding.features(encoding.encode_all([first, second]))
    squares = (features[0] - features[1]) ** 2
    return [math.sqrt(squares[encoding.owners == one].sum()) for one in range(encoding.size)]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_a_value_is_decoded_to_itself(domain: Domain) -> None:
    space = Space((Parameter("x", domain),))
    encoding = Encoding(space)
    for _, draw in zip(range(50), uniform_draws(0, 0), strict=False):
        params = space.complete(draw)
        row = encoding.encode(params)
        assert 0 <= row[0] <= 1
        assert np.array_equal(encoding.snap_to_valid(row[None]), row[None])
        found: Value = space.complete(encoding.decode(row))["x"]
        assert (
            found == pytest.approx(params["x"])
            if isinstance(found, float)
            else found == params["x"]
        )


def test_numbers_of_a_list_lie_on_their_scale_and_other_choices_are_equally_far() -> None:
    space = Space(
        (
            Parameter("rate", Categorical((1e-4, 1e-1, 1e-3))),
            Parameter("size", Categorical((30, 10, 20))),
            Parameter("kind", Categorical(("a", "b", "c"))),
            Parameter("flag", Categorical((0, 1))),
        )
    )
    first: Params = {"rate": 1e-4, "size": 10, "kind": "a", "flag": 0}
    second: Params = {"rate": 1e-3, "size": 20, "kind": "c", "flag": 1}
    assert distances(Encoding(space), first, second) == pytest.approx([1 / 3, 1 / 2, 1, 1])


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99])
def test_a_parameter_that_does_not_apply_is_as_far_from_all_values(momentum: float) -> None:
    encoding = Encoding(CONDITIONAL)
    present: Params = {"kind": "sgd", "momentum": momentum, "nesterov": True, "units": 16}
    assert distances(encoding, present, {"kind": "adam", "units": 16}) == pytest.approx(
        [1, 1, 1, 0]
    )
    assert distances(
        encoding, {"kind": "lion", "units": 16}, {"kind": "adam", "units": 16}
    ) == pytest.approx([1, 0, 0, 0])
    other = distances(encoding, present, {**present, "momentum": 0.99 - momentum})[1]
    assert other == pytest.approx(2 * math.sin(math.pi / 6 * abs(1 - 2 * momentum / 0.99)))


def test_admitted_rows_are_configurations_that_meet_the_constraints() -> None:
    encoding = Encoding(SPACE)
    rows = encoding.snap_to_valid(np.random.default_rng(0).random((200, encoding.size)))
    assert 20 < len(rows) < 200  # some violate the constraint
    for row in rows:
        params = SPACE.complete(encoding.decode(row))
        assert SPACE.list_violated(params) == []
        # Not to the last bit: logarithms and powers differ by processor.
        np.testing.assert_allclose(encoding.encode(params), row, rtol=1e-12)


def test_neighbors_are_near_and_each_differs() -> None:
    space = Space(
        (
            Parameter("x", Uniform(0, 1)),
            Parameter("n", IntUniform(1, 4)),
            Parameter("c", Categorical("abc")),
        )
    )
    encoding = Encoding(space)
    rows = np.tile(encoding.encode({"x": 0.5, "n": 2, "c": "a"}), (500, 1))
    moved = encoding.perturb(rows, 0.01, np.random.default_rng(0))
    assert np.all((moved >= 0) & (moved <= 1))
    assert np.all((moved != rows).any(axis=1))
    assert np.abs(moved[:, 0] - 0.5).max() < 0.06
    assert {space.complete(encoding.decode(row))["n"] for row in encoding.snap_to_valid(moved)} >= {
        1,
        2,
        3,
    }


def test_a_parameter_with_one_value_is_no_column() -> None:
    space = Space(
        (
            Parameter("x", Uniform(0, 1)),
            Parameter("one", Categorical(("a",))),
            Parameter("two", Constant(2)),
        )
    )
    encoding = Encoding(space)
    assert encoding.size == 1
    assert space.complete(encoding.decode(np.array([0.5]))) == {"x": 0.5, "one": "a", "two": 2}


def test_a_belief_is_the_density_that_the_author_gave() -> None:
    beliefs = Belief(1e-3, "high"), Belief("b")
    domains = LogUniform(1e-5, 1e-1), Categorical(("a", "b"))
    named = zip(("x", "c"), domains, beliefs, strict=True)
    encoding = Encoding(
        Space(tuple(Parameter(name, domain, belief=belief) for name, domain, belief in named))
    )
    points: list[Params] = [{"x": 1e-3, "c": "b"}, {"x": 3e-4, "c": "a"}, {"x": 0.1, "c": "a"}]
    found = encoding.log_belief(encoding.encode_all(points))
    expected = [
        sum(
            belief.log_density(domain, params[name])
            for name, domain, belief in zip("xc", domains, beliefs, strict=True)
        )
        for params in points
    ]
    assert found == pytest.approx(expected, abs=0.02)


def test_ties_that_have_no_result_are_left_out() -> None:
    from sweep.space.domains import Tied

    space = Space(
        (Parameter("n", IntUniform(0, 3)), Parameter("t", Tied(Expression.parse("6 / n"))))
    )
    encoding = Encoding(space)
    rows = encoding.snap_to_valid(np.linspace(0, 1, 40)[:, None])
    assert {space.complete(encoding.decode(row))["n"] for row in rows} == {1, 2, 3}
