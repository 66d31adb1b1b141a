"""A cluster larger than this machine: simulated workers on the real coordinator, searcher, scheduler, log and tables.

    python benchmarks/cluster_sim.py --workers 1000 --trials 100000

Time is simulated: each worker trains epochs of ``--epoch-s`` seconds and hands them over as a real one does, at rungs,
about every second, and at the end. What the driver does is real, and is measured: events a second, milliseconds and
memory a trial in each tenth, and how many workers it could serve before a sweep waits for it.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import math
import os
import random
import tempfile
import time
from pathlib import Path

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.backends import Continues, Ends, Order, Progress
from sweep.backends.checkpoints import CheckpointKeeper
from sweep.contract import Devices
from sweep.events import EpochReported, Facts, Status, TrialEnded
from sweep.runner import methods
from sweep.runner.coordinator import Coordinator, Hooks
from sweep.spec import parse_spec
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Change
from sweep.store.log import Log
from sweep.store.reading import TableWriter

FILE = """
name: cluster
trainable: simulated:Simulated
method: {method}
metric: {{name: loss, goal: minimize}}
parameters:
  rate: {{min: 0.0001, max: 1.0, distribution: log_uniform_values}}
  drag: {{min: 0.0, max: 1.0}}
  kind: {{values: [a, b]}}
epochs: {epochs}
run_cap: {trials}
early_terminate: {{type: asha, min_iter: 1, eta: 3}}
max_restarts: 99
checkpoint: {{trials: 10}}
"""
STEP_S = 1.0  # of training between two reports, as of a worker


class SimulatedWorker:
    """A worker that trains one order after the other in simulated time."""

    def __init__(self, epoch_s: float, rng: random.Random) -> None:
        self._epoch_s, self._rng = epoch_s, rng
        self.order: Order | None = None
        self._done = 0

    def take(self, order: Order) -> None:
        self.order, self._done = order, 0

    def step(self, now: float) -> tuple[float, Progress]:
        """Train to the next report; return the time at which it comes, and the report."""
        assert self.order is not None
        given, epochs = self.order.assignment, []
        while True:
            took_s = self._epoch_s * self._rng.uniform(0.8, 1.2)
            now += took_s
            self._done += 1
            floor = abs(math.log10(float(given.params["rate"])) + 2) + float(given.params["drag"])
            metrics = {
                "loss": floor + 2 / self._done,
                "val_loss": floor + 3 / self._done,
                "accuracy": 1 / (1 + floor),
            }
            epochs.append(
                EpochReported(
                    trial=given.trial, epoch=self._done, metrics=metrics, time=now, time_s=took_s
                )
            )
            if self._done == given.epochs:
                end = TrialEnded(
                    trial=given.trial,
                    status=Status.COMPLETED,
                    reason="",
                    time=now,
                    facts=Facts(node="n", train_s=now),
                )
                return now, Ends(epochs=tuple(epochs), end=end)
            if self._done in self.order.decision_epochs or len(epochs) * self._epoch_s >= STEP_S:
                return now, Continues(epochs=tuple(epochs))


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def simulate(given: argparse.Namespace, scratch: Path) -> None:
    spec = parse_spec(
        FILE.format(method=given.method, epochs=given.epochs, trials=given.trials), "cluster.yaml"
    )
    folder = ResultsFolder.create(
        scratch, spec.name, "", {"objectives": [{"name": "loss", "goal": "minimize"}]}
    )
    keeper, standing = CheckpointKeeper(folder.path, spec), Standing(Outline.of(spec))
    rng, events = random.Random(0), 0

    def listen(change: Change) -> None:
        nonlocal events
        keeper.on(change)
        standing.observe(change.event)
        events += 1

    print(
        f"{given.workers} workers, {given.trials} trials of up to {given.epochs} epochs, {given.method} with ASHA"
    )
    with Log(folder.log) as log, TableWriter(folder):
        searcher, scheduler = methods.searcher(spec, [], 1), methods.scheduler(spec, [])
        driver = Coordinator(spec, Devices(), searcher, scheduler, log, Hooks(listen=listen))
        driver.open()
        began, busy, before = time.perf_counter(), time.process_time(), resident_bytes()
        idle = [SimulatedWorker(given.epoch_s, rng) for _ in range(given.workers)]
        queue: list[tuple[float, int, SimulatedWorker, Progress]] = []
        now, number, tenth, mark = 0.0, 0, 1, (0, 0.0)
        while True:
            while idle and (order := driver.next(str(id(idle[-1])))) is not None:
                worker = idle.pop()
                worker.take(order)
                driver.begun(order.assignment.trial)
                at, progress = worker.step(now)
                heapq.heappush(queue, (at, number := number + 1, worker, progress))
            if not queue:
                break
            now, _, worker, progress = heapq.heappop(queue)
            assert worker.order is not None
            if driver.take(worker.order.assignment.trial, progress):
                at, progress = worker.step(now)
                heapq.heappush(queue, (at, number := number + 1, worker, progress))
            else:
                idle.append(worker)
            ended = sum(standing.ended.values())
            if ended >= tenth * given.trials // 10:
                took_s = time.process_time() - busy
                trials, since_s = ended - mark[0], took_s - mark[1]
                mark = (ended, took_s)
                print(
                    f"  {ended:7,} trials: {1e3 * since_s / max(trials, 1):.2f} ms a trial, "
                    f"{(resident_bytes() - before) / 1e6:.0f} MB more",
                    flush=True,
                )
                tenth += 1
        cpu_s, wall_s = time.process_time() - busy, time.perf_counter() - began
        driver.close()
    served = given.workers * now / cpu_s
    print(
        f"{events:,} events in {cpu_s:.1f} s of CPU ({wall_s:.1f} s): {events / cpu_s:,.0f} a second; a sweep of "
        f"{now / 3600:.1f} h takes {100 * cpu_s / now:.2f} % of one core of the driver: with epochs of "
        f"{given.epoch_s:g} s it could serve {served:,.0f} workers"
    )
    size = folder.log.stat().st_size
    began = time.perf_counter()
    tables = reading.read_tables(folder)
    print(
        f"log {size / 1e6:.0f} MB, {size / events:.0f} bytes an event; tables of {tables.trials.num_rows:,} trials and "
        f"{tables.metrics.num_rows:,} epochs read in {time.perf_counter() - began:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--epoch-s", type=float, default=30.0)
    parser.add_argument("--method", default="random")
    with tempfile.TemporaryDirectory() as scratch:
        simulate(parser.parse_args(), Path(scratch))


if __name__ == "__main__":
    main()
