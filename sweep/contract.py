"""The interface between sweep and a trainable: the trial assigned to it and the reports it returns.

A trainable is any class with the methods of `Trainable`. It runs unchanged in a test, in a notebook and on a Ray
worker, because everything passed to it is defined in this module, and nothing here depends on Ray.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from sweep.events import EpochReported, Facts, Params, Value
from sweep.progress import UNBOUNDED_EPOCHS, compute_share, count_length

__all__ = [
    "Apart",
    "Assignment",
    "Devices",
    "Diverged",
    "EpochReported",
    "Exported",
    "Exporting",
    "Facts",
    "Fold",
    "Fusing",
    "Group",
    "Incompatible",
    "Limited",
    "NotBegun",
    "NotExportable",
    "OtherData",
    "OutOfMemory",
    "Params",
    "Ranked",
    "Ranks",
    "Report",
    "Stopped",
    "Testing",
    "Trainable",
    "Value",
    "Waiting",
]


CUDA_BYTES = 0.75 * 2**30
"""GPU memory that each process uses for its CUDA context, libraries and communication."""


CONTAINER = Path("/sys/fs/cgroup")
"""Folder with the limits of the container; its file names differ between versions 1 and 2 of control groups."""


def _read_limits(*names: str) -> list[int]:
    """Return the numbers in these files, leaving out missing files and words such as "max", which mean no limit."""
    words = [word for name in names if (CONTAINER / name).exists() for word in (CONTAINER / name).read_text().split()]
    return [int(word) for word in words if word.isdigit()]


def cpus() -> int:
    """Return the number of cores that this process may use, at least 1: its CPU affinity and its container limit it."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    shares = (_read_limits("cpu.max"), _read_limits("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # quota, period
    return max(min([cores, *(share[0] // share[1] for share in shares if len(share) == 2)]), 1)


def memory_bytes() -> int | None:
    """Return the memory of this machine or the limit of its container, if smaller; None if neither is known."""
    known = _read_limits("memory.max", "memory/memory.limit_in_bytes")
    with suppress(ValueError, OSError, AttributeError):  # not every system has these names
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(known, default=None)


def aside(servers: int) -> int:
    """Return how many processes of a trial do not train: the servers and, if there are any, one coordinator."""
    return servers + bool(servers)


def count_parts(whole: float, part: float) -> int:
    """Return how often ``part`` fits into ``whole``, tolerating rounding errors: 0.2 fits three times into 0.6."""
    return math.floor(whole / part + 1e-9)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The processes that train one trial together, and the rank of this one."""

    addresses: tuple[str, ...]  # host:port of every process, by rank
    rank: int  # from 0; rank 0 decides, reports and saves
    heartbeat_s: float = 10.0  # a rank that has been silent for this long is considered lost
    register_s: float = 60.0  # time within which all ranks must have joined
    servers: int = 0  # the last ranks, which keep the weights; if any, rank 0 coordinates and the others train

    @property
    def workers(self) -> int:
        """Number of processes that train."""
        return len(self.addresses) - aside(self.servers)


@dataclass(frozen=True, slots=True)
class Devices:
    """The share of a machine assigned to one process of a trial."""

    cpus: float = 1
    gpus: float = 0  # below 1: a fraction of one GPU
    simulated: bool = False  # logical CPU devices stand in for the GPUs
    ranks: Ranks | None = None  # None: this process trains alone

    @property
    def real_gpus(self) -> float:
        """Physical GPUs: 0 if CPU devices stand in for them."""
        return 0.0 if self.simulated else self.gpus

    def fits(self, cpus: float, gpus: float) -> int:
        """Return how many shares of this size fit on a machine with so many CPUs and GPUs."""
        return min(count_parts(there, asked) for there, asked in ((cpus, self.cpus), (gpus, self.gpus)) if asked)

    def memory_bytes(self, total: float) -> float:
        """Return the bytes of GPU memory for a trial on a GPU with ``total`` bytes, without what CUDA itself needs."""
        return min(self.gpus, 1.0) * total - (0.0 if self.simulated else CUDA_BYTES)


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold of a cross-validation: the examples that a trial leaves out of training and validates with."""

    number: int  # from 0
    of: int  # number of folds
    seed: int  # determines the split; the folds of one seed contain each example exactly once


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One trial as its trainable receives it."""

    trial: int
    params: Params
    seed: int
    epochs: int  # at most; `UNBOUNDED_EPOCHS` if only its minutes end it
    minutes: float | None = None  # of training, after which it is complete; None: after its epochs
    devices: Devices = field(default_factory=Devices)
    training: Mapping[str, Value] = field(default_factory=dict)  # the `training:` block of the sweep file
    objective: str | None = None  # name of the metric that the sweep optimizes
    maximize: bool = False  # whether a larger objective is better
    shared: Path | None = None  # folder shared by the workers of this node; None: share nothing
    stop_file: Path | None = None  # once it exists, the trial must end; slow work before an epoch checks for it
    profile: Path | None = None  # folder for a profile of a few steps; None: no profile
    fold: Fold | None = None  # of a cross-validation, whose split replaces the usual one
    data_seed: int = 0  # seed for loading the data, the same for all trials of a sweep
    accumulate: int = 1  # further micro-batches to split each batch into, because the trial ran out of memory
    trains: bool = True  # false: the trial is only restored, to be inspected, tested or exported

    @property
    def counts_epochs(self) -> bool:
        """Whether the number of epochs is known; False if only the minutes end the trial."""
        return self.epochs < UNBOUNDED_EPOCHS

    @property
    def length(self) -> int:
        """The length of the trial in the units of its rungs: its epochs, or 100 (percent) if its minutes end it."""
        return count_length(self.epochs)

    def share_used(self, epoch: int, trained_s: float) -> float:
        """Return the share of its budget that the trial has used after an epoch and so many seconds, from 0 to 1."""
        return compute_share(epoch, self.epochs, trained_s, self.minutes)


Report: TypeAlias = Callable[[EpochReported], bool]
"""Report one finished epoch. Return True to continue training, False to return from `train` for now."""


class Trainable(Protocol):
    """A model and its data. A worker creates one object and trains one trial after another with it.

    A class without these methods may set ``__trainable__`` to a callable that turns an object of the class into a
    `Trainable`, as `KerasTrainable` does with its `TrialSession`.

    Any method may raise `Diverged`, `Stopped` or `OutOfMemory`; any other exception fails the trial. After
    `OutOfMemory`, a new object receives the trial with ``accumulate`` doubled.
    """

    def begin(self, assignment: Assignment) -> None:
        """Prepare a trial and forget the previous one."""

    def train(self, report: Report) -> None:
        """Train epoch by epoch and report each. Return after the last epoch, or when ``report`` returns False.

        Called again to continue from where it returned.
        """

    def save(self, folder: Path) -> Callable[[], None] | None:
        """Write everything that `restore` needs to continue exactly into ``folder``, which exists and is empty.

        May return a function that writes the rest. It is called in another thread while training continues.
        """

    def restore(self, folder: Path) -> int:
        """Continue from what `save` wrote and return the number of epochs done. Called after `begin`.

        Raises:
            OtherData: if the data that `begin` loaded differ from those the trial was trained on.
        """

    def facts(self) -> Facts:
        """Return where and how the trial runs and, at its end, whether a longer trial may continue from it."""


class Ranked(Protocol):
    """Optional methods of a `Trainable` that several processes can train together.

    Each process has its own object. All objects receive the same calls in the same order, except `save`, which only
    rank 0 receives. They must compute the same results, each on its own slice of every batch.
    """

    def join(self, devices: Devices, training: Mapping[str, Value]) -> None:
        """Connect to the other ranks, before any other call. Return when all ranks have joined."""

    def leave(self, reason: str) -> None:
        """Release everything that other ranks wait for and send them the reason. Called from any thread.

        This process does not train any more afterwards.
        """


class Group(Protocol):
    """Trials of one structure that are trained together as one program."""

    def member(self) -> Trainable:
        """Return a trainable for one trial of the group at a time; it may train others after it.

        Its ``begin`` raises `Apart` if the trial cannot be trained together with those that have begun and not left.
        Its ``train`` is never called.
        """

    @property
    def is_open(self) -> bool:
        """True if more trials may begin while others of the group are training."""

    def leave(self, member: Trainable) -> None:
        """Forget a member's trial, because it has ended or continues elsewhere."""

    def train(self, reports: Mapping[Trainable, Report]) -> Mapping[Trainable, Exception]:
        """Train the trials of these members, one epoch of each at a time, until a report returns False.

        Trials of other members keep their state. A single member is trained as it would be alone. Return the exception
        of each trial that ended with one.

        Raises:
            Apart: before any training, if the trials cannot be trained together or would be slower than alone.
        """


class Fusing(Protocol):
    """Optional method of a `Trainable` that can train several trials at once, as with ``training: {fuse: 32}``."""

    def group(self) -> Group:
        """Return a new group; from now on this object trains the members of that group."""


class Limited(Protocol):
    """Optional properties of a `Trainable` that cannot always do what others can. Without them, it can."""

    @property
    def saves(self) -> bool:
        """Whether the present epoch can be saved. If not, the trial begins again when it is resumed."""

    @property
    def splits(self) -> bool:
        """Whether batches can be cut into more micro-batches; see `Assignment.accumulate`."""

    @property
    def holds_memory(self) -> bool:
        """Whether it may hold memory for earlier trials, such as compiled programs, which a new object would not."""


class Waiting(Protocol):
    """Optional members of a `Trainable` whose training code waits between two epochs, as a function's does."""

    def end_trial(self) -> str:
        """Let the waiting code of a trial end, because the trial has ended. Called at the end of every trial.

        Return a line about the error that the code raised then, or "".
        """

    @property
    def training_read(self) -> frozenset[str]:
        """The keys of `Assignment.training` that have an effect; the user is told about others in the sweep file."""


def can_save(trainable: Trainable | None) -> bool:
    """Return whether the present epoch of a trainable's trial can be saved."""
    return getattr(trainable, "saves", True) is not False


def can_split(trainable: Trainable | None) -> bool:
    """Return whether a trainable can cut its batches into more micro-batches."""
    return getattr(trainable, "splits", True) is not False


def may_hold_memory(trainable: Trainable | None) -> bool:
    """Return whether a trainable may hold memory for earlier trials; False without one."""
    return trainable is not None and getattr(trainable, "holds_memory", True) is not False


def end_trial(trainable: Trainable | None) -> str:
    """Let the waiting code of a trainable's trial end; return a line about the error that it raised then, or ""."""
    end: Callable[[], str] | None = getattr(trainable, "end_trial", None)
    if end is None:
        return ""
    return end()


def list_read_settings(trainable: Trainable | None) -> frozenset[str] | None:
    """Return the keys of `Assignment.training` that have an effect; None if the trainable does not tell."""
    read: frozenset[str] | None = getattr(trainable, "training_read", None)
    return read


class Exporting(Protocol):
    """Optional methods of a `Trainable` whose model can be used without sweep.

    Both are called after `begin` and `restore`. Without them, a trial's checkpoint can only be copied.
    """

    def trained_model(self) -> Any:
        """Return the trial's model as its author wrote it, with the weights it is validated with.

        The model and this object are independent: changing either leaves the other unchanged.
        """

    def export(self, folder: Path, formats: Sequence[str]) -> Exported:
        """Write the model into ``folder`` in each of these formats and check that it gives the trial's results.

        Raises:
            NotExportable: for an unknown format, or one in which the model would not be the same.
        """


class Testing(Protocol):
    """Optional method of a `Trainable` with test data, which no choice depends on."""

    def test(self) -> Mapping[str, float] | None:
        """Return the metrics of the trial's model on the test data; None if there is no test data.

        Called after `begin` and `restore`, once for each tested trial, after all choices are made.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The files written by `Exporting.export` and the result of checking them."""

    files: Mapping[str, str]  # by format: name of the file or folder within ``folder``
    usage: Mapping[str, str] = field(default_factory=dict)  # by format: lines of Python that load it
    differences: Mapping[str, float] = field(default_factory=dict)  # by format: largest difference between predictions
    metrics: Mapping[str, float] = field(default_factory=dict)  # metrics of the trial's model, evaluated at the export
    compared: str = ""  # what was compared, such as "360 validation examples"
    data: Mapping[str, str] = field(default_factory=dict)  # description of each part of the data
    preprocessing: str = ""  # the author's description of the preprocessing
    needs: tuple[str, ...] = ()  # the author's modules that must be importable to load it
    notes: tuple[str, ...] = ()


class NotExportable(Exception):
    """The trained model cannot be exported to this format, or would not be the same there."""


class Incompatible(Exception):
    """The sweep file asks for something that the trainable's code cannot do.

    ``about`` names the parameters and keys of the file that cause this, if known.
    """

    def __init__(self, message: str, *, about: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.about = tuple(about)


class Diverged(Exception):
    """The loss, a gradient or a weight became NaN or infinite."""


class Stopped(Exception):
    """The trainable ends its trial early, for the reason given; the epochs reported so far count."""


class NotBegun(Exception):
    """The trial must end (`Assignment.stop_file`) before `Trainable.begin` has finished."""


class OtherData(Exception):
    """The data differ from those the trial was trained on, so it can neither continue nor be tested on them."""


class Apart(Exception):
    """These trials cannot be trained together, for the reason given; each can be trained alone."""


class OutOfMemory(Exception):
    """The trial does not fit on its devices, even with the smallest micro-batch."""
