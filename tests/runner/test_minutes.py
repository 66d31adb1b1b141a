"""Whole sweeps whose trials end after some minutes of training, in this process."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from curves import Watcher, resume, run

import sweep
from sweep.analysis.live_status import Standing
from sweep.analysis.outline import Outline
from sweep.backends import worker
from sweep.cli import main
from sweep.errors import InputError
from sweep.events import EpochReported, Event
from sweep.runner.retraining import RetrainingOptions, prepare_retraining
from sweep.spec import parse_spec
from sweep.store import log as store_log

TRAINABLE = '''
import json
from sweep.contract import EpochReported, Facts

class Slow:
    """Says that an epoch takes as many seconds as its parameter `seconds` says."""
    def begin(self, assignment):
        self.given, self.done = assignment, 0
    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            seconds = self.given.params["seconds"]
            metrics = {"loss": seconds / self.done, "seconds": seconds}
            if not report(EpochReported(trial=0, epoch=self.done, metrics=metrics, time=0.0, time_s=seconds)):
                return
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts(node="here", data="none", extends=True)
'''
FILE = """
name: slow
trainable: slow:Slow
method: grid
metric: {name: loss, goal: minimize}
parameters: {seconds: {values: [6.0, 15.0, 30.0]}}
minutes: 1
checkpoint: {every_s: 0}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "slow.py").write_text(TRAINABLE)
    monkeypatch.chdir(tmp_path)
    # a step is an epoch, so that a sweep can be interrupted after each
    monkeypatch.setattr(worker, "STEP_S", 0.0)
    return tmp_path


def table(folder: Path) -> pd.DataFrame:
    return sweep.load(folder).trials


class StopsAfter(Watcher):
    """Interrupts the sweep after so many epochs."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.left = epochs

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)


def test_a_trial_is_complete_once_it_has_trained_so_long(project: Path) -> None:
    trials = table(run(project, FILE).folder.path)
    assert list(trials["status"]) == ["completed"] * 3
    assert list(trials["epochs"]) == [10, 4, 2]
    assert not trials["reproducible"].any()
    metrics = sweep.load(project / "results" / "slow").metrics
    assert list(metrics[metrics["trial"] == 1]["budget_share"]) == [0.25, 0.5, 0.75, 1.0]


def test_epochs_beside_them_end_a_trial_that_is_fast(project: Path) -> None:
    trials = table(run(project, FILE + "epochs: 3\n").folder.path)
    assert list(trials["epochs"]) == [3, 3, 2]
    assert list(trials["status"]) == ["completed"] * 3


def test_a_trial_that_was_interrupted_has_trained_what_it_had_before(project: Path) -> None:
    straight = table(run(project, FILE).folder.path)
    for epochs in (3, 11, 13):
        name = f"stopped-{epochs}"
        assert run(
            project, FILE.replace("name: slow", f"name: {name}"), StopsAfter(epochs)
        ).interrupted
        again = table(resume(project, name=name).folder.path)
        columns = ["trial", "status", "epochs", "metric.loss"]
        pd.testing.assert_frame_equal(again[columns], straight[columns])


RULES = (
    "{type: asha, min_iter: 25, eta: 2}",
    "{type: asha_promotion, min_iter: 25, eta: 2}",
    "{type: hyperband, min_iter: 25, eta: 2}",
    "{type: median, min_iter: 25, min_trials: 1}",
    "{type: pasha, min_iter: 25, eta: 2}",
    "{type: freeze_thaw, min_iter: 25, eta: 2}",
)
WIDE = FILE.replace("[6.0, 15.0, 30.0]", "[2.0, 6.0, 3.0, 15.0, 10.0, 30.0]")


@pytest.mark.parametrize("rule", RULES)
def test_rungs_are_shares_of_the_minutes(project: Path, rule: str) -> None:
    outcome = run(project, WIDE + f"early_terminate: {rule}\n")
    ended = [
        event for event in store_log.read(outcome.folder.log) if isinstance(event, EpochReported)
    ]
    last = {event.trial: event.measures["budget_share"] for event in ended}
    trials = table(outcome.folder.path)
    assert set(trials["status"]) == {"completed", "pruned"}
    for trial, status, seconds in zip(
        trials["trial"], trials["status"], trials["param.seconds"], strict=True
    ):
        longest = seconds / 60
        if status == "completed":
            assert last[trial] == 1
        elif "median" not in rule:  # it stopped with the epoch in which it had reached a rung
            assert any(rung <= last[trial] < rung + longest + 1e-9 for rung in (0.25, 0.5))


BETWEEN = FILE.replace("[6.0, 15.0, 30.0]", "[2.4, 2.5, 2.6, 2.7]")
PAUSING = (
    "{type: asha_promotion, min_iter: 11, eta: 3}",
    "{type: asha_promotion, min_iter: 11, eta: 3, capped: true}",
    "{type: pasha, min_iter: 11, eta: 3}",
    "{type: freeze_thaw, min_iter: 11, eta: 3}",
)
ONE = "metric: {name: loss, goal: minimize}"
TWO = "metrics: [{name: loss, goal: minimize}, {name: seconds, goal: minimize}]"


@pytest.mark.parametrize(
    ("rule", "metrics"), [*((rule, ONE) for rule in PAUSING), (PAUSING[0], TWO)]
)
def test_a_trial_pauses_after_an_epoch_that_ends_beyond_a_rung(
    project: Path, rule: str, metrics: str
) -> None:
    text = BETWEEN.replace(ONE, metrics) + f"early_terminate: {rule}\n"
    trials = table(run(project, text).folder.path)
    assert sorted(trials["status"]) == ["completed", "pruned", "pruned", "pruned"]
    pruned = trials[trials["status"] == "pruned"]
    for reason, epochs, seconds in zip(
        pruned["status_reason"], pruned["epochs"], pruned["param.seconds"], strict=True
    ):
        # no epoch ends at a rung: it stopped with the first one that ends beyond
        rung = 33 if "at 33 % of its budget" in reason else 11
        assert f"at {rung} % of its budget" in reason
        assert epochs == math.ceil(rung / 100 * 60 / seconds)
    assert list(pruned["epochs"]).count(3) >= 2


@pytest.mark.parametrize("rule", [*RULES[:2], *PAUSING[1:]])
def test_a_sweep_with_rungs_that_was_stopped_goes_on_the_same(project: Path, rule: str) -> None:
    file = (BETWEEN if rule in PAUSING else WIDE) + f"early_terminate: {rule}\n"
    columns = ["trial", "status", "status_reason", "epochs", "metric.loss"]
    straight = table(run(project, file).folder.path)[columns]
    for epochs in (2, 9, 17, 30):
        name = f"stopped-{epochs}"
        assert run(
            project, file.replace("name: slow", f"name: {name}"), StopsAfter(epochs)
        ).interrupted
        pd.testing.assert_frame_equal(
            table(resume(project, name=name).folder.path)[columns], straight
        )


@pytest.mark.parametrize("method", ["tpe", "gp"])
def test_methods_learn_and_repeats_have_their_own_minutes(project: Path, method: str) -> None:
    file = FILE.replace("method: grid", f"method: {method}").replace(
        "{values: [6.0, 15.0, 30.0]}", "{min: 2.0, max: 20.0}"
    )
    file += "run_cap: 6\nrepeats: 2\nearly_terminate: {type: asha}\n"
    trials = table(run(project, file).folder.path)
    assert len(trials) == 12
    assert set(trials["status"]) <= {"completed", "pruned"}


def test_the_hours_of_a_gain_are_those_of_training(project: Path) -> None:
    file = FILE.replace("method: grid", "method: random").replace(
        "{values: [6.0, 15.0, 30.0]}", "{min: 5.0, max: 25.0}"
    )
    file += "run_cap: 30\nstop_when: {gain_per_hour: 1000}\n"
    reason = run(project, file).stopped
    metrics = sweep.load(project / "results" / "slow").metrics
    trials = metrics["trial"].nunique()
    assert trials < 30
    hours = 8 * metrics["time_s"].sum() / trials / 3600
    assert reason is not None
    assert reason.endswith(f"(stop_when.gain_per_hour, for {hours:.2g} h of training)")
    status = CliRunner().invoke(main, ["status", "slow", "--json"])
    least = json.loads(status.output)["expected_gain"]["least"]
    assert least == pytest.approx(1000 * hours, rel=1e-3)
    # a changed rule looks at the trials before the change as well
    again = resume(project, "stop_when.gain_per_hour=2000", name="slow").stopped
    metrics = sweep.load(project / "results" / "slow").metrics
    hours = 8 * metrics["time_s"].sum() / metrics["trial"].nunique() / 3600
    assert again is not None
    assert again.endswith(f"(stop_when.gain_per_hour, for {hours:.2g} h of training)")


def test_nothing_is_answered_from_an_earlier_sweep(project: Path) -> None:
    run(project, FILE)
    other = run(project, FILE.replace("name: slow", "name: other"), memo=True)
    assert table(other.folder.path)["memo"].isna().all()
    watcher = Watcher()
    epochs = FILE.replace("name: slow", "name: epochs").replace("minutes: 1", "epochs: 4")
    assert table(run(project, epochs, watcher, memo=True).folder.path)["memo"].isna().all()
    assert any(
        "no results of slow are reused: their minutes ended them" in line for line in watcher.said
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("training: {fuse: 4}\n", "trials that train as one program have no time of their own"),
        (
            "resources: {workers: 2}\n",
            "several workers a trial, which would each go by a clock of their own",
        ),
    ],
)
def test_what_does_not_go_with_minutes_is_refused_by_name(lines: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"minutes: does not go with .*{reason}"):
        parse_spec(FILE + lines, "s.yaml")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("method: grid", "method: pbt", "method pbt, whose members train the same epochs"),
        ("{seconds: {", "{epochs: {value: 3}, seconds: {", "a parameter called epochs"),
    ],
)
def test_what_else_does_not_go_with_minutes(before: str, after: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"minutes: does not go with {reason}"):
        parse_spec(
            FILE.replace(before, after).replace(
                "{values: [6.0, 15.0, 30.0]}", "{min: 1.0, max: 2.0}"
            ),
            "s.yaml",
        )


def test_a_rule_that_cannot_act_says_so_in_hundredths() -> None:
    with pytest.raises(InputError, match="can never stop a trial of 100 hundredths of its minutes"):
        parse_spec(FILE + "early_terminate: {type: asha, min_iter: 200}\n", "s.yaml")


def test_a_resolved_sweep_resolves_to_itself() -> None:
    spec = parse_spec(FILE, "s.yaml")
    assert not spec.counts_epochs
    assert "epochs" not in spec.to_json_dict()
    assert parse_spec(json.dumps(spec.to_json_dict()), "s.yaml") == spec
    both = parse_spec(FILE + "epochs: 3\n", "s.yaml")
    assert (both.epochs, both.minutes) == (3, 1)
    assert parse_spec(json.dumps(both.to_json_dict()), "s.yaml") == both


def test_plan_prices_by_minutes(project: Path) -> None:
    (project / "slow.yaml").write_text(
        FILE.replace("method: grid", "method: random") + "run_cap: 30\n"
    )
    text = CliRunner().invoke(main, ["plan", "slow.yaml"]).output
    assert "as many as 1 minutes of training allow a trial" in text
    plan = json.loads(CliRunner().invoke(main, ["plan", "slow.yaml", "--json"]).output)
    assert plan["epochs"] is None
    assert 0 < plan["expected"]["hours"] <= 0.5


def test_replay_is_refused(project: Path) -> None:
    run(project, FILE)
    result = CliRunner().invoke(main, ["replay", "slow"])
    assert result.exit_code == 2
    assert "trials that end after some minutes" in result.output


def test_status_says_how_far_a_trial_is(project: Path) -> None:
    run(project, FILE, StopsAfter(3))
    result = CliRunner().invoke(main, ["status", "slow"])
    assert result.exit_code == 0
    standing = Standing(Outline.of(parse_spec(FILE, "s.yaml")))
    for event in store_log.read(project / "results" / "slow" / "log.jsonl"):
        standing.observe(event)
    (trial,) = standing.open.values()
    assert trial.position == f"{10 * trial.state.epoch} %"


def test_a_trial_is_trained_again_for_as_many_minutes_or_for_epochs(project: Path) -> None:
    folder = run(project, FILE).folder
    again = prepare_retraining(folder, RetrainingOptions(trial=1))
    assert (again.spec.minutes, again.spec.counts_epochs) == (1, False)
    assert "trained again for 1 minutes" in again.text
    longer = prepare_retraining(folder, RetrainingOptions(trial=1, epochs=7))
    assert (longer.spec.minutes, longer.spec.epochs) == (None, 7)
