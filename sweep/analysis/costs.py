"""Where the time of a sweep's trials went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.store.folder import ResultsFolder

if TYPE_CHECKING:
    from sweep.store.tables import Tables

COLUMNS = ("trial", "time_s", "data_wait_s")
"""What `of_tables` looks at in the table of metrics."""

STARVING = 0.2
"""A trial that waits for its data for more than this share of its training time starves its accelerator."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of all trials of a sweep together."""

    sweep: str
    train_s: float
    overhead_s: Mapping[str, float]  # by part; "wait" is what nobody measured: between steps, or for the driver
    starving: Mapping[int, float]  # share of the training time that a trial waited for data, where it is large


def of(folder: ResultsFolder) -> Costs:
    """The costs of a sweep as its log stands now. Raises `StoreError`."""
    from sweep.store import reading

    return of_tables(folder.name, reading.read(folder, COLUMNS))


def of_tables(sweep: str, read: Tables) -> Costs:
    """The costs of a sweep of which the tables have been read."""
    from sweep.store import reading

    measured = [name for name in read.trials.column_names if name.startswith("overhead.")]
    columns = {name: reading.numbers(read.trials, name) for name in measured}
    parts = {name.removeprefix("overhead.").removesuffix("_s"): float(column.sum()) for name, column in columns.items()}
    rest = reading.numbers(read.trials, "overhead_s") - sum(columns.values())
    wait_s = float(rest[rest > 0].sum())
    train_s = float(reading.numbers(read.trials, "train_s").sum())
    return Costs(sweep, train_s, {**parts, "wait": wait_s}, _starving(read))


def _starving(read: Tables) -> dict[int, float]:
    if "data_wait_s" not in read.metrics.column_names:
        return {}
    import numpy as np

    from sweep.store import reading

    trial, time_s, wait_s = (reading.numbers(read.metrics, name) for name in COLUMNS)
    trials = trial.astype(np.int64)
    trained, waited = np.bincount(trials, time_s), np.bincount(trials, wait_s)
    starving = waited > STARVING * trained
    return {int(at): float(waited[at] / trained[at]) for at in np.flatnonzero(starving) if trained[at]}
