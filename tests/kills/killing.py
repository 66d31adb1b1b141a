"""Runs a sweep on Ray, kills its processes at random moments, resumes it, and compares with a run left alone."""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pandas as pd
import processes
from object_stores import S3

import sweep
from sweep.events import EpochReported, SessionStarted, TrialEnded
from sweep.keeper.client import Keeper
from sweep.keeper.place import find_place
from sweep.store import log as store_log
from sweep.store import remote
from sweep.store.folder import ResultsFolder

ROOT = Path(__file__).parents[2]
WALK = Path(__file__).parent / "walk.py"
TERMINAL = "terminal"
"""The command that a person has typed, where a keeper runs it."""
VICTIMS = ("driver", "worker", "raylet", "ray", "everything")
ORPHANS_S = 100.0
PATIENCE_S = 900.0  # for a sweep to finish, on a machine with little to spare

GRID = """
name: grid
trainable: walk:Walk
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [0.01, 0.1, 0.3, 0.5]}, drag: {values: [0.1, 0.5, 0.9]}}
epochs: 14
max_restarts: 99
checkpoint: {every_s: 0.2}
resources: {max_concurrent: 2}
"""
SEARCH = """
name: search
trainable: walk:Walk
method: tpe
metric: {name: loss, goal: minimize}
parameters: {rate: {min: 0.01, max: 0.9}, drag: {min: 0.0, max: 0.9}}
epochs: 9
run_cap: 16
early_terminate: {type: asha, min_iter: 1, eta: 3}
max_restarts: 99
checkpoint: {every_s: 0.1}
resources: {max_concurrent: 1}
"""
DIGITS = """
name: digits
trainable: trainables.digits_cnn:DigitsCNN
method: grid
metric: {name: val_accuracy, goal: maximize}
parameters:
  learning_rate: {values: [1e-2, 1e-3]}
  optimizer: {value: adamw}
  augmentation: {values: [low, high]}
  dropout: {value: 0.2}
  lr_schedule: {value: cosine}
  batch_size: {value: 64}
epochs: 40
max_restarts: 99
checkpoint: {every_s: 0.5}
resources: {max_concurrent: 2}
"""
PAIRS = GRID.replace("name: grid", "name: pairs").replace(
    "max_concurrent: 2", "max_concurrent: 1, workers: 2, cpus: 0.5"
)
RANKS = DIGITS.replace("name: digits", "name: ranks").replace(
    "max_concurrent: 2", "max_concurrent: 1, workers: 2"
)
POPULATION = """
name: population
trainable: walk:Walk
method: pbt
metric: {name: loss, goal: minimize}
parameters: {rate: {min: 0.01, max: 1.0}, drag: {min: 0.0, max: 1.0}}
population: {size: 6, interval: 3}
epochs: 15
resources: {max_concurrent: 2}
checkpoint: {every_s: 0.5}
max_restarts: 1000
"""
FUSED = GRID.replace("name: grid", "name: fused") + "training: {fuse: 4}\n"
# `Near` decides by a trial's own epochs alone: what it stops does not depend on the order in which trials report.
SHRINKING = FUSED.replace("name: fused", "name: shrinking\nearly_terminate: walk:Near")
PAUSING = SEARCH.replace("name: search", "name: pausing").replace(
    "type: asha", "type: asha_promotion"
)
AUTO = """
name: auto
trainable: walk:Walk
metric: {name: loss, goal: minimize}
parameters: {rate: {min: 0.01, max: 0.9}, drag: {min: 0.0, max: 0.9}}
epochs: 9
run_cap: 16
max_restarts: 99
checkpoint: {every_s: 0.1}
resources: {max_concurrent: 1}
"""
MORE = GRID.replace("name: grid", "name: more\nrun_cap: 6").replace("epochs: 14", "epochs: 8")
STEERED = GRID.replace("name: grid", "name: steered")
FEWER = SEARCH.replace("name: search", "name: fewer\nrepeats: 3").replace(
    "run_cap: 16", "run_cap: 4"
)
TIMED = GRID.replace("name: grid", "name: timed").replace("epochs: 14", "minutes: 0.1")
TIMED_SEARCH = (
    SEARCH.replace("name: search", "name: timed_search")
    .replace("epochs: 9", "epochs: 9\nminutes: 0.06")
    .replace("type: asha,", "type: asha_promotion,")
)
SWEEPS = {
    **{"grid": GRID, "search": SEARCH, "pausing": PAUSING, "auto": AUTO, "population": POPULATION},
    **{"timed": TIMED, "timed_search": TIMED_SEARCH},
    **{"more": MORE, "fewer": FEWER, "steered": STEERED},
    **{"fused": FUSED, "shrinking": SHRINKING, "digits": DIGITS, "pairs": PAIRS, "ranks": RANKS},
}
OF_RANKS = ("pairs", "ranks")
CHANGES = {"more": ("repeats=3", "run_cap=8"), "fewer": ("repeats=1", "run_cap=12")}
"""How a sweep is changed once it has finished, after which it goes on."""
ACTS = {
    "steered": (
        ("add", "rate=0.5", "drag=0.9"),
        ("change", "--set", "parameters.rate.values=[0.01, 0.1, 0.3, 0.5, 0.7]"),
        ("add", "rate=0.7", "drag=0.5"),
        ("note", "in the middle"),
        ("change", "--set", "resources.max_concurrent=3"),
        ("add", "rate=0.7", "drag=0.9"),
    )
}
"""What is done to a sweep while it runs and is killed; whatever the moment of each, it ends with the same trials."""
REFUSED = 4  # exit code: a configuration has started or waits already


@dataclass
class Tally:
    """What was done to sweeps, and what came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    twice_in_a_row: int = 0
    lost: int = 0
    run_twice: int = 0
    torn: int = 0
    different: int = 0
    orphans: int = 0  # drivers whose Ray stayed
    orphans_s: float = 0.0  # until the last process below a killed driver was gone
    acts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def wrong(self) -> int:
        return self.lost + self.run_twice + self.torn + self.different + self.orphans

    def __str__(self) -> str:
        acts = f", {dict(self.acts)} in between" if self.acts else ""
        return (
            f"{sum(self.kills.values())} kills {dict(self.kills)}, {self.twice_in_a_row} twice in a row{acts}: "
            f"trials lost {self.lost}, trials run twice {self.run_twice}, rows torn {self.torn}, "
            f"metrics different {self.different}; the last process of a killed driver was gone after "
            f"{self.orphans_s:.1f} s"
        )


class KeptDriver:
    """A command that a keeper runs: its driver is the keeper, and not the process that was started."""

    def __init__(self, terminal: subprocess.Popen[bytes], place: Path) -> None:
        self.terminal, self._place = terminal, place
        self.pid = terminal.pid
        for _ in range(200):  # until it listens, or the command has ended without it
            keeper = Keeper.find(place)
            answer = None if keeper is None else keeper.ask("look")
            if answer is not None:
                self.pid = int(answer["process"])
                return
            if terminal.poll() is not None:
                return
            time.sleep(0.05)

    def poll(self) -> int | None:
        return self.terminal.poll()

    def wait(self, timeout: float | None = None) -> int:
        return self.terminal.wait(timeout)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


Started: TypeAlias = subprocess.Popen[bytes] | KeptDriver


@dataclass
class Project:
    """A folder with the trainable, the sweep file, and the results."""

    path: Path
    name: str
    store: S3 | None = None  # where the results are, instead of in the folder
    warm: bool = False  # a keeper runs the commands
    machines: int = 1  # that have run it so far, one after the other

    @classmethod
    def make(cls, path: Path, name: str, store: S3 | None = None, *, warm: bool = False) -> Project:
        path.mkdir(parents=True, exist_ok=True)
        shutil.copy(WALK, path / "walk.py")
        (path / f"{name}.yaml").write_text(SWEEPS[name])
        return cls(path, name, store, warm)

    @property
    def results(self) -> str:
        return "results" if self.store is None else f"s3://kills/{self.path.name}"

    @property
    def cache(self) -> Path:
        """What the present machine has of what is in the store."""
        return self.path / f"machine-{self.machines}"

    @property
    def folder(self) -> ResultsFolder:
        if self.store is None:
            return ResultsFolder(self.path / "results" / self.name)
        os.environ["SWEEP_CACHE"] = str(self.cache)
        return ResultsFolder(remote.local(self.results) / self.name)

    def start(self, *arguments: str) -> Started:
        """The command line in a process group of its own; what it says goes to a file."""
        option = ["--keep-warm", "2m"] if self.warm and arguments[0] in ("run", "resume") else []
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        if self.store is not None:
            environment |= {**self.store.environment, "SWEEP_CACHE": str(self.cache)}
        with (self.path / "said.txt").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "sweep", *arguments, *option, "--results", self.results],
                cwd=self.path,
                env=environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        place = find_place(self.path)
        return KeptDriver(process, place) if option and place is not None else process

    def run(self) -> Started:
        return self.start("run", f"{self.name}.yaml", "--no-memo", "-q")

    def resume(self) -> Started:
        there = self.folder.info.exists() or (self.store is not None and self.machines > 1)
        return self.start("resume", self.name, "--no-memo", "-q") if there else self.run()

    def change(self) -> None:
        """Change the sweep as `CHANGES` says."""
        options = [part for one in CHANGES[self.name] for part in ("--set", one)]
        code = self.start("change", self.name, *options).wait(PATIENCE_S)
        if code:
            raise RuntimeError(
                f"change ended with {code}: {(self.path / 'said.txt').read_text()[-1000:]}"
            )

    def epochs(self) -> int:
        """How many epochs are in the log, cheaply."""
        return (
            self.folder.log.read_bytes().count(b'"epoch_reported"')
            if self.folder.log.exists()
            else 0
        )


class Acting(threading.Thread):
    """Does the acts of a sweep one after the other, each some epochs after the one before, whatever is killed."""

    def __init__(self, project: Project, rng: random.Random, tally: Tally) -> None:
        super().__init__()
        self._project, self._tally = project, tally
        self._epochs = [rng.randint(2, 14) for _ in ACTS[project.name]]
        self.failure = ""
        self.hurries = False
        """No more epochs will come: do the rest now."""

    def run(self) -> None:
        for (command, *words), more in zip(ACTS[self._project.name], self._epochs, strict=True):
            before = self._project.epochs()
            while not self.hurries and self._project.epochs() < before + more:
                time.sleep(0.02)
            code = self._project.start(command, self._project.name, *words).wait(PATIENCE_S)
            self._tally.acts[f"{command}{' refused' if code == REFUSED else ''}"] += 1
            if code not in (0, REFUSED):
                said = (self._project.path / "said.txt").read_text()[-1000:]
                self.failure = f"{command} {' '.join(words)} ended with {code}: {said}"
                return

    def finish(self) -> None:
        """Wait until all acts are done."""
        self.hurries = True
        self.join()
        if self.failure:
            raise RuntimeError(self.failure)


def alone(path: Path, name: str, timeout_s: float = PATIENCE_S) -> Project:
    """A run that nobody disturbs."""
    project = Project.make(path, name)
    _run_undisturbed(project, timeout_s)
    if name in CHANGES:
        project.change()
        _run_undisturbed(project, timeout_s)
    if name in ACTS:
        acting = Acting(project, random.Random(0), Tally())
        acting.start()
        acting.finish()
        _run_undisturbed(project, timeout_s)
    return project


def _run_undisturbed(project: Project, timeout_s: float) -> None:
    for _ in range(3):  # Ray may not start on a machine that is very busy
        code = project.resume().wait(timeout_s)
        if code == 0:
            return
    raise RuntimeError(
        f"the undisturbed run ended with {code}: {(project.path / 'said.txt').read_text()[-1000:]}"
    )


def some_victims(
    count: int, rng: random.Random, *, ranks: bool = False, store: bool = False, warm: bool = False
) -> list[str]:
    """What to kill, one after the other; ``ranks``: trials have some, and so most of it is of these."""
    if warm:
        return rng.choices((*VICTIMS, TERMINAL), weights=(4, 3, 1, 2, 2, 4), k=count)
    if store:
        victims, weights = ("driver", "worker", "everything", "machine", "store"), (2, 2, 1, 3, 4)
        return rng.choices((*victims, "rank"), weights=(*weights, 4 if ranks else 0), k=count)
    if ranks:
        return rng.choices((*VICTIMS, "rank"), weights=(2, 3, 1, 1, 1, 6), k=count)
    return rng.choices(VICTIMS, weights=(4, 3, 1, 2, 2), k=count)


def disturbed(
    path: Path,
    name: str,
    victims: Iterable[str],
    rng: random.Random,
    tally: Tally,
    tell: Callable[[str], None] = lambda text: None,
    store: S3 | None = None,
    *,
    warm: bool = False,
) -> Project:
    """A run whose processes are killed at random moments, and which is resumed until it finishes.

    A sweep that is changed is killed before the change and after it.
    """
    project = Project.make(path, name, store, warm=warm)
    victims = list(victims)
    half = (len(victims) + 1) // 2 if name in CHANGES else len(victims)
    driver = project.run()
    acting = Acting(project, rng, tally) if name in ACTS else None
    if acting is not None:
        acting.start()
    _disturb(project, driver, victims[:half], rng, tally, tell)
    if acting is not None:
        acting.finish()
        _disturb(project, project.resume(), [], rng, tally, tell)
    if name in CHANGES:
        project.change()
        _disturb(project, project.resume(), victims[half:], rng, tally, tell)
    return project


def _disturb(
    project: Project,
    driver: Started,
    victims: Iterable[str],
    rng: random.Random,
    tally: Tally,
    tell: Callable[[str], None],
) -> None:
    """Kill what is to be killed, one after the other, and let the sweep finish."""
    name, store = project.name, project.store
    killed_before = False
    watches: list[threading.Thread] = []
    for victim in victims:
        family, began = _strike(victim, project, driver, rng)
        if not family:
            break
        tally.kills[victim] += 1
        tell(f"{name}: killed {victim} at epoch {project.epochs()}")
        if victim in ("worker", "rank"):
            continue  # the driver starts another
        if victim == "store" and store is not None:
            time.sleep(rng.uniform(0, 12))
            store.start()
            continue  # nobody has noticed
        project.machines += victim == "machine"
        if victim in ("ray", "raylet"):
            _end(driver, project, tally, tell)
        if victim == TERMINAL:
            tell(f"{name}: the keeper has saved the trials after {_wait_until_idle(project):.1f} s")
        driver.wait(30)
        tally.twice_in_a_row += killed_before
        killed_before = rng.random() < 0.3
        if not killed_before:
            time.sleep(rng.uniform(0, 1))
        driver = project.resume()
        if victim == "driver":
            watches.append(threading.Thread(target=_watch, args=(family, began, tally)))
            watches[-1].start()
        if killed_before:  # once more, before anything went on
            time.sleep(rng.uniform(0, 3))
            if driver.poll() is None and _kill(
                "everything", driver, processes.below(driver.pid), rng
            ):
                tally.kills["everything"] += 1
                driver.wait(30)
                driver = project.resume()
    for watch in watches:
        watch.join()
    for _ in range(5):
        code = driver.wait(PATIENCE_S)
        if code == 0:
            return
        tell(f"{name}: ended with {code}, resumed")
        driver = project.resume()
    said = (project.path / "said.txt").read_text().splitlines()[-10:]
    raise RuntimeError("\n".join(["the sweep does not finish:", *said]))


def compare(project: Project, reference: Project, tally: Tally) -> None:
    """Count what differs from the run that was left alone."""
    events = list(store_log.read(project.folder.log))
    ends = [
        event for event in events if isinstance(event, TrialEnded) and event.status != "interrupted"
    ]
    again = [trial for trial, count in Counter(end.trial for end in ends).items() if count > 1]
    pairs = Counter(
        (event.trial, event.epoch) for event in events if isinstance(event, EpochReported)
    )
    again += [pair[0] for pair, count in pairs.items() if count > 1]
    again += _begun_after_their_end(project, {end.trial: end.time for end in ends})
    tally.run_twice += len(set(again))
    ours, theirs = sweep.load(project.folder.path), sweep.load(reference.folder.path)
    keys, right_keys = (
        _name_trials(ours.trials, project.name),
        _name_trials(theirs.trials, project.name),
    )
    columns = ["repeat", "seed", "status", "status_reason", "epochs"]
    columns += [name for name in theirs.trials if name.startswith(("param.", "metric.", "best."))]
    expected = {
        right_keys[row["trial"]]: _pick(row, columns) for row in theirs.trials.to_dict("records")
    }
    found = {keys[row["trial"]]: _pick(row, columns) for row in ours.trials.to_dict("records")}
    tally.run_twice += len(ours.trials) - len(found)
    tally.lost += len(expected.keys() ^ found.keys())
    tally.lost += sum(
        found[n]["epochs"] != expected[n]["epochs"] for n in expected.keys() & found.keys()
    )
    tally.different += sum(
        not _equal(found[n], expected[n]) for n in expected.keys() & found.keys()
    )
    tally.remarks += [
        f"{project.path}: trial {n}: {found.get(n)} instead of {expected[n]}"
        for n in expected
        if n not in found or not _equal(found[n], expected[n])
    ]
    names = [name for name in theirs.metrics if name.startswith("metric.")] + ["learning_rate"]
    rows = {
        (keys[r["trial"]], r["epoch"]): _pick(r, names) for r in ours.metrics.to_dict("records")
    }
    right = {
        (right_keys[r["trial"]], r["epoch"]): _pick(r, names)
        for r in theirs.metrics.to_dict("records")
    }
    tally.torn += len(ours.metrics) - len(rows) + len(rows.keys() ^ right.keys())
    tally.different += sum(
        not _equal(rows[pair], right[pair]) for pair in rows.keys() & right.keys()
    )
    sessions = sum(isinstance(event, SessionStarted) for event in events)
    tally.remarks.append(f"{project.path}: {sessions} sessions, {len(rows)} epochs")


def _name_trials(trials: pd.DataFrame, name: str) -> dict[int, object]:
    """Return what names each trial: its number, or its configuration where the order is that of the acts."""
    names = {}
    for row in trials.to_dict("records"):
        by_acts = (row.get("param.rate"), row.get("param.drag"), row["repeat"])
        names[row["trial"]] = by_acts if name in ACTS else row["trial"]
    return names


def _pick(row: dict[str, object], columns: Iterable[str]) -> dict[str, object]:
    return {column: row[column] for column in columns}


def _strike(
    victim: str, project: Project, driver: Started, rng: random.Random
) -> tuple[list[processes.Process], float]:
    """Kill it at a random moment at which it is there; the driver's processes then, none if the sweep ended before."""
    while _reach_a_moment(project, driver, rng):
        family, began = processes.below(driver.pid), time.monotonic()
        if victim == "store" and project.store is not None:
            project.store.kill()
        elif not _kill(victim, driver, family, rng):
            continue
        return family or [processes.Process(driver.pid, 0, "", "")], began
    return [], 0.0


def _reach_a_moment(project: Project, driver: Started, rng: random.Random) -> bool:
    """Wait for a random moment: while Ray starts, or some epochs later; False when the sweep ended before."""
    before, began = project.epochs(), time.monotonic()
    early_s = rng.uniform(0.3, 8) if rng.random() < 0.2 else math.inf
    more = rng.randint(1, 12)
    while driver.poll() is None:
        waited = time.monotonic() - began
        if waited > early_s:
            return True
        if project.epochs() >= before + more or waited > 120:
            time.sleep(rng.uniform(0, 0.3))
            return driver.poll() is None
        time.sleep(0.02)
    return False


def _kill(
    victim: str, driver: Started, family: list[processes.Process], rng: random.Random
) -> bool:
    """Kill -9; False where there is no such process now."""
    match victim:
        case "driver":
            driver.send_signal(signal.SIGKILL)
        case "terminal":
            if not isinstance(driver, KeptDriver):
                return False
            driver.terminal.kill()
        case "worker" | "rank":
            kind = "TrialWorker" if victim == "worker" else "TrialRank"
            workers = [process for process in family if kind in process.title]
            if not workers:
                return False
            rng.choice(workers).kill()
        case "raylet":
            servers = [process for process in family if "raylet/raylet" in process.title]
            if not servers:
                return False
            servers[0].kill()
        case "ray":
            servers = [process for process in family if "ray::Trial" not in process.title]
            if not servers:
                return False
            for process in sorted(family, key=lambda process: "gcs_server" not in process.title):
                process.kill()
        case "everything" | "machine":
            driver.send_signal(signal.SIGKILL)
            for process in family:
                process.kill()
    return True


def _watch(family: list[processes.Process], began: float, tally: Tally) -> None:
    try:
        processes.wait_until_gone(family, ORPHANS_S)
        tally.orphans_s = max(tally.orphans_s, time.monotonic() - began)
    except TimeoutError as error:
        tally.orphans += 1
        tally.remarks.append(str(error))


def _end(driver: Started, project: Project, tally: Tally, tell: Callable[[str], None]) -> None:
    """Without Ray, a driver ends by itself; how long it takes is told."""
    began = time.monotonic()
    try:
        code = driver.wait(120)
    except subprocess.TimeoutExpired:
        tally.remarks.append(f"{project.path}: the driver outlived its Ray by 120 s and was killed")
        driver.kill()
        return
    tell(
        f"{project.name}: the driver ended with {code}, {time.monotonic() - began:.1f} s after its Ray"
    )


def _wait_until_idle(project: Project) -> float:
    """Wait until the keeper has ended the command whose terminal is gone; return the seconds that it took."""
    began = time.monotonic()
    place = find_place(project.path)
    while place is not None and (keeper := Keeper.find(place)) is not None:
        answer = keeper.ask("look")
        if answer is None or not answer["is_busy"]:
            break
        if time.monotonic() - began > 120:
            raise TimeoutError(f"{project.path}: the keeper outlived its terminal by 120 s")
        time.sleep(0.05)
    return time.monotonic() - began


def _begun_after_their_end(project: Project, ended: dict[int, float]) -> list[int]:
    journal = project.path / "journal.txt"
    lines = [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []
    return [
        int(line[3])
        for line in lines
        if line[2] == "begin" and float(line[0]) > ended.get(int(line[3]), math.inf)
    ]


def _equal(one: dict[str, object], other: dict[str, object]) -> bool:
    return all(repr(one[name]) == repr(value) for name, value in other.items())
