"""Whole sweeps whose trials pause, in this process: checkpoints, kills, answers from other sweeps."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from curves import Watcher, resume, run

import sweep
from sweep.backends import checkpoints
from sweep.cli import main
from sweep.events import PAUSES, EpochReported, Event, Status, TrialEnded
from sweep.space.early_terminate import RULES
from sweep.store import log as store_log

ROOT = Path(__file__).parents[2]
FILE = """
name: pausing
trainable: fast:Walk
method: random
metric: {name: loss, goal: minimize}
parameters: {rate: {min: 0.01, max: 1.0}, drag: {min: 0.0, max: 0.9}}
epochs: 9
run_cap: 12
early_terminate: {type: TYPE, min_iter: 1, eta: 2}
"""
FAST = """
import math
import walk
from sweep.contract import EpochReported
READS = walk.READS
class Walk(walk.Walk):
    PAUSE_S = 0.0
    def train(self, report):
        def told(epoch):
            diverges = self.given.trial in DIVERGES and epoch.epoch == 2
            return report(EpochReported(
                trial=0, epoch=epoch.epoch, metrics={**epoch.metrics, "loss": math.nan} if diverges else epoch.metrics,
                time=epoch.time, time_s=epoch.time_s,
            ))
        super().train(told)
    def facts(self):
        return walk.Facts(node="here", data="none", extends=True)
"""
TYPES = tuple(kind for kind, rule in RULES.items() if rule.pauses)
COLUMNS = ["trial", "status", "status_reason", "epochs", "metric.loss"]


@pytest.fixture
def walking(project: Path) -> Path:
    shutil.copy(ROOT / "tests" / "kills" / "walk.py", project / "walk.py")
    (project / "fast.py").write_text(FAST.replace("DIVERGES", "()"))
    return project


def text(kind: str, name: str = "pausing", *more: str) -> str:
    return "\n".join([FILE.replace("TYPE", kind).replace("name: pausing", f"name: {name}"), *more])


def table(folder: Path) -> pd.DataFrame:
    return sweep.load(folder).trials[COLUMNS]


class Looks(Watcher):
    """Looks at the checkpoints of those that pause, whenever one ends or pauses; stops after so many epochs."""

    def __init__(self, folder: Path, epochs: int | None = None) -> None:
        super().__init__()
        self.folder, self.left = folder, epochs
        self.paused: set[int] = set()
        self.wrong: list[int] = []

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, TrialEnded) and event.waits and event.status is Status.INTERRUPTED:
            self.paused.add(event.trial)
        elif isinstance(event, EpochReported | TrialEnded):
            self.paused.discard(event.trial)
        if isinstance(event, TrialEnded):
            self.wrong += [
                trial for trial in self.paused if not checkpoints.list_names(self.folder, trial)
            ]
        if isinstance(event, EpochReported) and self.left is not None:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("kind", TYPES)
def test_trials_go_on_from_their_checkpoints_which_are_kept_until_they_end(
    walking: Path, kind: str
) -> None:
    looks = Looks(walking / "results" / "pausing")
    outcome = run(walking, text(kind) + "checkpoint: {trials: 1}\n", looks)
    trials = table(outcome.folder.path)
    assert set(trials["status"]) == {"completed", "pruned"}
    assert not looks.wrong
    lines = (walking / "journal.txt").read_text().splitlines()
    trained = [line.split()[2:] for line in lines if line.split()[2] == "epoch"]
    # none is trained twice
    assert len(trained) == len({tuple(one) for one in trained}) == trials["epochs"].sum()
    kept = [
        trial for trial in trials["trial"] if checkpoints.list_names(outcome.folder.path, trial)
    ]
    completed = trials[trials["status"] == "completed"]
    assert kept == [completed.loc[completed["metric.loss"].idxmin(), "trial"]]


@pytest.mark.parametrize(
    ("kind", "method"), [*((kind, "random") for kind in TYPES), ("asha_promotion", "cmaes")]
)
def test_a_sweep_that_was_stopped_goes_on_the_same(walking: Path, kind: str, method: str) -> None:
    straight = table(run(walking, text(kind, "straight").replace("random", method)).folder.path)
    for epochs in (2, 5, 11, 17):
        name = f"stopped-{epochs}"
        file = text(kind, name).replace("random", method)
        outcome = run(walking, file, Looks(walking / "results" / name, epochs))
        assert outcome.interrupted
        status = (
            CliRunner().invoke(main, ["status", name, "--results", str(walking / "results")]).output
        )
        paused = [
            e
            for e in sweep.load(outcome.folder.path).trials["status_reason"]
            if e.startswith(PAUSES)
        ]
        assert (
            f"paused   {len(paused)} of the interrupted, until {kind} lets them go on" in status
        ) is bool(paused)
        again = resume(walking, name=name)
        pd.testing.assert_frame_equal(table(again.folder.path), straight)


@pytest.mark.parametrize("kind", TYPES)
def test_diverged_and_infeasible_trials(walking: Path, kind: str) -> None:
    (walking / "fast.py").write_text(FAST.replace("DIVERGES", "(0, 3)"))
    trials = table(run(walking, text(kind, "pausing", "constraints: ['speed < 1e-9']")).folder.path)
    diverged = trials[trials["status"] == "diverged"]
    assert set(diverged["epochs"]) <= {2}
    # none meets it, so none is trained to its end for nothing
    assert "completed" not in set(trials["status"])
    assert set(trials["status"]) <= {"diverged", "pruned"}
    assert any("constraints not met" in reason for reason in trials["status_reason"])


@pytest.mark.parametrize("kind", TYPES)
def test_trials_of_another_sweep_answer_as_far_as_their_rule_lets_them_come(
    walking: Path, kind: str
) -> None:
    plain = text("none", "plain").replace(", min_iter: 1, eta: 2", "")
    run(walking, plain)
    anew = table(run(walking, text(kind, "anew")).folder.path)
    before = len((walking / "journal.txt").read_text().splitlines())
    outcome = run(walking, text(kind, "answered"), memo=True)
    answered = table(outcome.folder.path)
    completed = answered["status"] == "completed"
    assert all(reason.startswith("from ") for reason in answered[completed]["status_reason"])
    pd.testing.assert_frame_equal(
        answered.assign(status_reason=answered["status_reason"].mask(completed, "")), anew
    )
    lines = (walking / "journal.txt").read_text().splitlines()[before:]
    assert not [line for line in lines if line.split()[2] == "epoch"]


def test_a_target_ends_the_sweep_and_leaves_those_that_pause(walking: Path) -> None:
    best = table(run(walking, text("asha_promotion", "straight")).folder.path)["metric.loss"].min()
    outcome = run(
        walking, text("asha_promotion", "aimed").replace("minimize", f"minimize, target: {best}")
    )
    states = set(table(outcome.folder.path)["status"])
    assert "completed" in states
    again = resume(walking, "metric.target=null", name="aimed")
    assert "interrupted" not in set(table(again.folder.path)["status"])


def test_replay_of_a_recorded_sweep_under_rules_that_pause(
    walking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(walking)
    run(walking, text("none", "plain").replace(", min_iter: 1, eta: 2", ""))
    for rule in ("asha_promotion eta=2", "pasha epsilon=0.5", "freeze_thaw share=1"):
        told = CliRunner().invoke(
            main, ["replay", "plain", "--early-terminate", rule, "--orderings", "5"]
        )
        assert told.exit_code == 0, told.output
        assert "winner kept" in told.output
    run(walking, text("asha_promotion"))
    assert (
        "decisions are the same as when it ran"
        in CliRunner().invoke(main, ["replay", "pausing"]).output
    )
    wrong = CliRunner().invoke(main, ["replay", "plain", "--early-terminate", "pasha share=1"])
    assert "unknown key" in str(wrong.exception) + wrong.output


def test_a_function_that_saves_nothing_trains_its_first_epochs_again(walking: Path) -> None:
    (walking / "steps.py").write_text(
        "from pathlib import Path\n"
        "def train(hp, report):\n"
        "    for epoch in range(1, 10):\n"
        "        with Path(__file__).with_suffix('.txt').open('a') as file:\n"
        "            print(report.trial, epoch, file=file)\n"
        "        report(loss=hp.number('rate') / epoch)\n"
    )
    file = (
        text("asha_promotion")
        .replace("fast:Walk", "steps:train")
        .replace(", drag: {min: 0.0, max: 0.9}", "")
    )
    trials = table(run(walking, file).folder.path)
    assert set(trials["status"]) == {"completed", "pruned"}
    events = list(store_log.read(walking / "results" / "pausing" / "log.jsonl"))
    reported = [(event.trial, event.epoch) for event in events if isinstance(event, EpochReported)]
    assert len(reported) == len(set(reported))
    trained = (walking / "steps.txt").read_text().splitlines()
    assert len(trained) > len(set(trained)) >= len(reported)


@pytest.mark.keras
@pytest.mark.exhaustive  # that one goes on from a checkpoint with the same numbers is in test_continued.py
def test_a_keras_model_that_pauses_has_the_numbers_of_one_that_does_not(project: Path) -> None:
    file = """
name: NAME
trainable: trainables.tabular_mlp:TabularMLP
method: random
metric: {name: val_loss, goal: minimize}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-4, max: 3e-2}
  weight_decay: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
epochs: 4
run_cap: 4
early_terminate: RULE
"""
    plain = sweep.load(
        run(project, file.replace("NAME", "plain").replace("RULE", "{type: none}")).folder.path
    )
    rule = "{type: asha_promotion, min_iter: 1, eta: 2}"
    paused = sweep.load(
        run(project, file.replace("NAME", "paused").replace("RULE", rule)).folder.path
    )
    assert set(paused.trials["status"]) == {"completed", "pruned"}
    numbers = ["trial", "epoch", "learning_rate", "metric.val_loss", "metric.loss"]
    both = paused.metrics[numbers].merge(
        plain.metrics[numbers], on=["trial", "epoch"], suffixes=("", ".plain")
    )
    assert len(both) == len(paused.metrics) < len(plain.metrics)
    for name in numbers[2:]:
        assert both[name].tolist() == both[f"{name}.plain"].tolist()
