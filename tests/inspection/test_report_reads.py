"""What the source of a function tells of the facts about its trial that it reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sweep.errors import InputError, refuse
from sweep.inspection import inspect
from sweep.inspection.report_reads import list_reported_metrics, list_surely_unread
from sweep.runner import checking
from sweep.spec import parse_spec


def unread(
    body: str, names: tuple[str, ...], group: str = "", arguments: str = "hp, report"
) -> list[str]:
    tree = ast.parse(f"def train({arguments}):\n    {body}\ndef helper(it):\n    return it\n")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    return list_surely_unread(function, {"m": tree}, names, group)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("report(loss=1)", ["fold"]),
        ("report(loss=report.fold)", []),
        ("helper(report).fold", []),
        ("getattr(report, 'fold')", []),
        ("{name: getattr(report, name) for name in hp.facts}", []),
        ("getattr(report, f'f{hp.x}')", []),
        ("getattr(report, f'is_{hp.x}', 0)", ["fold"]),
        ("import keras; getattr(keras.losses, hp.loss)()", ["fold"]),
        ("from elsewhere import report; getattr(report, hp.x)", []),
        ("from elsewhere import cfg; cfg = report; getattr(cfg, hp.x)", []),
        ("helper(report)", ["fold"]),
        ("elsewhere(report)", []),
        ("elsewhere(it=report)", []),
        ("elsewhere(*report)", []),
        ("print(report)", ["fold"]),
        ("report.fold = 1", ["fold"]),
        ("fold = 1", ["fold"]),
    ],
)
def test_folds(body: str, found: list[str]) -> None:
    assert unread(body, ("fold",)) == found


def test_a_function_without_a_report_reads_nothing_of_it() -> None:
    assert unread("return hp.fold", ("fold",), arguments="hp") == ["fold"]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("pass", ["precision", "strategy"]),
        ("report.training", []),
        ("dict(report.training)", []),
        ("report.training['precision']", ["strategy"]),
        ("report.training.get('strategy', 'auto')", ["precision"]),
        ("report.training[report.seed]", []),
        ("report.training.items()", []),
        ("getattr(report, 'training')", []),
        ("getattr(report, 'training', {})['precision']", ["strategy"]),
        ("getattr(report, 'training', {}).get('strategy')", ["precision"]),
        ("getattr(report, 'seed', {})['precision']", ["precision", "strategy"]),
        ("getattr(report, hp.x)", []),
        ("model(training=True)", ["precision", "strategy"]),
    ],
)
def test_settings(body: str, found: list[str]) -> None:
    assert unread(body, ("precision", "strategy"), "training") == found


MODULE = """
from elsewhere import Base
def train(hp, report): report(loss=hp.a)
class Own:
    def begin(self, assignment): self.a = assignment
    def train(self, report): ...
class Looks(Own):
    def begin(self, assignment): self.n = assignment.fold, assignment.training["patience"]
class Derived(Base):
    def train(self, report): ...
"""


def refused(folder: Path, name: str, more: str) -> list[str]:
    (folder / "m.py").write_text(MODULE)
    text = f"trainable: m:{name}\nmethod: grid\nparameters: {{a: {{values: [1]}}}}\n{more}\n"
    try:
        refuse(
            checking.find_certain_failures(
                parse_spec(text, "s.yaml"), "s.yaml", inspect(f"m:{name}", [folder])
            )
        )
    except InputError as error:
        return [problem.where for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("name", "more", "places"),
    [
        ("train", "folds: 3", ["folds"]),
        ("Own", "folds: 3", ["folds"]),
        ("Looks", "folds: 3", []),
        ("Derived", "folds: 3", []),
        ("train", "training: {patience: 3}", []),
        ("Own", "training: {patience: 3}", ["training.patience"]),
        ("Looks", "training: {patience: 3, data_seed: 4}", ["training.data_seed"]),
        (
            "train",
            "training: {precision: auto, strategy: none, data_seed: 1}",
            ["training.strategy", "training.data_seed"],
        ),
        ("train", "training: {precision: auto, strategy: auto, loop: own, fuse: false}", []),
    ],
)
def test_what_the_file_asks_of_a_trainable_that_does_not_look_is_refused(
    tmp_path: Path, name: str, more: str, places: list[str]
) -> None:
    assert refused(tmp_path, name, more) == [f"s.yaml: {place}" for place in places]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("report(loss=1, checkpoint=save, learning_rate=2, examples_per_s=3)", ["loss"]),
        ("report({'top 5': 1, key: 2, 3: 4, **more}, val_loss=5, **others)", ["top 5", "val_loss"]),
        ("while report(a=1): report(b=2)", ["a", "b"]),
        ("report(values)", []),
        ("other(loss=1)", []),
    ],
)
def test_metrics_that_a_function_reports(body: str, found: list[str]) -> None:
    function = ast.parse(f"def train(hp, report):\n    {body}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert list_reported_metrics(function) == found


def test_a_function_without_a_report_reports_nothing() -> None:
    function = ast.parse("def train(hp):\n    report(loss=1)\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert list_reported_metrics(function) == []
