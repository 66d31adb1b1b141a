"""`when:` as it reads, and what it can never mean."""

from __future__ import annotations

import pytest

from sweep.events import Params, Value
from sweep.space.domains import Categorical, Constant, Domain, IntUniform, Normal, Uniform
from sweep.space.space import Condition
from sweep.spec import parameter_block, parse
from sweep.spec.document import Document
from sweep.spec.parameter_block import ParameterBlock


def condition(when: dict[str, Value]) -> Condition:
    block = ParameterBlock.model_validate({"value": 1, "when": when})
    assert block.when is not None
    return parameter_block.condition_of(block.when)


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
    again = condition(parameter_block.condition_to_dict(condition(when)))
    assert again.holds(params) is holds


@pytest.mark.parametrize(
    ("test", "domain", "possible"),
    [
        ("sgd", Categorical(("sgd", "adam")), True),
        ("lamb", Categorical(("sgd", "adam")), False),
        (1.0, IntUniform(1, 3), True),
        (4, IntUniform(1, 3), False),
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
    parameter_block.check_possible(built, domain, ("when", "x"), document)
    assert (not document.mistakes) is possible


def test_a_group_passes_its_condition_on() -> None:
    spec = parse(
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
