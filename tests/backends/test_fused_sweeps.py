"""Whole sweeps whose workers train several trials at once: the same trials, epochs and numbers as one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import sweep
from sweep.api import LoadedSweep

ROOT = Path(__file__).parents[2]
WALKS = """
name: walks
trainable: walk:Walk
method: random
metric: {name: loss, goal: minimize}
parameters: {rate: {min: 0.01, max: 0.9}, drag: {min: 0.0, max: 0.9}}
epochs: 9
run_cap: 13
early_terminate: RULE
resources: {max_concurrent: 2}
"""
TABULAR = """
name: tabular
trainable: trainables.tabular_mlp:TabularMLP
method: grid
metric: {name: val_loss, goal: minimize}
parameters:
  learning_rate: {values: [1e-3, 3e-3, 1e-2, 1e30]}
  dropout: {values: [0.0, 0.2]}
  width: {values: [8, 12]}
  clipnorm: {value: 1.0}
epochs: 3
repeats: 2
resources: {max_concurrent: 2}
"""
RULES = {
    "all epochs": "{type: none}",
    "stops": "{type: median, min_iter: 3}",
    "pauses": "{type: asha_promotion, min_iter: 1, eta: 3}",
}


def run(
    folder: Path, text: str, name: str, *options: str, first: str = "", leaving: str = "pass"
) -> LoadedSweep:
    """Run a sweep of walks; ``first`` is done before each of their reports, ``leaving`` where one leaves the others."""
    walk = (Path(__file__).parents[1] / "kills" / "walk.py").read_text()
    (folder / "walk.py").write_text(
        walk.replace("PAUSE_S = 0.02", "PAUSE_S = 0.002")
        .replace("took = ", f"{first}; took = ".lstrip("; "))
        .replace('"""There is nothing of it to forget."""', leaving)
    )
    (folder / "given.yaml").write_text(text)
    command = [
        sys.executable,
        "-m",
        "sweep",
        "run",
        "given.yaml",
        "--name",
        name,
        "--no-memo",
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (folder / "said.txt").write_text(ran.stdout + ran.stderr)
    return sweep.load(folder / "results" / name)


def curves(of: LoadedSweep, metric: str) -> pd.DataFrame:
    return of.metrics.pivot(index="epoch", columns="trial", values=f"metric.{metric}")


@pytest.fixture(scope="module")
def walks_alone(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The curves of walks that are trained one at a time."""
    text = WALKS.replace("RULE", RULES["all epochs"])
    return curves(run(tmp_path_factory.mktemp("walks"), text, "alone", "--inline"), "loss")


@pytest.mark.parametrize("rule", RULES)
def test_walks_in_this_process_are_the_same(
    rule: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = WALKS.replace("RULE", RULES[rule])
    fused = run(tmp_path, text, "fused", "--inline", "--set", "training.fuse=4")
    if rule == "all epochs":  # what a rule decides depends on who was first
        pd.testing.assert_frame_equal(curves(fused, "loss"), request.getfixturevalue("walks_alone"))
    assert sorted(fused.trials["trial"]) == list(range(13))
    assert set(fused.trials["status"]) <= {"completed", "pruned"}
    each = fused.metrics.groupby("trial")["epoch"].apply(list)
    assert all(epochs == list(range(1, len(epochs) + 1)) for epochs in each)


@pytest.mark.parametrize("where", ["inline", pytest.param("ray", marks=pytest.mark.ray)])
def test_a_walk_that_lacks_the_metric_in_an_epoch_fails_alone(where: str, tmp_path: Path) -> None:
    lacks = "metrics.pop('loss' if (self.given.trial, self.done) == (2, 4) else '', None)"
    options = ("--set", "training.fuse=4", *(["--inline"] if where == "inline" else []))
    fused = run(
        tmp_path, WALKS.replace("RULE", RULES["all epochs"]), "fused", *options, first=lacks
    )
    trials = fused.trials.set_index("trial")
    assert trials["status"].drop(2).eq("completed").all()
    assert (trials["status"][2], trials["epochs"][2]) == ("failed", 3)
    assert trials["status_reason"][2] == (
        "in epoch 4 of trial 2, walk:Walk reports no metric 'loss', which is the sweep's; it reports speed"
    )


@pytest.mark.ray
def test_a_group_that_raises_as_a_walk_leaves_it_is_replaced(tmp_path: Path) -> None:
    """The driver ends that walk, which its worker hears in a call of which nobody waits for the result."""
    lacks = "metrics.pop('loss' if (self.given.trial, self.done) == (2, 2) else '', None)"
    leaving = "_ = [].index('a reason') if member.given.trial == 2 else None"
    fused = run(
        *(tmp_path, WALKS.replace("RULE", RULES["stops"]), "fused", "--set", "training.fuse=4"),
        first=lacks,
        leaving=leaving,
    )
    trials = fused.trials.set_index("trial")
    assert sorted(trials.index) == list(range(13))
    assert trials["status"].drop(2).isin(["completed", "pruned"]).all()
    assert trials["status"][2] == "failed"
    told = "worker lost: ValueError: 'a reason' is not in list; it "
    assert told in (tmp_path / "said.txt").read_text()


@pytest.mark.ray
@pytest.mark.exhaustive  # as models on Ray, below
def test_walks_on_ray_are_the_same(tmp_path: Path, walks_alone: pd.DataFrame) -> None:
    text = WALKS.replace("RULE", RULES["all epochs"])
    fused = run(tmp_path, text, "fused", "--set", "training.fuse=4")
    pd.testing.assert_frame_equal(curves(fused, "loss"), walks_alone)
    assert set(fused.trials["status"]) == {"completed"}


@pytest.mark.ray
@pytest.mark.keras
@pytest.mark.slow
def test_models_on_ray_are_the_same(tmp_path: Path) -> None:
    """Two structures, two seeds, and trials that diverge: each group has those of its own structure."""
    alone, fused = (
        run(tmp_path, TABULAR, "alone", "--inline"),
        run(tmp_path, TABULAR, "fused", "--set", "training.fuse=5"),
    )
    pd.testing.assert_frame_equal(
        curves(fused, "val_loss"), curves(alone, "val_loss"), rtol=1e-5, atol=1e-5
    )
    assert fused.trials.set_index("trial")["status"].equals(
        alone.trials.set_index("trial")["status"]
    )
    assert set(fused.trials["status"]) == {"completed", "diverged"}
    assert fused.trials["numerics.fused"].notna().sum() > 20
    assert fused.metrics["together"].max() == 5
