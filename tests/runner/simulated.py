"""A whole sweep without any training: a coordinator, and workers that are a function of the parameters."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sweep.backends import Continues, Ends, Progress
from sweep.contract import Devices
from sweep.events import EpochReported, Event, Status, TrialEnded, TrialStarted
from sweep.runner.coordinator import Coordinator, Hooks
from sweep.runner.methods import build_searcher
from sweep.schedulers.early_termination import build_scheduler
from sweep.spec import Spec, parse_spec
from sweep.store import log as store_log
from sweep.store.log import Log

METHODS = ("grid", "random", "sobol", "tpe", "nsga2")
FILE = """
name: simulated
trainable: none:None
method: {method}
metric: {{name: score, goal: minimize}}
parameters: {{a: {{min: 0.0, max: 1.0{count}}}, b: {{values: [1, 2, 3]}}}}
epochs: 9
run_cap: 9
repeats: {repeats}
early_terminate: {rule}
max_failures: 99
seed: {seed}
"""


def spec(method: str, rule: str, seed: int, repeats: int = 1) -> Spec:
    count = ", count: 3" if method == "grid" else ""
    return parse_spec(FILE.format(method=method, rule=rule, seed=seed, repeats=repeats, count=count), "f.yaml")


def coordinator(given: Spec, log: Log, clock: Callable[[], float] = time.monotonic) -> Coordinator:
    searcher = build_searcher(given.method, given.space, given.objectives, given.seed, given.repeats)
    scheduler = build_scheduler(given.early_terminate, given.objectives[0], given.epochs)
    return Coordinator(given, Devices(), searcher, scheduler, log, Hooks(clock=clock))


class Clock:
    """Goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(tmp_path: Path, *more: str, clock: Callable[[], float] = time.monotonic) -> tuple[Coordinator, Log]:
    """A coordinator of a sweep with more lines in its file, and its log."""
    text = FILE.format(method="random", rule="{type: none}", seed=0, repeats=1, count="")
    log = Log(tmp_path / "log.jsonl")
    return coordinator(parse_spec(text + "\n".join(more), "f.yaml"), log, clock), log


def progress(started: TrialStarted, epoch: int, epochs: int) -> Progress:
    """What a worker would hand over: every seventh trial diverges, every eighth fails, every ninth has no room."""
    a, b, number = float(started.params["a"]), float(started.params["b"]), started.trial
    score = (a - 0.3) ** 2 * b + (started.seed + 1) / (epoch + 1)
    reported = EpochReported(trial=number, epoch=epoch, metrics={"score": score}, time=1.0, time_s=0.1)
    fate = {6: Status.DIVERGED, 7: Status.FAILED, 8: Status.OOM}.get(number) if epoch == 2 else None
    if fate is not None:
        return Ends(end=TrialEnded(trial=number, status=fate, reason="", time=1.0))
    if epoch < epochs:
        return Continues(epochs=(reported,))
    end = TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=1.0)
    return Ends(epochs=(reported,), end=end)


def simulate(given: Spec, path: Path, room: int, seed: int) -> list[Event]:
    """Run a sweep, or go on with it, with ``room`` workers that report in a random order; returns its log."""
    rng = random.Random(seed)
    with Log(path) as log:
        driver = coordinator(given, log)
        driver.open(list(store_log.read(path)) if path.stat().st_size else ())
        running: dict[int, int] = {}
        while True:
            while len(running) < room and (order := driver.next()) is not None:
                running[order.assignment.trial] = driver._open[order.assignment.trial].state.epoch
            if not running:
                break
            trial = rng.choice(sorted(running))
            running[trial] += 1
            started = driver._open[trial].started
            if not driver.take(trial, progress(started, running[trial], given.epochs)):
                del running[trial]
        driver.close()
    return list(store_log.read(path))


def go_on(given: Spec, path: Path, order: Iterable[Event]) -> list[Event]:
    """Resume from the log at ``path`` and let its workers report in the order of ``order``; returns the log."""
    with Log(path) as log:
        driver = coordinator(given, log)
        driver.open(list(store_log.read(path)))
        for _ in range(len(driver._again)):
            driver.next()
        for event in order:
            match event:
                case TrialStarted():
                    driver.next()
                case EpochReported():
                    driver.take(event.trial, progress(driver._open[event.trial].started, event.epoch, given.epochs))
                case TrialEnded() if driver._has_worker(event.trial) and event.status is not Status.PRUNED:
                    driver.take(event.trial, Ends(end=event))
        driver.close()
    return list(store_log.read(path))


def story(events: Iterable[Event]) -> list[tuple[object, ...]]:
    """The events without their times and sessions."""
    told: list[tuple[object, ...]] = []
    for event in events:
        match event:
            case TrialStarted():
                told.append(("started", event.trial, event.seed, event.repeat, repr(event.params)))
            case EpochReported():
                told.append(("epoch", event.trial, event.epoch, event.metrics))
            case TrialEnded(status=status) if status is not Status.INTERRUPTED:
                told.append(("ended", event.trial, status, event.reason))
    return told
