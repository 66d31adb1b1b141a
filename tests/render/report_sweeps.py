"""Sweeps made of events, for tests of the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from sweep.events import (
    EpochReported,
    Event,
    Facts,
    Params,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

EVIL = '</script><img src=x onerror="window.hacked=1">\'"&{a|b}\u202e\u05d0\u2028'
BOTH = [{"name": "acc", "goal": "maximize"}, {"name": "loss", "goal": "minimize"}]


def trial(
    number: int,
    params: Params,
    scores: Sequence[float],
    status: Status,
    error: str | None = None,
    repeat: int = 0,
) -> list[Event]:
    """The events of one trial; the loss follows the score."""
    begun = 10.0 * number
    events: list[Event] = [
        TrialStarted(
            trial=number,
            trial_id=f"t{number}",
            params=params,
            seed=repeat,
            repeat=repeat,
            time=begun,
        )
    ]
    for epoch, score in enumerate(scores, 1):
        metrics = {"acc": score, "loss": 2.0 - score * (1 + number % 3 / 10)}
        events.append(
            EpochReported(
                trial=number, epoch=epoch, metrics=metrics, time=begun + epoch, time_s=1.0
            )
        )
    if status is not Status.RUNNING:
        facts = Facts(
            started=begun, node=f"node{number % 2}", train_s=2.0, overhead_s={"compile": 1.5}
        )
        reason = "" if status is Status.COMPLETED else f"why {EVIL}"
        events.append(
            TrialEnded(
                trial=number,
                status=status,
                reason=reason,
                time=begun + 15,
                error=error,
                facts=facts,
            )
        )
    return events


def written(
    results: Path,
    events: Sequence[Event],
    name: str = "first",
    objectives: Sequence[object] = BOTH[:1],
) -> ResultsFolder:
    """A results folder with these events in its log."""
    info = {"objectives": list(objectives), "provenance": {"python": "3.11", "gpus": []}}
    folder = ResultsFolder.create(
        results, name, f"# What is {EVIL.splitlines()[0]}?\n# Costs nothing.\nepochs: 3\n", info
    )
    with Log(folder.log) as log:
        log.append([SessionStarted(time=0.0, resumed=False, version="1"), *events])
    return folder


def mixed(trials: int = 36) -> list[Event]:
    """Trials of every state, with parameters of every kind and hostile names."""
    events: list[Event] = []
    for n in range(trials):
        rate = 10 ** (-4 + 3 * ((n * 7) % trials) / trials)
        params: dict[str, object] = {
            "lr": rate,
            "units": [8, 16, 32][n % 3],
            "flag": n % 2 == 0,
            EVIL: ["a", EVIL][n % 2],
        }
        if n % 3 == 0:
            params["optimizer.momentum"] = 0.5 + n / 100
        scores = [0.9 - 0.05 * (math.log10(rate) + 2.5) ** 2 - 0.4 / epoch for epoch in range(1, 6)]
        match n % 9:
            case 4:
                events += trial(n, params, scores[:2], Status.PRUNED)
            case 5:
                events += trial(n, params, [*scores[:3], math.nan], Status.DIVERGED)
            case 6 if n > 20:
                events += trial(n, params, [], Status.FAILED, f"Traceback\n{EVIL}")
            case 7 if n > 30:
                events += trial(n, params, scores[:3], Status.RUNNING)
            case _:
                events += trial(n, params, scores, Status.COMPLETED)
    return events
