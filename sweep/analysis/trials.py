"""The trials of sweeps as plain rows, for the parts that compare, list and print. Knows no data frames.

The Parquet library is imported when something is read, and not before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.errors import InputError, Problem
from sweep.events import Status, Value
from sweep.store.folder import Objectives, ResultsFolder

if TYPE_CHECKING:
    from sweep.store.tables import History, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
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


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep and its trials, in the order in which they were started."""

    folder: ResultsFolder
    objectives: Objectives
    trials: tuple[Trial, ...]
    history: History
    repeats: int = 1  # trials that each configuration is to have


def read(folder: ResultsFolder) -> Sweep:
    """The sweep in a folder as its log stands now. Raises `StoreError`."""
    from sweep.store import tables

    return of_tables(folder, tables.read(folder))


def of_tables(folder: ResultsFolder, read_tables: Tables) -> Sweep:
    """The sweep in a folder, of which the tables have been read."""
    from sweep.store import tables

    rows = tables.rows(read_tables.trials)
    repeats = _repeats(folder.read_info())
    return Sweep(folder, folder.objectives(), tuple(map(_trial, rows)), read_tables.history, repeats)


def same_objectives(sweeps: Sequence[Sweep]) -> Objectives:
    """The objectives that all sweeps share. Raises `InputError` where they differ: they have no common order."""
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


def varying(params: Sequence[Mapping[str, Value]]) -> tuple[str, ...]:
    """The parameters that are not the same everywhere (or not everywhere), in the order of the file."""
    names = dict.fromkeys(name for one in params for name in one)
    return tuple(name for name in names if len({repr(one.get(name, _ABSENT)) for one in params}) > 1)


_ABSENT = object()


def _repeats(info: Mapping[str, object]) -> int:
    match info:
        case {"spec": {"repeats": int(repeats)}}:
            return repeats
    return 1


def _trial(row: Mapping[str, object]) -> Trial:
    def under(prefix: str) -> dict[str, object]:
        return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}

    known: dict[str, object] = {name: row.get(name) for name in ("duration_s", "checkpoint")}
    known |= {name: row[name] for name in ("sweep", "trial", "trial_id", "repeat", "seed")}
    known |= {name: row[name] for name in ("status_reason", "epochs")}
    known |= {"params": under("param."), "metrics": under("metric."), "best": under("best.")}
    return Trial(status=Status(str(row["status"])), **known)  # type: ignore[arg-type]  # the columns have these types


def _words(objectives: Objectives) -> str:
    return " and ".join(f"{goal} {name}" for name, goal in objectives) or "none"
