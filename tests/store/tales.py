"""A short sweep, as events, as tables and as a folder."""

from __future__ import annotations

import math
from pathlib import Path

from sweep.events import (
    EpochReported,
    Event,
    Facts,
    ModelTested,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.tables import TableBuilder

OBJECTIVES = (("val_accuracy", "maximize"),)
PARAMS = {"learning_rate": 1e-3, "batch_size": 32, "nesterov": True, "optimizer": "sgd", "layers": [8, 4]}


def started(trial: int, params=PARAMS, time: float = 100.0) -> TrialStarted:
    return TrialStarted(trial=trial, trial_id=f"t{trial}", params=params, seed=trial, repeat=0, time=time)


def reported(trial: int, epoch: int, **metrics: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=epoch, metrics=metrics, time=100.0 + epoch, time_s=0.5)


def ended(trial: int, status: Status = Status.COMPLETED, time: float = 110.0, **rest) -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason="", time=time, **rest)


def build(events: list[Event], objectives=OBJECTIVES) -> TableBuilder:
    builder = TableBuilder("first", objectives, 400.0)
    for event in events:
        builder.observe(event)
    return builder


FACTS = Facts(
    started=101.0,
    node="host",
    devices="cpu:0",
    strategy="default",
    num_replicas=1,
    precision="float32",
    numerics={"tf32": "off"},
    accumulate=2,
    data="f00d",
    train_s=1.25,
    overhead_s={"build": 0.5, "compile_s": 0.25},
    checkpoint="checkpoints/t0/2",
)
STORY: list[Event] = [
    SessionStarted(time=99.0, resumed=False, version="1"),
    started(0),
    started(1),
    reported(0, 1, loss=2.0, val_accuracy=0.8),
    reported(1, 1, loss=math.nan),
    EpochReported(
        trial=0,
        epoch=2,
        metrics={"loss": 1.0, "val_accuracy": 0.7, "tokens": 10.0},
        time=103.0,
        time_s=0.5,
        learning_rate=1e-3,
        examples_per_s=200.0,
        measures={"peak_memory_mb": 64.0, "energy_j": 7200.0},
    ),
    ended(0, facts=FACTS),
    TrialEnded(trial=1, status=Status.DIVERGED, reason="loss is nan", time=104.0, facts=Facts(overhead_s={})),
    SessionEnded(time=111.0, reason="finished"),
    ModelTested(trial=0, metrics={"val_accuracy": 0.65}, time=111.0),
]


def written(results: Path, name: str, events: list[Event]) -> ResultsFolder:
    info = {"objectives": [{"name": metric, "goal": goal} for metric, goal in OBJECTIVES]}
    info["spec"] = {"resources": {"co2_g_per_kwh": 400.0}}
    folder = ResultsFolder.create(results, name, "", info)
    with Log(folder.log) as log:
        log.append(events)
    builder = TableBuilder.of(folder)
    builder.follow(folder.log)
    builder.write(folder)
    return folder
