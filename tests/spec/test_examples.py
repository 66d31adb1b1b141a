"""Every sweep file that ships with the project is a valid one, for the parser and for editors.

That the examples train is in tests/test_examples_run.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from sweep.cli import main
from sweep.space.early_terminate import RULES
from sweep.spec import json_schema, load_spec
from sweep.spec.distributions import DISTRIBUTIONS, ParameterBlock, infer_distribution
from sweep.spec.search_methods import SEARCHED
from sweep.spec.sweep_file import SERVER_KEYS, SweepFile
from sweep.spec.yaml_reader import parse_document

REGENERATE = os.environ.get("SWEEP_REGENERATE") == "1"
FOLDER = Path(__file__).parents[2] / "search_spaces"
SHIPPED_SCHEMA = FOLDER / "sweep.schema.json"
FILES = sorted(FOLDER.rglob("*.yaml"))
SCHEMA = jsonschema.Draft202012Validator(json_schema())
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))


def data(path: Path) -> dict[str, Any]:
    return parse_document(path.read_text(), str(path)).data


def leaves(parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for block in parameters.values():
        if "parameters" in block:
            yield from leaves(block["parameters"])
        else:
            yield block


@each_file
def test_parses_and_is_named_after_its_file(path: Path) -> None:
    assert load_spec(path, environment={}).name == path.stem


@each_file
def test_meets_the_schema(path: Path) -> None:
    assert [fault.message for fault in SCHEMA.iter_errors(data(path))] == []


@each_file
def test_opens_with_a_question_its_cost_and_its_schema(path: Path) -> None:
    question, cost, schema, first = path.read_text().splitlines()[:4]
    assert question.startswith("# ")
    assert question.endswith("?")
    assert cost.startswith("# ")
    assert "trials" in cost or "configurations" in cost
    assert schema.startswith("# yaml-language-server: $schema=")
    assert path.parent.joinpath(schema.partition("=")[2]).resolve() == SHIPPED_SCHEMA
    assert not first.startswith("#")


def test_the_shipped_schema_is_what_the_command_prints() -> None:
    printed = CliRunner().invoke(main, ["schema"]).output
    if REGENERATE:
        SHIPPED_SCHEMA.write_text(printed)
    assert SHIPPED_SCHEMA.read_text() == printed, (
        "python -m sweep schema > search_spaces/sweep.schema.json"
    )


def test_every_key_has_an_example() -> None:
    assert {key for path in FILES for key in data(path)} >= SweepFile.model_fields.keys() - set(
        SERVER_KEYS
    )


def test_every_distribution_has_an_example() -> None:
    blocks = [
        ParameterBlock.model_validate(block)
        for path in FILES
        for block in leaves(data(path)["parameters"])
    ]
    assert {
        block.distribution or infer_distribution(block) for block in blocks
    } == DISTRIBUTIONS.keys()


def test_every_method_and_rule_has_an_example() -> None:
    specs = [load_spec(path, environment={}) for path in FILES]
    assert {spec.method for spec in specs} >= {
        method.name for method in SEARCHED if method.learns or method.population
    }
    assert {type(spec.early_terminate) for spec in specs} == set(RULES.values())


def test_the_wandb_file_keeps_its_meaning() -> None:
    spec = load_spec(FOLDER / "examples" / "wandb.yaml", environment={})
    assert spec.method == "tpe"
    assert set(spec.ignored_keys) == {"program", "project", "entity", "command"}
