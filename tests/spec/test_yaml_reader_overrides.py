"""Assignments set what they name, wherever it stands."""

from __future__ import annotations

import pytest

from sweep.errors import InputError
from sweep.events import Value
from sweep.spec import yaml_reader
from sweep.spec.yaml_reader import parse_document

TEXT = """\
epochs: 10
metric: {name: loss}
metrics: [{name: a}, {name: b}]
budget:
parameters:
  opt: {parameters: {lr: {values: [1, 2]}}}
  opt.wd: {value: 1}
"""


def changed(*assignments: str) -> dict[str, Value]:
    document = parse_document(TEXT, "s.yaml")
    before = parse_document(TEXT, "s.yaml").data
    yaml_reader.apply_assignments(assignments, "--set", document)
    document.check()
    return {key: value for key, value in document.data.items() if value != before.get(key)}


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("epochs=5", {"epochs": 5}),
        ("epochs=1e2", {"epochs": 100.0}),
        ("epochs=", {"epochs": None}),
        ("name=a=b", {"name": "a=b"}),
        ("metric.goal=maximize", {"metric": {"name": "loss", "goal": "maximize"}}),
        ("metric={name: x}", {"metric": {"name": "x"}}),
        ("metrics.1.name=c", {"metrics": [{"name": "a"}, {"name": "c"}]}),
        ("budget.hours=8", {"budget": {"hours": 8}}),
        ("resources.gpus=0.5", {"resources": {"gpus": 0.5}}),
        ('constraints=["a < b"]', {"constraints": ["a < b"]}),
    ],
)
def test_sets(assignment: str, expected: dict[str, Value]) -> None:
    assert changed(assignment) == expected


def test_a_dotted_name_in_the_file_is_one_key() -> None:
    found = changed("parameters.opt.wd.value=3", "parameters.opt.parameters.lr.values.0=7")
    assert found["parameters"] == {
        "opt": {"parameters": {"lr": {"values": [7, 2]}}},
        "opt.wd": {"value": 3},
    }


def test_the_last_one_wins() -> None:
    assert changed("epochs=1", "epochs=2") == {"epochs": 2}


def test_the_environment_is_split_as_a_shell_does() -> None:
    typed = "epochs=5 'name=a b' metric=\"{name: x}\""
    assert yaml_reader.split_assignments(typed) == [
        "epochs=5",
        "name=a b",
        "metric={name: x}",
    ]
    assert yaml_reader.split_assignments("") == []
    with pytest.raises(InputError, match="SWEEP_SET"):
        yaml_reader.split_assignments("name='a")


def test_all_mistakes_at_once() -> None:
    with pytest.raises(InputError) as caught:
        changed("epochs", "metric.name.first=x", "metrics.9=x", "name=[")
    assert [problem.where for problem in caught.value.problems] == [
        "--set epochs",
        "--set metric.name.first=x",
        "--set metrics.9=x",
        "--set name=[",
    ]
