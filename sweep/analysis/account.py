"""All that a sweep has to tell, of one reading of its log: what a report is made of."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.analysis import costs, ranking
from sweep.analysis.costs import Costs
from sweep.analysis.ranking import Ranking
from sweep.analysis.trials import Sweep, of_tables
from sweep.events import Status
from sweep.store.folder import ResultsFolder

if TYPE_CHECKING:
    from sweep.store.tables import Tables


@dataclass(frozen=True, slots=True)
class Account:
    """One sweep as its log stands now."""

    sweep: Sweep
    ranking: Ranking
    costs: Costs
    curves: Mapping[int, tuple[tuple[int, float], ...]]  # by trial: epoch and objective, what is finite
    errors: Mapping[int, str]  # by trial: the traceback
    info: Mapping[str, object]  # sweep.json
    text: str  # the sweep file as given

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many trials have which status."""
        return Counter(trial.status for trial in self.sweep.trials)

    @property
    def lasted_s(self) -> float | None:
        """Seconds on the clock, without the pauses between sessions; None before anything has happened."""
        return None if self.sweep.history.started is None else self.sweep.history.active_s


def of(folder: ResultsFolder) -> Account:
    """Read a sweep. Raises `StoreError`."""
    from sweep.store import reading, values

    read = reading.read(folder)
    sweep = of_tables(folder, read)
    errors = values.columns(read.trials, ["trial", "error"])
    return Account(
        sweep,
        ranking.rank([sweep]),
        costs.of_tables(folder.name, read),
        _curves(read, f"metric.{sweep.objectives[0][0]}"),
        {int(str(trial)): str(error) for trial, error in zip(*errors.values(), strict=True) if error},
        folder.read_info(),
        folder.spec.read_text(encoding="utf-8"),
    )


def _curves(read: Tables, objective: str) -> dict[int, tuple[tuple[int, float], ...]]:
    names = ["trial", "epoch", objective]
    if objective not in read.metrics.column_names:
        return {}
    curves = defaultdict[int, list[tuple[int, float]]](list)
    for trial, epoch, value in zip(*read.metrics.select(names).to_pydict().values(), strict=True):
        if value is not None and math.isfinite(value):
            curves[trial].append((epoch, value))
    return {trial: tuple(points) for trial, points in curves.items()}
