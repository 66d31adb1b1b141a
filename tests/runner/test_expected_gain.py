"""A search that ends when its next configurations are not expected to gain enough."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from curves import Watcher, resume, run

import sweep
from sweep.cli import main
from sweep.errors import InputError
from sweep.events import (
    EpochReported,
    Event,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.progress import HUNDREDTHS, SHARE, UnitReports
from sweep.runner.expected_gain import GainRule, GainSetting
from sweep.runner.methods import build_searcher
from sweep.space import Parameter, Space
from sweep.space.domains import Uniform
from sweep.space.objectives import Objective
from sweep.spec import parse_spec
from sweep.spec.blocks import StopWhen
from sweep.store import log as store_log

LOSS = Objective("loss", "minimize")
SPACE = Space((Parameter("x", Uniform(0.0, 1.0)), Parameter("y", Uniform(0.0, 1.0))))


def played(method: str, when: StopWhen, trials: int = 60) -> tuple[GainRule, list[str | None]]:
    """Return a rule that has observed a search on a bowl, and its reason after each trial."""
    setting = GainSetting(SPACE, LOSS, 0, when)
    searcher = build_searcher(method, SPACE, (LOSS,), 0)
    rule = GainRule(setting, searcher if method == "random" else None)
    reasons: list[str | None] = []
    for number in range(trials):
        params = searcher.suggest(number)
        assert params is not None
        loss = (float(params["x"]) - 0.3) ** 2 + (float(params["y"]) - 0.6) ** 2
        events: list[Event] = [
            TrialStarted(trial=number, trial_id="", params=params, seed=0, repeat=0, time=0.0),
            EpochReported(trial=number, epoch=1, metrics={"loss": loss}, time=0.0, time_s=36.0),
            TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=0.0),
        ]
        for event in events:
            searcher.observe(event)
            rule.observe(event)
        reasons.append(rule.reason)
    return rule, reasons


def ended_after(reasons: list[str | None]) -> int:
    return reasons.count(None)


@pytest.mark.parametrize("method", ["gp", "random"])
def test_a_search_ends_sooner_if_more_is_asked(method: str) -> None:
    ends = [ended_after(played(method, StopWhen(gain=gain))[1]) for gain in (0.1, 0.001)]
    assert 11 <= ends[0] <= ends[1] < 59


def test_the_reason_says_what_was_expected_and_what_was_asked() -> None:
    rule, _ = played("gp", StopWhen(gain=0.01))
    assert rule.reason is not None
    assert rule.reason.startswith("expected gain of the next 8 configurations ")
    assert rule.reason.endswith(" < 0.01 (stop_when.gain)")


def test_an_hour_has_its_price() -> None:
    rule, _ = played("gp", StopWhen(gain_per_hour=0.1))
    assert rule.reason is not None
    assert rule.reason.endswith(" < 0.008 (stop_when.gain_per_hour, for 0.08 h of training)")


@pytest.mark.parametrize("epochs", [1, 4, 250])
@pytest.mark.parametrize(
    ("when", "why"),
    [
        (StopWhen(gain_per_hour=10.0), "stop_when.gain_per_hour, for 0.8 h of training"),
        (StopWhen(gain="auto"), "what 1000 validation examples can tell"),
    ],
)
def test_an_epoch_counts_once_whatever_share_of_the_minutes_it_takes(
    when: StopWhen, why: str, epochs: int
) -> None:
    accuracy = Objective("accuracy", "maximize")
    rule = GainRule(GainSetting(SPACE, accuracy, 0, when), None, units=UnitReports(HUNDREDTHS))
    searcher = build_searcher("random", SPACE, (accuracy,), 0)
    for number in range(12):
        params = searcher.suggest(number)
        assert params is not None
        metrics = {"accuracy": 0.5 + 0.4 * float(params["x"])}
        events: list[Event] = [
            TrialStarted(trial=number, trial_id="", params=params, seed=0, repeat=0, time=0.0)
        ]
        for epoch in range(1, epochs + 1):
            measures = {SHARE: epoch / epochs}
            if epoch == 1:
                measures["validation_examples"] = 1000.0
            events.append(
                EpochReported(
                    trial=number,
                    epoch=epoch,
                    metrics=metrics,
                    time=0.0,
                    time_s=360 / epochs,  # a trial trains for 0.1 h
                    measures=measures,
                )
            )
        events.append(TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=0.0))
        for event in events:
            rule.observe(event)
    found = rule.compute()
    assert found is not None
    assert found.why == why


def test_the_examples_are_asked_about_a_score_that_meets_the_constraints() -> None:
    accuracy = Objective("accuracy", "maximize")
    found = []
    for last in (Status.PRUNED, Status.INFEASIBLE):
        rule = GainRule(GainSetting(SPACE, accuracy, 0, StopWhen(gain="auto")), None)
        searcher = build_searcher("random", SPACE, (accuracy,), 0)
        for number in range(13):
            params = searcher.suggest(number)
            assert params is not None
            is_last = number == 12
            events: list[Event] = [
                TrialStarted(trial=number, trial_id="", params=params, seed=0, repeat=0, time=0.0),
                EpochReported(
                    trial=number,
                    epoch=1,
                    metrics={"accuracy": 1.0 if is_last else 0.5 + 0.3 * float(params["x"])},
                    time=0.0,
                    time_s=1.0,
                    measures={"validation_examples": 1000.0},
                ),
                TrialEnded(
                    trial=number,
                    status=last if is_last else Status.COMPLETED,
                    reason="",
                    time=0.0,
                ),
            ]
            for event in events:
                rule.observe(event)
        gain = rule.compute()
        assert gain is not None
        found.append((gain.least, gain.why))
    assert found[0][1] == "what 1000 validation examples can tell"
    assert found[0] == found[1]


def test_with_auto_the_noise_decides() -> None:
    rule, reasons = played("gp", StopWhen(gain="auto"))
    assert rule.reason is not None
    assert "(the standard error with 1 seed)" in rule.reason
    assert ended_after(reasons) >= 11


TRAINABLE = """
from sweep.contract import EpochReported, Facts

class Bowl:
    def begin(self, assignment):
        self.given, self.done = assignment, 0
    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            p = self.given.params
            loss = (p["x"] - 0.3) ** 2 + (p["y"] - 0.6) ** 2 + 0.001 * (self.given.seed % 2) + 1 / self.done
            if not report(EpochReported(trial=0, epoch=self.done, metrics={"loss": loss}, time=0.0, time_s=1.0)):
                return
    def save(self, folder):
        (folder / "done.txt").write_text(str(self.done))
    def restore(self, folder):
        self.done = int((folder / "done.txt").read_text())
        return self.done
    def facts(self):
        return Facts(node="here", data="none")
"""
FILE = """
name: bowl
trainable: bowl:Bowl
method: gp
metric: {name: loss, goal: minimize}
parameters: {x: {min: 0.0, max: 1.0}, y: {min: 0.0, max: 1.0}}
epochs: 3
run_cap: 60
stop_when: {gain: 0.01}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bowl.py").write_text(TRAINABLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class StopsAfter(Watcher):
    """Interrupts the sweep when so many trials have ended."""

    def __init__(self, trials: int) -> None:
        super().__init__()
        self.left = trials

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, TrialEnded):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)


def end_of(folder: Path) -> str:
    return [
        event.reason
        for event in store_log.read(folder / "log.jsonl")
        if isinstance(event, SessionEnded)
    ][-1]


def test_a_sweep_ends_with_the_reason_and_its_trials_are_whole(project: Path) -> None:
    outcome = run(project, FILE)
    trials = sweep.load(outcome.folder.path).trials
    assert 12 <= len(trials) < 60
    assert set(trials["status"]) == {"completed"}
    reason = end_of(outcome.folder.path)
    assert reason.startswith("expected gain of the next 8 configurations ")
    assert outcome.stopped == reason
    assert not outcome.interrupted
    status = CliRunner().invoke(main, ["status", "bowl"])
    assert "gain     expected gain of the next 8 configurations " in status.output
    document = json.loads(CliRunner().invoke(main, ["status", "bowl", "--json"]).output)
    assert document["expected_gain"]["gain"] < 0.01 == document["expected_gain"]["least"]
    again = resume(project, name="bowl")
    assert len(sweep.load(again.folder.path).trials) == len(trials)
    assert again.stopped == reason


def test_a_sweep_that_was_interrupted_ends_at_the_same_trial(project: Path) -> None:
    whole = run(project, FILE)
    trials = len(sweep.load(whole.folder.path).trials)
    for stop in (5, trials - 1):
        name = f"stopped-{stop}"
        assert run(
            project, FILE.replace("name: bowl", f"name: {name}"), StopsAfter(stop)
        ).interrupted
        again = resume(project, name=name)
        assert len(sweep.load(again.folder.path).trials) == trials
        assert end_of(again.folder.path) == end_of(whole.folder.path)


@pytest.mark.parametrize("method", ["random", "sobol", "tpe", "grid"])
def test_methods_without_a_model_have_one_beside_them(project: Path, method: str) -> None:
    file = FILE.replace("method: gp", f"method: {method}").replace("gain: 0.01", "gain: 0.2")
    if method == "grid":
        file = file.replace("max: 1.0}", "max: 1.0, count: 7}").replace("run_cap: 60\n", "")
    outcome = run(project, file)
    trials = sweep.load(outcome.folder.path).trials
    assert 12 <= len(trials) < (49 if method == "grid" else 60)


def test_repeats_and_rules_count_configurations(project: Path) -> None:
    file = FILE + "repeats: 2\nearly_terminate: {type: asha_promotion, capped: true}\n"
    trials = sweep.load(run(project, file.replace("gain: 0.01", "gain: 0.1")).folder.path).trials
    assert 24 <= len(trials) < 120
    assert set(trials["status"]) <= {"completed", "pruned"}


def test_finalists_are_confirmed_after_it(project: Path) -> None:
    outcome = run(project, FILE + "confirm: {seeds: 2, finalists: 2, budget: null}\n")
    trials = sweep.load(outcome.folder.path).trials
    assert end_of(outcome.folder.path).startswith("expected gain of the next 8 configurations ")
    assert (trials["role"] == "confirm").sum() >= 2
    sessions = [
        event for event in store_log.read(outcome.folder.log) if isinstance(event, SessionStarted)
    ]
    assert len(sessions) == 1


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        (
            "stop_when: {gain: 0.01}",
            "stop_when: {}",
            "stop_when: says nothing, expected no_improvement, gain or",
        ),
        ("method: gp", "method: pbt", "stop_when.gain: does not go with method pbt"),
        (
            "metric: {name: loss, goal: minimize}",
            "metrics: [{name: loss}, {name: size}]",
            "needs a single metric",
        ),
        ("gain: 0.01", "gain: 0", "stop_when.gain: number 0, expected"),
    ],
)
def test_what_cannot_be_is_refused_by_name(before: str, after: str, wrong: str) -> None:
    text = FILE.replace(before, after).replace(
        "run_cap: 60\n", "" if "pbt" in after else "run_cap: 60\n"
    )
    with pytest.raises(InputError, match=wrong):
        parse_spec(text, "s.yaml")


def test_a_resolved_sweep_resolves_to_itself() -> None:
    spec = parse_spec(FILE, "s.yaml")
    assert spec.to_json_dict()["stop_when"] == {"no_improvement": None, "gain": 0.01}
    assert parse_spec(json.dumps(spec.to_json_dict()), "s.yaml") == spec
    plain = parse_spec(FILE.replace("gain: 0.01", "no_improvement: 5"), "s.yaml")
    assert plain.to_json_dict()["stop_when"] == {"no_improvement": 5}


def test_what_folds_can_tell_is_less_than_what_seeds_can() -> None:
    file = (
        "trainable: a:B\nmethod: gp\nmetric: {name: loss}\nparameters: {x: {min: 0.0, max: 1.0}}\n"
    )
    file += "repeats: 2\nstop_when: {gain: auto}\n"
    plain = GainSetting.of(parse_spec(file, "f"))
    folded = GainSetting.of(parse_spec(f"{file}folds: 5\n", "f"))
    confirmed = GainSetting.of(parse_spec(f"{file}folds: 5\nconfirm: {{seeds: 8}}\n", "f"))
    assert plain is not None
    assert folded is not None
    assert confirmed is not None
    assert (plain.seeds, plain.shared) == (2, 0.0)
    assert (folded.seeds, folded.shared) == (10, 0.25)
    assert (confirmed.seeds, confirmed.shared) == (8, 0.0)
