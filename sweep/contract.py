"""What a trainable sees of sweep: the trial it is given, and the report it makes.

A trainable is any class with the methods of `Trainable`. It runs unchanged in a test, in a notebook
and on a Ray worker, because all that it is handed is here, and none of it knows Ray.
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
]


CUDA_BYTES = 0.75 * 2**30
"""Of a GPU, for the context, the libraries and the communication of each process on it."""


_CONTAINER = Path("/sys/fs/cgroup")
"""Where Linux says what of a machine a container is given: version 2 of control groups, and version 1."""


def _limits(*names: str) -> list[int]:
    """Return the numbers in these files; what is not there, or sets no limit, is left out."""
    words = [word for name in names if (_CONTAINER / name).exists() for word in (_CONTAINER / name).read_text().split()]
    return [int(word) for word in words if word.isdigit()]


def cpus() -> int:
    """Cores that this process may use, of those to which it is bound: what its container is given, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = (_limits("cpu.max"), _limits("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # of time, and of how much
    return max(min([cores, *(share[0] // share[1] for share in shares if len(share) == 2)]), 1)


def memory_bytes() -> int | None:
    """Memory of this machine, or what the container is given of it; None where the system does not tell."""
    known = _limits("memory.max", "memory/memory.limit_in_bytes")
    with suppress(ValueError, OSError, AttributeError):  # a system without these names
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(known, default=None)


def aside(servers: int) -> int:
    """Return how many processes of a trial do not train: its servers, and where there are any a coordinator."""
    return servers + bool(servers)


def parts(whole: float, part: float) -> int:
    """Return how many parts a whole has room for, as if floats were exact: 0.6 has room for three of 0.2."""
    return math.floor(whole / part + 1e-9)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The processes that train one trial together, and which of them this is."""

    addresses: tuple[str, ...]  # host:port of each, by rank
    rank: int  # from 0, which decides, reports and saves
    heartbeat_s: float = 10.0  # a rank that is not heard of for so long is lost
    register_s: float = 60.0  # within which all of them must have come
    servers: int = 0  # the last so many keep the weights; then rank 0 coordinates, and those between train

    @property
    def workers(self) -> int:
        """How many of them train."""
        return len(self.addresses) - aside(self.servers)


@dataclass(frozen=True, slots=True)
class Devices:
    """The share of a machine that one process of a trial was given."""

    cpus: float = 1
    gpus: float = 0  # below 1: a share of one GPU
    simulated: bool = False  # logical CPU devices stand in for the GPUs
    ranks: Ranks | None = None  # None: this process trains alone

    @property
    def real_gpus(self) -> float:
        """GPUs of the machine: none where CPU devices stand in for them."""
        return 0.0 if self.simulated else self.gpus

    def fits(self, cpus: float, gpus: float) -> int:
        """Return how many such shares a machine has room for."""
        return min(parts(there, asked) for there, asked in ((cpus, self.cpus), (gpus, self.gpus)) if asked)

    def memory_bytes(self, whole: float) -> float:
        """Return what a trial may have of a GPU with so many bytes; CUDA takes some for itself in each process."""
        return min(self.gpus, 1.0) * whole - (0.0 if self.simulated else CUDA_BYTES)


@dataclass(frozen=True, slots=True)
class Fold:
    """The part of the examples that a trial of a cross-validation leaves out of training and validates with."""

    number: int  # from 0
    of: int  # folds
    seed: int  # of the cut: all folds of one seed together are the examples, each once


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One trial, as a trainable gets it."""

    trial: int
    params: Params
    seed: int
    epochs: int
    devices: Devices = field(default_factory=Devices)
    training: Mapping[str, Value] = field(default_factory=dict)  # the file's `training:` block
    objective: str | None = None  # name of the sweep's metric
    maximize: bool = False  # whether a larger objective is better
    shared: Path | None = None  # a folder of this node that all workers of the sweep share; None: share nothing
    profile: Path | None = None  # keep a profile of a few steps here
    fold: Fold | None = None  # of a cross-validation, which cuts the examples anew
    data_seed: int = 0  # of what loads the data: all trials of a sweep have the same
    accumulate: int = 1  # micro-batches to split each batch into, on top of the trial's own: it did not fit
    trains: bool = True  # false: it is restored to be looked at, tested or exported


Report: TypeAlias = Callable[[EpochReported], bool]
"""Hand over one finished epoch; the answer says whether to train on now or to return for a while."""


class Trainable(Protocol):
    """One model and its data; a worker makes one object and gives it trial after trial.

    A class without these methods may name in ``__trainable__`` a callable that takes an object of it and returns a
    `Trainable`, as `KerasTrainable` names its `Session`.

    Raises out of any method: `Diverged`, `Stopped`, `OutOfMemory`, or anything else, which fails the trial. After
    `OutOfMemory` a new object is given the trial with ``accumulate`` doubled.
    """

    def begin(self, assignment: Assignment) -> None:
        """Forget the trial before, prepare this one."""

    def train(self, report: Report) -> None:
        """Train epoch by epoch and report each; return when all are done or the report says so.

        It is called again to train on from where it stopped.
        """

    def save(self, folder: Path) -> Callable[[], None] | None:
        """Write all that `restore` needs to go on exactly, into an existing empty folder.

        What is returned, if anything, writes the rest: it is called in another thread while training goes on.
        """

    def restore(self, folder: Path) -> int:
        """Go on from what `save` wrote; returns the number of epochs done. Called after `begin`.

        Raises `OtherData` where the trial was trained on other data than `begin` has found.
        """

    def facts(self) -> Facts:
        """Return where and how the present trial runs, and at its end whether a longer one may go on from it."""


class Ranked(Protocol):
    """What a trainable offers beside `Trainable` where several processes may train one trial.

    Each process has an object of its own, and all of them get the same calls in the same order but for `save`, which
    is for rank 0 alone. They must compute the same, on different shares of each batch.
    """

    def join(self, devices: Devices, training: Mapping[str, Value]) -> None:
        """Meet the other ranks, once and before all else; returns when all have come."""

    def leave(self, reason: str) -> None:
        """Let go of what ranks wait for from one another, and tell the others why; called from any thread.

        Nothing is trained in this process any more.
        """


class Group(Protocol):
    """Trials of one structure that are trained together, as one program."""

    def member(self) -> Trainable:
        """Return a trainable for one more trial of the group, and for those that come after it.

        Its ``begin`` raises `Apart` for a trial that cannot be trained together with those that have begun and have
        not left. Its ``train`` is not called.
        """

    @property
    def is_open(self) -> bool:
        """Whether more trials may begin while those that have are under way."""

    def leave(self, member: Trainable) -> None:
        """Forget a member's trial, which has ended or goes on elsewhere."""

    def train(self, reports: Mapping[Trainable, Report]) -> Mapping[Trainable, Exception]:
        """Train the trials of these members, one epoch of each at a time, until one of the reports says to return.

        Others that have begun stay as they are. Return what each that ended has raised. Raises `Apart` before any of
        them has trained where they cannot be trained together, or not as fast as alone. One member alone is trained
        as by itself.
        """


class Fusing(Protocol):
    """What a trainable may offer beside `Trainable`: several trials at once in one process, `training: {fuse: 32}`."""

    def group(self) -> Group:
        """Return a group, whose members this object trains from now on."""


class Exporting(Protocol):
    """What a trainable may offer beside `Trainable`: its model, for use without sweep.

    Both are called after `begin` and `restore`. Without them a trial's checkpoint can be copied, and no more.
    """

    def trained_model(self) -> Any:
        """Return the present trial's model as its author wrote it, with the weights that it is validated with.

        It owes nothing to this object: whatever becomes of the one leaves the other as it is.
        """

    def export(self, folder: Path, formats: Sequence[str]) -> Exported:
        """Write the model into a folder, in each of these formats, and prove that it is the trial's.

        Raises `NotExportable` for a format that it does not know, or that does not hold the same model.
        """


class Testing(Protocol):
    """What a trainable may offer beside `Trainable`: data that nothing is chosen by."""

    def test(self) -> Mapping[str, float] | None:
        """Return what the present trial's model reaches on the test data; None without such.

        Called after `begin` and `restore`, once for a trial, when all choices are made.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What `Exporting.export` has written, and how it was checked."""

    files: Mapping[str, str]  # by format: the file or folder in the folder given
    usage: Mapping[str, str] = field(default_factory=dict)  # by format: the lines of Python that load it
    differences: Mapping[str, float] = field(default_factory=dict)  # by format: the largest between predictions
    metrics: Mapping[str, float] = field(default_factory=dict)  # what the trial's model reaches when evaluated now
    compared: str = ""  # on what: "360 validation examples"
    data: Mapping[str, str] = field(default_factory=dict)  # its parts in words
    preprocessing: str = ""  # what the author says of it
    needs: tuple[str, ...] = ()  # modules of the author's without which it does not load
    notes: tuple[str, ...] = ()


class NotExportable(Exception):
    """A trained model cannot be had in this format, or is not the same there."""


class Incompatible(Exception):
    """The sweep file asks for what the trainable's code cannot do.

    ``about``: the parameters and keys of the file that it follows from, beside the code, where these are known.
    """

    def __init__(self, message: str, *, about: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.about = tuple(about)


class Diverged(Exception):
    """The loss, a gradient or a weight became NaN or infinite."""


class Stopped(Exception):
    """The trainable ends its trial before its last epoch, for this reason; all it has reported counts."""


class OtherData(Exception):
    """The data are not those that the trial was trained on: it can neither go on with them nor be tested on them."""


class Apart(Exception):
    """Trials cannot be trained together, for this reason; each by itself can."""


class OutOfMemory(Exception):
    """The trial does not fit on its devices, with no smaller micro-batch left to try."""
