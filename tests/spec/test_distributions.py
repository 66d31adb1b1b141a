"""The table of distributions: what the file's keys mean, and back."""

from __future__ import annotations

import json
import math
import random
from typing import get_args

import pytest

from sweep.events import Value
from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    LogNormal,
    LogUniform,
    Normal,
    Tied,
    Uniform,
    contains,
)
from sweep.space.draws import from_unit
from sweep.space.expressions import Expression
from sweep.spec import distributions
from sweep.spec.distributions import DISTRIBUTIONS, KeyMistake
from sweep.spec.parameter_block import Name, ParameterBlock

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
    return distributions.build(ParameterBlock.model_validate({"distribution": name, **RIGHT[name]}), name)


def test_the_table_is_complete() -> None:
    assert set(DISTRIBUTIONS) == set(get_args(Name)) == set(RIGHT)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_domain_is_written_as_it_is_read(name: Name) -> None:
    domain = build(name)
    written = json.loads(json.dumps(distributions.to_dict(domain)))
    block = ParameterBlock.model_validate(written)
    assert block.distribution is not None
    assert not distributions.misfits(block, block.distribution)
    assert distributions.build(block, block.distribution) == domain


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
    assert distributions.infer(ParameterBlock.model_validate(block)) == name


def test_a_text_after_an_equals_sign_is_a_tie() -> None:
    block = ParameterBlock(value="= lr / 10")
    assert distributions.build(block, "constant") == Tied(Expression.parse("lr / 10"))
    literal = ParameterBlock(value="= lr / 10", distribution="constant")
    assert distributions.build(literal, "constant") == Constant("= lr / 10")


def test_every_misfit_is_found() -> None:
    block = ParameterBlock(distribution="normal", min=1, max=2, q=1)
    found = {mistake.key: mistake.hint for mistake in distributions.misfits(block, "normal")}
    assert found == {"min": "", "max": "", "q": "use distribution: q_normal"}


def test_a_quantum_without_multiples() -> None:
    block = ParameterBlock(distribution="q_uniform", min=1, max=3, q=5)
    with pytest.raises(KeyMistake, match="no multiple") as caught:
        distributions.build(block, "q_uniform")
    assert caught.value.key == "q"
