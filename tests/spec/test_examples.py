"""Every sweep file that ships with the project is a valid one, for the parser and for editors."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from sweep.spec import json_schema, load
from sweep.spec.yaml_reader import read

FOLDER = Path(__file__).parents[2] / "search_spaces"
FILES = sorted(FOLDER.rglob("*.yaml"))
SCHEMA = jsonschema.Draft202012Validator(json_schema())
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))


def test_there_are_examples() -> None:
    assert len([path for path in FILES if path.parent.name == "examples"]) >= 8


@each_file
def test_parses_and_is_named_after_its_file(path: Path) -> None:
    assert load(path, environment={}).name == path.stem


@each_file
def test_meets_the_schema(path: Path) -> None:
    faults = SCHEMA.iter_errors(read(path.read_text(), str(path)).data)
    assert [fault.message for fault in faults] == []


@each_file
def test_opens_with_a_question_and_its_cost(path: Path) -> None:
    question, cost, first = path.read_text().splitlines()[:3]
    assert question.startswith("# ")
    assert question.endswith("?")
    assert cost.startswith("# ")
    assert "trials" in cost or "configurations" in cost
    assert not first.startswith("#")


def test_the_wandb_file_keeps_its_meaning() -> None:
    spec = load(FOLDER / "examples" / "wandb.yaml", environment={})
    assert spec.method == "tpe"
    assert set(spec.ignored_keys) == {"program", "project", "entity", "command"}
