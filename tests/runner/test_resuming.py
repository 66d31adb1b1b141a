"""What can change when a sweep is resumed, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from curves import FILE, Watcher, ends, resume, run

from sweep.errors import InputError
from sweep.runner import resuming


def test_a_change_lasts(project: Path) -> None:
    outcome = run(project, FILE + "budget: {epochs: 4}\n")
    assert outcome.stopped == "budget of 4 epochs"
    assert ends(outcome.folder)[0] == "completed"
    resume(project, "budget.epochs=8", "run_cap=2")
    assert ends(outcome.folder) == {0: "completed", 1: "completed"}
    again = resuming.reopen(project / "results", "curves")
    assert (again.spec.budget.epochs, again.spec.run_cap) == (8, 2)


def test_a_target_that_was_reached_ends_the_next_session_too(project: Path) -> None:
    outcome = run(project, FILE.replace("goal: minimize", "goal: minimize, target: 0.8"))
    assert resume(project).stopped == outcome.stopped == "target reached: score 0.75 in trial 0"
    assert ends(outcome.folder).keys() == {0}
    resume(project, "metric.target=0.1")
    assert ends(outcome.folder) == dict.fromkeys(range(3), "completed")


@pytest.mark.parametrize("change", ["epochs=9", "seed=1", "metric.name=other", "parameters.a.values=[1]", "nonsense"])
def test_nothing_that_was_trained_can_change(project: Path, change: str) -> None:
    run(project, FILE + "run_cap: 1\n")
    with pytest.raises(InputError, match="a sweep that has begun can change run_cap, budget"):
        resuming.reopen(project / "results", "curves", [change])


def test_a_sweep_that_was_killed_before_its_first_record(project: Path) -> None:
    outcome = run(project, FILE + "run_cap: 1\n")
    outcome.folder.log.unlink()
    watcher = Watcher()
    assert resume(project, watcher=watcher).completed == 1
