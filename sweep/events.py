"""The events of a sweep: the vocabulary of the log, and all that other parts ever hear.

The log is a list of these. Searchers and schedulers observe them, the tables and the live view are
made of them, and a sweep is resumed by observing them again. This module knows none of its users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
"""What a hyperparameter can be: a YAML value."""

if TYPE_CHECKING:
    Params: TypeAlias = Mapping[str, Value]
    """A trial's hyperparameters by flat, dotted name, in the order of the sweep file."""
else:
    Params = Mapping[str, Any]  # no decoder follows a type that contains itself


class Status(StrEnum):
    """State of a trial: ``running``, then exactly one of the others."""

    RUNNING = "running"
    COMPLETED = "completed"
    INFEASIBLE = "infeasible"  # completed, and its metrics do not meet the constraints
    PRUNED = "pruned"  # stopped early, by the scheduler or by `stop --trial`
    DIVERGED = "diverged"  # loss or objective became NaN or infinite
    OOM = "oom"  # out of memory, also after smaller micro-batches
    FAILED = "failed"  # an exception in the trainable
    INTERRUPTED = "interrupted"  # stopped with the sweep: resumable


PAUSES = "pauses: "
"""Begins the reason of each trial that is interrupted because its rule lets it pause."""


class Role(StrEnum):
    """What a trial is for."""

    SEARCH = "search"  # the searcher has chosen it
    BASELINE = "baseline"  # the author's own configuration, beside the search
    CONFIRM = "confirm"  # a fresh seed for a configuration that could still be the best, after the search


def _tag(name: str) -> str:
    return re.sub(r"\B[A-Z]", r"_\g<0>", name).lower()


class Record(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag=_tag):
    """What the log knows by the name of its class, as "trial_started". `msgspec.structs.replace` changes a copy."""


class TrialStarted(Record, frozen=True, kw_only=True):
    """A trial was chosen; from now on it counts."""

    trial: int
    trial_id: str
    params: Params
    seed: int
    repeat: int
    time: float  # seconds since 1970, UTC, as everywhere here
    driven_s: float | None = None  # seconds of this session by the driver's own clock, noted now and then
    fold: int | None = None  # of a cross-validation, from 0
    role: Role = Role.SEARCH
    parent: int | None = None  # the trial that it is a copy of, with other parameters
    parent_epoch: int | None = None  # up to which it has that one's epochs
    index: int | None = None  # its number in the search, where that is not ``trial``; None for other roles


class EpochReported(Record, frozen=True, kw_only=True):
    """One epoch of one trial, numbered from 1."""

    trial: int
    epoch: int
    metrics: Mapping[str, float]  # may hold NaN and infinities: the truth is logged
    time: float
    time_s: float  # what this epoch took
    learning_rate: float | None = None  # as applied in the epoch's last update
    examples_per_s: float | None = None
    measures: Mapping[str, float] = field(default_factory=dict)  # further columns, named with units
    memo: str | None = None  # "<sweep>/<trial>" that trained it: taken over, not trained again
    driven_s: float | None = None  # as of `TrialStarted`


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how a trial ran; ``None`` where nobody knows (a worker that vanished)."""

    started: float | None = None  # seconds since 1970: when training code first ran for it
    node: str | None = None
    devices: str | None = None  # "cpu:0", "gpu:0,gpu:1"; of several workers those of each: "cpu:0;cpu:0"
    strategy: str | None = None
    num_replicas: int | None = None
    precision: str | None = None
    numerics: Mapping[str, str] = field(default_factory=dict)  # how its numbers came about: tf32, cudnn ...
    train_s: float | None = None
    overhead_s: Mapping[str, float] = field(default_factory=dict)  # start, build, compile, data ...
    checkpoint: str | None = None  # relative to the results folder
    accumulate: int | None = None  # micro-batches that each batch was split into, after it did not fit
    data: str | None = None  # fingerprint of the data, where the trainable takes one
    structure: str | None = None  # what was read in building its program, by `hyperparameters.to_json`
    structures: int | None = None  # how many of them its worker holds
    reproducible: bool = True  # another trial with the same parameters and seed would give the same numbers
    extends: bool = False  # its epochs are those that a trial of more epochs would begin with


class TrialEnded(Record, frozen=True, kw_only=True):
    """A trial reached its final state, or was interrupted with its sweep."""

    trial: int
    status: Status
    reason: str  # one line, "" for a completed trial
    time: float
    error: str | None = None  # traceback of a failed trial
    memo: str | None = None  # "<sweep>/<trial>" that answered it: none of it was trained again
    at_target: bool = False  # it is complete with fewer epochs, for it reached the sweep's target
    regardless: bool = False  # it failed before it had read any parameter that differs between trials
    asked: bool = False  # somebody asked that it be stopped; the sweep's own rules had no part in it
    waits: bool = False  # interrupted where it pauses, until its rule lets it go on; or pruned as it still paused there
    again: bool = False  # it has failed, and is tried again: interrupted, also where its log says failed before
    facts: Facts = field(default_factory=Facts)
    driven_s: float | None = None  # as of `TrialStarted`


class ModelTested(Record, frozen=True, kw_only=True):
    """A trial's model was evaluated on the test data, once, after everything was chosen."""

    trial: int
    metrics: Mapping[str, float]
    time: float


class SessionStarted(Record, frozen=True, kw_only=True):
    """A process began to drive the sweep: the first one, or one that resumed it."""

    time: float
    resumed: bool
    version: str


class SessionEnded(Record, frozen=True, kw_only=True):
    """The driving process ended the sweep in order; a killed one leaves no such event."""

    time: float
    reason: str  # "finished", "interrupted", "budget", ...
    driven_s: float | None = None  # as of `TrialStarted`


Event: TypeAlias = TrialStarted | EpochReported | TrialEnded | ModelTested | SessionStarted | SessionEnded
