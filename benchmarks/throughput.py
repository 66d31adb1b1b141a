"""Reports a second through the driver: without a log, with ours, and with Ray Tune's default loggers.

    python benchmarks/throughput.py

All run the same trivial epochs in one Ray instance in turns, under two loads. `paced` is that of a large sweep of
short epochs: ten trials at a time, each with an epoch every 10 ms, 960 epochs a second in all. `flat out` is the worst
case: one trial without any pause, and a decision after each epoch, so that each is a step of Tune. The clock
runs from the first report to the last, so that no start of a process counts. Prints medians and ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ray import tune

from sweep.backends import Job
from sweep.backends.ray_tune import backend, cluster
from sweep.contract import Assignment, Devices, EpochReported, Facts, Report
from sweep.events import Event
from sweep.runner.coordinator import Coordinator, Hooks
from sweep.runner.methods import build_searcher
from sweep.space.objectives import Objective
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Change, Reported
from sweep.store.log import Log
from sweep.store.reading import TableWriter

FILE = """
name: throughput
trainable: throughput:Trivial
method: random
metric: {{name: m0, goal: minimize}}
parameters:
  a: {{min: 0.0, max: 1.0}}
  pause_s: {{value: {pause_s}}}
  gate: {{value: {gate}}}
  trials: {{value: {trials}}}
epochs: {epochs}
run_cap: {trials}
"""


@dataclass(frozen=True)
class Load:
    """A number of concurrent trials, with a number of epochs each."""

    name: str
    trials: int
    epochs: int
    pause_s: float
    decides: bool  # after each epoch

    @property
    def cpus(self) -> float:
        """CPUs of a trial, so that all trials fit at the same time."""
        return min((os.cpu_count() or 1) / self.trials, 1.0)


LOADS = (
    Load("paced", trials=10, epochs=960, pause_s=10 / 960, decides=False),
    Load("flat out", trials=1, epochs=960, pause_s=0.0, decides=True),
)


def meet(gate: str, trials: int) -> float:
    """Wait until all trials have begun, as their workers do not start together; return the time then."""
    Path(gate).mkdir(exist_ok=True)
    (Path(gate) / str(os.getpid())).touch()
    while sum(1 for _ in Path(gate).iterdir()) < trials:
        time.sleep(0.01)
    return time.perf_counter()


def wait_until_due(began: float, epochs: int, pause_s: float) -> None:
    """Wait until the time at which ``epochs`` epochs are due; a trial that is late does not wait."""
    time.sleep(max(began + epochs * pause_s - time.perf_counter(), 0.0))


class Trivial:
    """Reports ten metrics an epoch and does nothing else."""

    def begin(self, assignment: Assignment) -> None:
        self.given, self.done, params = assignment, 0, assignment.params
        self.pause_s = float(str(params.get("pause_s", 0.0)))
        self.began = (
            meet(str(params["gate"]), int(str(params["trials"]))) if "gate" in params else 0.0
        )

    def train(self, report: Report) -> None:
        while self.done < self.given.epochs:
            self.done += 1
            wait_until_due(self.began, self.done, self.pause_s)
            metrics = {f"m{i}": i + 1 / self.done for i in range(10)}
            if not report(
                EpochReported(
                    trial=0, epoch=self.done, metrics=metrics, time=time.time(), time_s=1e-4
                )
            ):
                return

    def save(self, folder: Path) -> None:
        (folder / "done").write_text(str(self.done))

    def restore(self, folder: Path) -> int:
        self.done = int((folder / "done").read_text())
        return self.done

    def facts(self) -> Facts:
        return Facts()


class Plain(tune.Trainable):
    """The same as `Trivial`, as a trainable of Tune alone."""

    def setup(self, config: dict[str, object]) -> None:
        self.began = 0.0

    def step(self) -> dict[str, float]:
        self.began = self.began or meet(self.config["gate"], self.config["trials"])
        wait_until_due(self.began, self.iteration + 1, self.config["pause_s"])
        return {f"m{i}": i + 1 / self.iteration if self.iteration else 1.0 for i in range(10)}


class Clock:
    """Measures the time between the first and the last report."""

    def __init__(self) -> None:
        self._first = self._last = 0.0

    def tick(self) -> None:
        self._last = time.perf_counter()
        self._first = self._first or self._last

    @property
    def took_s(self) -> float:
        return self._last - self._first


class Ticking(tune.Callback):
    """Passes each report on to the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_trial_result(
        self, iteration: int, trials: object, trial: object, result: object, **info: object
    ) -> None:
        self._clock.tick()


class NoLog:
    """A log that keeps nothing."""

    def append(self, events: Sequence[Event]) -> None:
        """Discard the events."""


class StopsNothing:
    """A scheduler that stops no trial; with ``decides``, each epoch is a step of Tune."""

    def __init__(self, *, decides: bool) -> None:
        self._decides = decides

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return tuple(range(1, epochs)) if self._decides else ()

    def observe(self, event: Event) -> str | None:
        return None


def ours(load: Load, *, logged: bool) -> float:
    """Return the seconds for all epochs through our driver."""
    devices = Devices(cpus=load.cpus)
    with tempfile.TemporaryDirectory() as scratch:
        gate = Path(scratch) / "gate"
        text = FILE.format(epochs=load.epochs, trials=load.trials, pause_s=load.pause_s, gate=gate)
        spec = parse_spec(text, "throughput.yaml")
        searcher = build_searcher(spec.method, spec.space, spec.objectives, spec.seed)
        info = {"objectives": [{"name": "m0", "goal": "minimize"}]}
        folder = ResultsFolder.create(Path(scratch), spec.name, text, info)
        job = Job(
            spec.name,
            spec.trainable,
            (Path(__file__).parent,),
            folder.path,
            Objective("m0", "minimize"),
        )
        log = Log(folder.log) if logged else NoLog()
        writer = TableWriter(folder) if logged else None
        clock = Clock()

        def listen(change: Change) -> None:
            if isinstance(change, Reported):
                clock.tick()

        driver = Coordinator(
            spec, devices, searcher, StopsNothing(decides=load.decides), log, Hooks(listen=listen)
        )
        driver.open()
        here = cluster.Cluster(local=True)
        backend.RayTune(cluster=here, job=job, devices=devices, most=load.trials).train(driver)
        driver.close()
        if writer is not None:
            writer.close()
        if driver.completed != load.trials:
            raise RuntimeError(f"{driver.completed} of {load.trials} trials completed")
    return clock.took_s


def plain(load: Load, *, loggers: bool) -> float:
    """Return the seconds for the same epochs through Tune alone, for which each is a result."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "0" if loggers else "1"
    with tempfile.TemporaryDirectory() as scratch:
        clock = Clock()
        tune.run(
            Plain,
            config={
                "pause_s": load.pause_s,
                "trials": load.trials,
                "gate": str(Path(scratch) / "gate"),
            },
            num_samples=load.trials,
            stop={"training_iteration": load.epochs},
            resources_per_trial={"cpu": load.cpus},
            storage_path=scratch,
            callbacks=[Ticking(clock)],
            verbose=0,
        )
    return clock.took_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[load.name for load in LOADS])
    given = parser.parse_args()
    with cluster.connect(None, None, lambda text: None, cluster.Start(lost=lambda: os._exit(1))):
        for load in LOADS:
            if given.only in (None, load.name):
                compare(load, given.rounds)


def compare(load: Load, rounds: int) -> None:
    """Run all kinds in turns, and print their medians."""
    kinds = {
        "our driver, no log": lambda: ours(load, logged=False),
        "our driver, log and tables": lambda: ours(load, logged=True),
        "Ray Tune, no loggers": lambda: plain(load, loggers=False),
        "Ray Tune, default loggers": lambda: plain(load, loggers=True),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, run in kinds.items():
            times[kind].append(run())
    medians = {kind: statistics.median(found) for kind, found in times.items()}
    total = load.epochs * load.trials
    print(
        f"{load.name}: {total} epochs of 10 metrics, {load.trials} trials at a time, median of {rounds}"
    )
    for kind, base in (
        ("our driver, no log", "our driver, no log"),
        ("our driver, log and tables", "our driver, no log"),
        ("Ray Tune, no loggers", "Ray Tune, no loggers"),
        ("Ray Tune, default loggers", "Ray Tune, no loggers"),
    ):
        took_s = medians[kind]
        share = f"{100 * (took_s / medians[base] - 1):+.0f} % of {base!r}" if kind != base else ""
        print(f"{kind:36} {took_s:6.2f} s {total / took_s:7.0f} epochs/s  {share}", flush=True)


if __name__ == "__main__":
    main()
