"""The reference of the sweep file says what the parser does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.runner.methods import METHODS
from sweep.spec import blocks, parse_spec, sweep_file
from sweep.spec.blocks import Block
from sweep.spec.distributions import DISTRIBUTIONS
from sweep.spec.sweep_file import SweepFile

PAGE = (Path(__file__).parents[2] / "docs" / "sweep_file.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


MODELS: list[tuple[str, str, type[Block]]] = [
    ("metric", "", blocks.Metric),
    *(("early_terminate", kind, model) for kind, model in sweep_file.RULES.items() if kind != "none"),
    ("training", "", blocks.Training),
    ("resources", "", blocks.Resources),
    ("budget", "", blocks.Budget),
    ("stop_when", "", blocks.StopWhen),
    ("checkpoint", "", blocks.Checkpoint),
    ("confirm", "", blocks.Confirm),
    ("notify", "", blocks.Notify),
    ("population", "", sweep_file.PopulationBlock),
]


def table(header: str) -> list[list[str]]:
    """The rows of the table whose header begins so, as cells."""
    rows = PAGE.split(f"\n| {header} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_keys_are_those_of_the_model() -> None:
    documented = {names(key)[0]: meaning for key, meaning in table("key")}
    assert documented == {key: field.description for key, field in SweepFile.model_fields.items()}


def test_the_keys_inside_are_those_of_the_models() -> None:
    documented = {re.sub("`", "", key): meaning for key, meaning in table("key inside")}
    assert documented == {
        f"{block}.{key}" + (f" ({kind})" if kind else ""): field.description
        for block, kind, model in MODELS
        for key, field in model.model_fields.items()
        if key != "type"
    }


def test_the_methods_are_those_of_the_parser() -> None:
    assert [names(method)[0] for method, _ in table("method")] == ["auto", *METHODS, *sweep_file.POPULATIONS]


def test_the_distributions_are_those_of_the_parser() -> None:
    rows = [(names(name)[0], names(needs), names(may)) for name, needs, may, _ in table("distribution")]
    assert rows == [(name, list(d.required), list(d.optional)) for name, d in DISTRIBUTIONS.items()]


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_parse(block: str) -> None:
    assert parse_spec(block, "s.yaml").space.parameters
