"""A whole sweep without any training: a coordinator, and workers that are a function of the parameters."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sweep.backends import Continues, Ends, Progress
from sweep.contract import Assignment, Devices
from sweep.events import EpochReported, Event, Status, TrialEnded, TrialStarted
from sweep.runner.coordinator import Coordinator, Hooks
from sweep.runner.methods import build_searcher
from sweep.schedulers.early_termination import build_scheduler
from sweep.spec import Spec, parse_spec
from sweep.spec.work import find_max_length
from sweep.store import log as store_log
from sweep.store.ledger import Ledger, TrialState
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
    return parse_spec(
        FILE.format(method=method, rule=rule, seed=seed, repeats=repeats, count=count), "f.yaml"
    )


def coordinator(
    given: Spec,
    log: Log,
    clock: Callable[[], float] = time.monotonic,
    stop: Callable[[], bool] = lambda: True,
) -> Coordinator:
    searcher = build_searcher(
        given.method, given.space, given.objectives, given.seed, given.repeats
    )
    scheduler = build_scheduler(
        given.early_terminate,
        given.objectives[0],
        find_max_length(given),
        default_epochs=given.length,
    )
    return Coordinator(given, Devices(), searcher, scheduler, log, Hooks(clock=clock, stop=stop))


class Clock:
    """Goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(
    tmp_path: Path,
    *more: str,
    clock: Callable[[], float] = time.monotonic,
    stop: Callable[[], bool] = lambda: True,
) -> tuple[Coordinator, Log]:
    """A coordinator of a sweep with more lines in its file, and its log."""
    text = FILE.format(method="random", rule="{type: none}", seed=0, repeats=1, count="")
    log = Log(tmp_path / "log.jsonl")
    return coordinator(parse_spec(text + "\n".join(more), "f.yaml"), log, clock, stop), log


def trials_of(path: Path) -> dict[int, TrialState]:
    """The trials of the log at ``path``, by number."""
    ledger = Ledger()
    for event in store_log.read(path):
        ledger.observe(event)
    return ledger.trials


def progress(given: Assignment | TrialStarted, epoch: int, epochs: int) -> Progress:
    """What a worker would hand over: every seventh trial diverges, every eighth fails, every ninth has no room."""
    a, b, number = float(given.params["a"]), float(given.params["b"]), given.trial
    score = (a - 0.3) ** 2 * b + (given.seed + 1) / (epoch + 1)
    reported = EpochReported(
        trial=number, epoch=epoch, metrics={"score": score}, time=1.0, time_s=0.1
    )
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
        assignments: dict[int, Assignment] = {}
        running: dict[int, int] = {}  # epochs
        while True:
            while len(running) < room and (order := driver.next()) is not None:
                trial = order.assignment.trial
                assignments[trial] = order.assignment
                running[trial] = trials_of(path)[trial].epoch  # as if each epoch had a checkpoint
            if not running:
                break
            trial = rng.choice(sorted(running))
            running[trial] += 1
            if not driver.take(
                trial, progress(assignments[trial], running[trial], assignments[trial].epochs)
            ):
                del running[trial]
        driver.close()
    return list(store_log.read(path))


def go_on(given: Spec, path: Path, events: Iterable[Event]) -> list[Event]:
    """Resume from the log at ``path`` and let its workers report in the order of ``events``; returns the log."""
    with Log(path) as log:
        driver = coordinator(given, log)
        driver.open(list(store_log.read(path)))
        assignments: dict[int, Assignment] = {}

        def begin_next() -> None:
            order = driver.next()
            if order is not None:
                assignments[order.assignment.trial] = order.assignment

        for trial in trials_of(path).values():
            if trial.ended is None:
                begin_next()
        for event in events:
            match event:
                case TrialStarted():
                    begin_next()
                case EpochReported():
                    driver.take(
                        event.trial, progress(assignments[event.trial], event.epoch, given.epochs)
                    )
                case TrialEnded() if event.status is not Status.PRUNED:
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
