"""Where the time of a sweep's trials went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.store.folder import ResultsFolder

if TYPE_CHECKING:
    from sweep.store.tables import Tables

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
    from sweep.store import tables

    return of_tables(folder.name, tables.read(folder))


def of_tables(sweep: str, read: Tables) -> Costs:
    """The costs of a sweep of which the tables have been read."""
    from sweep.store import tables

    train_s, parts = 0.0, defaultdict[str, float](float)
    for row in tables.rows(read.trials):
        measured = 0.0
        for name, value in row.items():
            if name.startswith("overhead.") and isinstance(value, float):
                parts[name.removeprefix("overhead.").removesuffix("_s")] += value
                measured += value
        train_s += _number(row.get("train_s"))
        parts["wait"] += max(_number(row.get("overhead_s")) - measured, 0.0)
    return Costs(sweep, train_s, dict(parts), _starving(read))


def _starving(read: Tables) -> dict[int, float]:
    names = ("trial", "time_s", "data_wait_s")
    if not set(names) <= set(read.metrics.column_names):
        return {}
    waited, trained = defaultdict[int, float](float), defaultdict[int, float](float)
    columns = read.metrics.select(list(names)).to_pydict()
    for trial, time_s, wait_s in zip(*(columns[name] for name in names), strict=True):
        trained[trial] += _number(time_s)
        waited[trial] += _number(wait_s)
    shares = {trial: waited[trial] / trained[trial] for trial in waited if trained[trial]}
    return {trial: share for trial, share in shares.items() if share > STARVING}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
