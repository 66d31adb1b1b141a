"""Collects all facts about one trial, or about two to be compared, from the tables of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sweep.analysis import make_sweep
from sweep.analysis.report_data import Curves, curves_of
from sweep.analysis.sweep_rows import Sweep, Trial
from sweep.events import Value
from sweep.store.folder import ResultsFolder
from sweep.store.log import read_output
from sweep.ui.acts import show_command
from sweep.ui.facts import EventFacts

if TYPE_CHECKING:
    from sweep.store.tables import Tables

# approximate maximum number of points of the curves of all metrics of both trials together; see `curves_of`
POINTS = 40_000
ELSEWHERE = (
    *("sweep", "trial", "status", "status_reason", "error", "checkpoint", "started_at", "ended_at"),
    *(
        "objective",
        "epochs",
        "duration_s",
        "train_s",
        "overhead_s",
        "data_reads",
        "starred",
        "note",
    ),
)
"""Columns that have a place of their own on the page."""


@dataclass(frozen=True, kw_only=True)
class TimePart:
    """A part of a trial's duration, such as building the model."""

    name: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """All facts about one trial."""

    trial: int
    status: str
    outcome: str  # the status in words
    reason: str
    error: str  # traceback; "" if there is none
    starred: bool  # whether a person has starred the trial
    note: str  # that a person has written on the trial
    params: Mapping[str, Value]
    metrics: Mapping[str, float]  # values of the metrics that were reported last
    best: Mapping[str, float]
    tested: Mapping[str, float]
    epochs: int
    times: tuple[TimePart, ...]
    duration_s: float | None
    facts: Mapping[str, Value]  # the other columns: seed, node, devices, precision ...
    checkpoint: str | None
    retrain: str  # the command line that trains the trial again
    export: str  # the command line that exports the trial's model
    output: str  # what the trial has printed
    events: tuple[EventFacts, ...]


@dataclass(frozen=True, kw_only=True)
class TrialDocument:
    """The facts about one or more trials of a sweep."""

    version: Literal[1] = 1
    sweep: str
    known: int  # number of trials of the sweep
    trials: tuple[TrialFacts, ...]
    drawn_epochs: int | None  # maximum number of epochs that a trial's curves show; None if all


def read_trials(
    folder: ResultsFolder, numbers: tuple[int, ...], events: Mapping[int, tuple[EventFacts, ...]]
) -> tuple[TrialDocument, dict[str, object]]:
    """Return the facts about the trials ``numbers``, in this order, and the data for the report's scripts.

    The scripts draw the curves of these trials from the data, which are in the form of a report's. ``events`` has the
    descriptions of events to include, by trial number; a trial may be missing. Raises `UnknownNameError` if one of the
    trials does not exist, and `StoreError` if the sweep is damaged.
    """
    from sweep.render.report.page_data import trials_document
    from sweep.store import reading

    tables = reading.read_tables(folder)
    sweep = make_sweep(folder, tables)
    rows = {trial.trial: row for row, trial in enumerate(sweep.trials)}  # by trial number
    for number in numbers:  # all are checked before anything is read for one
        if number not in rows:
            raise folder.make_no_trial_error(number, rows.keys())
    found = []
    for number in numbers:
        row = rows[number]
        columns = _read_row(tables, row)
        found.append(_describe_trial(folder, sweep.trials[row], columns, events.get(number, ())))
    # the sweep as if it had only these trials
    shown = dataclasses.replace(
        sweep, trials=tuple(sweep.trials[rows[number]] for number in numbers)
    )
    curves = _read_curves(tables, shown)
    document = TrialDocument(
        sweep=folder.name,
        known=len(sweep.trials),
        trials=tuple(found),
        drawn_epochs=curves.thinned,
    )
    return document, trials_document(shown, curves)


def _read_curves(tables: Tables, sweep: Sweep) -> Curves:
    """Return the curves of all metrics of the trials in ``sweep``, with about 40,000 points together.

    If there are more, epochs are left out; those with the extremes of the first objective stay. The metrics of the
    sweep's objectives come first.
    """
    import pyarrow as pa
    from pyarrow import compute

    names = [name for name, _ in sweep.objectives]
    for column in tables.metrics.column_names:
        if column.startswith("metric."):
            names.append(column.removeprefix("metric."))
    trials = [trial.trial for trial in sweep.trials]
    # filtered first, because `curves_of` takes long for the rows of a large sweep
    is_shown = compute.is_in(
        tables.metrics["trial"], pa.array(trials, tables.metrics["trial"].type)
    )
    metrics = tables.metrics.filter(is_shown)
    return curves_of(metrics, trials, list(dict.fromkeys(names)), POINTS)


def _read_row(tables: Tables, row: int) -> dict[str, Value]:
    """Return the values of the trial in row ``row`` of trials.parquet, by column, without nulls."""
    from sweep.store import reading

    one = tables.trials.slice(row, 1)
    columns = reading.read_columns(one, one.column_names)
    return {name: values[0] for name, values in columns.items() if values[0] is not None}  # type: ignore[misc]  # values of tables


def _describe_trial(
    folder: ResultsFolder, trial: Trial, row: Mapping[str, Value], events: tuple[EventFacts, ...]
) -> TrialFacts:
    """Return the facts about one trial.

    ``row`` has its values in trials.parquet by column, without nulls, and ``events`` are the descriptions of its
    events. Its output is read from the log.
    """
    words = ["--trial", str(trial.trial)]  # of its command lines
    return TrialFacts(
        trial=trial.trial,
        status=trial.status.value,
        outcome=trial.outcome,
        reason=trial.status_reason,
        error=str(row.get("error") or ""),
        starred=trial.starred,
        note=trial.note,
        params=trial.params,
        metrics=trial.metrics,
        best=trial.best,
        tested=trial.tested,
        epochs=trial.epochs,
        times=_list_times(row),
        duration_s=trial.duration_s,
        facts={name: _convert_to_json(value) for name, value in row.items() if _is_fact(name)},
        checkpoint=None if trial.checkpoint is None else str(folder.path / trial.checkpoint),
        retrain=show_command(["retrain", folder.called, *words]),
        export=show_command(["best", folder.called, *words, "--export", "DIR"]),
        output=read_output(folder.log, trial.trial),
        events=events,
    )


def _is_fact(name: str) -> bool:
    """Return whether the column ``name`` is listed among a trial's other facts.

    It is unless the page shows it elsewhere, as it does with parameters, metrics, parts of the overhead and the columns
    in `ELSEWHERE`.
    """
    prefixes = ("param.", "metric.", "best.", "test.", "overhead.")
    return name not in ELSEWHERE and not name.startswith(prefixes)


def _convert_to_json(value: Value) -> Value:
    """Convert a value to one that JSON can represent; times and other types become text.

    Lists and dictionaries are returned as they are, whatever is in them.
    """
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    return str(value)


def _list_times(row: Mapping[str, Value]) -> tuple[TimePart, ...]:
    """Return the parts of a trial's duration that took time: "training" first, then the others, longest first.

    The others are the columns ``overhead.NAME_s`` of ``row``, under the name ``NAME``. What is left of ``overhead_s``
    becomes the part "wait", if it is more than 1 ms. ``row`` has the trial's values by column.
    """
    parts = []
    measured = 0.0
    for name, value in row.items():
        if name.startswith("overhead.") and isinstance(value, float) and value > 0:
            parts.append(
                TimePart(name=name.removeprefix("overhead.").removesuffix("_s"), seconds=value)
            )
            measured += value
    overhead = row.get("overhead_s")
    if isinstance(overhead, float) and overhead - measured > 0.001:  # less is an error of rounding
        parts.append(TimePart(name="wait", seconds=overhead - measured))
    parts.sort(key=lambda part: -part.seconds)
    train = row.get("train_s")
    if isinstance(train, float) and train > 0:
        parts.insert(0, TimePart(name="training", seconds=train))
    return tuple(parts)
