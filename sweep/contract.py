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
    """Return the whole numbers in the files ``names`` of the folder `CONTAINER`, in the order of the names.

    Missing files are left out, and so are other words, such as "max" and negative numbers, which mean no limit.
    """
    words: list[str] = []
    for name in names:
        file = CONTAINER / name
        if file.exists():
            words += file.read_text().split()
    return [int(word) for word in words if word.isdigit()]


def cpus() -> int:
    """Return the number of cores that this process may use, at least 1.

    It is limited by the CPU affinity and the container; a fraction of a core is rounded down.
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    # [quota, period] in microseconds, of versions 2 and 1 of control groups; without a limit, the quota is missing
    limits = (
        _read_limits("cpu.max"),
        _read_limits("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
    )
    for limit in limits:
        if len(limit) == 2:
            quota, period = limit
            cores = min(cores, quota // period)
    return max(cores, 1)


def memory_bytes() -> int | None:
    """Return the bytes of memory of this machine, or of its container's limit if smaller; None if unknown."""
    known = _read_limits("memory.max", "memory/memory.limit_in_bytes")
    with suppress(ValueError, OSError, AttributeError):  # not every system has these names
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(known, default=None)


def count_nontraining_processes(servers: int) -> int:
    """Return how many processes of a trial do not train: the servers and, if there are any, one coordinator."""
    return servers + bool(servers)


def count_parts(whole: float, part: float) -> int:
    """Return how often ``part`` (above 0) fits into ``whole``, rounded down: 0.2 fits three times into 0.6.

    A part that lacks up to 1e-9 of itself counts, because of rounding errors.
    """
    return math.floor(whole / part + 1e-9)


def count_allowed_trials(fits: int, max_share: float | None) -> int:
    """Return the share ``max_share`` (0 to 1) of the ``fits`` trials that fit, rounded down; all if it is None.

    With a share, the result is at least 1, even if no trial fits.
    """
    if max_share is None:
        return fits
    return max(count_parts(max_share * fits, 1), 1)


def count_gpu_parts(gpus: float, asked: float) -> int:
    """Return how many processes with ``asked`` GPUs each (above 0) fit on a machine with ``gpus`` GPUs.

    A share of a GPU lies within one GPU: 0.6 fits four times on four GPUs. ``gpus`` may be a fraction, for a machine
    that offers only a part of its last GPU.
    """
    if asked >= 1:
        return count_parts(gpus, asked)
    whole_gpus = count_parts(gpus, 1)
    part_of_last = max(gpus - whole_gpus, 0.0)
    return whole_gpus * count_parts(1, asked) + count_parts(part_of_last, asked)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Addresses of the processes that train one trial together, and the rank of this process among them."""

    addresses: tuple[str, ...]  # host:port of every process, by rank
    rank: int  # from 0; rank 0 decides, reports and saves
    heartbeat_s: float = 10.0  # a rank that has been silent for this long is considered lost
    register_s: float = 60.0  # time within which all ranks must have joined
    # the last ranks, which keep the weights; if any, rank 0 coordinates and the others train
    servers: int = 0

    @property
    def workers(self) -> int:
        """Number of processes that train: all but the servers and, if there are servers, the coordinator."""
        return len(self.addresses) - count_nontraining_processes(self.servers)


@dataclass(frozen=True, slots=True)
class Devices:
    """The CPUs and GPUs assigned to one process of a trial."""

    cpus: float = 1
    gpus: float = 0  # below 1: a fraction of one GPU
    simulated: bool = False  # logical CPU devices stand in for the GPUs
    ranks: Ranks | None = None  # None: this process trains alone

    @property
    def real_gpus(self) -> float:
        """Number of physical GPUs; 0 if CPU devices stand in for the GPUs."""
        return 0.0 if self.simulated else self.gpus

    def fits(self, cpus: float, gpus: float) -> int:
        """Return how many processes with these devices each fit on a machine with ``cpus`` CPUs and ``gpus`` GPUs.

        Raises ValueError if the processes need neither CPUs nor GPUs.
        """
        counts = []  # by CPUs and by GPUs, as far as they are needed
        if self.cpus:
            counts.append(count_parts(cpus, self.cpus))
        if self.gpus:
            counts.append(count_gpu_parts(gpus, self.gpus))
        return min(counts)

    def memory_bytes(self, total: float) -> float:
        """Return the bytes of memory that a process may use on one GPU with ``total`` bytes.

        That is its share of the GPU, or all of it for a process with one or more GPUs, minus 0.75 GiB for CUDA unless
        the GPU is simulated. The result is negative if the share is smaller than 0.75 GiB, as for a process without
        GPUs.
        """
        return min(self.gpus, 1.0) * total - (0.0 if self.simulated else CUDA_BYTES)


@dataclass(frozen=True, slots=True)
class Fold:
    """One fold of a cross-validation: the examples that a trial leaves out of training and uses for validation."""

    number: int  # from 0
    of: int  # number of folds
    seed: int  # determines the split; the folds of one seed contain each example exactly once


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One trial to train: its parameters, seed, length, devices and settings."""

    trial: int
    params: Params
    seed: int
    epochs: int  # at most; `UNBOUNDED_EPOCHS` if only its minutes end it
    minutes: float | None = None  # of training, after which it is complete; None: after its epochs
    devices: Devices = field(default_factory=Devices)
    # the `training:` block of the sweep file
    training: Mapping[str, Value] = field(default_factory=dict)
    objective: str | None = None  # name of the metric that the sweep optimizes
    maximize: bool = False  # whether a larger objective is better
    shared: Path | None = None  # folder shared by the workers of this node; None: share nothing
    # once it exists, the trial must end; slow work before an epoch checks for it
    stop_file: Path | None = None
    profile: Path | None = None  # folder for a profile of a few steps; None: no profile
    fold: Fold | None = None  # of a cross-validation, whose split replaces the usual one
    data_seed: int = 0  # seed for loading the data, the same for all trials of a sweep
    # further micro-batches to split each batch into, because the trial ran out of memory
    accumulate: int = 1
    trains: bool = True  # false: the trial is only restored, to be inspected, tested or exported

    @property
    def counts_epochs(self) -> bool:
        """Whether the number of epochs is known; False if only the minutes end the trial."""
        return self.epochs < UNBOUNDED_EPOCHS

    @property
    def length(self) -> int:
        """The length of the trial in the units of its rungs: its epochs, or 100 percent if it ends by minutes alone."""
        return count_length(self.epochs)

    def share_used(self, epoch: int, trained_s: float) -> float:
        """Return the share of the trial's budget, from 0 to 1, used by ``epoch`` epochs and ``trained_s`` seconds.

        It is the larger one of the share of its epochs and, if it has minutes, the share of those, and at most 1.
        """
        return compute_share(epoch, self.epochs, trained_s, self.minutes)


Report: TypeAlias = Callable[[EpochReported], bool]
"""Report one finished epoch. Return True to continue training, False to return from `train` for now."""


class Trainable(Protocol):
    """A model and its data. A worker creates one instance and trains one trial after another with it.

    A class without these methods may set ``__trainable__`` to a callable that turns an object of the class into a
    `Trainable`, as `KerasTrainable` does with its `TrialSession`.

    Any method may raise `Diverged`, `Stopped` or `OutOfMemory`; any other exception fails the trial. After
    `OutOfMemory`, the trial starts again with a new instance where that may help, often with ``accumulate`` doubled.
    """

    def begin(self, assignment: Assignment) -> None:
        """Prepare the trial that ``assignment`` describes, without training, and discard the state of the previous one.

        Raises:
            NotBegun: if `Assignment.stop_file` exists before the trial is prepared.
        """

    def train(self, report: Report) -> None:
        """Train epoch by epoch and pass each to ``report``; return after the last one or when ``report`` returns False.

        A further call continues the training where the previous call returned, or after the epochs of `restore`.
        """

    def save(self, folder: Path) -> Callable[[], None] | None:
        """Write everything that `restore` needs to continue exactly into ``folder``, which exists and is empty.

        Return None if all is written, or a function that writes the rest of the files with the state of now. That
        function is called in another thread while training continues.
        """

    def restore(self, folder: Path) -> int:
        """Load what `save` has written and return the number of epochs trained. Called after `begin`.

        Raises:
            OtherData: if the data that `begin` loaded differ from those the trial was trained on.
        """

    def facts(self) -> Facts:
        """Return facts about the present trial, such as its devices, as far as they are known at this time.

        At its end, they also say whether a longer trial may continue it.
        """


class Ranked(Protocol):
    """Optional methods of a `Trainable` whose trials can be trained by several processes.

    Each process has its own instance. All instances receive the same calls in the same order, except `save`, which only
    rank 0 receives. They must compute the same results, each on its own slice of every batch.
    """

    def join(self, devices: Devices, training: Mapping[str, Value]) -> None:
        """Connect to the other ranks, those in ``devices.ranks``, and return when all of them are connected.

        Called before any other method. ``training`` is the ``training`` block of the sweep file. An exception is raised
        if a rank has not joined within `Ranks.register_s` seconds.
        """

    def leave(self, reason: str) -> None:
        """Send the other ranks ``reason``, so that they end as well, and stop all communication with them.

        May be called from any thread. The instance does not train any more afterwards.
        """


class Group(Protocol):
    """Trials with the same structure that are trained together as one program."""

    def member(self) -> Trainable:
        """Return a new member of the group: a trainable that has one trial at a time, and may have others after it.

        Its ``begin`` raises `Apart` if the trial cannot be trained together with the present trials of the group. Its
        ``train`` is never called, because `Group.train` trains all members.
        """

    @property
    def is_open(self) -> bool:
        """Whether more trials may begin while others of the group are training."""

    def leave(self, member: Trainable) -> None:
        """Remove a member's trial from the group, because it has ended or continues elsewhere.

        The member stays, and may begin another trial.
        """

    def train(self, reports: Mapping[Trainable, Report]) -> Mapping[Trainable, Exception]:
        """Train the trials of the members in ``reports`` together, and pass each epoch of a member to its own report.

        Return after an epoch in which a report returns False or a trial ends. The result has, by member, the exceptions
        of trials that ended with one, which are not raised: `Stopped` if the trial is complete. It is empty if there
        are none. Members without a report are not trained and keep their state. A single member is trained as it would
        be alone.

        Raises:
            Apart: before any training, if the trials cannot be trained together or would be slower than alone.
        """


class Fusing(Protocol):
    """Optional method of a `Trainable` that trains several trials as one program, as with ``training: {fuse: 32}``."""

    def group(self) -> Group:
        """Return a new group of trials; from now on this object trains the members of that group."""


class Limited(Protocol):
    """Optional properties of a `Trainable` that cannot always save a trial or split its batches.

    A trainable without these properties can always do both.
    """

    @property
    def saves(self) -> bool:
        """Whether `save` can be called after the present epoch. If not, a resumed trial starts from its first epoch."""

    @property
    def splits(self) -> bool:
        """Whether batches can be split into more micro-batches; see `Assignment.accumulate`."""

    @property
    def holds_memory(self) -> bool:
        """Whether it may hold memory of earlier trials, such as compiled programs, which a new instance would not."""


class Waiting(Protocol):
    """Optional members of a `Trainable` whose training code waits between two epochs, as a function's does."""

    def end_trial(self) -> str:
        """Let the waiting code of a trial end, because the trial has ended. Called at the end of every trial.

        If the code waits now, return when it has ended: a line about the error that it raised meanwhile, or "" if it
        raised none. The error itself is not raised. Code that does not wait now ends when it would wait next; return ""
        at once then.
        """

    @property
    def training_read(self) -> frozenset[str]:
        """The keys of `Assignment.training` that have an effect; the user is told about others in the sweep file."""


def can_save(trainable: Trainable | None) -> bool:
    """Return whether a trainable can save its trial after the present epoch; True for None, or if it does not say."""
    return getattr(trainable, "saves", True) is not False


def can_split(trainable: Trainable | None) -> bool:
    """Return whether a trainable can split batches into more micro-batches; True for None, or if it does not say."""
    return getattr(trainable, "splits", True) is not False


def may_hold_memory(trainable: Trainable | None) -> bool:
    """Return whether a trainable may hold memory of earlier trials; False for None, True if it does not say."""
    return trainable is not None and getattr(trainable, "holds_memory", True) is not False


def end_trial(trainable: Trainable | None) -> str:
    """Let the waiting code of a trainable's trial end; return a line about the error that it raised then, or "".

    Does nothing, and returns "", for None and for a trainable without a method ``end_trial``, whose code does not wait
    between two epochs (see `Waiting`).
    """
    end: Callable[[], str] | None = getattr(trainable, "end_trial", None)
    if end is None:
        return ""
    return end()


def list_read_settings(trainable: Trainable | None) -> frozenset[str] | None:
    """Return the keys of `Assignment.training` that have an effect; None if the trainable does not tell, or is None."""
    read: frozenset[str] | None = getattr(trainable, "training_read", None)
    return read


class Exporting(Protocol):
    """Optional methods of a `Trainable` that exports its models for use without sweep.

    Both are called after `begin` and `restore`. Without them, a trial's checkpoint can only be copied.
    """

    def trained_model(self) -> Any:
        """Return a new model, built by the author's code for this trial, with the weights that are used for validation.

        The model and this object are independent: changing either leaves the other unchanged.
        """

    def export(self, folder: Path, formats: Sequence[str]) -> Exported:
        """Write the model into ``folder`` in each of the formats, and check that it reproduces the trial's results.

        Return the names of the files within ``folder``, which exists, and the results of the check.

        Raises:
            NotExportable: for an unknown format, or one in which the model would give other results.
        """


class Testing(Protocol):
    """Optional method of a `Trainable` that has test data. No decision of a sweep depends on them."""

    def test(self) -> Mapping[str, float] | None:
        """Evaluate the trial's model on the test data and return the metrics by name; None if there are no test data.

        Called after `begin` and `restore`, once for each tested trial, after all decisions of the sweep.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The files written by `Exporting.export` and the result of checking them."""

    files: Mapping[str, str]  # by format: name of the file or folder within ``folder``
    # by format: lines of Python that load it
    usage: Mapping[str, str] = field(default_factory=dict)
    # by format: largest difference between predictions
    differences: Mapping[str, float] = field(default_factory=dict)
    # metrics of the trial's model, evaluated at the export
    metrics: Mapping[str, float] = field(default_factory=dict)
    compared: str = ""  # what was compared, such as "360 validation examples"
    data: Mapping[str, str] = field(default_factory=dict)  # description of each part of the data
    preprocessing: str = ""  # the author's description of the preprocessing
    needs: tuple[str, ...] = ()  # the author's modules that must be importable to load it
    notes: tuple[str, ...] = ()


class NotExportable(Exception):
    """Raised if a model cannot be exported to a format, or would give other results in that format."""


class Incompatible(Exception):
    """Raised if the sweep file asks for something that the trainable's code cannot do.

    ``about`` names the parameters and keys of the file that cause this, if known.
    """

    def __init__(self, message: str, *, about: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.about = tuple(about)


class Diverged(Exception):
    """Raised if the loss, a gradient or a weight has become NaN or infinite."""


class Stopped(Exception):
    """Raised by a trainable to end its trial before the last epoch; the message is the reason.

    The trial is complete with the epochs reported so far.
    """


class NotBegun(Exception):
    """Raised by `Trainable.begin` if the trial has to stop (`Assignment.stop_file`) before it is prepared."""


class OtherData(Exception):
    """Raised if the data differ from those the trial was trained on, so that it cannot continue or be tested."""


class Apart(Exception):
    """Raised if trials cannot be trained together as one program, with the reason; each can be trained alone."""


class OutOfMemory(Exception):
    """Raised if a trial does not fit on its devices; it may start again, for instance with smaller micro-batches."""
