"""What a trial costs as their number grows: wall time, memory of the driver, files; one trivial epoch each.

    python benchmarks/scale.py --trials 100 1000 10000

Each size runs in a process of its own. "ours" is the driver's memory without Ray: the same trials given out
and taken in without it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sweep.backends.worker import Job, Progress
from sweep.contract import Devices
from sweep.events import EpochReported, Status, TrialEnded
from sweep.runner.coordinator import Coordinator
from sweep.runner.keeping import CheckpointKeeper
from sweep.schedulers.none import NoScheduler
from sweep.searchers.build import build as build_searcher
from sweep.spec import parse
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.writer import TableWriter

FILE = """
name: scale
trainable: throughput:Trivial
method: random
metric: {{name: m0, goal: minimize}}
parameters: {{a: {{min: 0.0, max: 1.0}}, b: {{min: 0.0, max: 1.0}}, c: {{values: [x, y]}}}}
epochs: 1
run_cap: {trials}
"""


def resident_bytes() -> int:
    """Memory of this process as the kernel counts it."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(trials: int, *, with_ray: bool) -> dict[str, float]:
    """Run so many trials in this process."""
    text = FILE.format(trials=trials)
    spec = parse(text, "scale.yaml")
    searcher = build_searcher(spec.method, spec.space, spec.objectives, spec.seed)
    with tempfile.TemporaryDirectory() as scratch:
        info = {"objectives": [{"name": "m0", "goal": "minimize"}]}
        folder = ResultsFolder.create(Path(scratch), spec.name, text, info)
        job = Job(spec.name, spec.trainable, (Path(__file__).parent,), folder.path, "m0", maximize=False)
        keeper = CheckpointKeeper(folder.path, "m0", maximize=False)
        with Log(folder.log) as log, TableWriter(folder):
            driver = Coordinator(spec, Devices(), searcher, NoScheduler(), log, keeper.on)
            driver.open()
            if with_ray:
                before, wall_s = _through_ray(driver, job)
            else:
                before, wall_s = _by_hand(driver)
            after = resident_bytes()
            driver.close()
        files = sum(1 for path in folder.path.rglob("*") if path.is_file())
        if driver.completed != trials:
            raise RuntimeError(f"{driver.completed} of {trials} trials completed")
    return {"trials": trials, "wall_s": wall_s, "grown_bytes": after - before, "files": files}


def _through_ray(driver: Coordinator, job: Job) -> tuple[int, float]:
    from sweep.backends.ray_tune import backend, cluster

    with cluster.connect(None, None, lambda: os._exit(1)):
        before, began = resident_bytes(), time.perf_counter()
        backend.run(driver, job, Devices(), room=2, reuse=True, notice=lambda text: None)
        return before, time.perf_counter() - began


def _by_hand(driver: Coordinator) -> tuple[int, float]:
    before, began = resident_bytes(), time.perf_counter()
    while (order := driver.next()) is not None:
        trial = order.assignment.trial
        epoch = EpochReported(
            trial=trial, epoch=1, metrics={f"m{i}": 1.0 for i in range(10)}, time=time.time(), time_s=1e-4
        )
        end = TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=time.time())
        driver.take(trial, Progress((epoch,), end))
    return before, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--no-ray", action="store_true", help="only the part that is ours")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.trials[0], with_ray=not given.no_ray)))
        return
    for how, flag in (("ours alone", ["--no-ray"]), *([] if given.no_ray else [("through Ray", [])])):
        for trials in given.trials:
            command = [sys.executable, "-W", "ignore", __file__, "--one", "--trials", str(trials), *flag]
            found = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            )
            print(
                f"{how:12} {trials:6d} trials: {1e3 * found['wall_s'] / trials:7.2f} ms a trial, "
                f"{found['grown_bytes'] / trials / 1e3:6.1f} kB a trial, {found['files']} files",
                flush=True,
            )


if __name__ == "__main__":
    main()
