"""The reference of the sweep file says what the parser does.

``SWEEP_REGENERATE=1 pytest tests/spec/test_sweep_file_docs.py`` writes its tables anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sweep.space.early_terminate import RULES
from sweep.spec import blocks, parse_spec, sweep_file
from sweep.spec.blocks import Block
from sweep.spec.distributions import DISTRIBUTIONS
from sweep.spec.search_methods import METHODS, Method
from sweep.spec.sweep_file import SweepFile

REGENERATE = os.environ.get("SWEEP_REGENERATE") == "1"
FILE = Path(__file__).parents[2] / "docs" / "sweep_file.md"
PAGE = FILE.read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


MODELS: list[tuple[str, str, type[Block]]] = [
    ("metric", "", blocks.Metric),
    *(
        ("early_terminate", kind, model)
        for kind, model in sweep_file.RULES.items()
        if kind != "none"
    ),
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


def check_table(header: str, rows: list[list[str]]) -> None:
    """Compare the rows of a table with what the code says, or write them."""
    if REGENERATE:
        before, after = FILE.read_text().split(f"\n| {header} |", 1)
        head, _, rest = after.partition("\n\n")
        lines = [*head.splitlines()[:2], *(f"| {' | '.join(cells)} |" for cells in rows)]
        FILE.write_text(f"{before}\n| {header} |" + "\n".join(lines) + f"\n\n{rest}")
    else:
        assert table(header) == rows


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_keys_are_those_of_the_model() -> None:
    check_table(
        "key",
        [[f"`{key}`", str(field.description)] for key, field in SweepFile.model_fields.items()],
    )


def test_the_keys_inside_are_those_of_the_models() -> None:
    rows = []
    for block, kind, model in MODELS:
        for key, field in model.model_fields.items():
            if key != "type":
                label = f"`{block}.{key}` ({kind})" if kind else f"`{block}.{key}`"
                rows.append([label, str(field.description)])
    check_table("key inside", rows)


def describe(method: Method) -> list[str]:
    """The row of a method."""
    needs = "" if method.need is None else f"; needs {method.need.what}"
    learns, prior = ("yes" if has else "-" for has in (method.learns, method.uses_prior))
    metrics = "any" if method.several_objectives else "one"
    return [f"`{method.name}`", method.chooses + needs, learns, metrics, prior]


def test_the_methods_are_those_of_the_parser() -> None:
    check_table("method", [describe(method) for method in METHODS.values()])


def test_the_rules_are_those_of_the_parser() -> None:
    rows = []
    for kind, rule in RULES.items():
        rows.append([f"`{kind}`", rule.does, "any" if rule.scheduler_of_several else "one"])
    check_table("`type`", rows)


def test_the_distributions_are_those_of_the_parser() -> None:
    rows = [
        (names(name)[0], names(needs), names(may)) for name, needs, may, _ in table("distribution")
    ]
    assert rows == [(name, list(d.required), list(d.optional)) for name, d in DISTRIBUTIONS.items()]


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_parse(block: str) -> None:
    assert parse_spec(block, "s.yaml").space.parameters
