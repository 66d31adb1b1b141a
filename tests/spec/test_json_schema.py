"""The JSON Schema that editors get agrees with the parser where both can tell.

That shipped files meet it is in test_examples.py, that wrong ones do not in test_wrong_files.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from sweep.errors import InputError
from sweep.spec import json_schema, parse_spec
from sweep.spec.distributions import DISTRIBUTIONS

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
BASE = {"trainable": "m:M", "method": "random", "run_cap": 3}
NUMBERS = {"min": 1, "max": 5, "q": 1, "mu": 0, "sigma": 1, "a": 1, "b": 1, "count": 2}


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for inner in (
        node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    ):
        yield from objects(inner)


def accepted(data: dict[str, Any]) -> bool:
    """Whether both accept it; fails the test where one does and the other does not."""
    try:
        parse_spec(json.dumps(data), "s.json")
        parsed = True
    except InputError:
        parsed = False
    assert parsed == VALIDATOR.is_valid(data)
    return parsed


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_every_key_is_described() -> None:
    properties = [
        node["properties"]
        for node in objects(SCHEMA)
        if "additionalProperties" in node and "properties" in node
    ]
    keys = [(key, schema) for found in properties for key, schema in found.items()]
    undescribed = {
        key for key, schema in keys if not schema.get("description") and "const" not in schema
    }
    assert len(keys) > 60
    assert undescribed == set()


def test_nothing_is_left_of_the_model_s_own_words() -> None:
    assert not [node for node in objects(SCHEMA) if {"expected", "discriminator"} & node.keys()]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_keys_of_distributions(name: str) -> None:
    values = {**NUMBERS, "value": 1, "values": [1, 2], "probabilities": [0.5, 0.5], "min": 2}
    known = DISTRIBUTIONS[name]
    least: dict[str, Any] = {"distribution": name, **{key: values[key] for key in known.required}}
    assert accepted({**BASE, "parameters": {"x": least}})
    for key in values:
        block = {**least, key: values[key]}
        assert accepted({**BASE, "parameters": {"x": block}}) is (key in known.keys)
    for key in known.required:
        block = {other: value for other, value in least.items() if other != key}
        assert not accepted({**BASE, "parameters": {"x": block}})


@pytest.mark.parametrize(
    ("block", "right"),
    [
        ({"value": 1}, True),
        ({"value": None}, True),
        ({"values": [1, [2], {"a": 3}]}, True),
        ({"min": 1, "max": 2}, True),
        ({"min": 1, "max": 2, "q": 1, "count": 2}, True),
        ({"parameters": {"y": {"value": 1}, "z": {"parameters": {"a": {"values": [1]}}}}}, True),
        ({}, False),
        ({"min": 1}, False),
        ({"q": 1}, False),
        ({"value": 1, "values": [1]}, False),
        ({"values": [1], "q": 1}, False),
        ({"min": 1, "max": 2, "mu": 0}, False),
        ({"parameters": {}}, False),
        ({"parameters": {"y": 1}}, False),
        ({"parameters": {"1y": {"value": 1}}}, False),
        ({"parameters": {"y": {"value": 1}}, "value": 1}, False),
    ],
)
def test_inferred_and_nested_parameters(block: dict[str, Any], right: bool) -> None:
    assert accepted({**BASE, "parameters": {"x": block}}) is right


@pytest.mark.parametrize(
    "when", [{"x": 1}, {"x": [1, 2]}, {"x": {"min": 1}}, {"x": {"min": 1, "max": 2}}]
)
def test_conditions(when: dict[str, Any]) -> None:
    assert accepted(
        {**BASE, "parameters": {"x": {"min": 1, "max": 3}, "y": {"value": 1, "when": when}}}
    )
