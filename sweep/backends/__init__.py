"""What passes between a sweep and its workers: the job of a session, orders, progress, new shares of a GPU.

A `Driver` gives out trials and a `Backend` trains them; neither knows more of the other than is written here.

The driver and the workers look at files of their own machine, as where all see one folder; where machines do not see
it, a session's stop and share files are copied by an object in the store. The folder in which the workers of one
machine share data is named by the sweep, and gone with its session.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TextIO, TypeAlias

from sweep.contract import Assignment, Devices, Facts, aside
from sweep.errors import StoreError
from sweep.events import EpochReported, TrialEnded
from sweep.prices import Price
from sweep.read_recorder import recorder
from sweep.space.objectives import Objective
from sweep.state import imports, settings
from sweep.store import replacing
from sweep.store.object_store import ObjectStore, repeat, stand_for

STOP_FILE, SHARE_FILE = ".stop-", ".share-"


@dataclass(frozen=True, slots=True)
class Job:
    """What all trials of a sweep share."""

    sweep: str
    trainable: str
    import_folders: tuple[Path, ...]
    results_folder: Path  # as the driver sees it
    objective: Objective
    workers: int = 1  # processes of each trial
    servers: int = 0  # more of them, that keep the weights; then yet another one coordinates
    together: int = 1  # trials that a worker may get at once
    session: str = ""  # tells the driver's own stop file from any other
    checkpoint_every_s: float = 60.0
    checkpoint_keep: int = 2
    shared: str | None = None  # name of the folder, in each node's temporary one, for data that workers share
    profile: bool = False  # of the first trial
    target: float | None = None  # of the objective: a trial that reaches it is complete
    unsure: tuple[str, ...] = ()  # parameters of which the source does not show that they are read
    sometimes: tuple[str, ...] = ()  # parameters that are read where others have a use for them, as an optimizer has
    varying: tuple[str, ...] = ()  # parameters that are not the same in all trials
    constant: tuple[str, ...] = ()  # parameters that are the same in all trials
    choosing: tuple[str, ...] = ()  # parameters that differ and are no numbers, by which code chooses what it makes
    settings: tuple[str, ...] = ()  # keys of `training` that are not as by default
    price: Price | None = None  # of a GPU for an hour
    store: str | None = None  # URL of the sweep in an object store: then nodes share no folder
    stand_in: str | None = None  # name of the folder, in each node's temporary one, that stands for the results folder
    given: object = field(default=None, repr=False)  # the class or function itself, where no module has it
    working_folder: Path | None = None  # the driver's, in which trials begin where it is seen
    code: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of the author's modules as the session began
    data_seed: int = 0  # under which data are loaded, and the author's modules imported

    @property
    def aside(self) -> int:
        """Processes of each trial that do not train."""
        return aside(self.servers)

    def shares(self, devices: Devices) -> tuple[Devices, ...]:
        """Return what each process of a trial is given, rank 0 first.

        With servers it trains nothing, as they do not.
        """
        if not self.servers:
            return (devices,) * self.workers
        without = replace(devices, gpus=0.0, simulated=False)
        return (without, *(devices,) * self.workers, *(without,) * self.servers)

    @property
    def shared_folder(self) -> Path | None:
        """Where this node's workers share data."""
        return None if self.shared is None else Path(tempfile.gettempdir()) / self.shared

    @property
    def folder(self) -> Path:
        """The results folder, or what stands for it on this machine."""
        return self.results_folder if self.stand_in is None else Path(tempfile.gettempdir()) / self.stand_in

    def prepare(self) -> None:
        """Make the folder that stands for the results folder on this machine."""
        if self.store is not None:
            stand_for(self.folder, ObjectStore(self.store))

    @property
    def stop_file(self) -> Path:
        """Its existence asks this session's workers to end their trials as interrupted after the present epoch."""
        return self.folder / f"{STOP_FILE}{self.session}"

    @property
    def share_file(self) -> Path:
        """Running trials of this session that are to go on with another share of a GPU, by number, as JSON."""
        return self.folder / f"{SHARE_FILE}{self.session}"


@dataclass(frozen=True, slots=True)
class Order:
    """One trial for a worker."""

    assignment: Assignment
    decision_epochs: tuple[int, ...] = ()
    to_beat: float | None = None  # loss (`Objective.standing`): of a trial that ends with no lower one nothing is kept
    whole: bool = False  # it trains all its epochs, whatever the sweep's target
    known_data: str | None = None  # with data of this fingerprint, the trial need not be trained
    moved: bool = False  # another process had no room for it
    waits: bool = False  # at each decision it may be left, to go on later: it is saved before
    shares: bool = False  # its share of a GPU is not fixed: it may go on with another one, in another worker

    def __repr__(self) -> str:
        return f"trial {self.assignment.trial}"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step brought."""

    epochs: tuple[EpochReported, ...] = ()
    end: TrialEnded | None = None
    facts: Facts = field(default_factory=Facts)
    notices: tuple[str, ...] = ()
    spoilt: str | None = None  # why the worker must not be used again
    fault: str | None = None  # why the whole sweep cannot go on
    data_known: bool = False  # the trial begins with the data of `Order.known_data`
    worker: str = ""  # the name of the worker, where there are several
    accumulate: int | None = None  # micro-batches for the trial in another process: it does not fit, and this is spoilt
    crowded: bool = False  # the trial needs a larger share of a GPU, in another worker: this is spoilt
    moves: bool = False  # the trial goes on in another worker, from its last checkpoint

    @property
    def together(self) -> float:
        """How many trials were trained at once in its last epoch."""
        return self.epochs[-1].measures.get("together", 1.0) if self.epochs else 1.0

    @property
    def outgrown(self) -> bool:
        """Whether the trial needs another process."""
        return self.accumulate is not None or self.crowded

    @property
    def over(self) -> bool:
        """Whether its worker has nothing more to do for the trial, whatever the driver says."""
        return self.end is not None or self.moves or self.outgrown


@dataclass(frozen=True, slots=True)
class Steps:
    """What a step of a worker's trials brought, by trial."""

    found: Mapping[int, Progress]
    spoilt: str | None = None  # why the worker must not be used again once none of its trials goes on
    together: int = 1  # how many trials such a worker should get at once
    is_open: bool = False  # it can take more trials while these go on


Lost: TypeAlias = Literal["worker", "node", "preempted"]
"""What was lost under a trial: its process, its machine, or one that was taken away on purpose."""


class Driver(Protocol):
    """Gives out trials and hears of them; its answers are orders."""

    @property
    def running(self) -> int:
        """Trials that are given out and have not ended."""

    @property
    def room(self) -> int | None:
        """How many trials may run at once by their shares of GPUs; None: as many as fit."""

    @property
    def left(self) -> int | None:
        """How many trials may still be given out; None where nobody knows."""

    @property
    def stopping(self) -> str | None:
        """The reason why no more trials are given out and the running ones end early."""

    def next(self, worker: str = "") -> Order | None:
        """Return the next trial, for the worker of this name.

        None when there is none to start, unless a worker is lost.
        """

    def begun(self, trial: int) -> None:
        """Hear that a worker begins a trial: from now on its time counts."""

    def tick(self) -> list[int]:
        """Look at the clock, in every turn; the trials just ended of which the workers are to be killed."""

    def take(self, trial: int, progress: Progress) -> bool:
        """Hear of a step; whether the trial goes on."""

    def lose(self, trial: int, reason: str, lost: Lost = "worker") -> bool:
        """Hear that a trial's worker is gone, perhaps with its node; whether the trial goes on with another for that.

        It is called for every spoilt worker as well.
        """


def orders(driver: Driver, worker: str, most: int, idle: int) -> list[Order]:
    """Return the next trials for a worker, at most so many.

    Of few that are left it gets its part: there are so many ``idle`` workers.
    """
    left = driver.left
    most = most if left is None else min(most, max(-(-left // max(idle, 1)), 1))
    found: list[Order] = []
    while len(found) < most and (order := driver.next(worker)) is not None:
        found.append(order)
    return found


def refill(driver: Driver, worker: str, steps: Steps, going: int, workers: int) -> list[Order]:
    """Return trials for the places of a worker that have fallen free, once these are a quarter of all.

    So many of its trials are ``going`` on. Of few that are left it gets its part, as one of so many ``workers``.
    """
    room = steps.together - going
    return orders(driver, worker, room, workers) if going and steps.is_open and room * 4 >= steps.together else []


class Backend(Protocol):
    """What trains the trials of a session."""

    def train(self, driver: Driver) -> None:
        """Train all trials that the driver gives out."""

    def at_once(self, gpus: float) -> int:
        """Return how many trials of so many GPUs each run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """As of now; None where nobody knows yet."""

    trials: Mapping[str, int]  # by status, each of them
    total: int | None  # trials, where their number is known
    epochs: int  # trained, of all sessions
    epochs_per_s: float
    metric: str  # the first objective
    goal: str
    best: float | None = None  # of the trials that completed
    best_trials: tuple[int, ...] = ()  # several where it is the mean of repeats
    left_s: float | None = None  # an estimate

    @property
    def finished(self) -> int:
        """Trials that ended for good."""
        return sum(count for status, count in self.trials.items() if status != "running")


@dataclass(frozen=True, slots=True)
class Node:
    """The machine of a worker that has its process for itself.

    ``labels``: by which its GPUs have a price. ``leaving``: why trials are to go on elsewhere, for the node is about to
    be taken away; None where it stays.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    leaving: Callable[[], str | None] = lambda: None


class Surroundings:
    """The folder, the standard outputs and the settings of this process, which each of its trials finds as the first.

    Trials begin in ``folder``, as far as this machine has it, or where importing the author's code has led, and with
    the settings that the import has left (`sweep.state.settings`). ``alone``: nobody else is in this process, which
    stays as a trial has it between its steps, for threads that read ahead; elsewhere the caller finds its own again.
    """

    def __init__(self, folder: Path | None, *, alone: bool = False) -> None:
        self._alone = alone
        self._start = folder if folder is not None and folder.is_dir() else Path.cwd()
        self._imported = False
        self._at = self._start  # where the present trial is
        self._streams: tuple[TextIO, TextIO] | None = None  # what it has put in place of Python's own
        self._outputs = {stream: os.dup(stream) for stream in (1, 2) if _is_open(stream)}
        for copy in self._outputs.values():
            weakref.finalize(self, os.close, copy)
        self._settings = imports.follow(settings.Kept())
        self._of_import: settings.Values = {}  # what importing the author's code has set, where others are here
        self._of_trial: settings.Values = {}  # and the present trial
        self._is_inside = False
        self.resisting: list[str] = []  # the settings that a trial has changed for good

    def check(self) -> None:
        """Raise FileNotFoundError where there is no folder that a trial could be in."""
        if not (self._at.is_dir() or self._start.is_dir()):
            raise FileNotFoundError(f"{self._start}, in which trials begin, is no longer there")

    @contextmanager
    def inside(self, *, anyhow: bool = False) -> Iterator[None]:
        """Inside the block, be in the trial's folder; after it, where the caller was, if there is one.

        What the trial has put in place of ``sys.stdout`` and ``sys.stderr`` is there inside alone. ``anyhow``: also
        where that folder is gone, for whoever asks `check` then.
        """
        back, before = None if self._alone else _current_folder(), (sys.stdout, sys.stderr)
        if not anyhow:
            self.check()
        with suppress(FileNotFoundError, NotADirectoryError):  # as `check` has said, or will
            os.chdir(self._at if self._at.is_dir() else self._start)
        sys.stdout, sys.stderr = self._streams or before
        if not self._alone:
            self._settings.again()
            settings.write(self._of_trial)
        self._is_inside = True
        try:
            with recorder.in_trial():
                yield
        finally:
            self._is_inside = False
            if not self._alone:
                self._of_trial = self._settings.own()
                self._settings.put_back()
            with suppress(FileNotFoundError):  # the trial has deleted it
                self._at = Path.cwd()
            now = (sys.stdout, sys.stderr)
            self._streams = None if now == before else now
            sys.stdout, sys.stderr = self._open(before[0], 1), self._open(before[1], 2)
            if back is not None and back.is_dir():
                os.chdir(back)

    def _open(self, file: TextIO, stream: int) -> TextIO:
        """Return Python's file of a standard output, another one where the trial has closed it."""
        if not getattr(file, "closed", False) or stream not in self._outputs:
            return file
        os.dup2(self._outputs[stream], stream)
        return open(stream, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)

    def imported(self) -> None:
        """Let all trials begin in the present folder and settings, as importing the author's code has left them."""
        if not self._imported:
            self._start, self._imported = Path.cwd(), True
        if self._alone:
            self._settings.again()
        else:
            self._of_import = self._settings.own()

    def reset(self) -> None:
        """Undo what a trial has done to the folder, which it may have left or deleted, the outputs and the settings."""
        self._at, self._streams = self._start, None
        for stream, copy in self._outputs.items():
            os.dup2(copy, stream)
        self._of_trial = self._of_import
        if self._alone or self._is_inside:
            self.resisting += self._settings.put_back()
            settings.write(self._of_import)


def _current_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was deleted
        return None


def _is_open(stream: int) -> bool:
    try:
        os.fstat(stream)
    except OSError:
        return False
    return True


MOVE_S = 15.0
"""About what it takes to go on in a new process: a trial that needs no longer ends where it is."""


def write_shares(job: Job, wanted: Mapping[int, float]) -> None:
    """Let these trials go on with these shares."""
    with suppress(StoreError), replacing(job.share_file) as aside:  # a full disk: they go on as they are
        aside.write_text(json.dumps(wanted))


def wanted_elsewhere(job: Job, order: Order, epoch: EpochReported) -> bool:
    """Return whether a trial is told another share than it has, and is worth moving after this epoch."""
    given = order.assignment
    if not order.shares or (given.epochs - epoch.epoch) * epoch.time_s < MOVE_S:
        return False
    try:
        wanted = json.loads(job.share_file.read_text())
    except (OSError, ValueError):  # nobody is told anything
        return False
    share = wanted.get(str(given.trial))
    return share is not None and share != given.devices.gpus


_SEND_S, _HEAR_S = 0.5, 2.0


@contextmanager
def messages_sent(job: Job) -> Iterator[None]:
    """Let workers on all machines see what the driver leaves in its folder."""
    if job.store is None:
        yield
        return
    store, key, last = ObjectStore(job.store), _key(job), ""

    def send() -> None:
        nonlocal last
        now = json.dumps({"stop": job.stop_file.exists(), "shares": _shares(job)})
        if now != last:
            store.put(key, now.encode())
            last = now

    job.prepare()
    stop = repeat(partial(_if_it_can, send), _SEND_S, "messages to workers")
    try:
        yield
    finally:
        stop()
        with suppress(StoreError):
            store.delete([key])


def hear_messages(job: Job) -> Callable[[], None]:
    """Let this worker see what the driver has left in its own folder; what is returned ends that."""
    if job.store is None:
        return lambda: None
    store, key = ObjectStore(job.store), _key(job)

    def look() -> None:
        found = store.get(key)
        if found is None:
            return
        told = json.loads(found[0])
        if told["stop"]:
            job.stop_file.touch()
        if told["shares"] != _shares(job):
            with replacing(job.share_file) as aside:
                aside.write_text(told["shares"])

    return repeat(partial(_if_it_can, look), _HEAR_S, "messages of the driver")


def _if_it_can(turn: Callable[[], None]) -> None:
    with suppress(StoreError, OSError, ValueError):  # the store is away, a disk full: the next turn may do
        turn()


def _key(job: Job) -> str:
    return f"messages/{job.session}"


def _shares(job: Job) -> str:
    try:
        return job.share_file.read_text()
    except OSError:
        return ""


def shared_data_name(results_folder: Path) -> str:
    """Return a new name for a session of the sweep in this folder; nobody can guess it."""
    return f"{shared_data_prefix(results_folder)}{uuid.uuid4().hex}"


def shared_data_prefix(results_folder: Path) -> str:
    """Return what the names of all sessions of a sweep begin with, as its driver sees the folder."""
    digest = hashlib.sha256(str(results_folder.resolve()).encode()).hexdigest()
    return f"sweep-data-{digest[:16]}-"


def remove_shared_data(prefix: str) -> None:
    """Remove this machine's folders with names that begin so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        shutil.rmtree(folder, ignore_errors=True)
