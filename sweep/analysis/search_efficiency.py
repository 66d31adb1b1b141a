"""Was the search worth it: what was found for what was spent, and what the first epochs would have told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import structs

from sweep import statistics
from sweep.analysis.ranking import Ranked, Ranking
from sweep.events import Role, Status
from sweep.space.objectives import Objective, objective

if TYPE_CHECKING:
    from sweep.store.tables import Tables


Floats = npt.NDArray[np.float64]

ORDERINGS = 200
POINTS = 40


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
class Correlation:
    """Spearman's rank correlation of two rows of scores, with its 95 % interval (Bonett and Wright, 2000)."""

    count: int
    value: float
    low: float | None
    high: float | None


def course(unit: str, losses: Sequence[float] | Floats, costs: Sequence[float], objective: Objective) -> Found:
    """Return the best score by what was spent, over 200 orders of configurations with these losses.

    A loss that is NaN costs and finds nothing. The mean is what a random search among these configurations expects
    (Dodge et al., Show Your Work, EMNLP 2019), here without replacement and by cost.
    """
    losses = np.nan_to_num(np.asarray(losses, dtype=np.float64), nan=math.inf)
    spent = np.asarray(costs, dtype=np.float64)
    budgets = np.linspace(0, spent.sum(), POINTS + 1)[1:]
    draws = np.random.default_rng(0)
    runs = np.array([_best(losses, spent, draws.permutation(len(losses)), budgets) for _ in range(ORDERINGS)])
    # Until every ordering has found something its mean is of those that have.
    known = np.where(np.isfinite(runs), runs, np.nan)
    counts = np.isfinite(runs).sum(axis=0)
    mean = np.where(counts > 0, np.nansum(known, axis=0) / np.maximum(counts, 1), np.nan)
    bounds = np.full((2, len(budgets)), np.nan)
    for at in np.flatnonzero(counts):
        bounds[:, at] = np.quantile(known[np.isfinite(known[:, at]), at], [0.025, 0.975])
    low, high = np.sort(objective.sign * bounds, axis=0)
    found = _best(losses, spent, np.arange(len(losses)), budgets)
    found = np.where(np.isfinite(found), objective.sign * found, np.nan)
    columns = (budgets, found, objective.sign * mean, low, high)
    return Found(unit, *(tuple(column.tolist()) for column in columns))


def correlation(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> Correlation | None:
    """How far two rows of scores agree on the order; None for fewer than three, or where one is the same for all."""
    count = len(one)
    if count < 3:
        return None
    ranks = [_ranks(np.asarray(values, dtype=np.float64)) for values in (one, other)]
    spreads = [float(np.std(values)) for values in ranks]
    if not all(spreads):
        return None
    value = float(np.mean((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())) / (spreads[0] * spreads[1]))
    value = max(min(value, 1.0), -1.0)
    if count < 5 or abs(value) > 1 - 1e-12:
        return Correlation(count, value, None, None)
    half = statistics.Z * math.sqrt((1 + value * value / 2) / (count - 3))
    return Correlation(count, value, math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half))


def _best(losses: Floats, spent: Floats, order: npt.NDArray[np.intp], budgets: Floats) -> Floats:
    """Return the least loss of those that were done by each budget."""
    done = np.cumsum(spent[order])
    least = np.concatenate([[math.inf], np.minimum.accumulate(losses[order])])
    return np.asarray(least[np.searchsorted(done, budgets * (1 + 1e-9), side="right")])


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, equal values with the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place])


Places = npt.NDArray[np.intp]

LEAST = 3  # completed configurations below which there is nothing to order


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
class SearchEfficiency:
    """One sweep's search, by its first objective."""

    sweep: str
    metric: str
    goal: str
    budgets: tuple[Found, ...]
    control: Control | None
    rungs: tuple[Rung, ...]


def of(sweep: str, ranking: Ranking, read: Tables) -> SearchEfficiency | None:
    """The worth of one sweep of a ranking; None with fewer than three completed configurations, or no objective."""
    rows = [left for row in ranking.rows if row.sweep == sweep and (left := _searched(row)) is not None]
    done = [row for row in rows if row.completed and row.scores]
    if len(done) < LEAST or not ranking.objectives:
        return None
    metric, goal = ranking.objectives[0]
    one = objective(metric, goal)
    if ranking.confirmed is not None:  # its order is not that of the search
        done = sorted(done, key=lambda row: one.to_loss(row.scores[0].mean))
    epochs = looked_at(max(row.epochs for row in done))
    rows = sorted(rows, key=lambda row: min(trial.trial for trial in row.trials))
    losses = one.sign * np.array([row.scores[0].mean if row.completed and row.scores else math.nan for row in rows])
    means = one.sign * _means(rows, metric_at(read, metric, epochs or [1]))
    seconds = _by_trial(read)
    costs = {
        "epochs": [float(sum(trial.epochs for trial in row.trials)) for row in rows],
        "hours": [sum(seconds[trial.trial] for trial in row.trials) / 3600 for row in rows],
    }
    budgets = tuple(course(unit, losses, cost, one) for unit, cost in costs.items() if sum(cost) > 0)
    ends = {row.rank: at for at, row in enumerate(rows)}
    complete = np.array([ends[row.rank] for row in done])
    # Without an epoch before the last one the first is looked at for the control alone.
    rungs = tuple(_rung(*looked, losses, complete) for looked in zip(epochs, means.T, strict=False))
    control = _control(rows, losses, means[:, 0], complete, one)
    return SearchEfficiency(sweep, metric, goal, budgets, control, rungs)


def _searched(row: Ranked) -> Ranked | None:
    """Return a configuration as the search left it, without fresh seeds; None for one that was beside it."""
    trials = tuple(trial for trial in row.trials if trial.role is Role.SEARCH)
    if not trials or len(trials) == len(row.trials) or not row.scores:
        return row if trials else None
    metric = row.scores[0].metric
    values = [trial.metrics[metric] for trial in trials if trial.status is Status.COMPLETED and metric in trial.metrics]
    scores = (structs.replace(row.scores[0], mean=fmean(values)),) if values else ()
    return structs.replace(row, trials=trials, scores=scores)


def looked_at(last: int) -> list[int]:
    """1, 2, 4, 8 ... epochs, before the last."""
    return [2**power for power in range(last.bit_length()) if 2**power < last]


def _by_trial(read: Tables) -> Floats:
    """Return seconds of training, by the number of the trial."""
    from sweep.store import reading

    trials = reading.numbers(read.trials, "trial").astype(np.int64)
    return np.asarray(np.bincount(trials, reading.numbers(read.trials, "train_s")), np.float64)


def metric_at(read: Tables, metric: str, epochs: Sequence[int]) -> Floats:
    """Return a metric as (trials by their number, these epochs), NaN where it is not known."""
    from sweep.store import reading

    count = int(reading.numbers(read.trials, "trial").max(initial=-1)) + 1
    found = np.full((count, len(epochs)), math.nan)
    name = f"metric.{metric}"
    if name not in read.metrics.column_names:
        return found
    trial, epoch, value = (reading.numbers(read.metrics, one, missing=math.nan) for one in ("trial", "epoch", name))
    wanted = np.isin(epoch, epochs) & np.isfinite(value)
    found[trial[wanted].astype(np.int64), np.searchsorted(epochs, epoch[wanted])] = value[wanted]
    return found


def _means(rows: Sequence[Ranked], curves: Floats) -> Floats:
    """Of (configurations, epochs) the mean over their trials; NaN where not all came that far."""
    begun = np.asarray(np.isfinite(curves).any(axis=1))
    trials = [
        [trial.trial for trial in row.trials if trial.status is not Status.FAILED and begun[trial.trial]]
        for row in rows
    ]
    counts = np.array([len(one) for one in trials])
    means = np.full((len(rows), curves.shape[1]), math.nan)
    if counts.any():
        flat = curves[[trial for one in trials for trial in one]]
        starts = (np.cumsum(counts) - counts)[counts > 0]
        means[counts > 0] = np.add.reduceat(flat, starts, axis=0) / counts[counts > 0, None]
    return means


def _rung(epoch: int, there: Floats, losses: Floats, done: Places) -> Rung:
    """Return what an epoch told: of those that completed, and where among all that came there the best one stood."""
    both = done[np.isfinite(there[done])]
    own = there[done[0]]
    place = 1 + int((there < own).sum()) if math.isfinite(own) else None
    return Rung(epoch, correlation(there[both], losses[both]), place, int(np.isfinite(there).sum()))


def _control(rows: Sequence[Ranked], losses: Floats, first: Floats, done: Places, one: Objective) -> Control | None:
    """Return what comes of the one that is best after the first epoch."""
    known = done[np.isfinite(first[done])]
    if len(known) < LEAST:
        return None
    chosen = known[np.argmin(first[known])]
    trials = [trial for row in rows for trial in row.trials]
    rest = sum(max(trial.epochs - 1, 0) for trial in rows[chosen].trials)
    spent = sum(min(trial.epochs, 1) for trial in trials) + rest
    loss, best = float(losses[chosen]), float(losses[done[0]])
    return Control(rows[chosen].rank, one.of_loss(loss), abs(best - loss), spent, sum(trial.epochs for trial in trials))
