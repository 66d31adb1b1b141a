"""The keys of one parameter, and what they describe."""

from __future__ import annotations

import json
import math
import random
from typing import get_args

import pytest

from sweep.events import Params, Value
from sweep.space import Condition
from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Tied,
    Uniform,
    contains,
)
from sweep.space.draws import from_unit
from sweep.space.expressions import Expression
from sweep.spec import distributions, parse_spec
from sweep.spec.distributions import DISTRIBUTIONS, KeyMistake, Name, ParameterBlock
from sweep.spec.validation import Document

RIGHT: dict[Name, dict[str, Value]] = {
    "constant": {"value": [1, "a"]},
    "categorical": {"values": [1, 1.0, True, "1", None, [1]]},
    "categorical_w_probabilities": {"values": ["a", "b"], "probabilities": [0.1, 0.9]},
    "int_uniform": {"min": -3, "max": 9},
    "int_log_uniform_values": {"min": 1, "max": 900},
    "uniform": {"min": -3, "max": 9},
    "q_uniform": {"min": 0.0, "max": 1.0, "q": 0.25},
    "log_uniform": {"min": -9, "max": -2},
    "log_uniform_values": {"min": 1e-5, "max": 1},
    "q_log_uniform": {"min": 0, "max": 5, "q": 2},
    "q_log_uniform_values": {"min": 8, "max": 256, "q": 8},
    "inv_log_uniform": {"min": 1, "max": 5},
    "inv_log_uniform_values": {"min": 0.9, "max": 1},
    "normal": {"mu": 3},
    "q_normal": {"mu": 3, "sigma": 2.5, "q": 0.5},
    "log_normal": {"mu": -3, "sigma": 0.1},
    "q_log_normal": {},
    "beta": {"a": 2, "b": 3},
    "q_beta": {"q": 0.1},
}


def build(name: Name) -> Domain:
    return distributions.build_domain(
        ParameterBlock.model_validate({"distribution": name, **RIGHT[name]}), name
    )


def test_the_table_is_complete() -> None:
    assert set(DISTRIBUTIONS) == set(get_args(Name)) == set(RIGHT)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_domain_is_written_as_it_is_read(name: Name) -> None:
    domain = build(name)
    written = json.loads(json.dumps(distributions.domain_to_dict(domain)))
    block = ParameterBlock.model_validate(written)
    assert block.distribution is not None
    assert not distributions.find_key_mistakes(block, block.distribution)
    assert distributions.build_domain(block, block.distribution) == domain


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_lie_in_the_domain(name: Name) -> None:
    domain, numbers = build(name), random.Random(0)
    drawn = [from_unit(domain, numbers.random()) for _ in range(50)]
    assert all(contains(domain, value) for value in drawn)


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("log_uniform", LogUniform(math.exp(-9), math.exp(-2))),
        ("inv_log_uniform", LogUniform(math.exp(-5), math.exp(-1))),
        ("inv_log_uniform_values", LogUniform(0.9, 1.0)),
        ("q_log_uniform", LogUniform(1.0, math.exp(5), 2)),
        ("uniform", Uniform(-3.0, 9.0)),
        ("normal", Normal(3.0, 1.0)),
        ("q_log_normal", LogNormal(0.0, 1.0, 1)),
        ("q_beta", Beta(1.0, 1.0, 0.1)),
        ("categorical", Categorical((1, 1.0, True, "1", None, [1]))),
    ],
)
def test_meaning(name: Name, domain: Domain) -> None:
    assert build(name) == domain


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ({"value": 1}, "constant"),
        ({"value": None}, "constant"),
        ({"values": [1]}, "categorical"),
        ({"values": [1], "probabilities": [1]}, "categorical_w_probabilities"),
        ({"min": 1, "max": 2}, "int_uniform"),
        ({"min": 1, "max": 2.0}, "uniform"),
        ({"min": 1, "max": 2, "q": 1}, "q_uniform"),
        ({"mu": 1}, None),
        ({}, None),
    ],
)
def test_inference(block: dict[str, Value], name: Name | None) -> None:
    assert distributions.infer_distribution(ParameterBlock.model_validate(block)) == name


def test_a_text_after_an_equals_sign_is_a_tie() -> None:
    block = ParameterBlock(value="= lr / 10")
    assert distributions.build_domain(block, "constant") == Tied(Expression.parse("lr / 10"))
    literal = ParameterBlock(value="= lr / 10", distribution="constant")
    assert distributions.build_domain(literal, "constant") == Constant("= lr / 10")


def test_every_misfit_is_found() -> None:
    block = ParameterBlock(distribution="normal", min=1, max=2, q=1)
    found = {
        mistake.key: mistake.hint for mistake in distributions.find_key_mistakes(block, "normal")
    }
    assert found == {"min": "", "max": "", "q": "use distribution: q_normal"}


def test_a_quantum_without_multiples() -> None:
    block = ParameterBlock(distribution="q_uniform", min=1, max=3, q=5)
    with pytest.raises(KeyMistake, match="no multiple") as caught:
        distributions.build_domain(block, "q_uniform")
    assert caught.value.key == "q"


def condition(when: dict[str, Value]) -> Condition:
    block = ParameterBlock.model_validate({"value": 1, "when": when})
    assert block.when is not None
    return distributions.make_condition(block.when)


@pytest.mark.parametrize(
    ("when", "params", "holds"),
    [
        ({"opt": "sgd"}, {"opt": "sgd"}, True),
        ({"opt": "sgd"}, {"opt": "adam"}, False),
        ({"opt": "sgd"}, {}, False),
        ({"opt": ["sgd", "lion"]}, {"opt": "lion"}, True),
        ({"n": {"min": 2}}, {"n": 2}, True),
        ({"n": {"min": 2}}, {"n": 1}, False),
        ({"n": {"max": 0.5}}, {"n": 0.5}, True),
        ({"n": {"min": 1, "max": 3}}, {"n": 4}, False),
        ({"n": None}, {"n": None}, True),
        ({"n": True}, {"n": True}, True),
        ({"a.b": 1, "c": [2, 3]}, {"a.b": 1, "c": 3}, True),
        ({"a.b": 1, "c": [2, 3]}, {"a.b": 1, "c": 4}, False),
    ],
)
def test_holds(when: dict[str, Value], params: Params, holds: bool) -> None:
    assert condition(when).holds(params) is holds
    again = condition(distributions.condition_to_dict(condition(when)))
    assert again.holds(params) is holds


@pytest.mark.parametrize(
    ("test", "domain", "possible"),
    [
        ("sgd", Categorical(("sgd", "adam")), True),
        ("lamb", Categorical(("sgd", "adam")), False),
        (1.0, IntUniform(1, 3), True),
        (4, IntUniform(1, 3), False),
        (4, IntUniform(1, 20_000), True),  # more steps than are listed
        (4.0, IntUniform(1, 20_000), True),
        (True, IntUniform(1, 20_000), False),
        (400.0, Uniform(0, 20_000, 0.5), True),
        (400.2, Uniform(0, 20_000, 0.5), False),
        (30_000, IntUniform(1, 20_000), False),
        (4.5, IntUniform(1, 20_000), False),
        (1, Categorical((True, False)), False),
        (0.5, Uniform(0, 1, 0.25), True),
        (0.4, Uniform(0, 1, 0.25), False),
        (0.5, Uniform(0, 1), False),
        ("a", Constant("a"), True),
        ({"min": 0.9}, Uniform(0, 1), True),
        ({"min": 1.1}, Uniform(0, 1), False),
        ({"min": 1e9}, Normal(), True),
        ({"min": 4}, IntUniform(1, 3), False),
        ({"max": 5}, Categorical(("a", 7)), False),
    ],
)
def test_what_can_never_be_met_is_noted(test: Value, domain: Domain, possible: bool) -> None:
    document = Document("s.yaml")
    ((_, built),) = condition({"x": test}).tests
    distributions.check_test_is_possible(built, domain, ("when", "x"), document)
    assert (not document.mistakes) is possible


def test_a_group_passes_its_condition_on() -> None:
    spec = parse_spec(
        "trainable: m:M\nmethod: grid\nparameters:\n"
        "  opt: {values: [sgd, adam]}\n"
        "  n: {values: [1, 2]}\n"
        "  sgd:\n"
        "    when: {opt: sgd}\n"
        "    parameters:\n"
        "      momentum: {values: [0.8, 0.9]}\n"
        "      nesterov: {values: [true, false], when: {n: 2}}\n",
        "s.yaml",
    )
    assert list(spec.space.grid()) == [
        {"opt": "sgd", "n": 1, "sgd.momentum": 0.8},
        {"opt": "sgd", "n": 1, "sgd.momentum": 0.9},
        {"opt": "sgd", "n": 2, "sgd.momentum": 0.8, "sgd.nesterov": True},
        {"opt": "sgd", "n": 2, "sgd.momentum": 0.8, "sgd.nesterov": False},
        {"opt": "sgd", "n": 2, "sgd.momentum": 0.9, "sgd.nesterov": True},
        {"opt": "sgd", "n": 2, "sgd.momentum": 0.9, "sgd.nesterov": False},
        {"opt": "adam", "n": 1},
        {"opt": "adam", "n": 2},
    ]
