"""Was the search worth it: what was found for what was spent, and what the first epochs would have told."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from sweep.analysis.ranking import Ranked, Ranking
from sweep.events import Role, Status
from sweep.statistics.orderings import Correlation, correlation, course

if TYPE_CHECKING:
    from sweep.store.tables import Tables

LEAST = 3  # completed configurations below which there is nothing to order


@dataclass(frozen=True, slots=True)
class Found:
    """The best score against one kind of budget; NaN until something was found."""

    unit: str  # "epochs" or "hours" of training, all trials together
    budgets: tuple[float, ...]
    found: tuple[float, ...]  # in the order in which it was
    expected: tuple[float, ...]  # mean over 200 orders of the same configurations
    low: tuple[float, ...]  # 95 % of them
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rung:
    """What the scores after some epochs tell of the last ones."""

    epoch: int
    correlation: Correlation | None
    of_best: int | None  # the place that the best configuration had then, from 1
    configurations: int  # that had come so far


@dataclass(frozen=True, slots=True)
class Control:
    """What would have been chosen after the first epoch: the least that a search has to beat."""

    rank: int  # in the end
    score: float
    behind: float  # the best score, as far as it is better
    epochs: int  # that it would have cost: one of each, and all of the one chosen
    of_epochs: int


@dataclass(frozen=True, slots=True)
class Worth:
    """One sweep's search, by its first objective."""

    sweep: str
    metric: str
    goal: str
    budgets: tuple[Found, ...]
    control: Control | None
    rungs: tuple[Rung, ...]


def of(sweep: str, ranking: Ranking, read: Tables) -> Worth | None:
    """The worth of one sweep of a ranking; None with fewer than three completed configurations, or no objective."""
    rows = [one for row in ranking.rows if row.sweep == sweep and (one := _searched(row)) is not None]
    done = [row for row in rows if row.completed and row.scores]
    if len(done) < LEAST or not ranking.objectives:
        return None
    metric, goal = ranking.objectives[0]
    maximize = goal == "maximize"
    if ranking.confirmed is not None:  # its order is not that of the search
        done = sorted(done, key=lambda row: -row.scores[0].mean if maximize else row.scores[0].mean)
    epochs = looked_at(max(row.epochs for row in done))
    curves, seconds = _curves(read, metric, {1, *epochs})
    rows = sorted(rows, key=lambda row: min(trial.trial for trial in row.trials))
    scores = [row.scores[0].mean if row.completed and row.scores else math.nan for row in rows]
    costs = {
        "epochs": [float(sum(trial.epochs for trial in row.trials)) for row in rows],
        "hours": [sum(seconds.get(trial.trial, 0.0) for trial in row.trials) / 3600 for row in rows],
    }
    budgets = []
    for unit, cost in costs.items():
        if sum(cost) > 0:
            run = course(scores, cost, maximize=maximize)
            columns = (run.budgets, run.found, run.expected, run.low, run.high)
            budgets.append(Found(unit, *(tuple(column.tolist()) for column in columns)))
    means = {row.rank: _mean_curve(row, curves) for row in rows}
    rungs = tuple(_rung(epoch, rows, done, means, maximize=maximize) for epoch in epochs)
    return Worth(sweep, metric, goal, tuple(budgets), _control(rows, done, means, maximize=maximize), rungs)


def _searched(row: Ranked) -> Ranked | None:
    """A configuration as the search left it, without fresh seeds; None for one that was beside it."""
    trials = tuple(trial for trial in row.trials if trial.role is Role.SEARCH)
    if not trials or len(trials) == len(row.trials) or not row.scores:
        return row if trials else None
    metric = row.scores[0].metric
    values = [trial.metrics[metric] for trial in trials if trial.status is Status.COMPLETED and metric in trial.metrics]
    scores = (replace(row.scores[0], mean=fmean(values)),) if values else ()
    return replace(row, trials=trials, scores=scores)


def looked_at(last: int) -> list[int]:
    """1, 2, 4, 8 ... epochs, before the last."""
    return [2**power for power in range(last.bit_length()) if 2**power < last]


def _curves(read: Tables, metric: str, epochs: Collection[int]) -> tuple[dict[int, dict[int, float]], dict[int, float]]:
    """By trial its objective after some epochs, and its seconds of training."""
    from sweep.store import values

    curves: dict[int, dict[int, float]] = {}
    name = f"metric.{metric}"
    if name in read.metrics.column_names:
        trial, epoch, value = (values.numbers(read.metrics, one, missing=math.nan) for one in ("trial", "epoch", name))
        wanted = np.isin(epoch, list(epochs)) & np.isfinite(value)
        for row in zip(*(column[wanted].tolist() for column in (trial, epoch, value)), strict=True):
            curves.setdefault(int(row[0]), {})[int(row[1])] = row[2]
    trials = values.numbers(read.trials, "trial").astype(np.int64).tolist()
    return curves, dict(zip(trials, values.numbers(read.trials, "train_s").tolist(), strict=True))


def _mean_curve(row: Ranked, curves: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """A configuration's mean by epoch, over its trials, as far as all came."""
    known = [curves.get(trial.trial, {}) for trial in row.trials if trial.status is not Status.FAILED]
    known = [curve for curve in known if curve]
    common = set.intersection(*(set(curve) for curve in known)) if known else set()
    return {epoch: fmean(curve[epoch] for curve in known) for epoch in sorted(common)}


def _rung(
    epoch: int,
    rows: Sequence[Ranked],
    done: Sequence[Ranked],
    means: Mapping[int, Mapping[int, float]],
    *,
    maximize: bool,
) -> Rung:
    """What an epoch told: of those that completed, and where among all that came there the best one stood."""
    there = {row.rank: means[row.rank][epoch] for row in rows if epoch in means[row.rank]}
    both = [(there[row.rank], row.scores[0].mean) for row in done if row.rank in there]
    own = there.get(done[0].rank)
    place = None if own is None else 1 + sum(value > own if maximize else value < own for value in there.values())
    return Rung(epoch, correlation(*zip(*both, strict=True)) if both else None, place, len(there))


def _control(
    rows: Sequence[Ranked], done: Sequence[Ranked], means: Mapping[int, Mapping[int, float]], *, maximize: bool
) -> Control | None:
    first = {row.rank: means[row.rank][1] for row in done if 1 in means[row.rank]}
    if len(first) < LEAST:
        return None
    chosen_rank = (max if maximize else min)(first, key=lambda rank: first[rank])
    chosen = next(row for row in done if row.rank == chosen_rank)
    score, best = chosen.scores[0].mean, done[0].scores[0].mean
    trials = [trial for row in rows for trial in row.trials]
    rest = sum(max(trial.epochs - 1, 0) for trial in chosen.trials)
    spent = sum(min(trial.epochs, 1) for trial in trials) + rest
    return Control(chosen.rank, score, abs(best - score), spent, sum(trial.epochs for trial in trials))
