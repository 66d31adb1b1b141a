"""What it takes to look at a large sweep: `list`, `compare`, `best` and `sweep.load`, each in a fresh process.

    python benchmarks/reading.py --trials 10000 --epochs 100

The sweep is made up and written as a real one is, log and tables. The goal is one second each; a process of Python
that imports Arrow and pandas alone takes the time in the last line.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sweep.events import (
    EpochReported,
    Event,
    Facts,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.tables import build_tables, write

BEGAN = 1_700_000_000.0
LAGGING = 20  # trials
COMMANDS = {
    "list": ["-m", "sweep", "list"],
    "compare": ["-m", "sweep", "compare", "big", "--limit", "10"],
    "best": ["-m", "sweep", "best", "big"],
    "load": ["-c", "import sweep; sweep.load('results/big').metrics"],
    "imports": ["-c", "import pyarrow.parquet, pandas"],
}


def trial(number: int, epochs: int, numbers: random.Random) -> Iterator[Event]:
    """Yield the events of one trial, with usual parameters, metrics and measures."""
    began = BEGAN + number
    params = {
        "learning_rate": numbers.random(),
        "weight_decay": numbers.random(),
        "units": numbers.choice([8, 16, 32]),
        "optimizer": numbers.choice(["sgd", "adam"]),
        "batch_size": 32,
    }
    yield TrialStarted(
        trial=number, trial_id=f"big-{number:05d}", params=params, seed=0, repeat=0, time=began
    )
    for epoch in range(1, epochs + 1):
        yield EpochReported(
            trial=number,
            epoch=epoch,
            metrics={
                name: numbers.random() for name in ("loss", "accuracy", "val_loss", "val_accuracy")
            },
            time=began + epoch / epochs,
            time_s=1 / epochs,
            learning_rate=0.1,
            examples_per_s=1e4,
            measures={
                "step_s": 1e-3,
                "data_wait_s": 1e-4,
                "validation_s": 1e-3,
                "compile_s": 0.0,
                "cpu_cores": 1.0,
            },
        )
    facts = Facts(
        started=began,
        node="here",
        devices="cpu:0",
        train_s=1.0,
        overhead_s={"start": 0.1, "build": 0.2},
    )
    yield TrialEnded(
        trial=number, status=Status.COMPLETED, reason="", time=began + 1.5, facts=facts
    )


def make(results: Path, trials: int, epochs: int) -> Iterator[ResultsFolder]:
    """Write the sweep and yield its folder twice.

    At first the tables lack the last trials, as after a kill; then they are complete.
    """
    info = {"objectives": [{"name": "val_accuracy", "goal": "maximize"}], "spec": {"repeats": 1}}
    folder, numbers = ResultsFolder.create(results, "big", "", info), random.Random(0)
    with Log(folder.log) as log:
        log.append([SessionStarted(time=BEGAN, resumed=False, version="1")])
        for number in range(trials):
            log.append(list(trial(number, epochs, numbers)))
            if number == trials - LAGGING:
                write(folder, build_tables(folder))
        yield folder
        log.append([SessionEnded(time=BEGAN + trials + 2, reason="finished")])
    write(folder, build_tables(folder))
    yield folder


def measure(cwd: Path, repeats: int) -> dict[str, float]:
    """Return the shortest time of ``repeats`` runs of each command."""
    took: dict[str, float] = {}
    for name, arguments in COMMANDS.items():
        for _ in range(repeats):
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], cwd=cwd, check=True, stdout=subprocess.DEVNULL
            )
            took[name] = min(time.perf_counter() - began, took.get(name, float("inf")))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        states = ("killed, its tables lack the last trials", "finished")
        for state, folder in zip(
            states, make(Path(scratch) / "results", given.trials, given.epochs), strict=True
        ):
            size = {
                path.name: round(path.stat().st_size / 1e6)
                for path in folder.path.iterdir()
                if path.is_file()
            }
            print(
                f"{given.trials} trials of {given.epochs} epochs, {state}; MB: {json.dumps(size)}",
                flush=True,
            )
            for name, seconds in measure(Path(scratch), given.repeats).items():
                print(f"{name:8} {seconds:5.2f} s", flush=True)


if __name__ == "__main__":
    main()
