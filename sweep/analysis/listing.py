"""The sweeps of a results folder at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep.analysis import read, verdict
from sweep.analysis.ranking import rank
from sweep.errors import StoreError
from sweep.events import PAUSES, Status
from sweep.store.folder import ResultsFolder, folders


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One sweep; a damaged one has a reason and nothing else."""

    name: str
    path: str
    state: str  # "running", "damaged", "unfinished" (its driver was killed), or why its last session ended
    trials: Mapping[str, int]  # by status
    metric: str | None = None
    goal: str | None = None
    best: float | None = None  # the mean of the best configuration's completed repeats
    best_trial: int | None = None
    verdict: str = ""  # on the best, in words
    started: float | None = None  # seconds since 1970
    duration_s: float | None = None  # without the pauses between sessions
    cost: float | None = None  # of its GPUs, where they have a price
    reason: str = ""
    paused: int = 0  # of the interrupted trials, those that wait for their rule to let them go on


def sweeps(results_dir: Path) -> list[Listed]:
    """Return all sweeps in a folder by the time of their start; damaged ones last."""
    found = [listed(folder) for folder in folders(results_dir)]
    return sorted(found, key=lambda one: (one.started is None, one.started, one.name))


def listed(folder: ResultsFolder) -> Listed:
    """Return one sweep at a glance."""
    name, path = folder.name, folder.place
    try:
        sweep = read(folder)
    except StoreError as error:
        return Listed(name=name, path=path, state="damaged", trials={}, reason=str(error))
    ranking = rank([sweep])
    best = next(iter(ranking.best), None)
    metric, goal = sweep.objectives[0] if sweep.objectives else (None, None)
    return Listed(
        name=name,
        path=path,
        state="running" if folder.is_running() else sweep.history.ended or "unfinished",
        trials=dict(Counter(trial.status.value for trial in sweep.trials)),
        metric=metric,
        goal=goal,
        best=best.scores[0].mean if best else None,
        best_trial=best.trials[0].trial if best else None,
        paused=sum(t.status is Status.INTERRUPTED and t.status_reason.startswith(PAUSES) for t in sweep.trials),
        verdict=verdict.words(best, ranking) if best and len(best.trials) > 1 else "",
        started=sweep.history.started,
        duration_s=sweep.history.active_s,
        cost=sweep.cost,
    )
