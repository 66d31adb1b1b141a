"""Rank configurations: which scores are compared, which configuration is best, and how sure that is.

And how far the examples that validate can be trusted: no number of seeds makes more of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from sweep import statistics
from sweep.analysis import Sweep, Trial, confirmation, of_other_code, same_objectives, varying
from sweep.analysis.confirmation import Confirmation
from sweep.events import NULL_PARAMS, Role, Status, Value, names_of_nulls
from sweep.space.domains import by_configuration, configuration
from sweep.space.objectives import objective
from sweep.statistics import Compared, Verdict
from sweep.store.sweep_info import SHARES, Objectives, says
from sweep.text import counted

if TYPE_CHECKING:
    from sweep.store.tables import Columns, Kind, Tables


PAIRED = (
    "model confidence set over {comparisons}: sign-flip permutations of scores with the same seeds ({count}), the best "
    "chosen anew in each; 95 % intervals by Student's t"
)
FOLDED = (
    "model confidence set over {comparisons}: corrected resampled t-tests of folds (Nadeau and Bengio), adjusted for "
    "all pairs that are left; 95 % intervals by the same t"
)
FRONT = (
    "a configuration is worse where one of the front is better in all objectives, each by paired sign-flip permutation "
    "of scores with the same seeds, adjusted for all pairs"
)


def by_seed(trials: Iterable[Trial], metric: str) -> dict[Hashable, float]:
    """Return the finite scores of trials by seed and fold; of several trainings with one seed their mean."""
    found: dict[Hashable, list[float]] = {}
    for trial in trials:
        value = trial.metrics.get(metric, math.nan)
        if math.isfinite(value):
            found.setdefault((trial.seed, trial.fold), []).append(value)
    return {seed: fmean(values) for seed, values in found.items()}


def judge(
    rows: Mapping[int, Sequence[Trial]], objectives: Objectives, best: Collection[int], folds: int
) -> dict[int, Compared]:
    """Return the verdict on each of the rows, by their number.

    A configuration that diverged with some of its seeds is compared with none: the seeds that are left would flatter
    it. Nor is one of which no trial completed.
    """
    reasons = {row: _unfit(trials, objectives) for row, trials in rows.items()}
    fit = {row: [trial for trial in rows[row] if trial.status is Status.COMPLETED] for row in rows if not reasons[row]}
    goals = [objective(*one).maximize for one in objectives]
    tables = [{row: by_seed(trials, metric) for row, trials in fit.items()} for metric, _ in objectives]
    front = [row for row in rows if row in best]
    found: dict[int, Compared] = {}
    if front and tables and not any(reasons[row] for row in front):
        if len(tables) > 1:
            found = statistics.compare_fronts(tables, maximize=goals, front=front, folds=folds)
        else:
            found = statistics.compare(tables[0], maximize=goals[0], best=front[0], folds=folds)
    why = next((f"the first {reasons[row]}" for row in front if reasons[row]), "nothing to compare with")
    return {row: found.get(row) or Compared(Verdict.UNDECIDED, 0, undecided=reasons[row] or why) for row in rows}


def method(judged: Iterable[Compared], folds: int, *, several: bool) -> str:
    """Return how those verdicts were reached that were; empty where there is none."""
    tested = [one for one in judged if one.p is not None]
    if not tested:
        return ""
    if several:
        return FRONT
    comparisons = counted(len(tested), "comparison")
    drawn = next((one.p_error for one in tested if one.p_error), None)
    count = "all patterns" if drawn is None else f"drawn patterns, p to {drawn:.1g}"
    return (FOLDED if folds else PAIRED).format(comparisons=comparisons, count=count)


def _unfit(trials: Sequence[Trial], objectives: Objectives) -> str:
    """Return why the trials of a configuration are not compared; empty where they are."""
    diverged = sum(
        trial.status is Status.DIVERGED or (trial.status is Status.COMPLETED and not _is_finite(trial, objectives))
        for trial in trials
    )
    if diverged:
        return "diverged" if len(trials) == 1 else f"diverged with {diverged} of {len(trials)} seeds"
    infeasible = sum(trial.status is Status.INFEASIBLE for trial in trials)
    if infeasible:
        return "infeasible" if len(trials) == 1 else f"infeasible with {infeasible} of {len(trials)} seeds"
    if not any(trial.status is Status.COMPLETED for trial in trials):
        kinds = Counter(trial.status.value for trial in trials)
        return f"none completed: {', '.join(kinds)}" if len(trials) > 1 else next(iter(kinds))
    return ""


ORDER = {  # the better what a trial came to, the lower
    Status.COMPLETED: 0,
    Status.PRUNED: 1,
    Status.INFEASIBLE: 2,
    Status.RUNNING: 3,
    Status.INTERRUPTED: 3,
    Status.DIVERGED: 4,
    Status.OOM: 5,
    Status.FAILED: 6,
}


class Score(Struct, frozen=True):
    """One objective over the repeats of a configuration: all values, and what they say of the mean."""

    metric: str
    goal: str
    values: tuple[float, ...]  # by seed and fold
    mean: float
    std: float | None  # of a sample, from two values on
    interval: tuple[float, float] | None  # 95 % for the mean, from two values on


class Ranked(Struct, frozen=True):
    """One configuration: a trial, or the repeats of one."""

    rank: int  # from 1
    sweep: str
    params: Mapping[str, Value]
    status: Status  # the worst that one of its repeats came to; interrupted where some have not begun
    completed: float  # share of its repeats that did, with finite objectives
    epochs: int  # the most that a trial of the scores was trained
    scores: tuple[Score, ...]  # one per objective; empty where nothing finite was reported
    front: int | None  # with several objectives: 1 is the Pareto front, 2 the front without that ...
    trials: tuple[Trial, ...]  # those that the scores are of, the completed ones if there are any; then the others
    verdict: Verdict = Verdict.UNDECIDED
    difference: float | None = None  # to the best, over the seeds that both have: this less that
    difference_low: float | None = None  # its 95 % interval
    difference_high: float | None = None
    p: float | None = None  # of this comparison alone
    p_adjusted: float | None = None  # that the verdict is by
    p_error: float | None = None  # standard error of a p of 0.05, where it was drawn and not counted
    more: int | None = None  # further seeds that would tell
    undecided: str = ""  # why

    @property
    def seed_changes_nothing(self) -> bool:
        """Whether trainings with several seeds gave the same numbers, all of them: then they say nothing of luck."""
        there = [trial for trial in self.trials if trial.status is Status.COMPLETED and trial.metrics]
        found: dict[int | None, list[Trial]] = {}
        for trial in there:
            found.setdefault(trial.fold, []).append(trial)
        alike = (
            trial.metrics == same[0].metrics and trial.epochs == same[0].epochs
            for same in found.values()
            for trial in same
        )
        return len({trial.seed for trial in there}) > 1 and all(alike)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All configurations of one or several sweeps, the best first."""

    objectives: Objectives
    varying: tuple[str, ...]  # the parameters that tell the configurations apart
    rows: tuple[Ranked, ...]
    method: str = ""  # how the verdicts were reached; empty without one
    confirmed: Confirmation | None = None  # what fresh seeds say, which the order and the verdicts are then by
    other_code: str = ""  # that trainings differ in more than their parameters, in words

    @property
    def best(self) -> tuple[Ranked, ...]:
        """The best configuration, or the Pareto front of several objectives; none before a trial has completed.

        Where no configuration has completed all of its repeats, the one that comes first although some did not.
        """
        rows = [row for row in self.rows if row.completed and row.scores]
        front = tuple(row for row in rows if row.front == 1)
        return front or tuple(rows[:1])


def rank(sweeps: Sequence[Sweep]) -> Ranking:
    """Rank by the mean of the objective: completed before pruned before unfinished before unsuccessful.

    A configuration is judged by all of its repeats: the larger the share that completed, the better, and then by
    the worst of them, whatever the others reached. Configurations of which none completed rank by epochs first, for
    a value after fewer epochs is no equal one. Several objectives rank by Pareto front, then by the first. Raises
    `InputError` if the sweeps' objectives differ. A single sweep that was confirmed ranks by that first, and scores of
    configurations with fresh seeds are of these alone: they were chosen by the others.
    """
    objectives = same_objectives(sweeps)
    rows = [_grouped(group, objectives, sweep) for sweep in sweeps for group in by_configuration(sweep.trials).values()]
    fronts = _front_numbers(rows, objectives)
    confirmed = confirmation.of_sweep(sweeps[0]) if len(sweeps) == 1 else None
    places = {configuration(one.params): one.place for one in confirmed.rows} if confirmed else {}

    def key(row: Ranked) -> tuple[float, ...]:
        trained = 0 if row.completed else -row.epochs
        front = fronts.get(id(row), math.inf)
        loss = _losses(row)[0] if row.scores else math.inf
        place = places.get(configuration(row.params), math.inf) if places else 0
        return place, -row.completed, ORDER[row.status], trained, front, loss, row.trials[0].trial

    ordered = sorted(rows, key=key)
    ranked = [
        structs.replace(row, rank=number, front=fronts.get(id(row))) for number, row in enumerate(ordered, start=1)
    ]
    names = varying([row.params for row in ordered])
    ranking = Ranking(objectives, names, tuple(ranked), other_code=of_other_code(sweeps))
    if confirmed:
        return _confirmed(ranking, confirmed)
    return _judged(ranking, max((sweep.info.folds or 0 for sweep in sweeps), default=0))


_VERDICT = tuple(name for name in Compared.__struct_fields__ if name != "seeds")
"""What a row and a `Compared` say by the same names."""


def _judged(ranking: Ranking, folds: int) -> Ranking:
    best = {row.rank for row in ranking.best}
    several = len(ranking.objectives) > 1 and ranking.best and ranking.best[0].front == 1
    objectives = ranking.objectives if several else ranking.objectives[:1]
    judged = judge({row.rank: row.trials for row in ranking.rows}, objectives, best, folds)
    rows = []
    for row in ranking.rows:
        one = judged[row.rank]
        rows.append(structs.replace(row, **{name: getattr(one, name) for name in _VERDICT}))
    return replace(ranking, rows=tuple(rows), method=method(judged.values(), folds, several=len(objectives) > 1))


def _confirmed(ranking: Ranking, found: Confirmation) -> Ranking:
    """Return the verdicts of the race; on the others there is none."""
    raced = {configuration(one.params): one for one in found.rows}
    rows = []
    for row in ranking.rows:
        one = raced.get(configuration(row.params))
        if one is None:
            rows.append(structs.replace(row, undecided="no finalist"))
            continue
        told = structs.replace(row, verdict=Verdict(one.verdict), undecided=one.undecided)
        rows.append(structs.replace(told, difference=one.difference, difference_low=one.low, difference_high=one.high))
    return replace(ranking, rows=tuple(rows), method=found.method, confirmed=found)


def pareto_fronts(losses: Sequence[Sequence[float]]) -> list[int]:
    """Return the number of the front, from 1, of each point of (points, objectives), all to be minimised.

    Efficient non-dominated sort with sequential search (Zhang, Tian, Cheng, Jin, IEEE TEVC 19(2), 2015):
    in lexicographic order no point is dominated by a later one.
    """
    import numpy as np

    points = np.asarray(losses, dtype=float)
    numbers = [0] * len(points)
    fronts: list[list[int]] = []

    def dominated(index: int, front: list[int]) -> bool:
        others = points[front]
        return bool(((others <= points[index]).all(axis=1) & (others < points[index]).any(axis=1)).any())

    for index in map(int, np.lexsort(points.T[::-1])) if len(points) else ():
        free = (number for number, front in enumerate(fronts) if not dominated(index, front))
        number = next(free, len(fronts))
        if number == len(fronts):
            fronts.append([])
        fronts[number].append(index)
        numbers[index] = number + 1
    return numbers


def _grouped(trials: Sequence[Trial], objectives: Objectives, sweep: Sweep) -> Ranked:
    best = min((trial.status for trial in trials), key=ORDER.__getitem__)
    counted = [trial for trial in trials if trial.status is best]
    fresh = [trial for trial in counted if trial.role is Role.CONFIRM]
    counted = fresh if fresh and best is Status.COMPLETED else counted
    scores = []
    for metric, goal in objectives:
        values = tuple(by_seed(counted, metric).values())
        if values:
            std = stdev(values) if len(values) > 1 else None
            folds = sweep.info.folds
            shared = statistics.shared_by_folds(folds) if folds else 0.0
            interval = statistics.interval_of_mean(values, shared=shared)
            scores.append(Score(metric, goal, values, fmean(values), std, interval))
    epochs = max(trial.epochs for trial in counted)
    complete = tuple(scores) if len(scores) == len(objectives) else ()
    first = counted[0]
    ordered = tuple(sorted(trials, key=lambda trial: ORDER[trial.status]))
    completed = sum(trial.status is Status.COMPLETED and _is_finite(trial, objectives) for trial in trials)
    share, status = outcome([trial.status for trial in trials], completed, sweep.info.trials_each)
    return Ranked(0, first.sweep, first.params, status, share, epochs, complete, None, ordered)


def outcome(statuses: Sequence[Status], completed: int, repeats: int) -> tuple[float, Status]:
    """Return the share of a configuration's repeats that completed, and the worst that one came to.

    Repeats that have not begun count as interrupted.
    """
    known = [*statuses, *[Status.INTERRUPTED] * (repeats - len(statuses))]
    return completed / len(known), max(known, key=ORDER.__getitem__)


def _is_finite(trial: Trial, objectives: Objectives) -> bool:
    """Return whether a trial has a number to show for each objective."""
    return all(math.isfinite(trial.metrics.get(metric, math.nan)) for metric, _ in objectives)


def _losses(row: Ranked) -> list[float]:
    return [objective(score.metric, score.goal).to_loss(score.mean) for score in row.scores]


def _front_numbers(rows: Sequence[Ranked], objectives: Objectives) -> dict[int, int]:
    """Return the fronts of the completed configurations, by the identity of their row."""
    if len(objectives) < 2:
        return {}
    completed = [row for row in rows if row.completed == 1 and row.scores]
    return dict(zip(map(id, completed), pareto_fronts([_losses(row) for row in completed]), strict=True))


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("rank", "epochs", "front", "more"), "integer"),
    **dict.fromkeys(("sweep", "status", "verdict", "undecided"), "text"),
}


def columns(ranking: Ranking) -> Columns:
    """Return the rows of a ranking by column, as results/README.md lists them."""
    rows = ranking.rows
    found: dict[str, tuple[Kind, Sequence[Any]]] = {}

    def add(*names: str) -> None:
        for name in names:
            values = [getattr(row, name) for row in rows]
            kind = _KINDS.get(name, "number")
            found[name] = kind, list(map(str, values)) if kind == "text" else values

    add("rank", "sweep")
    found["trials"] = "text", [" ".join(map(str, sorted(trial.trial for trial in row.trials))) for row in rows]
    add("status", "completed", "epochs", "front")
    for name in dict.fromkeys(name for row in rows for name in row.params):
        found[f"param.{name}"] = "param", [row.params.get(name) for row in rows]
    if any(None in row.params.values() for row in rows):
        found[NULL_PARAMS] = "text", [names_of_nulls(row.params) for row in rows]
    found["seeds"] = "integer", [len(row.scores[0].values) if row.scores else 0 for row in rows]
    for at, (metric, _) in enumerate(ranking.objectives):
        known = [row.scores[at] if row.scores else None for row in rows]
        found[f"mean.{metric}"] = "number", [None if one is None else one.mean for one in known]
        found[f"std.{metric}"] = "number", [None if one is None else one.std for one in known]
        found[f"low.{metric}"] = "number", [one.interval[0] if one and one.interval else None for one in known]
        found[f"high.{metric}"] = "number", [one.interval[1] if one and one.interval else None for one in known]
    add(*_VERDICT)
    return found


EXAMPLES, DEVIATION = "validation_examples", "validation_loss_std"
COLUMNS = ("trial", EXAMPLES, DEVIATION)
LOSS = "val_loss"  # of which that is the deviation over examples


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What a mean over so many examples says of others like them."""

    metric: str
    level: float
    examples: int
    deviation: float  # of one example
    low: float  # of the level, 95 %
    high: float
    difference: float  # that two configurations of this level may have by the choice of examples alone
    method: str  # of the interval


def noise_of_metric(metric: str, level: float, examples: int, loss_deviation: float | None = None) -> HeldOut | None:
    """Return the noise of an accuracy, or of a loss whose deviation over examples is known; None of anything else.

    Two configurations on the same examples differ by less, the more they agree on. For a loss it is the ideal
    bootstrap over examples: the standard error of a mean has a closed form, the deviation over the root of their number
    (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 6).
    """
    if not examples:
        return None
    if is_share(metric) and 0 <= level <= 1:
        deviation, method = math.sqrt(level * (1 - level)), "Wilson"
        low, high = statistics.interval_of_share(level * examples, examples)
    elif metric == LOSS and loss_deviation is not None:
        deviation, method = loss_deviation, "bootstrap"
        half = statistics.Z * deviation / math.sqrt(examples)
        low, high = level - half, level + half
    else:
        return None
    difference = statistics.Z * math.sqrt(2 / examples) * deviation
    return HeldOut(metric, level, examples, deviation, low, high, difference, method)


def is_share(metric: str) -> bool:
    """Return whether a metric is by its name a share of examples: an accuracy."""
    return says(metric, SHARES)


def examples_for(difference: float, deviation: float) -> int:
    """Return how many examples bring the noise between two means below a difference."""
    return math.ceil(2 * (deviation * statistics.Z / difference) ** 2)


def noise_of(ranking: Ranking, read: Tables) -> HeldOut | None:
    """Return the noise of the best score of a ranking; None where it is not known."""
    if not ranking.best:
        return None
    best = ranking.best[0]
    score = best.scores[0]
    trials = {trial.trial for trial in best.trials}
    return noise_of_metric(score.metric, score.mean, examples(read), deviation(read, trials))


def examples(read: Tables) -> int:
    """Return how many examples validated, the fewest of any trial; 0 where that was not counted."""
    from sweep.store import reading

    counted = reading.numbers(read.metrics, EXAMPLES, missing=math.nan)
    counted = counted[counted > 0]
    return int(counted.min()) if len(counted) else 0


def deviation(read: Tables, trials: Collection[int]) -> float | None:
    """The deviation of the loss over examples in the last epoch of these trials; None where no loss is such a mean."""
    import numpy as np

    from sweep.store import reading

    rows = reading.numbers(read.metrics, "trial", missing=-1)
    theirs = np.isin(rows, list(trials))
    found = reading.numbers(read.metrics, DEVIATION, missing=math.nan)
    last = dict(zip(rows[theirs].tolist(), found[theirs].tolist(), strict=True))
    known = [value for value in last.values() if not math.isnan(value)]
    return math.sqrt(sum(value**2 for value in known) / len(known)) if known else None
