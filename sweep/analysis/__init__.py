"""A sweep for the parts that compare, list and print: its trials as plain rows, and its outline. Knows no data frames.

The Parquet library is imported when something is read, and not before. Trials are made of whole columns, for a sweep
may have ten thousand. In a population, a copy has the epochs of its parent up to where it was made.

The outline is what is known of a sweep before its first event, as far as it takes to say where it stands.
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
    """Budgets that may end it before its trials do; ``gpus`` are those of one trial."""

    hours: float | None = None
    gpu_hours: float | None = None
    epochs: int | None = None
    money: float | None = None
    gpus: float = 0.0
    shared: bool = False  # each epoch says how much of a GPU it had

    @classmethod
    def of(cls, spec: Spec) -> Limits:
        """Return those of a sweep file."""
        return cls(
            hours=spec.budget.hours,
            gpu_hours=spec.budget.gpu_hours,
            epochs=spec.budget.epochs,
            money=spec.budget.money,
            gpus=spec.resources.trial_gpus,
            shared=spec.resources.gpus == "auto",
        )

    def gpu_s(self, epoch: EpochReported) -> float:
        """Return how many seconds of a GPU an epoch took, of all that its trial has."""
        return epoch.time_s * self.gpus * (epoch.measures.get("gpus", 1.0) if self.shared else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A sweep file, in so few words."""

    name: str = ""
    metric: str = ""  # the first objective
    goal: str = ""
    objectives: int = 1
    varying: tuple[str, ...] = ()  # the parameters worth showing
    total: int | None = None  # trials of the search and the baseline, where known
    repeats: int = 1
    epochs: int = 1  # of a trial whose parameters do not say
    decisions: tuple[int, ...] = ()  # epochs at which trials can be pruned
    rule: EarlyTermination = _NO_RULE
    limits: Limits = Limits()

    @classmethod
    def of(cls, spec: Spec) -> Outline:
        """Return that of a sweep file."""
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
        """Return the epochs that a trial with these parameters trains."""
        return trial_epochs(params, self.epochs)


class Trial(Struct, frozen=True, kw_only=True):
    """One row of trials.parquet; what it has not is absent from the mappings, or None."""

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
    tested: Mapping[str, float] = field(default_factory=dict)  # by its model on the test data, of finalists alone
    fold: int | None = None
    parent: int | None = None  # of a copy in a population: the trial whose epochs it has
    parent_epoch: int | None = None  # up to this one
    data: str | None = None  # fingerprint
    data_reads: str | None = None  # as of `Facts`
    accumulate: int | None = None  # micro-batches that each batch was split into, for it did not fit into memory


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep and its trials, in the order in which they were started."""

    folder: ResultsFolder
    name: str  # that of its trials, by which they are told from those of other sweeps
    info: SweepInfo
    objectives: Objectives
    trials: tuple[Trial, ...]
    history: History
    cost: float | None = None  # of its GPUs, where they have a price

    @property
    def state(self) -> str:
        """``running``, why its last session ended, or ``unfinished`` where its driver was killed."""
        return "running" if self.folder.is_running() else self.history.ended or "unfinished"


def first_failure(sweep: Sweep) -> str:
    """Return what became of the first trial, in words to go after "no trial completed"."""
    return next((f": trial {one.trial} {one.status}, {one.status_reason}" for one in sweep.trials), "")


def read(folder: ResultsFolder) -> Sweep:
    """Return the sweep in a folder as its log stands now. Raises `StoreError`."""
    from sweep.store import reading

    return of_tables(folder, reading.read(folder, metrics=()))


def of_tables(folder: ResultsFolder, read_tables: Tables, name: str = "") -> Sweep:
    """Return the sweep in a folder, of which the table of trials has been read, by its own name or another one."""
    from sweep.store import reading

    name = name or folder.name
    names = read_tables.trials.column_names
    groups = {prefix: [name for name in names if name.startswith(prefix)] for prefix in _GROUPS}
    columns = reading.columns(read_tables.trials, [*_SINGLE, *(name for group in groups.values() for name in group)])
    columns["sweep"] = [name] * read_tables.trials.num_rows
    nulls = reading.columns(read_tables.trials, [NULL_PARAMS]).get(NULL_PARAMS)
    for later in ("role", "fold", "parent", "parent_epoch", "data", "data_reads"):  # columns that tables may lack
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
    """Return the objectives that all sweeps share. Raises `InputError` where they differ: they have no common order."""
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
    """Return that trainings differ in more than their parameters, and in what; empty where that is not known of any."""
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
    """Return the parameters that are not the same everywhere (or not everywhere), in the order of the file."""
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
    """Return for each row what it has of some columns, by the names without their prefix.

    ``nulls`` are the names of those whose value is null, as the column `NULL_PARAMS` has them.
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
    """Epochs of a trial that one trial has trained, itself or one that it is descended from."""

    trial: int
    first: int  # epoch
    last: int
    params: Mapping[str, Value]


def lineage_of(trials: Iterable[Trial], number: int) -> tuple[Step, ...]:
    """Return the steps of a trial in the order of their epochs; one, where it is no copy."""
    known = {trial.trial: trial for trial in trials}
    found: list[Step] = []
    trial, last = known[number], known[number].epochs
    while True:
        first = 0 if trial.parent is None or trial.parent_epoch is None else trial.parent_epoch
        if last > first:  # else it was replaced before it had trained
            found.append(Step(trial.trial, first + 1, last, trial.params))
        if trial.parent is None:
            return tuple(reversed(found))
        trial, last = known[trial.parent], first
