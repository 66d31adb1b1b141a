"""Whole sweeps of a population, in this process."""

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
from sweep.analysis import lineage_of, read_sweep
from sweep.cli import main
from sweep.events import EpochReported, Event, Status, TrialEnded, TrialStarted
from sweep.store import log as store_log

FILE = """
name: pop
trainable: walk:Walk
method: pbt
metric: {name: loss, goal: minimize}
parameters: {rate: {min: 0.01, max: 1.0}, drag: {min: 0.0, max: 1.0}}
population: {size: 4, interval: 2}
epochs: 8
"""
ROOT = Path(__file__).parents[2]
COLUMNS = ["trial", "status", "status_reason", "epochs", "parent", "parent_epoch", "memo_epochs"]
FAST = """
import walk
READS = walk.READS
class Walk(walk.Walk):
    PAUSE_S = 0.0
    def train(self, report):
        if self.given.trial == FAILS:
            raise RuntimeError("no such trial")
        super().train(report)
"""


@pytest.fixture
def walking(project: Path) -> Path:
    shutil.copy(ROOT / "tests" / "kills" / "walk.py", project / "walk.py")
    (project / "fast.py").write_text(FAST.replace("FAILS", "-1"))
    return project


def table(folder: Path) -> pd.DataFrame:
    trials = sweep.load(folder).trials
    return trials[[*COLUMNS, *(name for name in trials if name.startswith(("param.", "metric.")))]]


TEXT = FILE.replace("walk:Walk", "fast:Walk")


def test_copies_go_on_from_their_parents(walking: Path) -> None:
    outcome = run(walking, TEXT)
    trials = sweep.load(outcome.folder.path).trials.set_index("trial")
    copies = trials[trials["parent"].notna()]
    assert (outcome.completed, len(trials), len(copies)) == (4, 7, 3)
    assert set(trials["status"]) == {"completed", "pruned"}
    assert trials[trials["status"] == "completed"]["epochs"].tolist() == [8] * 4
    assert copies["parent_epoch"].tolist() == copies["memo_epochs"].tolist() == [2, 4, 6]
    metrics = sweep.load(outcome.folder.path).metrics.set_index(["trial", "epoch"])["metric.loss"]
    for number, copy in copies.iterrows():
        until = int(copy["parent_epoch"])
        assert metrics[number][:until].tolist() == metrics[int(copy["parent"])][:until].tolist()
        if copy["epochs"] > until:
            assert metrics[number].iloc[until] != metrics[int(copy["parent"])].iloc[until]


@pytest.mark.parametrize("method", ["pbt", "pb2"])
def test_a_sweep_that_was_stopped_goes_on_the_same(walking: Path, method: str) -> None:
    text = TEXT.replace("method: pbt", f"method: {method}")
    straight = table(run(walking, text.replace("name: pop", "name: straight")).folder.path)
    for epochs in (3, 9, 14, 21):
        name = f"stopped-{epochs}"
        watcher = Stops(epochs)
        outcome = run(walking, text.replace("name: pop", f"name: {name}"), watcher)
        assert outcome.interrupted
        again = resume(walking, name=name)
        pd.testing.assert_frame_equal(table(again.folder.path), straight)


def test_a_model_moves_copies_and_all_else_is_as_in_pbt(walking: Path) -> None:
    text = TEXT.replace("method: pbt", "method: pb2").replace("size: 4", "size: 6, quantile: 0.5")
    outcome = run(walking, text)
    trials = sweep.load(outcome.folder.path).trials.set_index("trial")
    copies = trials[trials["parent"].notna()]
    assert (outcome.completed, len(trials), len(copies)) == (6, 15, 9)
    assert trials["status_reason"].str.startswith("pb2: trial ").sum() == 9
    for column in ("param.rate", "param.drag"):
        factors = copies[column] / trials[column][copies["parent"].astype(int)].to_numpy()
        assert not factors.round(6).isin([0.8, 1.2]).any()
    assert (
        copies["parent_epoch"].tolist()
        == copies["memo_epochs"].tolist()
        == [2] * 3 + [4] * 3 + [6] * 3
    )


class Stops(Watcher):
    """Stops a sweep after so many epochs."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.left = epochs

    def on(self, event: Event) -> None:
        super().on(event)
        if isinstance(event, EpochReported):
            self.left -= 1
        if isinstance(event, EpochReported) and self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


def test_members_that_fail_are_replaced(walking: Path) -> None:
    (walking / "fast.py").write_text(FAST.replace("FAILS", "2"))
    trials = sweep.load(run(walking, TEXT).folder.path).trials
    assert trials["status"].tolist().count("failed") == 1
    assert trials["status"].tolist().count("completed") == 4
    assert trials["parent"].notna().sum() == 4  # one for it, and one in each generation


def test_a_budget_ends_it_and_copies_cost_only_what_they_train(walking: Path) -> None:
    outcome = run(walking, TEXT + "budget: {epochs: 32}\n")
    assert outcome.completed == 4  # 4 members of 8 epochs, whatever the copies took over


def test_no_other_sweep_takes_a_copy_for_a_trial(walking: Path) -> None:
    outcome = run(walking, TEXT)
    (copy,) = [
        e
        for e in store_log.read(outcome.folder.log)
        if isinstance(e, TrialStarted) and e.trial == 6
    ]
    rate, drag = copy.params["rate"], copy.params["drag"]
    text = (
        TEXT.replace("pbt", "grid")
        .replace("name: pop", "name: alone")
        .replace("population: {size: 4, interval: 2}", "")
    )
    alone = text.replace("{min: 0.01, max: 1.0}", f"{{value: {rate!r}}}").replace(
        "{min: 0.0, max: 1.0}", f"{{value: {drag!r}}}"
    )
    trials = sweep.load(run(walking, alone).folder.path).trials
    assert trials["memo"].isna().all()


def test_the_lineage_of_a_trial(walking: Path) -> None:
    outcome = run(walking, TEXT)
    found = read_sweep(outcome.folder)
    for trial in found.trials:
        steps = lineage_of(found.trials, trial.trial)
        assert [step.first for step in steps] == [1, *(step.last + 1 for step in steps[:-1])]
        assert steps[-1].last == trial.epochs
        assert trial.epochs == (trial.parent_epoch or 0) or steps[-1].trial == trial.trial
    frame = sweep.load(outcome.folder.path).lineage(6)
    assert frame["last_epoch"].tolist()[-1] == 8
    assert {"param.rate", "param.drag"} < set(frame)
    with pytest.raises(sweep.InputError, match="has no trial 99; it has trials 0 to"):
        sweep.load(outcome.folder.path).lineage(99)


@pytest.mark.keras
@pytest.mark.slow
def test_a_copy_of_a_keras_model_has_the_rate_of_its_own(project: Path) -> None:
    text = """
name: keras
trainable: trainables.tabular_mlp:TabularMLP
method: pbt
metric: {name: val_loss, goal: minimize}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-4, max: 3e-2}
  weight_decay: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
population: {size: 3, interval: 1, resample: 0}
epochs: 3
"""
    loaded = sweep.load(run(project, text).folder.path)
    copies = loaded.trials[loaded.trials["parent"].notna()].set_index("trial")
    assert len(copies) == 2
    rates = loaded.metrics.set_index(["trial", "epoch"])["learning_rate"]
    for number, copy in copies.iterrows():
        until = int(copy["parent_epoch"])
        parent = loaded.trials.set_index("trial").loc[int(copy["parent"])]
        assert rates[number][:until].tolist() == rates[int(copy["parent"])][:until].tolist()
        if copy["epochs"] > until:
            assert rates[number].iloc[until] == pytest.approx(copy["param.learning_rate"], rel=1e-3)
            assert copy["param.learning_rate"] != parent["param.learning_rate"]


def test_commands_that_would_train_a_copy_as_if_it_were_one_configuration_say_so(
    walking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(walking, TEXT)
    monkeypatch.chdir(walking)
    retrain = CliRunner().invoke(main, ["retrain", "pop", "--trial", "6", "--inline"])
    assert isinstance(retrain.exception, sweep.InputError | SystemExit)
    found = str(retrain.exception) + retrain.output
    assert "trial 6: is a copy: trial" in found
    assert "has trained its first 6 epochs otherwise" in found
    replay = CliRunner().invoke(main, ["replay", "pop"])
    assert "is of a population" in str(replay.exception) + replay.output
    compared = CliRunner().invoke(main, ["compare", "pop"]).output
    assert "A population is one training: run the sweep with other seeds" in compared
    assert outcome.completed == 4


FORGETFUL = """
def train(hp, report):
    for epoch in range(8):
        if not report(loss=hp["rate"] + hp["drag"] + 1 / (epoch + 1)):
            return
"""


@pytest.mark.parametrize(("retries", "tried"), [(0, ""), (1, "; tried again, 1 of 1")])
def test_copies_of_a_trial_without_checkpoint_fail_and_the_sweep_ends(
    project: Path, retries: int, tried: str
) -> None:
    """Also if failed trials are tried again, for which they need no worker to be gone."""
    (project / "forgetful.py").write_text(FORGETFUL)
    outcome = run(project, FILE.replace("walk:Walk", "forgetful:train") + f"retries: {retries}\n")
    events = [*store_log.read(outcome.folder.log)]
    copies = {
        event.trial
        for event in events
        if isinstance(event, TrialStarted) and event.parent is not None
    }
    assert copies
    for copy in copies:
        ends = [event for event in events if isinstance(event, TrialEnded) and event.trial == copy]
        assert [end.again for end in ends] == [True] * retries + [False]
        assert (
            "cannot be copied: it is not there; a function trainable has one where it saves"
            in ends[0].reason
        )
        assert ends[0].reason.endswith(tried)
        assert ends[-1].status is Status.FAILED
