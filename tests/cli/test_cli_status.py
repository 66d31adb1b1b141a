"""``status``, and what `run` and `resume` say of memo and limits, as a user meets them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from waiting import PATIENCE_S, until
from walking import FILE, SLOW, write_project

from sweep.analysis.sweep_changes import describe_to_come
from sweep.cli import main
from sweep.store.folder import ResultsFolder
from sweep.ui.following import FollowedSweep


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_status_and_the_way_on(project: Path) -> None:
    assert call("run", "first.yaml", "--inline", "-q", "--run-cap", "1")[0] == 0
    code, output = call("status", "first")
    assert code == 0
    lines = output.splitlines()
    assert lines[:2] == ["first  finished", "trials   1 completed, of 1"]
    assert lines[2].startswith("best     loss ")
    assert call("resume", "first", "--inline", "-q", "--run-cap", "2")[0] == 0
    found = json.loads(call("status", "first", "--json")[1])
    assert (found["trials"], found["total"], found["state"]) == ({"completed": 2}, 2, "finished")


def test_fresh_seeds_are_none_of_the_trials_that_the_search_has_left(project: Path) -> None:
    more = "budget: {epochs: 4}\nconfirm: {seeds: 2, finalists: 2, budget: null}\n"
    (project / "first.yaml").write_text(FILE.replace("[0.1, 0.3]", "[0.1, 0.3, 0.5, 0.7]") + more)
    call("run", "first.yaml", "--inline", "-q")
    lines = call("status", "first")[1].splitlines()
    assert (lines[1], lines[-1]) == (
        "trials   6 completed, of 8",
        "go on    python -m sweep resume first",
    )


def test_other_data_are_told_wherever_trials_are_ranked(project: Path) -> None:
    (project / "digits.py").write_text(
        "from pathlib import Path\ndef train(hp):\n"
        "    train.data = Path('digits.csv').read_text()\n    return {'loss': hp.rate + hp.drag}\n"
    )
    (project / "first.yaml").write_text(
        FILE.replace("walk:Walk", "digits:train").replace("epochs: 2", "epochs: 1")
    )
    (project / "digits.csv").write_text("old")
    code, output = call("run", "first.yaml", "--inline", "-q", "--run-cap", "1")
    assert code == 0, output
    assert "different data" not in call("status", "first")[1]
    (project / "digits.csv").write_text("new")
    call("resume", "first", "--inline", "-q", "--run-cap", "2")
    told = "(fingerprints old in trial 0; new in trial 1)"
    assert (
        f"\ndata     These trials have seen different data, and their scores do not compare {told}"
        in call("status", "first")[1]
    )
    assert told in json.loads(call("status", "first", "--json")[1])["other_data"]
    for command in ("compare", "best"):
        assert told in json.loads(call(command, "first", "--json")[1])["answer"]
        assert told in call(command, "first")[1]
    call("report", "first")
    assert told in (project / "results" / "first" / "report.html").read_text()


def test_other_code_is_told_wherever_trials_are_ranked(project: Path) -> None:
    called = (sys.executable, "-m", "sweep")  # a process each: code is imported once
    walk = (project / "walk.py").read_text()
    subprocess.run([*called, "run", "first.yaml", "--inline", "-q", "--run-cap", "1"], check=True)
    subprocess.run(
        [*called, "run", "first.yaml", "--inline", "-q", "--name", "same", "--no-memo"], check=True
    )
    for command in (["status", "first"], ["compare", "first"], ["compare", "first", "same"]):
        assert "code" not in call(*command)[1].lower()
    (project / "walk.py").write_text(f"CHANGED = True\n{walk}")
    subprocess.run([*called, "resume", "first", "--inline", "-q", "--run-cap", "2"], check=True)
    told = "The code or a version of its packages has changed since the beginning: scores from before and after may not"
    assert f"\ncode     {told}" in call("status", "first")[1]
    assert told in json.loads(call("status", "first", "--json")[1])["other_code"]
    for command in ("compare", "best"):
        assert told in json.loads(call(command, "first", "--json")[1])["answer"]
        assert told in " ".join(call(command, "first")[1].split())
    call("report", "first")
    assert told in (project / "results" / "first" / "report.html").read_text()
    output = " ".join(call("compare", "first", "same")[1].split())
    assert "changed since the beginning of first: scores" in output
    assert "These sweeps differ in more than their parameters: in the code." in output


def test_a_killed_sweep_can_go_on(project: Path) -> None:
    call("run", "first.yaml", "--inline", "-q")
    log = project / "results" / "first" / "log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-3]))
    output = call("status", "first")[1]
    assert output.startswith("first  unfinished\ntrials   1 completed  1 interrupted, of 2\n")
    assert re.search(
        r"(?m)^ *1  interrupted .*the sweep's process was killed",
        call("status", "first", "--trials")[1],
    )
    assert "1 completed, 1 interrupted" in call("list")[1]
    assert "interrupted" in call("compare", "first")[1]
    assert output.endswith("go on    python -m sweep resume first\n")


def test_a_second_run_is_answered_from_the_first(project: Path) -> None:
    call("run", "first.yaml", "--inline", "-q")
    code, output = call("run", "first.yaml", "--inline", "--name", "second")
    assert code == 0
    assert "2 trials answered from first, not trained again" in output
    code, output = call("run", "first.yaml", "--inline", "--name", "third", "--no-memo")
    assert "answered" not in output


def test_a_resumed_sweep_keeps_no_memo(project: Path) -> None:
    call("run", "first.yaml", "--inline", "-q")
    call("run", "first.yaml", "--inline", "-q", "--name", "second", "--no-memo", "--run-cap", "1")
    code, output = call("resume", "second", "--inline", "--run-cap", "2")
    assert (code, "answered" in output) == (0, False)


def test_only_limits_change_on_resume(project: Path) -> None:
    call("run", "first.yaml", "--inline", "-q")
    code, output = call("resume", "first", "--inline", "--set", "epochs=5", "--set", "seed=1")
    assert code == 4
    assert output.count("error: --set") == 2
    assert call("status", "nosuch")[0] == 3


def test_a_sweep_is_stopped_from_another_process(project: Path) -> None:
    walk = (project / "walk.py").read_text()
    (project / "walk.py").write_text(walk + SLOW)
    changes = ["--set", "trainable=walk:Slow", "--set", "epochs=1000"]
    run = subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", "first.yaml", "--inline", "-q", *changes]
    )
    log = project / "results" / "first" / "log.jsonl"
    until(lambda: log.exists() and '"epoch_reported","trial":0' in log.read_text())
    assert call("stop", "first", "--trial", "0") == (0, "trial 0 is pruned: stopped on request\n")
    assert call("stop", "first", "--trial", "5")[0] == 3
    until(lambda: '"epoch_reported","trial":1' in log.read_text())
    code, output = call("stop", "first")
    assert (code, output) == (0, "first is stopped; go on with: python -m sweep resume first\n")
    assert run.wait(PATIENCE_S) == 130
    found = json.loads(call("status", "first", "--json")[1])
    assert (found["trials"], found["state"]) == (
        {"pruned": 1, "interrupted": 1},
        "stopped on request",
    )
    again = subprocess.Popen([sys.executable, "-m", "sweep", "resume", "first", "--inline", "-q"])
    lock = project / "results" / "first" / "lock"
    until(lambda: lock.read_text().startswith(f"process {again.pid} "))
    assert call("stop", "first", "--now")[0] == 0
    assert again.wait(PATIENCE_S) == 130
    assert call("stop", "first")[0] == 4


def test_a_finished_sweep_that_is_changed_says_what_is_to_come(project: Path) -> None:
    assert call("run", "first.yaml", "--inline", "-q", "--run-cap", "1")[0] == 0
    folder = ResultsFolder(project / "results" / "first")
    before = call("status", "first")[1]
    assert "to come" not in before
    assert "go on" not in before
    assert call("change", "first", "--set", "run_cap=2")[0] == 0
    lines = call("status", "first")[1].splitlines()
    assert lines[0] == "first  finished"
    assert "to come  1 trial, since it was changed" in lines
    assert lines[-1] == "go on    python -m sweep resume first"
    facts = FollowedSweep(folder)
    while facts.read_on():
        pass
    told = f"To come: 1 trial, since it was changed. Go on with: {folder.to_resume}"
    assert facts.describe().unknown == told
    assert call("resume", "first", "--inline", "-q")[0] == 0
    assert "to come" not in call("status", "first")[1]
    while facts.read_on():
        pass
    assert facts.describe().unknown == ""


def test_what_was_added_to_a_finished_sweep_is_to_come() -> None:
    assert describe_to_come(3, 1) == "3 trials, since it was changed; first 1 added configuration"
    assert describe_to_come(None, 0) == "more trials, since it was changed"
    assert describe_to_come(0, 0) == ""


def test_a_sweep_that_is_stopped_at_once_says_so_and_goes_on(project: Path) -> None:
    walk = (project / "walk.py").read_text()
    (project / "walk.py").write_text(walk + SLOW)
    changes = ["--set", "trainable=walk:Slow", "--set", "epochs=1000"]
    run = subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", "first.yaml", "--inline", "-q", *changes]
    )
    log = project / "results" / "first" / "log.jsonl"
    until(lambda: log.exists() and '"epoch_reported","trial":0' in log.read_text())
    assert call("stop", "first", "--now")[0] == 0
    assert run.wait(PATIENCE_S) == 130
    assert call("status", "first")[1].startswith("first  stopped at once on request\n")
    facts = FollowedSweep(ResultsFolder(project / "results" / "first"))
    while facts.read_on():
        pass
    assert (facts.describe().state, facts.describe().reason) == (
        "ended",
        "stopped at once on request",
    )


def test_a_finished_sweep_needs_no_time_to_wait_for(project: Path) -> None:
    assert call("run", "first.yaml", "--inline", "-q", "--run-cap", "1")[0] == 0
    code, output = call("wait", "first", "--timeout", "0")
    assert (code, output.partition(" after ")[0]) == (0, "first: finished")
    code, output = call("wait", "first", "--timeout", "0", "--until", "trials=2")
    assert code == 1
    assert "is not running, and not trials=2" in output


def test_a_sweep_whose_file_this_version_refuses_can_still_be_shown(project: Path) -> None:
    assert call("run", "first.yaml", "--inline", "-q", "--run-cap", "1")[0] == 0
    path = ResultsFolder.open(project / "results", "first").info
    written = json.loads(path.read_text())
    written["spec"]["method"] = "freeze_thaw"  # a method that was deleted
    written["provenance"]["packages"]["sweep"] = "0.0.9"
    path.write_text(json.dumps(written))

    code, output = call("status", "first")
    assert code == 0
    lines = output.splitlines()
    assert lines[:2] == ["first  finished", "trials   1 completed"]
    assert "method: text 'freeze_thaw', expected one of" in lines[-2]
    assert "was written by sweep 0.0.9; this one, " in lines[-1]
    assert "go on" not in output
    found = json.loads(call("status", "first", "--json")[1])
    assert (found["trials"], found["total"]) == ({"completed": 1}, None)
    assert found["file_problems"][0]["is"] == "method: text 'freeze_thaw'"
    for arguments in (
        ("status", "first", "--watch"),
        ("wait", "first"),
        ("wait", "first", "--until", "trials=1"),
        ("list",),
        ("compare", "first"),
        ("best", "first"),
        ("report", "first"),
        ("export", "csv", "first"),
    ):
        assert call(*arguments)[0] == 0, arguments
    code, output = call("wait", "first", "--until", "trials=2")
    assert code == 1
    assert "cannot resume the sweep" in output
    code, output = call("resume", "first", "--inline")
    assert code == 2
    assert "status, compare, best, report and export still read it" in output
