"""A sweep as plain rows, for code that compares, lists and prints it, and the outline of its file. Uses no data frames.

The Parquet library is imported only when something is read. Trials are made from whole columns, because a sweep may
have ten thousand of them. In a population, a copy has the epochs of its parent up to the epoch at which it was copied.

An outline holds what is known of a sweep before its first event and is needed to show its progress.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct, field

from sweep.errors import InputError, Problem
from sweep.events import NULL_PARAMS, EpochReported, Params, Role, Status, Value, trial_epochs
from sweep.prices import COST
from sweep.space import early_terminate
from sweep.space.early_terminate import EarlyTermination, NoTermination
from sweep.space.objectives import Objective, objective
from sweep.store import sweep_info
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import Objectives, SweepInfo

if TYPE_CHECKING:
    from sweep.spec import Spec
    from sweep.store.tables import History, Tables


_NO_RULE = NoTermination()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Budgets that may end the sweep before its trials do; ``gpus`` is the number of GPUs of one trial."""

    hours: float | None = None
    gpu_hours: float | None = None
    epochs: int | None = None
    money: float | None = None
    gpus: float = 0.0
    shared: bool = False  # trials share GPUs; each epoch measures its part of one

    @classmethod
    def of(cls, spec: Spec) -> Limits:
        """Return the budgets of a sweep file."""
        return cls(
            hours=spec.budget.hours,
            gpu_hours=spec.budget.gpu_hours,
            epochs=spec.budget.epochs,
            money=spec.budget.money,
            gpus=spec.resources.trial_gpus,
            shared=spec.resources.gpus == "auto",
        )

    def gpu_s(self, epoch: EpochReported) -> float:
        """Return the GPU-seconds that an epoch took, over all GPUs of its trial."""
        return epoch.time_s * self.gpus * (epoch.measures.get("gpus", 1.0) if self.shared else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The part of a sweep file that the views of the sweep need."""

    name: str = ""
    metric: str = ""  # of the first objective
    goal: str = ""
    objectives: int = 1
    varying: tuple[str, ...] = ()  # the parameters that differ between configurations
    total: int | None = None  # number of trials of the search and the baseline, if known
    repeats: int = 1
    epochs: int = 1  # of a trial whose parameters do not set it
    decisions: tuple[int, ...] = ()  # epochs at which trials can be pruned
    rule: EarlyTermination = _NO_RULE
    limits: Limits = Limits()

    @classmethod
    def of(cls, spec: Spec) -> Outline:
        """Return the outline of a sweep file."""
        first = spec.objectives[0]
        return cls(
            name=spec.name,
            metric=first.name,
            goal=first.goal,
            objectives=len(spec.objectives),
            varying=tuple(spec.space.varying),
            total=spec.all_trials,
            repeats=spec.trials_each,
            epochs=spec.epochs,
            decisions=early_terminate.decision_epochs(spec.early_terminate, spec.epochs),
            rule=spec.early_terminate,
            limits=Limits.of(spec),
        )

    @property
    def objective(self) -> Objective:
        return objective(self.metric, self.goal)

    def epochs_of(self, params: Params) -> int:
        """Return the number of epochs that a trial with these parameters trains."""
        return trial_epochs(params, self.epochs)


class Trial(Struct, frozen=True, kw_only=True):
    """One row of trials.parquet. Missing values are None, or absent from the mappings."""

    sweep: str
    trial: int
    trial_id: str
    repeat: int
    seed: int
    status: Status
    status_reason: str
    params: Mapping[str, Value]
    metrics: Mapping[str, float]  # as last reported
    best: Mapping[str, float]
    epochs: int
    duration_s: float | None
    checkpoint: str | None
    role: Role = Role.SEARCH
    tested: Mapping[str, float] = field(default_factory=dict)  # on the test data; finalists only
    fold: int | None = None
    parent: int | None = None  # of a copy in a population: the trial that it was copied from
    parent_epoch: int | None = None  # the last epoch that it has from its parent
    data: str | None = None  # fingerprint of the data
    data_reads: str | None = None  # see `Facts.data_reads`
    accumulate: int | None = None  # micro-batches that each batch was split into after running out of memory


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep and its trials, in the order of their start."""

    folder: ResultsFolder
    name: str  # the `sweep` of its trials, unique among sweeps that are compared
    info: SweepInfo
    objectives: Objectives
    trials: tuple[Trial, ...]
    history: History
    cost: float | None = None  # of its GPUs, if they have a price

    @property
    def state(self) -> str:
        """``running``, the reason why its last session ended, or ``unfinished`` if its driver was killed."""
        return "running" if self.folder.is_running() else self.history.ended or "unfinished"


def first_failure(sweep: Sweep) -> str:
    """Return how the first trial ended, phrased to follow "no trial completed"."""
    return next((f": trial {one.trial} {one.status}, {one.status_reason}" for one in sweep.trials), "")


def read(folder: ResultsFolder) -> Sweep:
    """Read the present state of the sweep in a folder. Raises `StoreError`."""
    from sweep.store import reading

    return of_tables(folder, reading.read(folder, metrics=()))


def of_tables(folder: ResultsFolder, read_tables: Tables, name: str = "") -> Sweep:
    """Make the sweep in a folder from tables that were read; ``name`` replaces its own name."""
    from sweep.store import reading

    name = name or folder.name
    names = read_tables.trials.column_names
    groups = {prefix: [name for name in names if name.startswith(prefix)] for prefix in _GROUPS}
    columns = reading.columns(read_tables.trials, [*_SINGLE, *(name for group in groups.values() for name in group)])
    columns["sweep"] = [name] * read_tables.trials.num_rows
    nulls = reading.columns(read_tables.trials, [NULL_PARAMS]).get(NULL_PARAMS)
    # older tables may lack these columns
    for later in ("role", "fold", "parent", "parent_epoch", "data", "data_reads"):
        columns.setdefault(later, [None] * read_tables.trials.num_rows)
    below = [
        _mappings(columns, group, read_tables.trials.num_rows, nulls if prefix == "param." else None)
        for prefix, group in groups.items()
    ]
    single = (columns[name] for name in _SINGLE)
    trials = tuple(_trial(row) for row in zip(*single, *below, strict=True))
    info, cost = folder.read_info(), reading.total(read_tables.trials, COST)
    return Sweep(folder, name, info, info.objectives, trials, read_tables.history, cost)


def same_objectives(sweeps: Sequence[Sweep]) -> Objectives:
    """Return the common objectives of the sweeps.

    Raises `InputError` if they differ, as no common order exists then.
    """
    first = sweeps[0]
    problems = [
        Problem(
            str(other.folder.path),
            f"its objective is {_words(other.objectives)}, but that of {first.folder.path} is "
            f"{_words(first.objectives)}",
            "compare sweeps of one objective",
        )
        for other in sweeps
        if other.objectives != first.objectives
    ]
    if problems:
        raise InputError(problems)
    return first.objectives


def of_other_code(sweeps: Sequence[Sweep]) -> str:
    """Describe in what trainings differ besides their parameters, such as code or packages; "" if nothing is known."""
    mixed = [sweep.name for sweep in sweeps if sweep.info.is_mixed]
    told = []
    if mixed:
        of = f" of {' and '.join(mixed)}" if len(sweeps) > 1 else ""
        told.append(
            f"The code or a version of its packages has changed since the beginning{of}: "
            "scores from before and after may not compare."
        )
    if differing := sweep_info.differing(sweep.info for sweep in sweeps):
        told.append(f"These sweeps differ in more than their parameters: in {', '.join(differing)}.")
    return " ".join(told)


def varying(params: Sequence[Mapping[str, Value]]) -> tuple[str, ...]:
    """Return the parameters that differ between the configurations or are missing in some, in the file's order."""
    names = dict.fromkeys(name for one in params for name in one)
    return tuple(name for name in names if len({repr(one.get(name, _ABSENT)) for one in params}) > 1)


_ABSENT = object()


_SINGLE = (
    *("sweep", "trial", "trial_id", "repeat", "seed", "fold"),
    *("status", "status_reason", "epochs", "duration_s", "checkpoint", "accumulate"),
    *("role", "parent", "parent_epoch", "data", "data_reads"),
)
_GROUPS = ("param.", "metric.", "best.", "test.")
_FIELDS = (*_SINGLE, "params", "metrics", "best", "tested")
_STATUSES: dict[object, Status] = {status.value: status for status in Status}
_ROLES: dict[object, Role] = {role.value: role for role in Role}


def _trial(row: Sequence[object]) -> Trial:
    known = dict(zip(_FIELDS, row, strict=True))
    known["status"] = _STATUSES[known["status"]]
    known["role"] = _ROLES[known["role"] or Role.SEARCH]
    return Trial(**known)  # type: ignore[arg-type]  # the columns have these types


def _mappings(
    columns: Mapping[str, Sequence[object]], names: Sequence[str], count: int, nulls: Sequence[object] | None = None
) -> Sequence[object]:
    """Return for each row a dict of some columns, by their names without the prefix; nulls are left out.

    ``nulls`` is the column `NULL_PARAMS`: the names of parameters whose value is null, which are kept.
    """
    if not names:
        return [{} for _ in range(count)]
    short = [name.partition(".")[2] for name in names]
    found = []
    for row, names_of_nulls in zip(
        zip(*(columns[name] for name in names), strict=True), nulls or [None] * count, strict=True
    ):
        null = frozenset(json.loads(str(names_of_nulls))) if names_of_nulls else frozenset[str]()
        found.append({name: value for name, value in zip(short, row, strict=True) if value is not None or name in null})
    return found


def _words(objectives: Objectives) -> str:
    return " and ".join(f"{goal} {name}" for name, goal in objectives) or "none"


@dataclass(frozen=True, slots=True)
class Step:
    """A range of a trial's epochs that were trained by one trial: itself or one of its ancestors."""

    trial: int
    first: int  # epoch
    last: int
    params: Mapping[str, Value]


def lineage_of(trials: Iterable[Trial], number: int) -> tuple[Step, ...]:
    """Return the steps of a trial in the order of their epochs; a trial that is no copy has one."""
    known = {trial.trial: trial for trial in trials}
    found: list[Step] = []
    trial, last = known[number], known[number].epochs
    while True:
        first = 0 if trial.parent is None or trial.parent_epoch is None else trial.parent_epoch
        if last > first:  # otherwise it was replaced before it trained
            found.append(Step(trial.trial, first + 1, last, trial.params))
        if trial.parent is None:
            return tuple(reversed(found))
        trial, last = known[trial.parent], first
