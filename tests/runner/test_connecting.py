from __future__ import annotations

import time

import pytest

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import EpochReported, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.runner.connecting import sweep_status
from sweep.spec import parse_spec

FILE = """
name: pulse
trainable: a:B
method: random
metric: {name: loss, goal: minimize}
parameters: {a: {min: 0.0, max: 1.0}}
epochs: 2
run_cap: 3
"""


def started(trial: int, now: float) -> TrialStarted:
    return TrialStarted(trial=trial, trial_id="", params={"a": 0.5}, seed=0, repeat=0, time=now)


def test_the_vitals_of_a_sweep() -> None:
    now = time.time()
    standing = Standing(Outline.of(parse_spec(FILE, "f.yaml")))
    status = sweep_status(standing)
    assert (status.trials, status.best, status.left_s) == (
        {status.value: 0 for status in Status},
        None,
        None,
    )
    standing.observe(SessionStarted(time=now - 60, resumed=False, version="1"))
    standing.observe(started(0, now - 60))
    standing.running.clear()
    assert sweep_status(standing).trials[Status.INTERRUPTED] == 1
    assert sweep_status(standing).finished == 0
    for event in (
        SessionStarted(time=now - 10, resumed=True, version="1"),
        EpochReported(trial=0, epoch=2, metrics={"loss": 0.25}, time=now, time_s=3.0),
        TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=now),
        started(1, now),
    ):
        standing.observe(event)
    status = sweep_status(standing)
    assert {state: count for state, count in status.trials.items() if count} == {
        "completed": 1,
        "running": 1,
    }
    assert (status.total, status.finished, status.epochs) == (3, 1, 1)
    assert (status.metric, status.goal, status.best, status.best_trials) == (
        "loss",
        "minimize",
        0.25,
        (0,),
    )
    assert status.epochs_per_s == pytest.approx(0.1, rel=0.2)
    assert status.left_s
    assert status.left_s >= 12.0


def test_the_vitals_cost_little() -> None:
    standing = Standing(Outline.of(parse_spec(FILE, "f.yaml")))
    standing.observe(started(0, 1.0))
    events = [
        EpochReported(trial=0, epoch=epoch, metrics={"loss": 0.5}, time=1.0, time_s=1.0)
        for epoch in range(1, 1001)
    ]
    begin = time.thread_time()
    for event in events:
        standing.observe(event)
        sweep_status(standing)
    assert (time.thread_time() - begin) / 1000 < 1e-3  # measured: 3e-5; once a second
