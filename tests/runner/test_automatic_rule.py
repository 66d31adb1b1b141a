"""What auto chooses is adapted to trainables whose trials cannot go on from a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli import main
from sweep.inspection import inspect
from sweep.runner import checking
from sweep.space.early_terminate import (
    Asha,
    AshaPromotion,
    EarlyTermination,
    compute_decision_epochs,
)
from sweep.spec import parse_spec

FUNCTIONS = """
def plain(hp, report):
    for epoch in range(9):
        if not report(loss=hp.number("a") / (epoch + 1)):
            return

def saving(hp, report):
    start = int(report.restored.read_text()) if report.restored else 0
    for epoch in range(start, 9):
        if not report(loss=hp.number("a") / (epoch + 1), checkpoint=lambda folder: None):
            return

def passing(hp, report):
    from elsewhere import train
    train(hp.number("a"), report)
"""
FILE = """
name: s
trainable: functions:{name}
metric: {{name: loss}}
parameters: {{a: {{min: 0.0, max: 1.0}}}}
epochs: 9
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "elsewhere.py").write_text("def train(a, report): ...\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "rule"), [("plain", Asha), ("saving", AshaPromotion)])
def test_functions_that_never_go_on_from_a_checkpoint_are_stopped(
    project: Path, name: str, rule: type[EarlyTermination]
) -> None:
    spec = parse_spec(FILE.format(name=name) + "run_cap: 9\n", "s.yaml")
    adapted = checking.adapt_to_source(spec, inspect(spec.trainable, [project]))
    assert isinstance(adapted.early_terminate, rule)
    assert compute_decision_epochs(adapted.early_terminate, 9) == compute_decision_epochs(
        spec.early_terminate, 9
    )
    assert ("would begin again" in adapted.chosen[1]) is (name == "plain")


def test_a_rule_of_the_file_stays(project: Path) -> None:
    spec = parse_spec(
        FILE.format(name="plain") + "early_terminate: {type: asha_promotion}\nrun_cap: 9\n",
        "s.yaml",
    )
    assert checking.adapt_to_source(spec, inspect(spec.trainable, [project])) is spec


def test_plan_says_so_and_a_sweep_keeps_to_it(project: Path) -> None:
    (project / "s.yaml").write_text(FILE.format(name="plain") + "run_cap: 3\n")
    plan = json.loads(CliRunner().invoke(main, ["plan", "s.yaml", "--json"]).output)
    assert plan["auto"][1].startswith(
        "asha, chosen by auto: the function does not read report.restored"
    )
    ran = CliRunner().invoke(main, ["run", "s.yaml", "--inline", "-q"])
    assert ran.exit_code == 0
    info = json.loads((project / "results" / "s" / "sweep.json").read_text())
    assert info["spec"]["early_terminate"]["type"] == "asha"
    again = CliRunner().invoke(main, ["run", "s.yaml", "--inline", "-q", "--or-resume"])
    assert again.exit_code == 0
    assert len(sweep.load(project / "results" / "s").trials) == 3
