"""Whole sweeps without Ray: run, interrupt, resume, fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import sweep
from sweep.errors import TrainableError
from sweep.events import EpochReported, Event, TrialEnded
from sweep.inspection import inspect
from sweep.runner import resuming, session
from sweep.spec import parse
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder

TRAINABLE = '''
import json, math, os
from sweep.contract import EpochReported, Facts

class Curve:
    """Counts epochs; the objective falls with epochs at the rate `a`."""
    def begin(self, assignment):
        self.given, self.done = assignment, 0
        self.a = assignment.params["a"]
    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            if self.a == -1:
                raise RuntimeError("no such a")
            value = math.nan if self.a == -2 and self.done == 2 else self.a / self.done
            epoch = EpochReported(trial=0, epoch=self.done, metrics={"score": value}, time=0.0, time_s=0.1)
            if not report(epoch):
                return
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts(node="here")
'''

FILE = """
name: curves
trainable: curve:Curve
method: grid
metric: {name: score, goal: minimize}
parameters: {a: {values: [3, 1, 2]}}
epochs: 4
"""


class Watcher:
    """A view that keeps what it sees, and may act on it."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.said: list[str] = []

    def replay(self, events: Sequence[Event]) -> None:
        self.seen += events

    def on(self, event: Event) -> None:
        self.seen.append(event)

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        pass


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "curve.py").write_text(TRAINABLE)
    return tmp_path


def run(project: Path, text: str = FILE, watcher: Watcher | None = None) -> session.Outcome:
    spec = parse(text, "file.yaml")
    view = watcher or Watcher()
    return session.run(
        spec,
        text,
        inspect(spec.trainable, [project]),
        project / "results",
        [project],
        session.Options(inline=True),
        lambda folder, terminal: view,
    )


def ends(folder: ResultsFolder) -> dict[int, str]:
    return {e.trial: e.status.value for e in store_log.read(folder.log) if isinstance(e, TrialEnded)}


def test_a_grid_completes(project: Path) -> None:
    outcome = run(project)
    assert (outcome.completed, outcome.stopped, outcome.interrupted) == (3, None, False)
    loaded = sweep.load(outcome.folder.path)
    assert loaded.trials["param.a"].tolist() == [3, 1, 2]
    assert loaded.trials["status"].tolist() == ["completed"] * 3
    assert len(loaded.metrics) == 12
    assert loaded.best()["param.a"].tolist() == [1]
    kept = [path.name for path in (outcome.folder.path / "checkpoints").iterdir()]
    assert kept == ["00001"]


def test_failed_and_diverged_trials_are_what_they_are(project: Path) -> None:
    outcome = run(project, FILE.replace("[3, 1, 2]", "[-1, -2, 1]"))
    trials = sweep.load(outcome.folder.path).trials
    assert trials["status"].tolist() == ["failed", "diverged", "completed"]
    assert trials["status_reason"].tolist()[:2] == ["RuntimeError: no such a", "score is nan in epoch 2"]
    assert "Traceback" in trials["error"][0]
    assert trials["epochs"].tolist() == [0, 2, 4]


def test_code_at_fault_ends_the_sweep(project: Path) -> None:
    text = FILE.replace("{values: [3, 1, 2]}", "{values: [-1, 1]}, b: {values: [1, 2, 3]}") + "max_failures: 2\n"
    outcome = run(project, text)
    assert ends(outcome.folder) == {0: "failed", 1: "failed"}
    assert "the code is at fault" in str(outcome.stopped)


def test_a_metric_that_is_never_reported_is_named(project: Path) -> None:
    with pytest.raises(TrainableError, match=r"no metric 'scor'.*did you mean 'score'"):
        run(project, FILE.replace("name: score", "name: scor"))


class _StopsAt(Watcher):
    """Behaves as a user who presses Ctrl-C when an epoch comes in."""

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported) and (event.trial, event.epoch) == (1, 4):
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)


def test_interrupted_and_resumed_is_uninterrupted(project: Path) -> None:
    whole = sweep.load(run(project, FILE.replace("curves", "whole")).folder.path)
    watcher = _StopsAt()
    outcome = run(project, watcher=watcher)
    assert outcome.interrupted
    assert "once more to stop at once" in watcher.said[0]
    assert len(ends(outcome.folder)) < 3
    folder, spec, folders, _ = resuming.reopen(project / "results", "curves", None)
    again = session.resume(folder, spec, folders, session.Options(inline=True), lambda f, t: Watcher())
    assert (again.completed, again.interrupted) == (3, False)
    resumed = sweep.load(folder.path)
    assert resumed.metrics["metric.score"].tolist() == whole.metrics["metric.score"].tolist()
    assert resumed.trials["status"].tolist() == ["completed"] * 3


def test_resume_extends(project: Path) -> None:
    outcome = run(project, FILE + "run_cap: 1\n")
    assert len(ends(outcome.folder)) == 1
    folder, spec, folders, _ = resuming.reopen(project / "results", "curves", 3)
    session.resume(folder, spec, folders, session.Options(inline=True), lambda f, t: Watcher())
    assert ends(folder) == dict.fromkeys(range(3), "completed")


def test_target_ends_the_sweep(project: Path) -> None:
    outcome = run(project, FILE.replace("goal: minimize", "goal: minimize, target: 0.8"))
    assert "target reached" in str(outcome.stopped)
    assert 2 not in ends(outcome.folder)


def test_asha_prunes(project: Path) -> None:
    text = FILE.replace("[3, 1, 2]", "[1, 2, 3]") + "early_terminate: {type: asha, min_iter: 1, eta: 2}\n"
    outcome = run(project, text)
    assert ends(outcome.folder) == {0: "completed", 1: "pruned", 2: "pruned"}
    assert sweep.load(outcome.folder.path).trials["epochs"].tolist() == [4, 1, 1]


def test_tpe_runs_to_its_cap(project: Path) -> None:
    text = FILE.replace("grid", "tpe").replace("{values: [3, 1, 2]}", "{min: 0.5, max: 4.0}") + "run_cap: 12\n"
    outcome = run(project, text)
    assert outcome.completed == 12
    assert sweep.load(outcome.folder.path).trials["param.a"].between(0.5, 4.0).all()


def test_a_second_process_is_kept_out(project: Path) -> None:
    outcome = run(project, FILE + "run_cap: 1\n")
    folder, spec, folders, _ = resuming.reopen(project / "results", "curves", 3)
    with folder.lock(), pytest.raises(Exception, match="is being run by process"):
        session.resume(folder, spec, folders, session.Options(inline=True), lambda f, t: Watcher())
    assert len(ends(outcome.folder)) == 1
