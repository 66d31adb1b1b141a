"""Whole sweeps without Ray: run, interrupt, resume, fail."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from curves import FILE, TRAINABLE, Watcher, ends, resume, run
from placed import without_place

import sweep
from sweep.analysis.verdict import summarize_sweep
from sweep.errors import InputError, StoreError, TrainableError
from sweep.events import EpochReported, Event, ModelTested, SessionEnded, SessionStarted, TrialEnded
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder


def test_a_grid_completes(project: Path) -> None:
    outcome = run(project)
    assert (outcome.completed, outcome.stopped, outcome.interrupted) == (3, None, False)
    loaded = sweep.load(outcome.folder.path)
    assert loaded.trials["param.a"].tolist() == [3, 1, 2]
    assert loaded.trials["status"].tolist() == ["completed"] * 3
    assert len(loaded.metrics) == 12
    assert loaded.best()["param.a"].tolist() == [1]
    assert sorted(path.name for path in outcome.folder.checkpoints.iterdir()) == [
        "00000",
        "00001",
        "00002",
    ]


def test_every_event_has_the_time_of_a_clock_that_does_not_jump(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = iter(range(10**6))
    # each look is an hour earlier
    monkeypatch.setattr("time.time", lambda: 1.7e9 - 3600.0 * next(jumps))
    folder = run(project).folder
    resume(project, "run_cap=2")
    events = [one for one in store_log.read(folder.log) if not isinstance(one, SessionStarted)]
    assert all(one.driven_s is not None for one in events if not isinstance(one, ModelTested))
    ended = [one.facts for one in events if isinstance(one, TrialEnded)]
    assert len(ended) == 3
    assert all(one.lived_s is not None and 0 <= one.lived_s < 60 for one in ended)
    trials = sweep.load(folder.path).trials
    assert ((trials["duration_s"] >= 0) & (trials["duration_s"] < 60)).all()
    assert ((trials["overhead_s"] >= 0) & (trials["overhead_s"] < 60)).all()


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), StoreError("a disk"), InputError.one("a", "b")],
)
def test_where_nothing_was_trained_the_name_stays_free(
    project: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def backend(*given: object) -> None:
        raise error

    monkeypatch.setattr("sweep.runner.features.open_backend", backend)
    with pytest.raises(type(error)):
        run(project)
    assert list((project / "results").iterdir()) == []


def test_failed_and_diverged_trials_are_what_they_are(project: Path) -> None:
    outcome = run(project, FILE.replace("[3, 1, 2]", "[-1, -2, 1]"))
    trials = sweep.load(outcome.folder.path).trials
    assert trials["status"].tolist() == ["failed", "diverged", "completed"]
    reasons = list(map(without_place, trials["status_reason"]))
    assert reasons[:2] == ["RuntimeError: no such a", "score is nan in epoch 2"]
    assert "Traceback" in trials["error"][0]
    assert trials["epochs"].tolist() == [0, 2, 4]


def test_code_at_fault_ends_the_sweep(project: Path) -> None:
    text = (
        FILE.replace("{values: [3, 1, 2]}", "{values: [-1, 1]}, b: {values: [1, 2, 3]}")
        + "max_failures: 2\n"
    )
    outcome = run(project, text)
    assert ends(outcome.folder) == {0: "failed", 1: "failed"}
    assert "a bug in the training code" in str(outcome.stopped)


def test_a_metric_that_is_never_reported_is_named(project: Path) -> None:
    watcher = Watcher()
    with pytest.raises(TrainableError, match=r"no metric 'scor'.*did you mean 'score'"):
        run(project, FILE.replace("name: score", "name: scor"), watcher)
    folder = ResultsFolder(project / "results" / "curves")
    last = list(store_log.read(folder.log))[-1]
    assert isinstance(last, SessionEnded)
    told = (
        "in epoch 1 of trial 0, curve:Curve reports no metric 'scor', which is the sweep's; it reports score; "
        "did you mean 'score'?"
    )
    assert (last.reason, last.finished) == (f"failed: {told}", False)
    summary = summarize_sweep(folder)
    assert (summary.state, summary.reason, summary.trials) == ("failed", told, {"interrupted": 1})
    reasons = [
        event.reason for event in store_log.read(folder.log) if isinstance(event, TrialEnded)
    ]
    assert reasons == ["the sweep failed"]


THIN = (
    FILE.replace("method: grid", "method: random\nrun_cap: 9")
    .replace("{values: [3, 1, 2]}", "{min: 0, max: 1000000000}, b: {min: 0.0, max: 1.0, q: 0.25}")
    .replace("epochs: 4", 'epochs: 4\nconstraints: ["0 < a < 4", "b == 0.5"]')
)


def test_a_space_in_which_hardly_a_point_is_allowed_ends_cleanly_when_it_is_exhausted(
    project: Path,
) -> None:
    watcher = Watcher()
    outcome = run(project, THIN, watcher)
    assert sorted(sweep.load(outcome.folder.path).trials["param.a"]) == [1, 2, 3]
    assert outcome.stopped is None
    assert (
        "no other configuration was found that meets the constraints: the space is exhausted"
        in watcher.said
    )
    resumed = resume(project)
    assert (resumed.completed, resumed.stopped) == (3, None)


class _StopsAfter(Watcher):
    """Behaves as a user who has seen enough after a number of trials."""

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported) and (event.trial, event.epoch) == (70, 4):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_sweep_without_a_bound_goes_on_until_it_is_stopped(project: Path) -> None:
    text = FILE.replace("method: grid", "method: random").replace(
        "{values: [3, 1, 2]}", "{min: 0.0, max: 1.0}"
    )
    outcome = run(project, text, _StopsAfter())
    assert outcome.interrupted
    assert outcome.completed >= 70
    resumed = resume(project, "run_cap=75")
    assert (resumed.completed, resumed.interrupted) == (75, False)


def test_a_parameter_that_nothing_reads_is_told_after_the_first_epoch_where_the_source_does_not_show_it(
    project: Path,
) -> None:
    (project / "computed.py").write_text(
        TRAINABLE.replace(
            'self.a = assignment.params["a"]', "p = assignment.params; self.a = p[NAMES[0]]"
        )
        + "\nNAMES = list('ab')\n"
    )
    watcher = Watcher()
    text = FILE.replace("curve:Curve", "computed:Curve").replace(
        "parameters: {", "parameters: {c: {value: 1}, "
    )
    assert run(project, text, watcher).completed == 3
    assert watcher.said == ["nothing has read parameter 'c' in a whole epoch"]


class _StopsAt(Watcher):
    """Behaves as a user who presses Ctrl-C when an epoch comes in."""

    def __init__(self, epoch: int = 4) -> None:
        super().__init__()
        self.epoch = epoch

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported) and (event.trial, event.epoch) == (1, self.epoch):
            os.kill(os.getpid(), signal.SIGINT)


def test_interrupted_and_resumed_is_uninterrupted(project: Path) -> None:
    whole = sweep.load(run(project, FILE.replace("curves", "whole")).folder.path)
    watcher = _StopsAt()
    outcome = run(project, watcher=watcher)
    assert outcome.interrupted
    assert "once more to stop at once" in watcher.said[0]
    assert len(ends(outcome.folder)) < 3
    again = resume(project)
    assert (again.completed, again.interrupted) == (3, False)
    resumed = sweep.load(outcome.folder.path)
    assert resumed.metrics["metric.score"].tolist() == whole.metrics["metric.score"].tolist()
    assert resumed.trials["status"].tolist() == ["completed"] * 3


class _Breaks(Watcher):
    """A fault of our own."""

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported) and (event.trial, event.epoch) == (1, 2):
            raise RuntimeError("a bug")


def test_a_crash_does_not_finish_a_sweep(project: Path) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        run(project, watcher=_Breaks())
    folder = ResultsFolder(project / "results" / "curves")
    assert _endings(folder) == [("crashed: RuntimeError: a bug", False)]
    assert resume(project).completed == 3
    assert _endings(folder) == [("crashed: RuntimeError: a bug", False), ("finished", True)]


def _endings(folder: ResultsFolder) -> list[tuple[str, bool | None]]:
    return [
        (event.reason, event.finished)
        for event in store_log.read(folder.log)
        if isinstance(event, SessionEnded)
    ]


def test_failed_trials_are_tried_again_once_the_fault_is_mended(project: Path) -> None:
    text = (
        (project / "curve.py")
        .read_text()
        .replace("self.a == -1", "pathlib.Path(__file__ + '.broken').read_text() == str(self.a)")
        .replace("import json", "import pathlib, json")
    )
    (project / "mended.py").write_text(text)
    broken = project / "mended.py.broken"
    broken.write_text("1")
    outcome = run(project, FILE.replace("curve:", "mended:"))
    assert ends(outcome.folder) == {0: "completed", 1: "failed", 2: "completed"}
    assert resume(project).completed == 2
    broken.write_text("")
    watcher = Watcher()
    again = resume(project, retry_failed=True, watcher=watcher)
    assert (again.completed, watcher.said) == (3, ["1 failed trial is tried again"])
    loaded = sweep.load(outcome.folder.path)
    assert loaded.trials["status"].tolist() == ["completed"] * 3
    assert loaded.trials["error"].isna().all()
    assert loaded.trials["epochs"].tolist() == [4, 4, 4]
    assert not loaded.metrics.duplicated(["trial", "epoch"]).any()
    assert loaded.best()["param.a"].tolist() == [1]
    assert (outcome.folder.checkpoints / "00001").is_dir()


def test_resume_extends(project: Path) -> None:
    outcome = run(project, FILE + "run_cap: 1\n")
    assert len(ends(outcome.folder)) == 1
    resume(project, "run_cap=3")
    assert ends(outcome.folder) == dict.fromkeys(range(3), "completed")


def test_the_trial_that_reaches_the_target_is_complete_and_ends_the_sweep(project: Path) -> None:
    outcome = run(project, FILE.replace("goal: minimize", "goal: minimize, target: 0.5"))
    assert outcome.stopped == "target reached: score 0.5 in trial 1"
    assert ends(outcome.folder) == {0: "completed", 1: "completed"}
    winner = sweep.load(outcome.folder.path).best().iloc[0]
    assert (winner["trial"], winner["epochs"], winner["status_reason"]) == (
        1,
        2,
        "target reached: score 0.5",
    )
    assert (outcome.folder.path / winner["checkpoint"]).name == "epoch-000002"
    again = resume(project)
    assert (again.completed, again.stopped) == (2, outcome.stopped)
    assert ends(resume(project, "metric.target=0").folder)[2] == "completed"


def test_a_driver_that_was_killed_at_the_target_loses_no_winner(project: Path) -> None:
    outcome = run(project, FILE.replace("goal: minimize", "goal: minimize, target: 0.5"))
    lines = outcome.folder.log.read_bytes().splitlines(keepends=True)
    (cut,) = (at for at, line in enumerate(lines) if b'"at_target":true' in line)
    outcome.folder.log.write_bytes(b"".join(lines[:cut]))
    assert resume(project).completed == 2
    winner = sweep.load(outcome.folder.path).best().iloc[0]
    assert (outcome.folder.path / winner["checkpoint"]).name == "epoch-000002"


def test_a_target_that_is_lowered_finds_its_trial_among_the_interrupted_ones(project: Path) -> None:
    rungs = "early_terminate: {type: asha, min_iter: 1, eta: 2}\n"
    outcome = run(project, FILE + rungs, _StopsAt(epoch=1))
    assert outcome.interrupted
    assert ends(outcome.folder)[1] == "interrupted"
    again = resume(project, "metric.target=0.5")
    assert again.stopped == "target reached: score 0.5 in trial 1"
    winner = sweep.load(outcome.folder.path).best().iloc[0]
    assert (winner["trial"], winner["node"], winner["checkpoint"]) == (
        1,
        "here",
        "checkpoints/00001/epoch-000002",
    )


def test_asha_prunes(project: Path) -> None:
    text = (
        FILE.replace("[3, 1, 2]", "[1, 2, 3]")
        + "early_terminate: {type: asha, min_iter: 1, eta: 2}\n"
    )
    outcome = run(project, text)
    assert ends(outcome.folder) == {0: "completed", 1: "pruned", 2: "pruned"}
    assert sweep.load(outcome.folder.path).trials["epochs"].tolist() == [4, 1, 1]


def test_tpe_runs_to_its_cap(project: Path) -> None:
    text = (
        FILE.replace("grid", "tpe").replace("{values: [3, 1, 2]}", "{min: 0.5, max: 4.0}")
        + "run_cap: 12\n"
    )
    outcome = run(project, text)
    assert outcome.completed == 12
    assert sweep.load(outcome.folder.path).trials["param.a"].between(0.5, 4.0).all()


def test_a_second_process_is_kept_out(project: Path) -> None:
    outcome = run(project, FILE + "run_cap: 1\n")
    with outcome.folder.lock(), pytest.raises(Exception, match="is being run by process"):
        resume(project, "run_cap=3")
    assert len(ends(outcome.folder)) == 1


class _Counts(Watcher):
    """Counts the epochs that are in memory while a resumed sweep's log is read."""

    most = 0

    def replay(self, events: Iterable[Event]) -> None:
        for at, _ in enumerate(events):
            if not at % 50:
                self.most = max(
                    self.most, sum(isinstance(one, EpochReported) for one in gc.get_objects())
                )


def test_a_resumed_sweep_does_not_hold_its_log_in_memory(project: Path) -> None:
    run(project, FILE.replace("epochs: 4", "epochs: 200") + "run_cap: 2\n")
    gc.collect()
    watcher = _Counts()
    before = sum(isinstance(one, EpochReported) for one in gc.get_objects())
    assert resume(project, "run_cap=3", watcher=watcher, memo=False).completed == 3
    assert 0 < watcher.most <= before + 10


PATCHY = TRAINABLE.replace('metrics={"score": value}', "metrics=told(self.a, self.done, value)") + (
    "\ndef told(a, epoch, value):\n"
    "    return {'scores': value} if a == 5 or a == 1 and epoch == 3 else {'score': value}\n"
)


def test_a_metric_that_an_epoch_lacks_fails_its_trial_alone(project: Path) -> None:
    (project / "patchy.py").write_text(PATCHY)
    text = FILE.replace("curve:Curve", "patchy:Curve").replace("[3, 1, 2]", "[3, 1, 2, 5]")
    outcome = run(project, text + "retries: 1\n")
    trials = sweep.load(outcome.folder.path).trials
    assert trials["status"].tolist() == ["completed", "failed", "completed", "failed"]
    assert trials["epochs"].tolist() == [4, 2, 4, 0]
    told = (
        "in epoch 3 of trial 1, patchy:Curve reports no metric 'score', which is the sweep's; it reports scores; "
        "did you mean 'scores'?"
    )
    assert trials["status_reason"][1] == trials["error"][1] == told
    ended = [
        e for e in store_log.read(outcome.folder.log) if isinstance(e, TrialEnded) and e.trial == 1
    ]
    # tried again, as any that fails
    assert [end.status for end in ended] == [
        "interrupted",
        "failed",
    ]
    assert trials["status_reason"][3].startswith("in epoch 1 of trial 3, ")


def test_so_many_in_a_row_that_lack_it_end_the_sweep(project: Path) -> None:
    (project / "patchy_all.py").write_text(PATCHY.replace("a == 1 and", ""))
    outcome = run(project, FILE.replace("curve:Curve", "patchy_all:Curve") + "max_failures: 2\n")
    assert ends(outcome.folder) == {0: "failed", 1: "failed"}
    assert "2 configurations failed in a row" in str(outcome.stopped)
    assert "in epoch 3 of trial 1" in str(outcome.stopped)


def test_the_first_epoch_of_all_without_it_ends_the_sweep_at_once(project: Path) -> None:
    (project / "patchy_first.py").write_text(PATCHY)
    text = FILE.replace("curve:Curve", "patchy_first:Curve").replace("[3, 1, 2]", "[5, 1]")
    with pytest.raises(
        TrainableError, match="in epoch 1 of trial 0, patchy_first:Curve reports no metric 'score'"
    ):
        run(project, text)


def test_an_answer_that_lacks_it_fails_as_its_trial_would(project: Path) -> None:
    text = FILE.replace("curve:Curve", "patchy_once:Curve")
    (project / "patchy_once.py").write_text(
        PATCHY.replace("{'score': value}", "{'other': 1.0, 'score': value}").replace(
            "{'scores'", "{'other': 1.0, 'scores'"
        )
    )
    run(project, text.replace("name: score, goal: minimize", "name: other"))
    outcome = run(project, text.replace("name: curves", "name: second"), memo=True)
    trials = sweep.load(outcome.folder.path).trials
    assert trials["status"].tolist() == ["completed", "failed", "completed"]
    assert trials["memo_epochs"].tolist() == [4, 2, 4]
