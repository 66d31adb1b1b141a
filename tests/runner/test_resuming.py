"""What can change when a sweep is resumed, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from curves import FILE, TRAINABLE, Watcher, ends, resume, run

from sweep import analysis
from sweep.analysis import verdict
from sweep.analysis.ranking import rank
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


OF_A_FILE = TRAINABLE.replace(
    'data="none"', 'data=Path("data.csv").read_text(), data_reads=json.dumps({"a": [self.a]} if READS else {})'
).replace("import json", "from pathlib import Path\nimport json")


@pytest.mark.parametrize("reads", [False, True])
def test_a_file_of_data_that_changes_between_sessions_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    monkeypatch.chdir(project)
    name = f"of_a_file_{reads}"
    (project / f"{name}.py").write_text(f"READS = {reads}\n{OF_A_FILE}")
    (project / "data.csv").write_text("old")
    text = FILE.replace("curve:Curve", f"{name}:Curve")
    first, second = Watcher(), Watcher()
    folder = run(project, text + "run_cap: 1\n", first).folder
    (project / "data.csv").write_text("new")
    resume(project, "run_cap=3", watcher=second)
    told = [said for said in second.said if "different data" in said]
    assert not first.said
    if reads:  # then they differ by the trials' own parameters
        assert (told, verdict.listed(folder).other_data) == ([], "")
        return
    assert len(told) == 1
    assert "(fingerprints old in trial 0; new in trial 1)" in told[0]
    assert "in a new sweep: python -m sweep run FILE" in told[0]
    at_last = told[0].replace("trial 1)", "trials 1, 2)")
    assert verdict.listed(folder).other_data == at_last
    assert verdict.sentence(rank([analysis.read(folder)])).endswith(at_last)
    third = run(project, text.replace("curves", "third"), memo=True).folder  # answers count as those that they are of
    assert verdict.listed(third).other_data == ""
    both = verdict.sentence(rank([analysis.read(one) for one in (folder, third)]))
    assert "old in trial 0 of curves; new in trials 1, 2 of curves and trials 0 to 2 of third)" in both
