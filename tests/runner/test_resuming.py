"""What can change when a sweep is resumed, and what stays."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from curves import FILE, TRAINABLE, Watcher, ends, resume, run

from sweep import analysis
from sweep.analysis import verdict
from sweep.analysis.ranking import rank
from sweep.cli import main
from sweep.errors import InputError, RefusedError
from sweep.runner import resuming
from sweep.space import early_terminate
from sweep.spec import Spec, parse_spec
from sweep.store.folder import ResultsFolder


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


CHANGES = {
    "epochs=9": "epochs: is 9, but the sweep began with 4",
    "seed=1": "seed: is 1, but the sweep began with 0",
    "metric.name=other": "metric.name: is other, but the sweep began with score",
    "metric.goal=maximize": "metric.goal: is maximize, but the sweep began with minimize",
    "trainable=curve:Other": 'trainable: is "curve:Other", but the sweep began with "curve:Curve"',
    "method=random": "method: is random, but the sweep began with grid",
    "training.precision=float32": "training.precision: is float32, but the sweep began with auto",
    "resources.cpus=2": "resources.cpus: is 2.0, but the sweep began with 1.0",
}
"""What a sweep that has begun cannot change, and what is said of it."""


REFUSED = {
    "start_with=[{a: 1}]": "start_with: is [{a: 1}], but the sweep began with []; python -m sweep add tries further",
    "parameters.b.value=1": "parameters.b: is new, and the trials so far have other parameters; run it under another",
    "constraints=['score < 3']": "constraints: constraints on metrics say what the trials so far came to",
    "early_terminate.type=asha_promotion": "early_terminate.type: a rule that pauses trials begins with its sweep",
}
"""What a sweep that has begun refuses for a reason of its own."""


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_refused_has_a_way_out(project: Path, change: str) -> None:
    run(project, FILE + "run_cap: 1\n")
    with pytest.raises(InputError, match=rf"--set {re.escape(REFUSED[change])}"):
        resuming.reopen(project / "results", "curves", [change])


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_that_was_trained_can_change(project: Path, change: str) -> None:
    run(project, FILE + "run_cap: 1\n")
    with pytest.raises(
        InputError, match=rf"(?s)--set {re.escape(CHANGES[change])}.*can change run_cap, budget"
    ):
        resuming.reopen(project / "results", "curves", [change])
    spec = parse_spec(FILE + "run_cap: 1\n", "f.yaml", [change])
    with pytest.raises(
        InputError, match=rf"(?s)f.yaml: {re.escape(CHANGES[change])}.*can change run_cap, budget"
    ):
        resuming.reopen_as(project / "results", Path("f.yaml"), spec, None)


def test_an_unknown_key_is_named(project: Path) -> None:
    run(project, FILE + "run_cap: 1\n")
    with pytest.raises(InputError, match="nonsense: unknown key"):
        resuming.reopen(project / "results", "curves", ["nonsense=1"])


def test_a_value_that_stays_is_no_change(project: Path) -> None:
    run(project, FILE + "run_cap: 1\n")
    assert resuming.reopen(project / "results", "curves", ["epochs=4"]).spec.epochs == 4


def test_all_that_a_file_has_changed_and_cannot_is_listed_once(project: Path) -> None:
    run(project, FILE + "run_cap: 1\n")
    spec = parse_spec(FILE, "f.yaml", ["epochs=9", "seed=1", "run_cap=2"])
    with pytest.raises(InputError) as caught:
        resuming.reopen_as(project / "results", Path("f.yaml"), spec, 2)
    first, second, third = map(str, caught.value.problems)
    assert first == "f.yaml: epochs: is 9, but the sweep began with 4"
    assert second == "f.yaml: seed: is 1, but the sweep began with 0"
    assert third.startswith(
        "f.yaml: --simulate-gpus: is 2, but the sweep began with not set; a sweep that has begun"
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("run_cap=2", "run_cap is 2 from now on; it was 1"),
        ("run_cap=null", "run_cap is not set from now on; it was 1"),
        ("budget.hours=2", "budget.hours is 2.0 from now on; it was not set"),
        ("metric.target=0.5", "metric.target is 0.5 from now on; it was not set"),
        (
            "stop_when={no_improvement: 5}",
            "stop_when is {no_improvement: 5} from now on; it was not set",
        ),
        ("resources.max_concurrent=3", "resources.max_concurrent is 3 from now on; it was auto"),
        ("description=Why?", 'description is "Why?" from now on; it was ""'),
        ("checkpoint.keep=4", "checkpoint.keep is 4 from now on; it was 2"),
    ],
)
def test_what_a_file_has_changed_and_may_is_taken_over(
    project: Path, change: str, line: str
) -> None:
    text = FILE + "run_cap: 1\n"
    run(project, text)
    spec = parse_spec(text, "f.yaml", [change])
    reopened, lines = resuming.reopen_as(project / "results", Path("f.yaml"), spec, None)
    assert lines == [f"f.yaml: {line}"]
    assert reopened.spec == spec


def test_what_a_file_names_no_more_is_gone(project: Path) -> None:
    text = FILE.replace("grid", "random").replace("]}}", "]}, b: {values: [null, 2]}}")
    receivers = "notify: [{slack: SLACK_URL}]\n"
    run(project, text + "run_cap: 1\nprior: {a: 1, b: 2}\n")
    changed = text + "run_cap: 1\nprior: {a: 1}\n" + receivers
    for file in (changed, changed.replace("slack: SLACK_URL", 'webhook: "http://here/"')):
        spec = parse_spec(file, "f.yaml")
        reopened, lines = resuming.reopen_as(project / "results", Path("f.yaml"), spec, None)
        assert reopened.spec == spec
        assert lines[0].startswith("f.yaml: prior.b is not set from now on; it was {value: 2")
    without = text.replace(", b: {values: [null, 2]}", "") + "run_cap: 1\nprior: {a: 1}\n"
    with pytest.raises(RefusedError, match=r"parameters\.b: is gone, and"):
        resuming.reopen_as(project / "results", Path("f.yaml"), parse_spec(without, "f.yaml"), None)


def test_what_was_changed_by_resume_stays_unless_the_file_changes_it(
    project: Path, monkeypatch
) -> None:
    monkeypatch.chdir(project)
    Path("f.yaml").write_text(FILE + "run_cap: 1\n")
    assert CliRunner().invoke(main, ["run", "f.yaml", "--inline"]).exit_code == 0
    again = ["run", "f.yaml", "--or-resume", "--inline"]
    assert (
        CliRunner().invoke(main, ["resume", "curves", "--run-cap", "2", "--inline"]).exit_code == 0
    )
    unchanged = CliRunner().invoke(main, again)
    assert (unchanged.exit_code, unchanged.stderr) == (
        0,
        "curves: grid, 2 trials of at most 4 epochs, 8 together\n",
    )
    assert resuming.reopen(Path("results"), "curves").spec.run_cap == 2
    Path("f.yaml").write_text(FILE + "run_cap: 3\n")
    assert (
        CliRunner()
        .invoke(main, again)
        .stderr.startswith("f.yaml: run_cap is 3 from now on; it was 1\n")
    )
    assert resuming.reopen(Path("results"), "curves").spec.run_cap == 3
    assert (
        CliRunner().invoke(main, again).stderr
        == "curves: grid, 3 trials of at most 4 epochs, 12 together\n"
    )
    wider = FILE.replace("[3, 1, 2]", "[3, 1, 2, 4]")
    Path("f.yaml").write_text(wider + "run_cap: 4\n")
    said = CliRunner().invoke(main, again).stderr
    assert said.startswith(
        "f.yaml: parameters.a.values is [3, 1, 2, 4] from now on; it was [3, 1, 2]\n"
    )
    assert ends(ResultsFolder(Path("results/curves"))) == dict.fromkeys(range(4), "completed")
    Path("f.yaml").write_text(wider.replace("epochs: 4", "epochs: 5") + "run_cap: 4\n")
    refused = CliRunner().invoke(main, again)
    assert refused.exit_code == 4
    assert refused.stderr.startswith("error: f.yaml: epochs: is 5, but the sweep began with 4")


def test_a_sweep_that_was_killed_before_its_first_record(project: Path) -> None:
    outcome = run(project, FILE + "run_cap: 1\n")
    outcome.folder.log.unlink()
    outcome.folder.trials.unlink()
    watcher = Watcher()
    assert resume(project, watcher=watcher).completed == 1


@pytest.mark.parametrize("act", [("resume", "--inline", "-q"), ("note", "a text")])
def test_tables_whose_log_is_missing_are_not_replaced(project: Path, act: tuple[str, ...]) -> None:
    """As in a copy without the log, or one that was downloaded from an object store."""
    folder = run(project, FILE + "run_cap: 1\n").folder
    folder.log.unlink()
    before = folder.trials.read_bytes()
    refused = CliRunner().invoke(main, [act[0], str(folder.path), *act[1:]])
    assert refused.exit_code == 2, refused.output
    assert refused.stderr.startswith(f"error: {folder.log}: is missing, without which")
    assert folder.trials.read_bytes() == before
    assert not folder.log.exists()
    assert len(analysis.read_sweep(folder).trials) == 1


OF_A_FILE = TRAINABLE.replace(
    'data="none"',
    'data=Path("data.csv").read_text(), data_reads=json.dumps({"a": [self.a]} if READS else {})',
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
        assert (told, verdict.summarize_sweep(folder).other_data) == ([], "")
        return
    assert len(told) == 1
    assert "(fingerprints old in trial 0; new in trial 1)" in told[0]
    assert "in a new sweep: python -m sweep run FILE" in told[0]
    at_last = told[0].replace("trial 1)", "trials 1, 2)")
    assert verdict.summarize_sweep(folder).other_data == at_last
    assert verdict.summarize_ranking(rank([analysis.read_sweep(folder)])).endswith(at_last)
    # answers count as those that they are of
    third = run(project, text.replace("curves", "third"), memo=True).folder
    assert verdict.summarize_sweep(third).other_data == ""
    both = verdict.summarize_ranking(rank([analysis.read_sweep(one) for one in (folder, third)]))
    assert (
        "old in trial 0 of curves; new in trials 1, 2 of curves and trials 0 to 2 of third)" in both
    )


LEARNS = """
name: curves
trainable: curve:Curve
method: tpe
metric: {name: score, goal: minimize}
parameters: {a: {min: 1, max: 3}}
epochs: 27
run_cap: 2
early_terminate: {type: asha}
"""


def rungs(spec: Spec) -> tuple[int, ...]:
    return early_terminate.compute_decision_epochs(spec.early_terminate, spec.epochs)


@pytest.mark.parametrize("stored", [1, None])
def test_a_sweep_keeps_the_first_rung_that_it_began_with(project: Path, stored: int | None) -> None:
    """An earlier release began at epoch 1 with every method, and may not have written so."""
    folder = run(project, LEARNS).folder
    assert rungs(resuming.reopen(project / "results", "curves").spec) == (3, 9)
    info = json.loads(folder.info.read_text())
    info["spec"]["early_terminate"]["min_iter"] = stored
    folder.info.write_text(json.dumps(info))
    assert rungs(resuming.reopen(project / "results", "curves", ["run_cap=3"]).spec) == (1, 3, 9)
    spec = parse_spec(LEARNS, "f.yaml", ["run_cap=4"])
    assert rungs(spec) == (3, 9)
    again, _ = resuming.reopen_as(project / "results", Path("f.yaml"), spec, None)
    assert (rungs(again.spec), again.spec.run_cap) == ((1, 3, 9), 4)
    other = parse_spec(LEARNS, "f.yaml", ["early_terminate.min_iter=3"])
    again, _ = resuming.reopen_as(project / "results", Path("f.yaml"), other, None)
    assert rungs(again.spec) == (3, 9)
