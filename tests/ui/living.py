"""Sweeps for tests of the page: made of events, and one that lives, whose driver is a thread or a process of ours."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweep.events import (
    EpochReported,
    Event,
    Facts,
    Params,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
)
from sweep.events import TrialStarted as Started
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

SCRIPT = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'
FILE = """\
# Which learning rate and width suit the small net?
# 12 trials x 6 epochs; seconds.
name: NAME
trainable: scored:Scored
method: random
metric: {name: val_accuracy, goal: maximize}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  units: {values: [8, 16, 32]}
  optimizer: {values: [adam, sgd]}
epochs: 6
run_cap: 12
early_terminate: {type: asha, min_iter: 2, eta: 3}
"""


def make_sweep(results: Path, name: str, events: list[Event], text: str = FILE) -> ResultsFolder:
    """A results folder of a sweep whose log has these events."""
    text = text.replace("NAME", name)
    spec = parse_spec(text, f"{name}.yaml")
    info = {
        "objectives": [{"name": one.name, "goal": one.goal} for one in spec.objectives],
        "spec": spec.to_json_dict(),
        "import_folders": [str(results.parent.resolve())],
        "working_folder": str(results.parent.resolve()),
        "provenance": {"python": "3.11"},
    }
    folder = ResultsFolder.create(results, name, text, info)
    with Log(folder.log, fsync=False) as log:
        log.append(events)
    return folder


def begin(now: float) -> Event:
    return SessionStarted(time=now, resumed=False, version="0.1.0")


def params_of(number: int) -> Params:
    rate = 10 ** (-4 + 3 * (number * 7 % 12) / 12)
    return {
        "learning_rate": rate,
        "units": [8, 16, 32][number % 3],
        "optimizer": ["adam", "sgd"][number % 2],
    }


def start(number: int, now: float) -> Event:
    params = params_of(number)
    return Started(trial=number, trial_id=f"t{number}", params=params, seed=0, repeat=0, time=now)


def epoch(number: int, at: int, now: float) -> Event:
    best = 0.97 - 0.05 * (math.log10(float(str(params_of(number)["learning_rate"]))) + 2.5) ** 2
    score = best * (1 - math.exp(-0.7 * at))
    metrics = {"val_accuracy": score, "val_loss": 1.4 - score, "loss": 1.3 - score}
    measures = {"cpu_cores": 0.9, "memory_peak_bytes": 6e8}
    return EpochReported(
        trial=number, epoch=at, metrics=metrics, time=now, time_s=0.4, measures=measures
    )


def end(
    number: int, status: Status, now: float, reason: str = "", error: str | None = None
) -> Event:
    facts = Facts(
        started=now - 3, node="here", devices="cpu:0", train_s=2.4, overhead_s={"compile_s": 0.5}
    )
    return TrialEnded(
        trial=number, status=status, reason=reason, time=now, error=error, facts=facts
    )


def trial(
    number: int, now: float, epochs: int = 6, status: Status = Status.COMPLETED, **ending: str
) -> list[Event]:
    """A whole trial, which ends at ``now``."""
    found = [start(number, now - epochs * 0.5)]
    found += [epoch(number, at, now - (epochs - at) * 0.5) for at in range(1, epochs + 1)]
    return [*found, end(number, status, now, **ending)]


def some_trials(now: float, count: int = 8) -> list[Event]:
    """The first trials of a sweep, of several statuses."""
    events = [begin(now - 60)]
    for number in range(count):
        then = now - 50 + 4 * number
        if number == 3:
            error = f"Traceback (most recent call last):\n  ...\nValueError: {SCRIPT}"
            events += trial(
                number, then, 1, Status.FAILED, reason="ValueError: no such layer", error=error
            )
        elif number % 4 == 2:
            events += trial(number, then, 2, Status.PRUNED, reason="pruned at epoch 2: rank 3 of 3")
        else:
            events += trial(number, then)
    return events


def finished(now: float) -> list[Event]:
    return [*some_trials(now, 12), SessionEnded(time=now, reason="finished")]


class Driver:
    """Writes the log of a sweep as its driver would."""

    def __init__(self, folder: ResultsFolder, log: Log) -> None:
        self.folder, self._log = folder, log

    def write(self, *events: Event) -> None:
        self._log.append(events)


@contextmanager
def driving(folder: ResultsFolder) -> Iterator[Driver]:
    """Run a sweep in this process inside the block: it counts as running, and its log can be written."""
    with folder.lock(), Log(folder.log, fsync=False) as log:
        yield Driver(folder, log)


DRIVE = """
import sys, time
from pathlib import Path
from living import driving, epoch, start
from sweep.store.folder import ResultsFolder
with driving(ResultsFolder(Path(sys.argv[1]))) as driver:
    number, at = int(sys.argv[2]), 0
    driver.write(start(number, time.time()))
    print("drives", flush=True)
    while True:
        time.sleep(0.3)
        at += 1
        if at <= 6:
            driver.write(epoch(number, at, time.time()))
"""


@contextmanager
def driver_process(folder: ResultsFolder, number: int) -> Iterator[subprocess.Popen[str]]:
    """A driver in a process of its own, which trains one trial more and can be killed."""
    command = [sys.executable, "-c", DRIVE, str(folder.path), str(number)]
    here = Path(__file__).parent
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "drives\n"
            yield process
        finally:
            process.kill()


def now() -> float:
    return time.time()
