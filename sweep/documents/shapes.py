"""The document of each command, as classes whose fields are its keys.

A document of one object begins with its version, which changes when a key is removed or gets another meaning; keys may
be added at any time. `list`, `doctor`, and `examples` without a name print a list, `kube` a List of Kubernetes, and
`schema` a schema: these formats have no room for a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from sweep.analysis.ranking import RankedConfiguration, Ranking, SamplingError
from sweep.analysis.replay import Replay
from sweep.analysis.rung_ranks import RungRanks
from sweep.analysis.search_efficiency import SearchEfficiency
from sweep.analysis.sweep_rows import Trial
from sweep.analysis.verdict import SweepSummary
from sweep.documents.mistakes import Mistake
from sweep.events import Value
from sweep.export.winner import Winner
from sweep.runner.earlier_times import Timing
from sweep.runner.limits import ExpectedGain
from sweep.runner.power_analysis import Detectable
from sweep.runner.pricing import Confirming, Offer
from sweep.spec.changes import Difference

Json: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Document:
    """An object that a command prints."""

    version: Literal[1] = 1


Extended = TypeVar("Extended", bound=Document)


def extend(kind: type[Extended], base: object, **more: Any) -> Extended:
    """Return a document of class ``kind`` with the fields of ``base`` and further ones, given in ``more``.

    ``base`` is an instance of a dataclass from which ``kind`` is derived. Raises TypeError if a field is given twice or
    missing.
    """
    known: dict[str, Any] = {field.name: getattr(base, field.name) for field in fields(base)}  # type: ignore[arg-type]  # a dataclass
    return kind(**known, **more)


@dataclass(frozen=True, kw_only=True)
class FilesWritten(Document):
    """Files that `init` or `examples NAME` has written, and the commands to type next."""

    files: tuple[str, ...]
    next: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShippedExample:
    """A sweep file that is shipped with sweep."""

    name: str
    question: str
    cost: str


@dataclass(frozen=True, kw_only=True)
class TrialResources:
    """What a trial is given."""

    cpus: float
    gpus: float | Literal["auto"]
    workers: int
    servers: int
    simulated: bool


@dataclass(frozen=True, kw_only=True)
class ExpectedTrials:
    """How many trials are expected at a rung."""

    epoch: int
    expected_trials: float


@dataclass(frozen=True, kw_only=True)
class ExpectedCost:
    """The expected cost of a sweep; null where it is not known."""

    trials: float | None
    epochs: float | None
    hours: float | None
    gpu_hours: float | None


@dataclass(frozen=True, kw_only=True)
class PlanDocument(Document):
    """What `plan` says; ``find_lr`` and ``throughput`` are null unless they were asked for."""

    sweep: Json
    auto: tuple[str, ...]
    trials: int | None
    epochs: int | None
    allowed: float | None
    choosing_s: float
    concurrent: int | None
    resources: TrialResources
    rungs: tuple[ExpectedTrials, ...]
    expected: ExpectedCost
    confirm: Confirming | None
    timing: Timing | None
    telling: Detectable
    offers: tuple[Offer, ...]
    sample: tuple[Json, ...]
    looked_at: str
    histograms: Json
    find_lr: tuple[Json, ...] | None = None
    throughput: Json | None = None


@dataclass(frozen=True, kw_only=True)
class StatusDocument(SweepSummary, Document):
    """The state of a sweep."""

    total: int | None  # number of trials; null if it is not fixed
    written: float | None  # when its log was last written, in seconds since 1970
    rungs: tuple[RungRanks, ...]
    # what stop_when.gain asks for; null before a model knows enough
    expected_gain: ExpectedGain | None = None
    each: tuple[Trial, ...] | None = None  # all trials, if they were asked for
    # why this version of sweep refuses its sweep file, so that it can be shown but not resumed; empty if it does not
    file_problems: tuple[Mistake, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WaitDocument(SweepSummary, Document):
    """The state of a sweep after waiting for it; ``error`` is empty if the condition was reached."""

    until: str
    reached: bool
    waited_s: float
    exit_code: int
    error: tuple[Mistake, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DetachedDocument(Document):
    """A sweep that runs in the background, and the commands to watch it, to wait for it and to stop it."""

    sweep: str
    results: str
    process: int
    output: str  # file with what it prints
    watch: str
    wait: str
    stop: str


@dataclass(frozen=True, kw_only=True)
class SessionDocument(Document):
    """The result of `run`, `resume`, `confirm` and `retrain`; ``error`` is empty if the exit code is 0."""

    sweep: str
    results: str  # the folder, or the place in an object store
    completed: int  # trials, in all sessions
    stopped: str | None  # why it ended before all its trials
    interrupted: bool
    answer: str  # which configuration is best, and how certain that is; "" if no trial completed
    metric: str | None
    best: tuple[RankedConfiguration, ...]  # the best configuration, or the Pareto front
    to_resume: str  # the command that goes on with it
    exit_code: int
    error: tuple[Mistake, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoppedDocument(Document):
    """What `stop` has done."""

    sweep: str
    trial: int | None
    result: str


@dataclass(frozen=True, kw_only=True)
class AddedDocument(Document):
    """Configurations that were added to a sweep, with all their parameters."""

    sweep: str
    configurations: tuple[Json, ...]
    running: bool  # otherwise they are tried when the sweep goes on
    to_resume: str | None  # the command by which it goes on; null if it is running


@dataclass(frozen=True, kw_only=True)
class ChangedKey:
    """A key of the sweep file that was changed; null stands for a missing key."""

    key: str
    before: Value
    after: Value


def describe_difference(difference: Difference) -> ChangedKey:
    """Return a changed key of a sweep file, with its earlier and its new value, in the form that documents have.

    The key is the path with dots that ``--set`` takes; a value is None if the key was or is missing.
    """
    return ChangedKey(key=difference.path, before=difference.before, after=difference.after)


@dataclass(frozen=True, kw_only=True)
class ChangedDocument(Document):
    """What `change` has changed."""

    sweep: str
    changes: tuple[ChangedKey, ...]
    # added configurations that are not in the new space and had not started
    dropped: tuple[Json, ...]
    running: bool
    to_resume: str | None  # the command by which the sweep goes on; null if it is running


@dataclass(frozen=True, kw_only=True)
class NotedDocument(Document):
    """A note that was written; with an empty text it was removed."""

    sweep: str
    trial: int | None  # null: the note is on the sweep
    text: str


@dataclass(frozen=True, kw_only=True)
class StarredDocument(Document):
    """A trial that was given a star, or from which it was taken away."""

    sweep: str
    trial: int
    starred: bool


@dataclass(frozen=True, kw_only=True)
class SubmittedDocument(Document):
    """A sweep that was submitted to a cluster; with ``--wait``, ``state`` is the last state of its job."""

    sweep: str
    job: str
    results: str
    files: int
    size_bytes: int
    left_out: tuple[str, ...]
    state: str | None


@dataclass(frozen=True, kw_only=True)
class LogsDocument(Document):
    """What the driver of a submitted sweep has said."""

    sweep: str
    job: str
    state: str
    text: str


@dataclass(frozen=True, kw_only=True)
class TrialOutputDocument(Document):
    """What a trial has printed."""

    sweep: str
    trial: int
    status: str
    text: str


@dataclass(frozen=True, kw_only=True)
class KubernetesList:
    """The objects of Kubernetes, as `kubectl apply -f -` takes them."""

    apiVersion: Literal["v1"] = "v1"
    kind: Literal["List"] = "List"
    items: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class SlurmDocument(Document):
    """A job of Slurm; its number is null if nothing was submitted (``--dry-run``)."""

    sweep: str
    job: str | None
    results: str
    script: str


@dataclass(frozen=True, kw_only=True)
class ComparisonDocument(Ranking, Document):
    """The ranking of one or several sweeps."""

    answer: str
    search: tuple[SearchEfficiency, ...]
    rungs: Mapping[str, tuple[RungRanks, ...]]  # by sweep
    held_out: SamplingError | None


@dataclass(frozen=True, kw_only=True)
class BestDocument(Ranking, Document):
    """The best configuration, or the Pareto front; ``export`` is null if nothing was exported."""

    answer: str
    export: Winner | None = None


@dataclass(frozen=True, kw_only=True)
class ReplayDocument(Replay, Document):
    """What another stopping rule would have done."""


@dataclass(frozen=True, kw_only=True)
class ReportDocument(Document):
    """The report that the command has written."""

    report: str


@dataclass(frozen=True, kw_only=True)
class ExportDocument(Document):
    """A sweep that was written for another program."""

    sweep: str
    format: str
    place: str  # folder, or the address of a server or database
    files: tuple[str, ...]  # of CSV
    trials: int | None  # that were written; null for CSV
    next: str  # the command that shows it; "" if there is none


@dataclass(frozen=True, kw_only=True)
class DashboardDocument(Document):
    """Where the dashboard answers, until it is ended."""

    url: str


@dataclass(frozen=True, kw_only=True)
class PageDocument(Document):
    """Where the live page answers, until it is ended."""

    url: str  # with the token that lets a browser in


@dataclass(frozen=True, kw_only=True)
class RepairDocument(Document):
    """What a repair has kept of a log; ``original`` is the damaged log, null if it was whole."""

    log: str
    kept: int
    losses: tuple[str, ...]
    original: Path | None
    to_resume: str
