"""Data passed between a sweep and its workers: the job of a session, orders, progress and new shares of a GPU.

A `Driver` hands out trials and a `Backend` trains them; neither knows more about the other than is defined here.

Driver and workers exchange messages by files. If machines do not share a folder, each one watches files of its own,
and a session's stop and share files are copied through the object store. The folder in which the workers of one
machine share data is named by the sweep and deleted with its session.
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
    """Everything that all trials of a session have in common."""

    sweep: str
    trainable: str
    import_folders: tuple[Path, ...]
    results_folder: Path  # as the driver sees it
    objective: Objective
    workers: int = 1  # processes of each trial
    servers: int = 0  # servers, which keep the weights; if any, one more process coordinates
    together: int = 1  # trials that a worker may train at once
    session: str = ""  # distinguishes the files of this session from those of others
    checkpoint_every_s: float = 60.0
    checkpoint_keep: int = 2
    shared: str | None = None  # folder for data that workers share, in each node's temporary folder
    profile: bool = False  # profile the first trial
    target: float | None = None  # value of the objective at which a trial is complete
    unsure: tuple[str, ...] = ()  # parameters whose reads cannot be found in the source
    sometimes: tuple[str, ...] = ()  # parameters that are read only with some values of others, such as the optimizer
    varying: tuple[str, ...] = ()  # parameters that differ between trials
    constant: tuple[str, ...] = ()  # parameters that are the same in all trials
    choosing: tuple[str, ...] = ()  # parameters that differ and are not numbers, so code may choose by them
    settings: tuple[str, ...] = ()  # keys of `training` that differ from their defaults
    price: Price | None = None  # per GPU-hour
    store: str | None = None  # URL of the sweep in an object store, if nodes share no folder
    stand_in: str | None = None  # local copy of the results folder, in each node's temporary folder
    given: object = field(default=None, repr=False)  # the class or function itself, if no module has it
    working_folder: Path | None = None  # the driver's, in which trials begin if it exists on the node
    code: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of the author's modules when the session began
    data_seed: int = 0  # seed for loading data and importing the author's modules

    @property
    def aside(self) -> int:
        """Number of processes of each trial that do not train."""
        return aside(self.servers)

    def shares(self, devices: Devices) -> tuple[Devices, ...]:
        """Return the devices of each process of a trial, rank 0 first.

        With servers, rank 0 and the servers get no GPU, because they do not train.
        """
        if not self.servers:
            return (devices,) * self.workers
        without = replace(devices, gpus=0.0, simulated=False)
        return (without, *(devices,) * self.workers, *(without,) * self.servers)

    @property
    def shared_folder(self) -> Path | None:
        """Folder in which this node's workers share data; None if they do not."""
        return None if self.shared is None else Path(tempfile.gettempdir()) / self.shared

    @property
    def folder(self) -> Path:
        """The results folder, or its local copy on this machine."""
        return self.results_folder if self.stand_in is None else Path(tempfile.gettempdir()) / self.stand_in

    def prepare(self) -> None:
        """Create the local copy of the results folder, if there is one."""
        if self.store is not None:
            stand_for(self.folder, ObjectStore(self.store))

    @property
    def stop_file(self) -> Path:
        """File whose existence asks this session's workers to interrupt their trials after the present epoch."""
        return self.folder / f"{STOP_FILE}{self.session}"

    @property
    def share_file(self) -> Path:
        """JSON file with the new GPU shares of running trials of this session, by trial."""
        return self.folder / f"{SHARE_FILE}{self.session}"


@dataclass(frozen=True, slots=True)
class Order:
    """One trial for a worker to train."""

    assignment: Assignment
    decision_epochs: tuple[int, ...] = ()
    to_beat: float | None = None  # loss (`Objective.standing`): a trial that ends with no lower one keeps no checkpoint
    whole: bool = False  # train all epochs, even if the target is reached
    known_data: str | None = None  # stop before training if the data have this fingerprint: the result is known
    moved: bool = False  # it did not fit into another process
    waits: bool = False  # save at each decision epoch, because the trial may pause there
    shares: bool = False  # its GPU share may change, in which case another worker continues it

    def __repr__(self) -> str:
        return f"trial {self.assignment.trial}"


@dataclass(frozen=True, slots=True)
class Progress:
    """Result of one step of a trial."""

    epochs: tuple[EpochReported, ...] = ()
    end: TrialEnded | None = None
    facts: Facts = field(default_factory=Facts)
    notices: tuple[str, ...] = ()
    spoilt: str | None = None  # why the worker must not be used again
    fault: str | None = None  # why the whole sweep cannot continue
    data_known: bool = False  # the data are those of `Order.known_data`
    worker: str = ""  # name of the worker, if there are several
    accumulate: int | None = None  # out of memory: micro-batches to use in another process; this worker is spoilt
    crowded: bool = False  # needs a larger share of a GPU, in another worker; this one is spoilt
    moves: bool = False  # another worker continues the trial from its last checkpoint

    @property
    def together(self) -> float:
        """Number of trials that were trained together in the last epoch."""
        return self.epochs[-1].measures.get("together", 1.0) if self.epochs else 1.0

    @property
    def outgrown(self) -> bool:
        """True if the trial needs another process."""
        return self.accumulate is not None or self.crowded

    @property
    def over(self) -> bool:
        """True if the worker is done with the trial, whatever the driver decides."""
        return self.end is not None or self.moves or self.outgrown


@dataclass(frozen=True, slots=True)
class Steps:
    """Results of one step of a worker, by trial."""

    found: Mapping[int, Progress]
    spoilt: str | None = None  # why the worker must not be used after its present trials
    together: int = 1  # number of trials to give such a worker at once
    is_open: bool = False  # more trials may join while these are training


Lost: TypeAlias = Literal["worker", "node", "preempted"]
"""The loss of a worker's process, of its node, or of a node that was taken away on purpose."""


class Driver(Protocol):
    """Hands out trials and receives their progress; backends must do what it returns."""

    @property
    def running(self) -> int:
        """Number of trials that are handed out and have not ended."""

    @property
    def room(self) -> int | None:
        """Number of trials that may run at once by their GPU shares; None: as many as fit."""

    @property
    def left(self) -> int | None:
        """Number of trials that may still be handed out; None if unknown."""

    @property
    def stopping(self) -> str | None:
        """Why no more trials are handed out and running ones end early; None if they do not."""

    def next(self, worker: str = "") -> Order | None:
        """Return the next trial for the worker with this name.

        None if there is none to start; there may be one again after a worker is lost.
        """

    def begun(self, trial: int) -> None:
        """Note that a worker has begun a trial; its timeouts count from now."""

    def tick(self) -> list[int]:
        """Check the clock, in every turn; return the trials that just ended and whose workers must be killed."""

    def take(self, trial: int, progress: Progress) -> bool:
        """Receive the result of a step; return whether the trial continues in its worker."""

    def lose(self, trial: int, reason: str, lost: Lost = "worker") -> bool:
        """Handle a lost worker, perhaps lost with its node; return whether another worker retries the trial.

        Must be called for every spoilt worker, too.
        """


def orders(driver: Driver, worker: str, most: int, idle: int) -> list[Order]:
    """Return the next trials for a worker, at most ``most``.

    If few trials are left, they are divided among the ``idle`` workers.
    """
    left = driver.left
    most = most if left is None else min(most, max(-(-left // max(idle, 1)), 1))
    found: list[Order] = []
    while len(found) < most and (order := driver.next(worker)) is not None:
        found.append(order)
    return found


def refill(driver: Driver, worker: str, steps: Steps, going: int, workers: int) -> list[Order]:
    """Return new trials for a worker that trains several, once a quarter of its places are free.

    ``going`` is the number of its trials that continue. If few are left, they are divided among ``workers`` workers.
    """
    room = steps.together - going
    return orders(driver, worker, room, workers) if going and steps.is_open and room * 4 >= steps.together else []


class Backend(Protocol):
    """Trains the trials of a session."""

    def train(self, driver: Driver) -> None:
        """Train all trials that the driver hands out."""

    def at_once(self, gpus: float) -> int:
        """Return how many trials of ``gpus`` GPUs each can run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """Current status of a sweep; None for what is not known yet."""

    trials: Mapping[str, int]  # by status, with all statuses
    total: int | None  # number of trials, if known
    epochs: int  # trained in all sessions
    epochs_per_s: float
    metric: str  # name of the first objective
    goal: str
    best: float | None = None  # best value among completed trials
    best_trials: tuple[int, ...] = ()  # several if the best value is the mean of repeats
    left_s: float | None = None  # estimated seconds left

    @property
    def finished(self) -> int:
        """Number of trials whose status is not running."""
        return sum(count for status, count in self.trials.items() if status != "running")


@dataclass(frozen=True, slots=True)
class Node:
    """The machine of a worker that has a process to itself.

    ``labels`` determine the price of its GPUs. ``leaving`` returns the reason why trials must continue elsewhere,
    because the node is about to be taken away, or None.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    leaving: Callable[[], str | None] = lambda: None


class Surroundings:
    """Keeps the working folder, standard streams and settings of a process the same for each of its trials.

    Trials begin in ``folder`` if this machine has it, or where importing the author's code has changed to, and with the
    settings that the import left (`sweep.state.settings`). With ``alone``, the process is only for trials: it stays in
    the trial's state between steps, for the sake of threads that read ahead. Otherwise the caller's state is restored
    after each step.
    """

    def __init__(self, folder: Path | None, *, alone: bool = False) -> None:
        self._alone = alone
        self._start = folder if folder is not None and folder.is_dir() else Path.cwd()
        self._imported = False
        self._at = self._start  # working folder of the present trial
        self._streams: tuple[TextIO, TextIO] | None = None  # streams that the trial has put in place of Python's own
        self._outputs = {stream: os.dup(stream) for stream in (1, 2) if _is_open(stream)}
        for copy in self._outputs.values():
            weakref.finalize(self, os.close, copy)
        self._settings = imports.follow(settings.Kept())
        self._of_import: settings.Values = {}  # settings made by importing the author's code, if the process is shared
        self._of_trial: settings.Values = {}  # settings made by the present trial
        self._is_inside = False
        self.resisting: list[str] = []  # settings that a trial has changed permanently

    def check(self) -> None:
        """Raise FileNotFoundError if there is no folder that the trial could run in."""
        if not (self._at.is_dir() or self._start.is_dir()):
            raise FileNotFoundError(f"{self._start}, in which trials begin, is no longer there")

    @contextmanager
    def inside(self, *, anyhow: bool = False) -> Iterator[None]:
        """Use the trial's working folder, streams and settings inside the block; restore the caller's afterwards.

        ``anyhow``: do not raise if the trial's folder is gone; the caller must call `check` then.
        """
        back, before = None if self._alone else _current_folder(), (sys.stdout, sys.stderr)
        if not anyhow:
            self.check()
        with suppress(FileNotFoundError, NotADirectoryError):  # `check` reports this
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
        """Return Python's file for a standard stream, or a new one if the trial has closed it."""
        if not getattr(file, "closed", False) or stream not in self._outputs:
            return file
        os.dup2(self._outputs[stream], stream)
        return open(stream, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)

    def imported(self) -> None:
        """Make all trials begin with the present folder and settings, as importing the author's code has left them."""
        if not self._imported:
            self._start, self._imported = Path.cwd(), True
        if self._alone:
            self._settings.again()
        else:
            self._of_import = self._settings.own()

    def reset(self) -> None:
        """Undo what a trial has done to the working folder, the standard streams and the settings."""
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
"""Approximate time to continue in a new process; trials that need less than this stay where they are."""


def write_shares(job: Job, wanted: Mapping[int, float]) -> None:
    """Tell running trials their new shares."""
    with suppress(StoreError), replacing(job.share_file) as aside:  # a full disk: the trials keep their shares
        aside.write_text(json.dumps(wanted))


def wanted_elsewhere(job: Job, order: Order, epoch: EpochReported) -> bool:
    """Return whether a trial has been told a different share and has enough work left to be worth moving."""
    given = order.assignment
    if not order.shares or (given.epochs - epoch.epoch) * epoch.time_s < MOVE_S:
        return False
    try:
        wanted = json.loads(job.share_file.read_text())
    except (OSError, ValueError):  # no trial was told anything
        return False
    share = wanted.get(str(given.trial))
    return share is not None and share != given.devices.gpus


_SEND_S, _HEAR_S = 0.5, 2.0


@contextmanager
def messages_sent(job: Job) -> Iterator[None]:
    """Copy the driver's stop and share files to workers on all machines, inside the block.

    Does nothing if all machines see the results folder.
    """
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
    """Start copying the driver's stop and share files to this machine; return a function that stops it."""
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
    with suppress(StoreError, OSError, ValueError):  # the store is away or a disk full: the next attempt may succeed
        turn()


def _key(job: Job) -> str:
    return f"messages/{job.session}"


def _shares(job: Job) -> str:
    try:
        return job.share_file.read_text()
    except OSError:
        return ""


def shared_data_name(results_folder: Path) -> str:
    """Return a new, unguessable name for the shared data of a session of the sweep in this folder."""
    return f"{shared_data_prefix(results_folder)}{uuid.uuid4().hex}"


def shared_data_prefix(results_folder: Path) -> str:
    """Return the common prefix of such names for all sessions of a sweep; the path must be the driver's."""
    digest = hashlib.sha256(str(results_folder.resolve()).encode()).hexdigest()
    return f"sweep-data-{digest[:16]}-"


def remove_shared_data(prefix: str) -> None:
    """Delete this machine's shared-data folders whose names begin with ``prefix``."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        shutil.rmtree(folder, ignore_errors=True)
