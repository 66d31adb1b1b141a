"""A short sweep, as events, as tables and as a folder."""

from __future__ import annotations

import math
import random
from pathlib import Path

from msgspec.structs import replace

from sweep.events import (
    EpochReported,
    Event,
    Facts,
    ModelTested,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.tables import TableBuilder, build_tables, write

OBJECTIVES = (("val_accuracy", "maximize"),)
PARAMS = {
    "learning_rate": 1e-3,
    "batch_size": 32,
    "nesterov": True,
    "optimizer": "sgd",
    "layers": [8, 4],
}


def started(trial: int, params=PARAMS, time: float = 100.0) -> TrialStarted:
    return TrialStarted(
        trial=trial, trial_id=f"t{trial}", params=params, seed=trial, repeat=0, time=time
    )


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
    data_reads="{}",
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
        measures={"peak_memory_mb": 64.0, "energy_j": 7200.0, "cost": 1.5},
    ),
    ended(0, facts=FACTS),
    TrialEnded(
        trial=1,
        status=Status.DIVERGED,
        reason="loss is nan",
        time=104.0,
        facts=Facts(overhead_s={}),
    ),
    SessionEnded(time=111.0, reason="finished"),
    ModelTested(trial=0, metrics={"val_accuracy": 0.65}, time=111.0),
]


def written(results: Path, name: str, events: list[Event]) -> ResultsFolder:
    info = {"objectives": [{"name": metric, "goal": goal} for metric, goal in OBJECTIVES]}
    info["spec"] = {"resources": {"co2_g_per_kwh": 400.0}}
    folder = ResultsFolder.create(results, name, "", info)
    with Log(folder.log) as log:
        log.append(events)
    for event in events:
        if isinstance(event, TrialEnded) and event.facts.checkpoint:
            (folder.path / event.facts.checkpoint).mkdir(parents=True, exist_ok=True)
    write(folder, build_tables(folder))
    return folder


def random_log(rng: random.Random, trials: int = 6, epochs: int = 4) -> list[Event]:
    """A log that a sweep could have written: several sessions, some killed, and trials of every fate."""
    log: list[Event] = []
    now = 1000.0
    begun: dict[int, int] = {}  # the last epoch of each trial
    status: dict[int, Status] = {}

    def time() -> float:
        nonlocal now
        now += rng.choice([0.25, 0.5, 1.0])
        return now

    for session in range(rng.randint(1, 3)):
        log.append(SessionStarted(time=time(), resumed=session > 0, version="1"))
        for trial in [number for number, state in status.items() if state is Status.FAILED]:
            if rng.random() < 0.5:
                log.append(ended(trial, Status.INTERRUPTED, time=time(), again=True))
                status[trial] = Status.INTERRUPTED
        for _ in range(rng.randint(3, 25)):
            going = [
                number
                for number, state in status.items()
                if state in (Status.RUNNING, Status.INTERRUPTED)
            ]
            if len(begun) < trials and (not going or rng.random() < 0.3):
                number = len(begun)
                role = Role.SEARCH if number else rng.choice([Role.SEARCH, Role.BASELINE])
                index = number + 10 if role is Role.SEARCH and trials % 2 else None
                params = {"a": rng.choice([0.5, 1.5, 2.5]), "b": rng.choice(["x", "y"])}
                begin = started(number, params, time())
                log.append(
                    replace(begin, role=role, index=index, repeat=number % 2, seed=number % 2)
                )
                begun[number], status[number] = 0, Status.RUNNING
            elif going:
                trial = rng.choice(going)
                fate = rng.random()
                if begun[trial] < epochs and fate < 0.7:
                    begun[trial] += 1
                    value = rng.choice(
                        [math.nan, rng.random(), rng.random(), rng.random(), rng.random()]
                    )
                    report = reported(trial, begun[trial], loss=rng.random(), val_accuracy=value)
                    log.append(
                        replace(report, time=time(), memo="other/1" if rng.random() < 0.2 else None)
                    )
                    status[trial] = Status.RUNNING
                else:
                    state = rng.choice(
                        [*(one for one in Status if one is not Status.RUNNING), Status.COMPLETED]
                    )
                    again = state is Status.INTERRUPTED and rng.random() < 0.5
                    log.append(ended(trial, state, time=time(), again=again))
                    status[trial] = state
        if rng.random() < 0.7:
            open_trials = [number for number, state in status.items() if state is Status.RUNNING]
            log += [ended(trial, Status.INTERRUPTED, time=time()) for trial in open_trials]
            status.update(dict.fromkeys(open_trials, Status.INTERRUPTED))
            log.append(SessionEnded(time=time(), reason="interrupted"))
    done = [number for number, state in status.items() if state is Status.COMPLETED]
    return [
        *log,
        *(
            ModelTested(trial=trial, metrics={"val_accuracy": 0.5}, time=time())
            for trial in done[:2]
        ),
    ]
