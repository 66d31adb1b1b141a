"""All that a sweep has to tell, of one reading of its log: what a report is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.analysis import costs, curves, workers
from sweep.analysis.costs import Costs
from sweep.analysis.curves import Curves
from sweep.analysis.trials import Sweep, of_tables
from sweep.analysis.workers import Timeline
from sweep.events import Status
from sweep.space.objectives import objective
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import SweepInfo

if TYPE_CHECKING:
    from sweep.searchers.optuna_importance import Importance
    from sweep.store.tables import Tables


@dataclass(frozen=True, slots=True)
class Account:
    """One sweep as its log stands now; curves and errors are of its trials, in their order."""

    sweep: Sweep
    costs: Costs
    curves: Curves
    timeline: Timeline
    errors: Mapping[int, str]  # by trial: the traceback
    info: SweepInfo
    text: str  # the sweep file as given
    running: bool
    tables: Tables  # what all this is made of

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many trials have which status."""
        return Counter(trial.status for trial in self.sweep.trials)

    @property
    def lasted_s(self) -> float | None:
        """Seconds on the clock, without the pauses between sessions; None before anything has happened."""
        return None if self.sweep.history.started is None else self.sweep.history.active_s

    @property
    def question(self) -> tuple[str, ...]:
        """The comment lines that the sweep file begins with, without what is meant for editors."""
        lines: list[str] = []
        for line in self.text.lstrip("\ufeff").splitlines():
            if not line.startswith("#"):
                break
            told = line.lstrip("#").strip()
            if told and not told.startswith(("yaml-language-server:", "!", "-*-", "vim:")):
                lines.append(told)
        return tuple(lines)


def of(folder: ResultsFolder, points: int = curves.POINTS) -> Account:
    """Read a sweep, with so many points of curves at most. Raises `StoreError`."""
    from sweep.store import reading

    running = folder.is_running()
    read = reading.read(folder)
    sweep = of_tables(folder, read)
    errors = reading.columns(read.trials, ["trial", "error"])
    objectives = [name for name, _ in sweep.objectives]
    return Account(
        sweep,
        costs.of_tables(folder.name, read),
        curves.of_table(read.metrics, [trial.trial for trial in sweep.trials], objectives, points),
        workers.of_tables(folder.log, read),
        {int(str(trial)): str(error) for trial, error in zip(*errors.values(), strict=True) if error},
        folder.read_info(),
        folder.spec.read_text(encoding="utf-8"),
        running,
        read,
    )


def importance(accounts: Sequence[Account], names: Sequence[str]) -> dict[str, list[Importance]]:
    """By objective, how much each of the parameters ``names`` matters among the completed trials of all sweeps."""
    from sweep.searchers.optuna_importance import importance as of_trials

    found = {}
    for one in (objective(*pair) for pair in accounts[0].sweep.objectives):
        scored = [
            (trial.params, loss)
            for account in accounts
            for trial in account.sweep.trials
            if trial.status is Status.COMPLETED and (loss := one.loss(trial.metrics)) is not None
        ]
        found[one.name] = of_trials(scored, names)
    return found
