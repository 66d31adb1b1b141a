"""How efficient a search was: the best score by budget spent, and how well early epochs predicted the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import structs

from sweep.analysis.ranking import RankedConfiguration, Ranking
from sweep.events import Role, Status
from sweep.progress import SHARE, count_units
from sweep.space.objectives import Objective, objective
from sweep.statistics.intervals import Z
from sweep.statistics.means import compute_mean

if TYPE_CHECKING:
    from sweep.store.tables import Tables


Floats = npt.NDArray[np.float64]

ORDERINGS = 200
POINTS = 40


@dataclass(frozen=True, slots=True)
class BestByBudget:
    """The best score as a function of one kind of budget; NaN before anything completed."""

    unit: str  # "epochs" or "hours" of training, summed over all trials
    budgets: tuple[float, ...]
    found: tuple[float, ...]  # in the sweep's own order
    expected: tuple[float, ...]  # mean over 200 random orders of the same configurations
    low: tuple[float, ...]  # 95 % interval over these orders
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation of two lists of scores, with its 95 % interval (Bonett and Wright, 2000)."""

    count: int
    value: float
    low: float | None
    high: float | None


def find_best_by_budget(
    unit: str, losses: Sequence[float] | Floats, costs: Sequence[float], objective: Objective
) -> BestByBudget:
    """Return the best score by the budget spent, in the given order and on average over 200 random orders.

    There are 40 budgets, evenly spaced up to the sum of ``costs``. A configuration with a NaN loss costs budget and
    finds nothing. At each budget, the mean and the interval are over the orders in which something was found by then;
    they are NaN if there is none, as is the best score before something was found. The mean is what a random search
    among the same configurations would find (Dodge et al., Show Your Work, EMNLP 2019), here without replacement and by
    cost. The random orders are the same in each call.

    Arguments:
        unit: name of the unit of the costs.
        losses: one per configuration, in the order in which the search tried them.
        costs: of each configuration, in the same order.
        objective: converts losses to scores.
    """
    losses = np.nan_to_num(np.asarray(losses, dtype=np.float64), nan=math.inf)
    spent = np.asarray(costs, dtype=np.float64)
    budgets = np.linspace(0, spent.sum(), POINTS + 1)[1:]
    draws = np.random.default_rng(0)
    # the smallest loss so far, by (order, budget); infinite before something was found
    best_losses = np.array(
        [
            _find_best(losses, spent, draws.permutation(len(losses)), budgets)
            for _ in range(ORDERINGS)
        ]
    )
    # The mean is over the orders in which something has completed.
    known = np.where(np.isfinite(best_losses), best_losses, np.nan)
    counts = np.isfinite(best_losses).sum(axis=0)
    sums = np.nansum(known, axis=0)
    mean = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    bounds = np.full((2, len(budgets)), np.nan)  # of the interval: lower and upper losses
    for at in np.flatnonzero(counts):
        bounds[:, at] = np.quantile(known[np.isfinite(known[:, at]), at], [0.025, 0.975])
    low, high = np.sort(objective.sign * bounds, axis=0)  # a negative sign exchanges them
    found = _find_best(losses, spent, np.arange(len(losses)), budgets)
    found = np.where(np.isfinite(found), objective.sign * found, np.nan)
    columns = (budgets, found, objective.sign * mean, low, high)
    return BestByBudget(unit, *(tuple(column.tolist()) for column in columns))


def compute_correlation(
    one: Sequence[float] | Floats, other: Sequence[float] | Floats
) -> Correlation | None:
    """Return Spearman's rank correlation of two lists of scores; None for fewer than three, or if one is constant.

    Both lists are equally long, without NaN. The bounds of the 95 % interval are None for fewer than five scores, and
    if the ranks in both lists are equal or reversed.
    """
    count = len(one)
    if count < 3:
        return None
    ranks = []
    for values in (one, other):
        ranks.append(_rank_values(np.asarray(values, dtype=np.float64)))
    spreads = [float(np.std(values)) for values in ranks]
    if not all(spreads):  # a spread of 0: all scores of a list are equal
        return None
    covariance = np.mean((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean()))
    value = float(covariance / (spreads[0] * spreads[1]))
    value = max(min(value, 1.0), -1.0)  # rounding may carry it beyond
    if count < 5 or abs(value) > 1 - 1e-12:  # atanh(1) is infinite
        return Correlation(count, value, None, None)
    # the interval has the same width on both sides of Fisher's z, which is atanh of the correlation
    half = Z * math.sqrt((1 + value * value / 2) / (count - 3))
    middle = math.atanh(value)
    return Correlation(count, value, math.tanh(middle - half), math.tanh(middle + half))


def _find_best(
    losses: Floats, spent: Floats, order: npt.NDArray[np.intp], budgets: Floats
) -> Floats:
    """Return for each budget the smallest loss among the configurations that are finished by then; infinite if none is.

    ``losses`` and ``spent`` have the loss and the cost of each configuration, and ``order`` their indices in the order
    in which they are trained.
    """
    done = np.cumsum(spent[order])
    least = np.concatenate([[math.inf], np.minimum.accumulate(losses[order])])
    # a little more than the budget, because sums in another order may differ by rounding
    return np.asarray(least[np.searchsorted(done, budgets * (1 + 1e-9), side="right")])


def _rank_values(values: Floats) -> Floats:
    """Return the rank of each value, from 1 for the smallest; equal values share their mean rank."""
    # of each value: its index among the different values, of which each occurs ``counts`` times
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(counts)
    return np.asarray((last_rank - (counts - 1) / 2)[index])


Places = npt.NDArray[np.intp]

LEAST = 3  # minimum number of completed configurations


@dataclass(frozen=True, slots=True)
class RungPrediction:
    """How well the scores after some epochs predict the final ones."""

    epoch: int
    correlation: Correlation | None
    # the rank of the best configuration at this epoch, from 1; None if it has no score there
    of_best: int | None
    configurations: int  # number of configurations with a score at this epoch


@dataclass(frozen=True, slots=True)
class Control:
    """Result of the simplest search: train each configuration for one epoch, and only the best to its end."""

    rank: int  # in the end, among the completed configurations of this search
    score: float
    behind: float  # how much the best score is better
    epochs: int  # cost of this choice: one epoch of each trial, and all epochs of the chosen one
    of_epochs: int


@dataclass(frozen=True, slots=True)
class SearchEfficiency:
    """The efficiency of one sweep's search, by its first objective."""

    sweep: str
    metric: str
    goal: str
    budgets: tuple[BestByBudget, ...]
    control: Control | None
    rungs: tuple[RungPrediction, ...]


def measure_search_efficiency(
    sweep: str, ranking: Ranking, read: Tables
) -> SearchEfficiency | None:
    """Return the search efficiency of the sweep named ``sweep`` in a ranking, by its first objective.

    That is the best score by the epochs and by the hours spent, how well the scores after 1, 2, 4, ... epochs predicted
    the final ones, and the result of choosing a configuration after one epoch. A kind of budget of which nothing was
    spent is left out. ``read`` has the tables of the sweep, with the first objective of all epochs. Only trials of the
    search count. Returns None if it has fewer than three configurations with a completed trial, or no objective.
    """
    rows = []  # the configurations of the search
    is_confirmed = False
    for row in ranking.rows:
        if row.sweep != sweep:
            continue
        is_confirmed |= any(trial.role is Role.CONFIRM for trial in row.trials)
        search_row = _search_trials_only(row)
        if search_row is not None:
            rows.append(search_row)
    done = [row for row in rows if row.completed and row.scores]
    if len(done) < LEAST or not ranking.objectives:
        return None
    metric, goal = ranking.objectives[0]
    one = objective(metric, goal)
    if is_confirmed:  # the ranking's order is by fresh seeds, not by the search
        done = sorted(done, key=lambda row: one.to_loss(row.scores[0].mean))
    epochs = list_early_epochs(max(row.epochs for row in done))
    rows.sort(key=_first_trial)  # the order in which the search tried them
    # the sign turns scores into losses
    losses = one.sign * np.array([_mean_score(row) for row in rows])
    # the losses at the early epochs, by (configuration, epoch)
    means = one.sign * _average_curves(rows, read_metric(read, metric, epochs or [1]))
    train_s = _read_train_s(read)
    costs: dict[str, list[float]] = {"epochs": [], "hours": []}
    for row in rows:
        costs["epochs"].append(float(sum(trial.epochs for trial in row.trials)))
        costs["hours"].append(sum(train_s[trial.trial] for trial in row.trials) / 3600)
    budgets = tuple(
        find_best_by_budget(unit, losses, cost, one)
        for unit, cost in costs.items()
        if sum(cost) > 0
    )
    # the indices in ``rows`` of the configurations that completed, best first
    place_of_rank = {row.rank: at for at, row in enumerate(rows)}
    complete = np.array([place_of_rank[row.rank] for row in done])
    # If no epoch comes before the last one, `epochs` is empty, and the one column of `means` is for the control only.
    rungs = tuple(
        _measure_prediction(epoch, losses_at_epoch, losses, complete)
        for epoch, losses_at_epoch in zip(epochs, means.T, strict=False)
    )
    # column 0 is the first epoch
    control = _measure_control(rows, losses, means[:, 0], complete, one)
    return SearchEfficiency(sweep, metric, goal, budgets, control, rungs)


def _first_trial(row: RankedConfiguration) -> int:
    """Return the smallest trial number of a configuration."""
    return min(trial.trial for trial in row.trials)


def _mean_score(row: RankedConfiguration) -> float:
    """Return the mean of a configuration's first objective; NaN if none of its repeats completed with a score."""
    if row.completed and row.scores:
        return row.scores[0].mean
    return math.nan


def _search_trials_only(row: RankedConfiguration) -> RankedConfiguration | None:
    """Return a copy of a configuration with only the search's trials and their mean score; None without such trials.

    If all trials are the search's, or there are no scores, the row is returned as it is. The copy has only the score of
    the first objective, of which only the mean is of the search's trials, and none if no trial of the search completed.
    """
    trials = tuple(trial for trial in row.trials if trial.role is Role.SEARCH)
    if not trials:
        return None
    if len(trials) == len(row.trials) or not row.scores:
        return row
    metric = row.scores[0].metric
    values = []
    for trial in trials:
        if trial.status is Status.COMPLETED and metric in trial.metrics:
            values.append(trial.metrics[metric])
    scores = (structs.replace(row.scores[0], mean=compute_mean(values)),) if values else ()
    return structs.replace(row, trials=trials, scores=scores)


def list_early_epochs(last: int) -> list[int]:
    """Return the powers of two below ``last``, ascending: the epochs whose scores are compared with the final ones.

    The first is 1; the list is empty if ``last`` is at most 1.
    """
    return [2**power for power in range(last.bit_length()) if 2**power < last]


def _read_train_s(read: Tables) -> Floats:
    """Return the training seconds of each trial, as an array indexed by trial number; 0 if unknown.

    The array has an entry for each number up to the highest one of a trial.
    """
    from sweep.store import reading

    trials = reading.numbers(read.trials, "trial").astype(np.int64)
    return np.asarray(np.bincount(trials, reading.numbers(read.trials, "train_s")), np.float64)


def read_metric(read: Tables, metric: str, epochs: Sequence[int]) -> Floats:
    """Return the values of a metric as an array (trial number, epoch); NaN where unknown.

    ``metric`` is the name without "metric.". ``epochs`` must be ascending; the array has one column for each, and a row
    for each number up to the highest one of a trial. Infinite values are NaN, too.
    """
    from sweep.store import reading

    count = int(reading.numbers(read.trials, "trial").max(initial=-1)) + 1
    curves = np.full((count, len(epochs)), math.nan)
    name = f"metric.{metric}"
    if name not in read.metrics.column_names:
        return curves
    columns = ("trial", "epoch", name)
    trial, epoch, value = (
        reading.numbers(read.metrics, column, missing=math.nan) for column in columns
    )
    known = np.isin(epoch, epochs) & np.isfinite(value)
    column_of_epoch = np.searchsorted(epochs, epoch[known])
    curves[trial[known].astype(np.int64), column_of_epoch] = value[known]
    return curves


def read_metric_at_units(read: Tables, metric: str, units: Sequence[int], length: int) -> Floats:
    """Return a metric as an array (trial number, unit), NaN where it is unknown; ``units`` are ascending.

    It is for sweeps with ``minutes``, whose trials are ``length`` units long. The value at a unit is that of the epoch
    in which the trial reached the unit, as stopping rules see it. At the units that a trial reached in its last epoch
    or not at all, the value is NaN, because early values are compared with the last one. All are NaN if the table lacks
    the metric, whose name is given without "metric.", or the used shares of the budget.
    """
    from sweep.store import reading

    count = int(reading.numbers(read.trials, "trial").max(initial=-1)) + 1
    curves = np.full((count, len(units)), math.nan)
    name = f"metric.{metric}"
    if name not in read.metrics.column_names or SHARE not in read.metrics.column_names:
        return curves
    columns = [
        reading.numbers(read.metrics, column, missing=math.nan)
        for column in ("trial", "epoch", SHARE, name)
    ]
    table = np.column_stack(columns)
    table = table[np.lexsort((table[:, 1], table[:, 0]))]  # by trial, and then by epoch
    for trial in np.unique(table[:, 0]):
        own = table[table[:, 0] == trial]
        # the units that the trial had reached after each of its epochs
        reached = np.array([count_units(int(epoch), share, length) for epoch, share in own[:, 1:3]])
        index = np.searchsorted(reached, units)  # of the first epoch at or beyond each unit
        is_early = index < len(own) - 1  # before its last epoch
        curves[int(trial), is_early] = own[index[is_early], 3]  # the metric
    return curves


def _average_curves(rows: Sequence[RankedConfiguration], curves: Floats) -> Floats:
    """Return the mean curve of each configuration's trials, as an array (configuration, epoch).

    ``curves`` has the values of all trials, by (trial number, epoch). Failed trials and trials without any value are
    left out. An entry is NaN if one of the others has no value at the epoch, or if there are no others.
    """
    has_value = np.asarray(np.isfinite(curves).any(axis=1))
    trials: list[int] = []  # of all configurations, one after the other
    trial_counts: list[int] = []
    for row in rows:
        own = []
        for trial in row.trials:
            if trial.status is not Status.FAILED and has_value[trial.trial]:
                own.append(trial.trial)
        trials += own
        trial_counts.append(len(own))
    counts = np.array(trial_counts)
    means = np.full((len(rows), curves.shape[1]), math.nan)
    has_trials = counts > 0
    if has_trials.any():
        # where the trials of each configuration begin in ``trials``
        starts = (np.cumsum(counts) - counts)[has_trials]
        # the sum over the trials of each configuration, which is NaN if one of them has no value
        sums = np.add.reduceat(curves[trials], starts, axis=0)
        means[has_trials] = sums / counts[has_trials, None]
    return means


def _measure_prediction(
    epoch: int, epoch_losses: Floats, losses: Floats, done: Places
) -> RungPrediction:
    """Return how well the losses at an epoch predict the final losses.

    ``epoch_losses`` and ``losses`` have an entry per configuration: its loss at the epoch, NaN if it has none, and its
    final loss. ``done`` has the indices of the completed ones, best first, over which the correlation is computed, as
    far as they have a loss at the epoch. The rank of the best one at the epoch is among all configurations that have a
    loss there; None if it has none.
    """
    reached = done[np.isfinite(epoch_losses[done])]
    loss_of_best = epoch_losses[done[0]]
    rank_of_best = None
    if math.isfinite(loss_of_best):
        rank_of_best = 1 + int((epoch_losses < loss_of_best).sum())
    correlation = compute_correlation(epoch_losses[reached], losses[reached])
    count = int(np.isfinite(epoch_losses).sum())
    return RungPrediction(epoch, correlation, rank_of_best, count)


def _measure_control(
    rows: Sequence[RankedConfiguration], losses: Floats, first: Floats, done: Places, one: Objective
) -> Control | None:
    """Return the result of training only the configuration to its end that is best after one epoch.

    ``losses`` and ``first`` have the final losses of ``rows`` and those after one epoch; ``done`` the indices of the
    completed configurations, best first. ``one`` converts losses to scores. Returns None if fewer than `LEAST` of the
    completed ones have a score after one epoch, or if the configuration that is best then did not train to its end, so
    that nobody knows how it would have ended.
    """
    known = done[np.isfinite(first[done])]
    if len(known) < LEAST:
        return None
    chosen = int(known[np.argmin(first[known])])
    if np.nanmin(first) < first[chosen]:  # one that did not train to its end was better
        return None
    trials = [trial for row in rows for trial in row.trials]
    # one epoch of each trial, and all further ones of the chosen configuration
    rest = sum(max(trial.epochs - 1, 0) for trial in rows[chosen].trials)
    spent = sum(min(trial.epochs, 1) for trial in trials) + rest
    loss = float(losses[chosen])
    best = float(losses[done[0]])
    in_all = sum(trial.epochs for trial in trials)
    rank = 1 + done.tolist().index(chosen)
    return Control(rank, one.from_loss(loss), abs(best - loss), spent, in_all)
