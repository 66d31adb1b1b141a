"""A sweep that has everything which other tools might trip over, written as a real one is."""

from __future__ import annotations

import math

from sweep.events import (
    EpochReported,
    Event,
    Facts,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
    Value,
)

BEGAN = 1_700_000_000.0
FILE = """
name: hostile
description: "Which, if any?"
trainable: m:M
method: random
metrics: [{name: "val/acc", goal: maximize}, {name: cost, goal: minimize}]
parameters:
  lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  opt: {values: [sgd, null, true, [1, 2], "=1+1", "a,b\\n\\"c\\""]}
  cnn.head.units: {min: 8, max: 64}
  size-2: {values: [1, 2.5], when: {opt: sgd}}
  twice: {value: "= 2 * lr"}
  batch: {value: 32}
epochs: 3
repeats: 2
run_cap: 10
"""
OPTS: list[Value] = ["sgd", None, True, [1, 2], "=1+1", 'a,b\n"c"']
STATUSES = [*Status]


def params(number: int) -> dict[str, Value]:
    lr, opt = 10.0 ** (-1 - number // 2 / 3), OPTS[number // 2 % len(OPTS)]
    more: dict[str, Value] = {"size-2": 2.5} if opt == "sgd" else {}
    return {
        "lr": lr,
        "opt": opt,
        "cnn.head.units": 8 + number,
        **more,
        "twice": 2 * lr,
        "batch": 32,
    }


def trial(number: int, status: Status) -> list[Event]:
    """Three epochs, of which some numbers are none."""
    at = BEGAN + 10 * number
    events: list[Event] = [
        TrialStarted(
            trial=number,
            trial_id=f"t{number}",
            params=params(number),
            seed=7 + number,
            repeat=number % 2,
            time=at,
        )
    ]
    for epoch in (1, 2, 3):
        metrics = {
            "val/acc": number / 10 + epoch / 100,
            "cost": 1e300,
            "f1=macro": math.nan,
            "größe": math.inf,
        }
        if status is Status.DIVERGED and epoch == 3:
            metrics["val/acc"] = math.nan
        events.append(
            EpochReported(
                trial=number,
                epoch=epoch,
                metrics=metrics,
                time=at + epoch,
                time_s=0.1,
                learning_rate=0.1,
                measures={"step_s": 0.01},
            )
        )
    if status is not Status.RUNNING:
        reason = "" if status is Status.COMPLETED else f"because, of\n{status}"
        error = 'Traceback, "quoted"\n\ud800 half' if status is Status.FAILED else None
        facts = Facts(node="here", devices="cpu:0", checkpoint=f"checkpoints/{number:05d}")
        events.append(
            TrialEnded(
                trial=number, status=status, reason=reason, time=at + 5, error=error, facts=facts
            )
        )
    return events


def story() -> list[Event]:
    """One trial of each status."""
    events: list[Event] = [SessionStarted(time=BEGAN, resumed=False, version="1")]
    for number, status in enumerate(STATUSES):
        events += trial(number, status)
    return [*events, SessionEnded(time=BEGAN + 100, reason="finished")]
