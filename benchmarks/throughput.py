"""Reports a second through the driver: without a log, with ours, and with Ray Tune's default loggers.

    python benchmarks/throughput.py --epochs 960

All run the same trivial epochs in one Ray instance in turns, one step of Tune per epoch. The clock
runs from the first report to the last, so that no start of a process counts. Prints medians and ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import ray
from ray import tune

from sweep.backends.ray_tune import backend, cluster
from sweep.backends.worker import Job
from sweep.contract import Assignment, Devices, EpochReported, Facts, Report
from sweep.events import Event
from sweep.runner.coordinator import Coordinator
from sweep.searchers.build import build as build_searcher
from sweep.spec import parse
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.writer import TableWriter

FILE = """
name: throughput
trainable: throughput:Trivial
method: random
metric: {{name: m0, goal: minimize}}
parameters: {{a: {{min: 0.0, max: 1.0}}}}
epochs: {epochs}
run_cap: {trials}
"""


class Trivial:
    """Reports ten metrics an epoch and does nothing else."""

    def begin(self, assignment: Assignment) -> None:
        self.given, self.done = assignment, 0

    def train(self, report: Report) -> None:
        while self.done < self.given.epochs:
            self.done += 1
            metrics = {f"m{i}": i + 1 / self.done for i in range(10)}
            if not report(EpochReported(trial=0, epoch=self.done, metrics=metrics, time=time.time(), time_s=1e-4)):
                return

    def save(self, folder: Path) -> None:
        (folder / "done").write_text(str(self.done))

    def restore(self, folder: Path) -> int:
        self.done = int((folder / "done").read_text())
        return self.done

    def facts(self) -> Facts:
        return Facts()


class Plain(tune.Trainable):
    """The same for Tune alone."""

    def step(self) -> dict[str, float]:
        return {f"m{i}": i + 1 / self.iteration if self.iteration else 1.0 for i in range(10)}

    def reset_config(self, new_config: dict[str, object]) -> bool:
        return True


class Clock:
    """Time between the first and the last report."""

    def __init__(self) -> None:
        self._first = self._last = 0.0

    def tick(self) -> None:
        self._last = time.perf_counter()
        self._first = self._first or self._last

    @property
    def took_s(self) -> float:
        return self._last - self._first


class Ticking(tune.Callback):
    """Tells the clock of each report."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_trial_result(self, iteration: int, trials: object, trial: object, result: object, **info: object) -> None:
        self._clock.tick()


class NoLog:
    """Stands in for the log."""

    def append(self, events: Sequence[Event]) -> None:
        """Forget them."""


class EveryEpoch:
    """A scheduler that wants to see each epoch, so that a step of Tune is one epoch, and stops nothing."""

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return tuple(range(1, epochs))

    def observe(self, event: Event) -> str | None:
        return None


def ours(epochs: int, trials: int, room: int, *, logged: bool) -> float:
    """Seconds for all epochs through our driver."""
    spec = parse(FILE.format(epochs=epochs, trials=trials), "throughput.yaml")
    searcher = build_searcher(spec.method, spec.space, spec.objectives, spec.seed)
    scheduler = EveryEpoch()
    with tempfile.TemporaryDirectory() as scratch:
        text = FILE.format(epochs=epochs, trials=trials)
        info = {"objectives": [{"name": "m0", "goal": "minimize"}]}
        folder = ResultsFolder.create(Path(scratch), spec.name, text, info)
        job = Job(spec.name, spec.trainable, (Path(__file__).parent,), folder.path, "m0", maximize=False)
        log = Log(folder.log) if logged else NoLog()
        writer = TableWriter(folder) if logged else None
        clock = Clock()

        def listen(event: Event) -> None:
            if isinstance(event, EpochReported):
                clock.tick()

        driver = Coordinator(spec, Devices(), searcher, scheduler, log, listen)
        driver.open()
        backend.run(driver, job, Devices(), room=room, reuse=True, local=True, notice=lambda text: None)
        driver.close()
        if writer is not None:
            writer.close()
        if driver.completed != trials:
            raise RuntimeError(f"{driver.completed} of {trials} trials completed")
    return clock.took_s


def plain(epochs: int, trials: int, room: int, *, loggers: bool) -> float:
    """Seconds for the same epochs through Tune alone."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "0" if loggers else "1"
    with tempfile.TemporaryDirectory() as scratch:
        clock = Clock()
        tune.run(
            Plain,
            num_samples=trials,
            stop={"training_iteration": epochs},
            reuse_actors=True,
            max_concurrent_trials=room,
            storage_path=scratch,
            callbacks=[Ticking(clock)],
            verbose=0,
        )
    return clock.took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=960, help="in all")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--room", type=int, default=1, help="trials at a time")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    each = given.epochs // given.trials
    kinds = {
        "our driver, no log": lambda: ours(each, given.trials, given.room, logged=False),
        "our driver, log and tables": lambda: ours(each, given.trials, given.room, logged=True),
        "Ray Tune, no loggers": lambda: plain(each, given.trials, given.room, loggers=False),
        "Ray Tune, default loggers": lambda: plain(each, given.trials, given.room, loggers=True),
    }
    with cluster.connect(None, None, lambda: os._exit(1), say=lambda text: None):
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(given.rounds):
            for kind, run in kinds.items():
                times[kind].append(run())
    ray.shutdown()
    medians = {kind: statistics.median(found) for kind, found in times.items()}
    total = each * given.trials
    print(f"{total} epochs of 10 metrics, {given.trials} trials, {given.room} at a time, median of {given.rounds}")
    for kind, base in (
        ("our driver, no log", "our driver, no log"),
        ("our driver, log and tables", "our driver, no log"),
        ("Ray Tune, no loggers", "Ray Tune, no loggers"),
        ("Ray Tune, default loggers", "Ray Tune, no loggers"),
    ):
        took_s = medians[kind]
        share = f"{100 * (took_s / medians[base] - 1):+.0f} % of {base!r}" if kind != base else ""
        print(f"{kind:36} {took_s:6.2f} s {total / took_s:7.0f} epochs/s  {share}")


if __name__ == "__main__":
    main()
