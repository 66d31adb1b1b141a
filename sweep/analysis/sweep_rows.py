"""A sweep as plain rows, for code that compares, lists and prints it. Uses no data frames.

The Parquet library is imported only when something is read. Trials are made from whole columns, because a sweep may
have ten thousand of them. In a population, a copy has the epochs of its parent up to the epoch at which it was copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct, field

from sweep.events import NULL_PARAMS, STEERED_COLUMNS, Role, Status, Value, describe_status
from sweep.prices import COST
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import Objectives, SweepInfo

if TYPE_CHECKING:
    from sweep.store.tables import History, Tables


class Trial(Struct, frozen=True, kw_only=True):
    """A row of trials.parquet. Missing values are None, or absent from the mappings."""

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
    # micro-batches that each batch was split into after running out of memory
    accumulate: int | None = None
    space_version: int = 0  # how often the space had been changed when its configuration was chosen
    enqueued_by: str | None = None  # who added its configuration; None if sweep has chosen it
    starred: bool = False  # by a person
    note: str = ""  # by a person

    @property
    def outcome(self) -> str:
        """The status in words, such as "stopped by hand" for a trial that was pruned because a person asked for it."""
        return describe_status(self.status, self.status_reason)


KILLED = "the sweep's process was killed"
"""The reason of a trial that had not ended when the process of its sweep was killed; the log has none."""

_SPACE = frozenset({"parameters", "constraints", "prior"})
"""The keys of the sweep file that are the space."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep and its trials, in the order of their numbers."""

    folder: ResultsFolder
    name: str  # the `sweep` of its trials, unique among sweeps that are compared
    info: SweepInfo
    objectives: Objectives
    trials: tuple[Trial, ...]
    history: History
    cost: float | None = None  # of its GPUs, if they have a price

    @property
    def space_changes(self) -> int:
        """How often a person has changed the space: the parameters, the constraints or the prior."""
        return sum(not _SPACE.isdisjoint(settings) for settings in self.history.changes)

    @property
    def state(self) -> str:
        """``running``, why the last session ended, or ``unfinished`` if its driver was killed or it has not begun.

        Whether it is running is looked up now; the reason is that of the time when the sweep was read.
        """
        if self.folder.is_running():
            return "running"
        return self.history.ended or "unfinished"


def first_failure(sweep: Sweep) -> str:
    """Return the number, status and reason of the first failed trial, such as ": trial 0 failed, ValueError: ...".

    The text begins with ": " and ends a message that no trial has completed. It is about the first trial if none has
    the status failed, and "" if there are no trials.
    """
    if not sweep.trials:
        return ""
    failed = [trial for trial in sweep.trials if trial.status == Status.FAILED]
    first = (failed or sweep.trials)[0]
    return f": trial {first.trial} {first.status}, {first.status_reason}"


def read_sweep(folder: ResultsFolder) -> Sweep:
    """Read the sweep in a folder as it is now, with the metrics that its trials reported last.

    Raises `StoreError` if it cannot be read.
    """
    from sweep.store import reading

    return make_sweep(folder, reading.read_tables(folder, metrics=()))


def make_sweep(
    folder: ResultsFolder, read_tables: Tables, name: str = "", *, as_logged: bool = False
) -> Sweep:
    """Return the sweep in a folder, made from tables that were read; ``name`` replaces its own name.

    If no process runs the sweep, trials that have not ended are interrupted: its process was killed. With
    ``as_logged``, they are running, as the log says. Raises `StoreError` if the folder's sweep.json cannot be read.
    """
    from sweep.store import reading

    name = name or folder.name
    names = read_tables.trials.column_names
    groups: dict[str, list[str]] = {}  # columns by their prefix, such as "param."
    for prefix in _GROUPS:
        groups[prefix] = [column for column in names if column.startswith(prefix)]
    columns = reading.read_columns(
        read_tables.trials, [*_SINGLE, *(name for group in groups.values() for name in group)]
    )
    columns["sweep"] = [name] * read_tables.trials.num_rows
    nulls = reading.read_columns(read_tables.trials, [NULL_PARAMS]).get(NULL_PARAMS)
    # older tables may lack these columns
    for later in ("role", "fold", "parent", "parent_epoch", "data", "data_reads", *STEERED_COLUMNS):
        columns.setdefault(later, [None] * read_tables.trials.num_rows)
    if not as_logged and not folder.is_running():
        _interrupt_open_trials(columns)
    mappings = []  # of each group: a mapping for each row
    for prefix, group in groups.items():
        if prefix == "param.":  # only parameters may be null
            nulls_of_group = nulls
        else:
            nulls_of_group = None
        mappings.append(_make_mappings(columns, group, read_tables.trials.num_rows, nulls_of_group))
    # with the mappings, the values of a row are in the order of `_FIELDS`
    single = (columns[name] for name in _SINGLE)
    trials = tuple(_make_trial(row) for row in zip(*single, *mappings, strict=True))
    info = folder.read_info()
    cost = reading.total(read_tables.trials, COST)
    return Sweep(folder, name, info, info.objectives, trials, read_tables.history, cost)


def _interrupt_open_trials(columns: dict[str, list[object]]) -> None:
    """Set the status of running trials in ``columns`` to interrupted and their reason to `KILLED`.

    The log says that they are running, because the process that wrote it was killed.
    """
    for row, status in enumerate(columns["status"]):
        if status == Status.RUNNING:
            columns["status"][row] = Status.INTERRUPTED.value
            columns["status_reason"][row] = KILLED


_SINGLE = (
    *("sweep", "trial", "trial_id", "repeat", "seed", "fold"),
    *("status", "status_reason", "epochs", "duration_s", "checkpoint", "accumulate"),
    *("role", "parent", "parent_epoch", "data", "data_reads"),
    *STEERED_COLUMNS,
)
_GROUPS = ("param.", "metric.", "best.", "test.")
_FIELDS = (*_SINGLE, "params", "metrics", "best", "tested")
_STATUSES: dict[object, Status] = {status.value: status for status in Status}
_ROLES: dict[object, Role] = {role.value: role for role in Role}


def _make_trial(row: Sequence[object]) -> Trial:
    """Return the trial in a row of values, which are in the order of `_FIELDS`."""
    known = dict(zip(_FIELDS, row, strict=True))
    known["status"] = _STATUSES[known["status"]]
    # cells are empty in tables of earlier releases, and some of them in sweeps that nobody has steered
    known["role"] = _ROLES[known["role"] or Role.SEARCH]
    known["space_version"] = known["space_version"] or 0
    known["starred"] = bool(known["starred"])
    known["note"] = known["note"] or ""
    return Trial(**known)  # type: ignore[arg-type]  # the columns have these types


def _make_mappings(
    columns: Mapping[str, Sequence[object]],
    names: Sequence[str],
    count: int,
    nulls: Sequence[object] | None = None,
) -> Sequence[object]:
    """Return for each of ``count`` rows a dict of its values in the columns ``names``, by the name without its prefix.

    An empty cell is left out: the trial lacks the value. But if the row's entry in ``nulls`` has the name, the value is
    None. ``nulls`` is the column `NULL_PARAMS`: of each row, None or a JSON list of parameters.
    """
    if not names:  # `zip` below would yield no rows
        return [{} for _ in range(count)]
    short = [name.partition(".")[2] for name in names]
    found = []
    rows = zip(*(columns[name] for name in names), strict=True)
    for row, names_of_nulls in zip(rows, nulls or [None] * count, strict=True):
        if names_of_nulls:
            null_names = frozenset(json.loads(str(names_of_nulls)))
        else:
            null_names = frozenset[str]()
        values = {}
        for name, value in zip(short, row, strict=True):
            if value is not None or name in null_names:
                values[name] = value
        found.append(values)
    return found
