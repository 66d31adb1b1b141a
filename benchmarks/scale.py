"""What a trial costs as their number grows: wall time, memory of the driver, files; one trivial epoch each.

    python benchmarks/scale.py --trials 100 1000 10000

Each size runs in a process of its own. "ours alone" gives out and takes in the same trials without Ray;
"Ray Tune" is its `Tuner` with actors reused and the loggers that it has by default. Figures per tenth of
the trials show whether the cost is flat; "later" leaves the first tenth out, with all that is paid once.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 - pyarrow loads it with the first table: 50 MB once, whatever the number of trials

from sweep.backends import Ends, Job
from sweep.backends.checkpoints import CheckpointKeeper
from sweep.contract import Devices
from sweep.events import EpochReported, Status, TrialEnded
from sweep.runner.coordinator import Coordinator, Hooks
from sweep.runner.methods import build_searcher
from sweep.schedulers.early_termination import NoScheduler
from sweep.space.objectives import Objective
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Change, Ended
from sweep.store.log import Log
from sweep.store.reading import TableWriter

FILE = """
name: scale
trainable: throughput:Trivial
method: random
metric: {{name: m0, goal: minimize}}
parameters: {{a: {{min: 0.0, max: 1.0}}, b: {{min: 0.0, max: 1.0}}, c: {{values: [x, y]}}}}
epochs: 1
run_cap: {trials}
"""
KINDS = ("ours alone", "through Ray", "Ray Tune")
ROOM = 2  # trials at a time


class Marks:
    """Records the seconds and the memory of this process at the beginning and after each tenth of the trials."""

    def __init__(self, trials: int) -> None:
        self._trials = trials
        self.begin()

    def begin(self) -> None:
        """Start the measurement; nothing before this counts."""
        self.ended = 0
        self._began = time.perf_counter()
        self.found = [(0, 0.0, resident_bytes())]

    def add(self, *, last: bool = False) -> None:
        """Record that a trial has ended or, with ``last``, that everything is over."""
        self.ended += not last
        if last or self.ended % max(self._trials // 10, 1) == 0:
            took_s = time.perf_counter() - self._began
            self.found.append((self.ended, took_s, resident_bytes()))


def resident_bytes() -> int:
    """Return the memory of this process as the kernel counts it."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(kind: str, trials: int) -> dict[str, Any]:
    """Run ``trials`` trials in this process; return the marks and the number of files."""
    marks = Marks(trials)
    with tempfile.TemporaryDirectory() as scratch:
        if kind == "Ray Tune":
            _tune(trials, marks, scratch)
        else:
            _ours(trials, marks, Path(scratch), with_ray=kind == "through Ray")
        files = sum(1 for path in Path(scratch).rglob("*") if path.is_file())
    if marks.ended != trials:
        raise RuntimeError(f"{marks.ended} of {trials} trials ended")
    return {"marks": marks.found, "files": files}


def _ours(trials: int, marks: Marks, scratch: Path, *, with_ray: bool) -> None:
    text = FILE.format(trials=trials)
    spec = parse_spec(text, "scale.yaml")
    searcher = build_searcher(spec.method, spec.space, spec.objectives, spec.seed)
    info = {"objectives": [{"name": "m0", "goal": "minimize"}]}
    folder = ResultsFolder.create(scratch, spec.name, text, info)
    job = Job(
        spec.name,
        spec.trainable,
        (Path(__file__).parent,),
        folder.path,
        Objective("m0", "minimize"),
    )
    keeper = CheckpointKeeper(folder.path, spec)

    def listen(change: Change) -> None:
        keeper.on(change)
        if isinstance(change, Ended) and change.trial.status is Status.COMPLETED:
            marks.add()

    with Log(folder.log) as log, TableWriter(folder):
        driver = Coordinator(spec, Devices(), searcher, NoScheduler(), log, Hooks(listen=listen))
        driver.open()
        if with_ray:
            _through_ray(driver, job, marks)
        else:
            _by_hand(driver, marks)
        marks.add(last=True)
        driver.close()


def _through_ray(driver: Coordinator, job: Job, marks: Marks) -> None:
    from sweep.backends.ray_tune import backend, cluster

    with cluster.connect(
        None, None, lambda text: None, cluster.Start(lost=lambda: os._exit(1))
    ) as found:
        marks.begin()
        backend.RayTune(cluster=found, job=job, devices=Devices(), most=ROOM).train(driver)


def _by_hand(driver: Coordinator, marks: Marks) -> None:
    marks.begin()
    while (order := driver.next()) is not None:
        trial = order.assignment.trial
        epoch = EpochReported(
            trial=trial,
            epoch=1,
            metrics={f"m{i}": 1.0 for i in range(10)},
            time=time.time(),
            time_s=1e-4,
        )
        end = TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=time.time())
        driver.take(trial, Ends(epochs=(epoch,), end=end))


def _tune(trials: int, marks: Marks, scratch: str) -> None:
    import ray
    from ray import tune
    from throughput import Plain

    class Marking(tune.Callback):
        def on_trial_complete(
            self, iteration: int, trials: object, trial: object, **info: object
        ) -> None:
            marks.add()

    ray.init(address="local", log_to_driver=False, logging_level="ERROR")
    marks.begin()
    tune.Tuner(
        Plain,
        param_space={
            "a": tune.uniform(0.0, 1.0),
            "b": tune.uniform(0.0, 1.0),
            "c": tune.choice(["x", "y"]),
        },
        tune_config=tune.TuneConfig(
            num_samples=trials, reuse_actors=True, max_concurrent_trials=ROOM
        ),
        run_config=tune.RunConfig(
            storage_path=scratch,
            stop={"training_iteration": 1},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            callbacks=[Marking()],
            verbose=0,
        ),
    ).fit()
    marks.add(last=True)
    ray.shutdown()


def describe(kind: str, found: dict[str, Any]) -> str:
    """Return a line with the totals, and lines with the time and the memory of each tenth."""
    marks = found["marks"]
    (_, _, before), (first, first_s, first_bytes) = marks[:2]
    trials, took_s, after = marks[-1]
    tenths = list(itertools.pairwise(marks[:-1]))
    steps = [1e3 * (later[1] - former[1]) / (later[0] - former[0]) for former, later in tenths]
    sizes = [(mark[2] - before) / 1e6 for mark in marks[1:]]
    lasting = max(trials - first, 1)
    return (
        f"{kind:12} {trials:6d} trials: {1e3 * took_s / trials:6.2f} ms, {(after - before) / trials / 1e3:6.1f} kB "
        f"a trial, {found['files']} files; "
        f"later {1e3 * (marks[-2][1] - first_s) / lasting:6.2f} ms, "
        f"{(marks[-2][2] - first_bytes) / lasting / 1e3:6.1f} kB a trial\n"
        f"    ms a trial in each tenth: {' '.join(f'{step:.1f}' for step in steps)}\n"
        f"    MB grown after each, and at the end: {' '.join(f'{size:.1f}' for size in sizes)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.kinds[0], given.trials[0])))
        return
    for kind in given.kinds:
        for trials in given.trials:
            command = [
                sys.executable,
                "-W",
                "ignore",
                __file__,
                "--one",
                "--kinds",
                kind,
                "--trials",
                str(trials),
            ]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            print(describe(kind, json.loads(output.splitlines()[-1])), flush=True)


if __name__ == "__main__":
    main()
