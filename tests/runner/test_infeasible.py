"""Sweeps with constraints over metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from curves import resume, run

import sweep
from sweep.analysis import read_sweep
from sweep.analysis.ranking import rank
from sweep.errors import TrainableError
from sweep.store.folder import ResultsFolder

FILE = """
trainable: sized:train
method: grid
metric: {name: loss, goal: minimize}
parameters: {size: {values: [4, 3, 2, 1]}}
constraints: ["latency_ms <= 25"]
epochs: 3
"""
SIZED = """
def train(hp, report):
    for epoch in range(3):
        if not report(loss=1 / hp.size + 1 / (epoch + 1), latency_ms=10.0 * hp.size):
            return
"""


@pytest.fixture
def sized(project: Path) -> Path:
    (project / "sized.py").write_text(SIZED)
    return project


def test_trials_that_do_not_meet_them_are_infeasible_and_never_the_best(sized: Path) -> None:
    outcome = run(sized, FILE)
    loaded = sweep.load(outcome.folder.path)
    assert loaded.trials["status"].tolist() == [
        "infeasible",
        "infeasible",
        "completed",
        "completed",
    ]
    assert loaded.trials["status_reason"].tolist() == [
        "latency_ms <= 25 not met: latency_ms 40",
        "latency_ms <= 25 not met: latency_ms 30",
        "",
        "",
    ]
    assert loaded.trials["epochs"].tolist() == [3] * 4
    assert loaded.best()["param.size"].tolist() == [2]
    ranked = rank([read_sweep(outcome.folder)])
    assert [row.trials[0].trial for row in ranked.rows] == [2, 3, 0, 1]
    assert [row.undecided for row in ranked.rows][2:] == ["infeasible", "infeasible"]


def test_a_target_is_reached_where_they_hold_alone(sized: Path) -> None:
    text = (
        FILE.replace("goal: minimize}", "goal: minimize, target: 1.6}") + "budget: {epochs: 100}\n"
    )
    outcome = run(sized, text)
    trials = sweep.load(outcome.folder.path).trials
    assert trials["status"].tolist() == ["infeasible", "infeasible", "completed"]
    assert "target reached" in str(outcome.stopped)


def test_rules_stop_those_that_are_furthest_from_them(sized: Path) -> None:
    outcome = run(
        sized,
        FILE.replace("[4, 3, 2, 1]", "[1, 2, 3, 4]")
        + "early_terminate: {type: asha, min_iter: 1}\n",
    )
    trials = sweep.load(outcome.folder.path).trials
    assert trials["status"].tolist() == ["completed", "completed", "pruned", "pruned"]
    assert trials["status_reason"].tolist()[3] == (
        "asha: constraints not met at epoch 1, and nearer to it by others"
    )


def test_a_resumed_sweep_judges_as_before(sized: Path) -> None:
    outcome = run(sized, FILE + "run_cap: 2\n")
    again = resume(sized, "run_cap=4", name=outcome.folder.name)
    trials = sweep.load(again.folder.path).trials
    assert trials["status"].tolist() == ["infeasible", "infeasible", "completed", "completed"]


def test_answers_of_an_earlier_sweep_are_judged_anew(sized: Path) -> None:
    first = run(sized, FILE + "name: first\n")
    second = run(sized, FILE.replace("<= 25", "<= 35") + "name: second\n")
    trials = sweep.load(second.folder.path).trials
    assert trials["status"].tolist() == ["infeasible", "completed", "completed", "completed"]
    assert ResultsFolder(first.folder.path).log.exists()


def test_a_metric_that_a_constraint_names_and_nobody_reports_ends_the_sweep(sized: Path) -> None:
    with pytest.raises(
        TrainableError,
        match=r"reports no metric 'latency', which the constraint 'latency < 3' names",
    ):
        run(sized, FILE.replace("latency_ms <= 25", "latency < 3"))
