"""Ranks configurations: compares their scores, finds the best, and says how certain that is.

Also estimates the error that comes from the number of validation examples, which more seeds do not reduce.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from sweep.analysis.differences import (
    describe_other_differences,
    list_varying_parameters,
    require_same_objectives,
)
from sweep.analysis.sweep_rows import Sweep, Trial
from sweep.events import NULL_PARAMS, UNFINISHED, Role, Status, Value, names_of_nulls
from sweep.space.domains import configuration_key, group_by_configuration
from sweep.space.objectives import objective
from sweep.statistics.intervals import (
    Z,
    compute_fold_correction,
    compute_mean_interval,
    compute_share_interval,
)
from sweep.statistics.means import compute_deviation, compute_mean
from sweep.statistics.verdicts import Compared, Verdict, compare_configurations, compare_fronts
from sweep.store.sweep_info import SHARES, Objectives, says
from sweep.text import counted

if TYPE_CHECKING:
    from sweep.analysis.confirmation import Confirmation, Confirmed
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

OTHER_FOLDS = "not as many folds as the best"


def average_by_seed(trials: Iterable[Trial], metric: str, folds: int) -> dict[Hashable, float]:
    """Return the mean score of trials by seed and fold, over the trainings with the same seed and fold.

    ``metric`` names the score. Trials without a finite one are left out. A key is the pair (seed, fold), where the fold
    is None without a cross-validation, or the pair of its number and ``folds``, the number of folds of the sweep: one
    of five folds has other examples than one of ten.
    """
    found: dict[Hashable, list[float]] = {}
    for trial in trials:
        value = trial.metrics.get(metric, math.nan)
        if math.isfinite(value):
            fold = None if trial.fold is None else (trial.fold, folds)
            found.setdefault((trial.seed, fold), []).append(value)
    return {seed: compute_mean(values) for seed, values in found.items()}


def judge(
    rows: Mapping[int, Sequence[Trial]],
    objectives: Objectives,
    best: Collection[int],
    folds: Mapping[int, int],
) -> dict[int, Compared]:
    """Compare each row with the best ones, seed by seed; return the verdict on each row by its number.

    With a single objective, all are compared with the first row of ``best``. Of a configuration that completed with
    fresh seeds, only these count. A configuration that diverged or was infeasible with some of its seeds is not
    compared, since its remaining seeds would flatter it. Nor is a configuration without a completed trial, or with
    another number of folds than the best ones. A row that is not compared is undecided, with the reason. All rows are
    undecided if one of ``best`` is not compared, or if ``best`` or ``objectives`` is empty.

    Arguments:
        rows: the trials of each configuration, by the number of its row; each has at least one.
        objectives: pairs of metric and goal.
        best: the numbers of the rows of the best configuration or the Pareto front.
        folds: the number of folds of each row; 0 without a cross-validation.
    """
    reasons = {}  # why a row is not compared; "" if it is
    for row, trials in rows.items():
        reasons[row] = _explain_incomparable(trials, objectives)
    completed: dict[int, list[Trial]] = {}
    for row, trials in rows.items():
        if not reasons[row]:
            completed[row] = _list_counted(trials)
    goals = [objective(*one).maximize for one in objectives]
    tables: list[dict[int, dict[Hashable, float]]] = []  # of each objective: scores by row and seed
    for metric, _ in objectives:
        tables.append(
            {row: average_by_seed(trials, metric, folds[row]) for row, trials in completed.items()}
        )
    front = [row for row in rows if row in best]
    compared: dict[int, Compared] = {}
    if front and tables and not any(reasons[row] for row in front):
        if len(tables) > 1:
            compared = compare_fronts(tables, maximize=goals, front=front, folds=folds)
        else:
            compared = compare_configurations(
                tables[0], maximize=goals[0], best=front[0], folds=folds[front[0]]
            )
    folds_of_best = {folds[row] for row in front}
    # if the best one cannot be compared, neither can any other: "the first diverged with 1 of 6 seeds"
    why = next(
        (f"the first {reasons[row]}" for row in front if reasons[row]), "nothing to compare with"
    )
    verdicts = {}
    for row in rows:
        verdicts[row] = compared.get(row) or Compared(
            Verdict.UNDECIDED, 0, undecided=reasons[row] or why
        )
        if row in compared and row not in front and folds[row] not in folds_of_best:
            verdicts[row] = Compared(Verdict.UNDECIDED, 0, undecided=OTHER_FOLDS)
    return verdicts


def describe_method(judged: Iterable[Compared], folds: int, *, several: bool) -> str:
    """Return a description of the statistical test behind the verdicts ``judged``; "" if nothing was tested.

    ``folds`` is the number of folds, 0 if there is no cross-validation. ``several`` says whether several objectives
    were compared. Those of ``judged`` with a p-value were tested.
    """
    tested = [one for one in judged if one.p is not None]
    if not tested:
        return ""
    if several:
        return FRONT
    comparisons = counted(len(tested), "comparison")
    # the standard error of a p-value of 0.05, if patterns of signs were drawn instead of enumerated
    p_error = next((one.p_error for one in tested if one.p_error), None)
    if p_error is None:
        count = "all patterns"
    else:
        count = f"drawn patterns, p to {p_error:.1g}"
    return (FOLDED if folds else PAIRED).format(comparisons=comparisons, count=count)


def _explain_incomparable(trials: Sequence[Trial], objectives: Objectives) -> str:
    """Return why the trials of a configuration, at least one, cannot be compared; "" if they can.

    The reason is the first that holds of these: one diverged, one was infeasible, none completed. One that completed
    without a finite value of each objective counts as diverged.
    """
    diverged = 0
    for trial in trials:
        has_no_score = trial.status is Status.COMPLETED and not _is_finite(trial, objectives)
        if trial.status is Status.DIVERGED or has_no_score:
            diverged += 1
    if diverged:
        if len(trials) == 1:
            return "diverged"
        return f"diverged with {diverged} of {len(trials)} seeds"
    infeasible = sum(trial.status is Status.INFEASIBLE for trial in trials)
    if infeasible:
        if len(trials) == 1:
            return "infeasible"
        return f"infeasible with {infeasible} of {len(trials)} seeds"
    if any(trial.status is Status.COMPLETED for trial in trials):
        return ""
    outcomes = ", ".join(dict.fromkeys(trial.outcome for trial in trials))  # each once
    return outcomes if len(trials) == 1 else f"none completed: {outcomes}"


ORDER = {  # lower is better
    Status.COMPLETED: 0,
    Status.PRUNED: 1,
    Status.INFEASIBLE: 2,
    Status.RUNNING: 3,
    Status.INTERRUPTED: 3,
    Status.DIVERGED: 4,
    Status.OOM: 5,
    Status.FAILED: 6,
}


def _order_status(row: RankedConfiguration) -> float:
    """Return the position of a row's status in `ORDER`, lower is better.

    That of a running row with a score is between completed and pruned ones.
    """
    if row.status is Status.RUNNING and row.scores:
        return ORDER[Status.COMPLETED] + 0.5
    return ORDER[row.status]


class Score(Struct, frozen=True):
    """The values of one objective over the repeats of a configuration, their mean and its uncertainty."""

    metric: str
    goal: str
    values: tuple[float, ...]  # by seed and fold
    mean: float
    std: float | None  # of the sample; None for one value
    interval: tuple[float, float] | None  # 95 % interval of the mean; None for one value


class RankedConfiguration(Struct, frozen=True):
    """One configuration: a trial, or several repeats."""

    rank: int  # from 1
    sweep: str
    params: Mapping[str, Value]
    status: Status  # the worst status of its repeats; interrupted if some have not begun
    completed: float  # share of its repeats that completed with finite objectives
    epochs: int  # maximum over the trials that the scores come from
    scores: tuple[Score, ...]  # one per objective; empty if an objective has no finite value
    # with several objectives: 1 is the Pareto front, 2 the front of the rest, and so on
    front: int | None
    # those that the scores come from first, completed ones if any, then the others
    trials: tuple[Trial, ...]
    verdict: Verdict = Verdict.UNDECIDED
    difference: float | None = None  # its mean minus that of the best, over common seeds
    difference_low: float | None = None  # its 95 % interval
    difference_high: float | None = None
    p: float | None = None  # of this comparison, unadjusted
    p_adjusted: float | None = None  # decides the verdict
    # standard error of a p of 0.05, if p was sampled instead of enumerated
    p_error: float | None = None
    more: int | None = None  # number of further seeds that would decide
    undecided: str = ""  # the reason, if undecided

    @property
    def seed_changes_nothing(self) -> bool:
        """True if completed trainings with different seeds gave identical results: repeats do not measure chance.

        The results are the metrics as last reported, and the number of epochs. Only trainings of the same fold are
        compared, and only those with a metric. False if these have only one seed.
        """
        completed = []
        for trial in self.trials:
            if trial.status is Status.COMPLETED and trial.metrics:
                completed.append(trial)
        if len({trial.seed for trial in completed}) < 2:
            return False
        first_of_fold: dict[int | None, Trial] = {}
        for trial in completed:
            first = first_of_fold.setdefault(trial.fold, trial)
            if trial.metrics != first.metrics or trial.epochs != first.epochs:
                return False
        return True

    @property
    def has_rank(self) -> bool:
        """Whether its rank says anything: not while it runs or waits without a score."""
        return bool(self.scores) or self.status not in UNFINISHED

    def has_trial(self, number: int) -> bool:
        """Return whether the trial with this number is one of the configuration's."""
        return any(trial.trial == number for trial in self.trials)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All configurations of one or several sweeps, best first."""

    objectives: Objectives
    varying: tuple[str, ...]  # the parameters that differ between configurations
    rows: tuple[RankedConfiguration, ...]
    method: str = ""  # describes the statistical method; "" without verdicts
    # results of fresh seeds, which then determine order and verdicts
    confirmed: Confirmation | None = None
    other_code: str = ""  # describes in what trainings differ besides their parameters
    other_space: str = ""  # the warning that configurations were chosen from different spaces

    @property
    def best(self) -> tuple[RankedConfiguration, ...]:
        """The best configuration, or the Pareto front of several objectives; empty before a trial has completed.

        With one objective, or if no configuration completed all of its repeats, it is the first row with a completed
        trial that has a finite value of each objective.
        """
        rows = []
        for row in self.rows:
            if row.completed and row.scores:
                rows.append(row)
        front = tuple(row for row in rows if row.front == 1)
        return front or tuple(rows[:1])


def rank(sweeps: Sequence[Sweep]) -> Ranking:
    """Return the configurations of sweeps, best first, with the verdict on each.

    All repeats of a configuration count. Configurations are compared by the share of repeats that completed, then by
    the worst status among them, in the order completed, running with a score, pruned, infeasible, unfinished, diverged,
    out of memory, failed. Of those without a completed repeat, the one with more epochs is ahead then, since values
    after different numbers of epochs are not comparable. With several objectives, the number of the Pareto front comes
    next. At last, the mean of the first objective decides.

    If a sweep was confirmed, the scores of configurations with fresh seeds use only these, because the configurations
    were chosen by the other scores. If it is the only sweep, its finalists come first, with the order and the verdicts
    of the confirmation, and all other configurations are undecided. With several sweeps, finalists are compared as all
    others are. Among configurations that only the mean can tell apart, the finalists of a sweep keep their order, ahead
    of its other configurations. They keep their verdicts only in the cases of `_keep_verdicts_of_finalists`.

    ``sweeps`` has at least one sweep; their names must differ. Raises `InputError` if their objectives differ, and
    `StoreError` if a sweep.json cannot be read.
    """
    objectives = require_same_objectives(sweeps)
    rows: list[RankedConfiguration] = []
    for sweep in sweeps:
        for group in group_by_configuration(sweep.trials).values():
            rows.append(_summarize(group, objectives, sweep))
    fronts = _number_fronts(rows, objectives)
    confirmations = _find_confirmations(sweeps)
    places: dict[tuple[str, str], int] = {}
    for name, confirmation in confirmations.items():
        for finalist in confirmation.rows:
            places[name, configuration_key(finalist.params)] = finalist.place
    losses = _list_losses_behind_finalists(rows, places)

    def key(row: RankedConfiguration) -> tuple[float, ...]:
        """Return the sort key of a row, by which the best comes first."""
        # Finalists of a single sweep come first, in the order of their race. Those of several sweeps are ordered by
        # their losses, which agree with the race; their place only decides between equal ones.
        trained = 0 if row.completed else -row.epochs  # most epochs first
        front = fronts.get(id(row), math.inf)
        place = places.get((row.sweep, configuration_key(row.params)), math.inf)
        first = place if len(sweeps) == 1 else 0
        number = row.trials[0].trial  # of equals, the earlier one is ahead
        return (
            first,
            -row.completed,
            _order_status(row),
            trained,
            front,
            losses[id(row)],
            place,
            number,
        )

    ordered = sorted(rows, key=key)
    ranked = []
    for number, row in enumerate(ordered, start=1):
        ranked.append(structs.replace(row, rank=number, front=fronts.get(id(row))))
    names = list_varying_parameters([row.params for row in ordered])
    ranking = Ranking(
        objectives,
        names,
        tuple(ranked),
        other_code=describe_other_differences(sweeps),
        other_space=_warn_about_spaces(sweeps, ordered),
    )
    if len(sweeps) == 1 and confirmations:
        return _add_confirmation(ranking, confirmations[sweeps[0].name])
    judged = _add_verdicts(ranking, {sweep.name: sweep.info.folds or 0 for sweep in sweeps})
    return _keep_verdicts_of_finalists(judged, confirmations)


def _find_confirmations(sweeps: Sequence[Sweep]) -> dict[str, Confirmation]:
    """Return, by name, the confirmations of those sweeps that have trials with fresh seeds and finalists.

    Raises `StoreError` if the sweep.json of such a sweep cannot be read.
    """
    found = {}
    for sweep in sweeps:
        if any(trial.role is Role.CONFIRM for trial in sweep.trials):
            from sweep.analysis import confirmation  # imports NumPy, for few sweeps

            of_sweep = confirmation.of_sweep(sweep)
            if of_sweep is not None:
                found[sweep.name] = of_sweep
    return found


def _list_losses_behind_finalists(
    rows: Sequence[RankedConfiguration], places: Mapping[tuple[str, str], int]
) -> dict[int, float]:
    """Return the loss by which each row is ordered, by the id() of the row; infinite without scores.

    It is the mean of the first objective. In a sweep that was confirmed, it is at least that of the finalists ahead:
    the search chose by its scores, so they flatter configurations that have no fresh seeds. ``places`` has the place of
    each finalist in its confirmation, from 1, by the name of the sweep and the `configuration_key`.
    """
    losses: dict[int, float] = {}
    for row in rows:
        losses[id(row)] = math.inf  # by id(), because a row has a mapping and so cannot be a key
        if row.scores:
            losses[id(row)] = _list_losses(row)[0]
    for sweep in {sweep for sweep, _ in places}:
        # the sweep's rows as (place, loss, id): finalists in the order of their places, then all others
        order = []
        for row in rows:
            if row.sweep == sweep and row.scores and row.completed:
                place = places.get((sweep, configuration_key(row.params)), math.inf)
                order.append((place, losses[id(row)], id(row)))
        largest = -math.inf  # the largest loss of a finalist so far
        for place, loss, row_id in sorted(order):
            losses[row_id] = max(loss, largest)
            if math.isfinite(place):  # a finalist
                largest = losses[row_id]
    return losses


def _warn_about_spaces(sweeps: Sequence[Sweep], rows: Sequence[RankedConfiguration]) -> str:
    """Return a warning that configurations were chosen from different spaces; "" if no space was changed.

    ``rows`` are the configurations of all ``sweeps``.
    """
    if not any(sweep.space_changes for sweep in sweeps):
        return ""
    from sweep.analysis import sweep_changes

    return sweep_changes.warn_about_spaces(sweeps, rows)


_VERDICT = tuple(name for name in Compared.__struct_fields__ if name != "seeds")
"""Fields that `RankedConfiguration` and `Compared` have in common."""


def _add_verdicts(ranking: Ranking, folds: Mapping[str, int]) -> Ranking:
    """Return a ranking with the verdict on each row; ``folds`` has the number of folds, or 0, by the name of a sweep.

    Of several objectives, only the first is compared if no configuration has completed all of its repeats. The result
    also has the description of the statistical method.
    """
    best = {row.rank for row in ranking.best}
    has_front = bool(ranking.best) and ranking.best[0].front == 1
    # without a front, since no configuration has completed all repeats, only the first objective is compared
    if has_front:
        objectives = ranking.objectives
    else:
        objectives = ranking.objectives[:1]
    verdicts = judge(
        {row.rank: row.trials for row in ranking.rows},
        objectives,
        best,
        {row.rank: folds[row.sweep] for row in ranking.rows},
    )
    rows = []
    for row in ranking.rows:
        compared = verdicts[row.rank]
        rows.append(structs.replace(row, **{name: getattr(compared, name) for name in _VERDICT}))
    return replace(
        ranking,
        rows=tuple(rows),
        method=describe_method(
            verdicts.values(),
            folds[ranking.best[0].sweep] if ranking.best else 0,
            several=len(objectives) > 1,
        ),
    )


def _add_confirmation(ranking: Ranking, confirmation: Confirmation) -> Ranking:
    """Return the ranking of a sweep with its confirmation: the statistical method and the verdicts on the finalists.

    All other rows are undecided, with the reason "no finalist".
    """
    finalists = {configuration_key(finalist.params): finalist for finalist in confirmation.rows}
    rows = []
    for row in ranking.rows:
        finalist = finalists.get(configuration_key(row.params))
        if finalist is None:
            rows.append(structs.replace(row, undecided="no finalist"))
        else:
            rows.append(_set_verdict_of_finalist(row, finalist))
    return replace(ranking, rows=tuple(rows), method=confirmation.method, confirmed=confirmation)


def _set_verdict_of_finalist(row: RankedConfiguration, finalist: Confirmed) -> RankedConfiguration:
    """Return a row with the verdict of a confirmation, and its difference to the best with the interval.

    Its p-values and its number of further seeds are removed.
    """
    return structs.replace(
        row,
        verdict=Verdict(finalist.verdict),
        undecided=finalist.undecided,
        difference=finalist.difference,
        difference_low=finalist.low,
        difference_high=finalist.high,
        p=None,
        p_adjusted=None,
        p_error=None,
        more=None,
    )


def _keep_verdicts_of_finalists(
    ranking: Ranking, confirmations: Mapping[str, Confirmation]
) -> Ranking:
    """Return the ranking of several sweeps in which the finalists of one sweep keep the verdicts of its confirmation.

    That is the sweep of the best configuration, if this is also the best finalist there: its comparison with the other
    finalists was already made, as seeds were added, and testing it again would give it a second chance. Otherwise, and
    with several objectives, the ranking is returned as it is. The best configuration itself keeps the verdict of the
    ranking if it is not shown to be best in the confirmation.
    """
    if not ranking.best or len(ranking.objectives) > 1:
        return ranking
    best = ranking.best[0]
    confirmation = confirmations.get(best.sweep)
    if confirmation is None or configuration_key(confirmation.best.params) != configuration_key(
        best.params
    ):
        return ranking
    finalists = {configuration_key(finalist.params): finalist for finalist in confirmation.rows}
    rows = []
    for row in ranking.rows:
        if row.sweep == best.sweep:
            finalist = finalists.get(configuration_key(row.params))
        else:
            finalist = None
        if row is best and finalist is not None and finalist.verdict != Verdict.BEST:
            finalist = None  # it ties with another finalist, but may still be better than those of the other sweeps
        if finalist is None:  # the verdict of the ranking stays
            rows.append(row)
        else:
            rows.append(_set_verdict_of_finalist(row, finalist))
    among = f"finalists of {best.sweep}: {confirmation.method}"
    # rows with the verdict of their confirmation have none
    if any(row.p is not None for row in rows):
        method = f"{ranking.method}; {among}"
    else:
        method = among
    return replace(ranking, rows=tuple(rows), method=method)


def pareto_fronts(losses: Sequence[Sequence[float]]) -> list[int]:
    """Return the number of the Pareto front, from 1, of each point of (points, objectives), all to be minimized.

    Front 1 has the points that no other point dominates, front 2 those that only points of front 1 dominate, and so on;
    equal points are in the same front. The numbers are in the order of the points. Efficient non-dominated sort with
    sequential search (Zhang, Tian, Cheng, Jin, IEEE TEVC 19(2), 2015): in lexicographic order no point is dominated by
    a later one.
    """
    import numpy as np

    points = np.asarray(losses, dtype=float)
    numbers = [0] * len(points)
    fronts: list[list[int]] = []  # the indices of their points

    if not len(points):
        return numbers

    def is_dominated(index: int, front: list[int]) -> bool:
        """Return whether a point of the front is nowhere worse and somewhere better than the point at ``index``."""
        others = points[front]
        no_worse = (others <= points[index]).all(axis=1)
        better = (others < points[index]).any(axis=1)
        return bool((no_worse & better).any())

    # reversed, because `lexsort` sorts by the last key first
    for index in map(int, np.lexsort(points.T[::-1])):
        # the first front that has no point which dominates this one, or a new front
        free = (number for number, front in enumerate(fronts) if not is_dominated(index, front))
        number = next(free, len(fronts))
        if number == len(fronts):
            fronts.append([])
        fronts[number].append(index)
        numbers[index] = number + 1
    return numbers


def _summarize(
    trials: Sequence[Trial], objectives: Objectives, sweep: Sweep
) -> RankedConfiguration:
    """Return the row of a configuration, without rank, front and verdict: its scores over the trials that count.

    These are those of `_list_counted`. The row has no scores if an objective has no finite value in any of them. Its
    status is the worst of its repeats, where those that have not begun count as interrupted; its trials are ordered by
    status, completed ones first. ``trials`` are all of the configuration, at least one.
    """
    counted = _list_counted(trials)
    scores = []
    folds = sweep.info.folds or 0
    for metric, goal in objectives:
        values = tuple(average_by_seed(counted, metric, folds).values())
        if values:
            std = compute_deviation(values) if len(values) > 1 else None
            interval = compute_mean_interval(values, compute_fold_correction(folds))
            scores.append(Score(metric, goal, values, compute_mean(values), std, interval))
    epochs = max(trial.epochs for trial in counted)
    if len(scores) == len(objectives):  # a row has scores of all objectives or of none
        complete = tuple(scores)
    else:
        complete = ()
    first = counted[0]
    ordered = tuple(sorted(trials, key=lambda trial: ORDER[trial.status]))
    completed = sum(
        trial.status is Status.COMPLETED and _is_finite(trial, objectives) for trial in trials
    )
    share, status = outcome([trial.status for trial in trials], completed, sweep.info.trials_each)
    return RankedConfiguration(
        0, first.sweep, first.params, status, share, epochs, complete, None, ordered
    )


def _list_counted(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials from which a configuration's scores are computed: those with the best status by `ORDER`.

    If some of them completed with fresh seeds, return only these, because the others were used to choose the
    configuration. ``trials`` must not be empty.
    """
    best = min((trial.status for trial in trials), key=ORDER.__getitem__)
    counted = []
    for trial in trials:
        if trial.status is best:
            counted.append(trial)
    fresh = []
    for trial in counted:
        if trial.role is Role.CONFIRM:
            fresh.append(trial)
    if fresh and best is Status.COMPLETED:
        return fresh
    return counted


def outcome(statuses: Sequence[Status], completed: int, repeats: int) -> tuple[float, Status]:
    """Return the share of a configuration's repeats that completed, and the worst status of any repeat.

    ``statuses`` are those of the repeats that have begun, of which ``completed`` count as completed. If they are fewer
    than ``repeats``, which is at least 1, the others count as interrupted.
    """
    known = [*statuses, *[Status.INTERRUPTED] * (repeats - len(statuses))]
    return completed / len(known), max(known, key=ORDER.__getitem__)


def _is_finite(trial: Trial, objectives: Objectives) -> bool:
    """Return whether a trial has a finite value for each objective."""
    return all(math.isfinite(trial.metrics.get(metric, math.nan)) for metric, _ in objectives)


def _list_losses(row: RankedConfiguration) -> list[float]:
    """Return the mean of each objective of a row as a loss, in the order of the objectives; empty without scores."""
    losses = []
    for score in row.scores:
        losses.append(objective(score.metric, score.goal).to_loss(score.mean))
    return losses


def _number_fronts(rows: Sequence[RankedConfiguration], objectives: Objectives) -> dict[int, int]:
    """Return the number of the Pareto front of each configuration that completed all repeats, by the id() of its row.

    The number is from 1. The result is empty with a single objective.
    """
    if len(objectives) < 2:
        return {}
    completed = []
    for row in rows:
        if row.completed == 1 and row.scores:  # with all of its repeats
            completed.append(row)
    numbers = pareto_fronts([_list_losses(row) for row in completed])
    return {id(row): number for row, number in zip(completed, numbers, strict=True)}


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("rank", "epochs", "front", "more"), "integer"),
    **dict.fromkeys(("sweep", "status", "verdict", "undecided"), "text"),
}


def make_columns(ranking: Ranking) -> Columns:
    """Return a ranking as columns by name, each with its kind and a value per row; results/README.md lists them."""
    rows = ranking.rows
    table: dict[str, tuple[Kind, Sequence[Any]]] = {}

    def add(*names: str) -> None:
        """Add a column for each of these fields of the rows, with the kind in `_KINDS`, or "number"."""
        for name in names:
            values = [getattr(row, name) for row in rows]
            kind = _KINDS.get(name, "number")
            if kind == "text":
                values = list(map(str, values))
            table[name] = kind, values

    add("rank", "sweep")
    table["trials"] = "text", [_list_trial_numbers(row) for row in rows]
    add("status", "completed", "epochs", "front")
    for name in dict.fromkeys(name for row in rows for name in row.params):
        table[f"param.{name}"] = "param", [row.params.get(name) for row in rows]
    if any(None in row.params.values() for row in rows):
        table[NULL_PARAMS] = "text", [names_of_nulls(row.params) for row in rows]
    table["seeds"] = "integer", [_count_seeds(row) for row in rows]
    for at, (metric, _) in enumerate(ranking.objectives):
        figures = [_score_figures(row, at) for row in rows]
        for index, prefix in enumerate(("mean", "std", "low", "high")):
            table[f"{prefix}.{metric}"] = "number", [row_figures[index] for row_figures in figures]
    add(*_VERDICT)
    return table


def _list_trial_numbers(row: RankedConfiguration) -> str:
    """Return the numbers of a row's trials as text, ascending and separated by spaces."""
    return " ".join(map(str, sorted(trial.trial for trial in row.trials)))


def _count_seeds(row: RankedConfiguration) -> int:
    """Return the number of pairs of seed and fold for which a row has a score of the first objective.

    It is 0 if an objective has no score.
    """
    if not row.scores:
        return 0
    return len(row.scores[0].values)


def _score_figures(
    row: RankedConfiguration, at: int
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return mean, standard deviation and both ends of the interval of a score; None for each that is unknown.

    ``at`` is the position of the objective.
    """
    if not row.scores:
        return None, None, None, None
    score = row.scores[at]
    low, high = score.interval or (None, None)
    return score.mean, score.std, low, high


EXAMPLES, DEVIATION = "validation_examples", "validation_loss_std"
COLUMNS = ("trial", EXAMPLES, DEVIATION)
LOSS = "val_loss"  # the metric that `DEVIATION` belongs to


@dataclass(frozen=True, slots=True)
class SamplingError:
    """The sampling error of a mean over validation examples."""

    metric: str
    level: float
    examples: int
    deviation: float  # standard deviation over examples
    low: float  # 95 % interval of the level
    high: float
    # the largest difference between two configurations of this level that the choice of examples explains
    difference: float
    method: str  # of computing the interval


def compute_sampling_error(
    metric: str, level: float, examples: int, loss_deviation: float | None = None
) -> SamplingError | None:
    """Return the sampling error of a mean score over validation examples; None if it is unknown.

    It is known for accuracies and other shares (see `is_share`) if ``level`` is from 0 to 1, and for `LOSS` if its
    deviation over examples is known. The error is an upper bound: two configurations that agree on many of the same
    examples differ by less. For a loss it is the ideal bootstrap over examples, which has a closed form for a mean: the
    deviation over the root of their number (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 6).

    Arguments:
        metric: the name of the metric.
        level: the mean score.
        examples: number of validation examples; 0 if unknown.
        loss_deviation: standard deviation of the loss over examples.
    """
    if not examples:
        return None
    if is_share(metric) and 0 <= level <= 1:
        method = "Wilson"
        deviation = math.sqrt(level * (1 - level))
        low, high = compute_share_interval(level * examples, examples)
        spread = deviation  # of which `difference` is computed
        if not deviation:  # none or all are right, which other examples may not repeat
            middle = (low + high) / 2
            spread = math.sqrt(middle * (1 - middle))
    elif metric == LOSS and loss_deviation is not None:
        method = "bootstrap"
        deviation = loss_deviation
        spread = deviation
        half = Z * deviation / math.sqrt(examples)
        low = level - half
        high = level + half
    else:
        return None
    difference = Z * math.sqrt(2 / examples) * spread
    return SamplingError(metric, level, examples, deviation, low, high, difference, method)


def is_share(metric: str) -> bool:
    """Return whether the name of a metric says that it is a share of the examples, such as an accuracy."""
    return says(metric, SHARES)


def limit_interval(
    metric: str, values: Sequence[float], interval: tuple[float, float]
) -> tuple[float, float]:
    """Return an interval for display: limited to 0 to 1 if the metric is a share and all ``values`` lie there.

    Verdicts are computed from the interval without this limit.
    """
    low, high = interval
    if is_share(metric) and all(0 <= value <= 1 for value in values):
        return max(low, 0.0), min(high, 1.0)
    return low, high


def count_needed_examples(difference: float, deviation: float) -> int:
    """Return how many validation examples make the 95 % sampling error of a difference at most ``difference``.

    The number is rounded up. ``deviation`` is the standard deviation of the score over examples. Raises
    ZeroDivisionError if ``difference`` is 0.
    """
    return math.ceil(2 * (deviation * Z / difference) ** 2)


def find_sampling_error(ranking: Ranking, read: Tables) -> SamplingError | None:
    """Return the sampling error of the first objective of a sweep's best configuration; None if it is unknown.

    It is unknown if no trial has completed, if no number of validation examples was recorded, or if the metric is
    neither a share nor a loss with a recorded deviation (see `compute_sampling_error`). The number of examples is the
    smallest in any epoch of any trial.

    ``ranking`` has the configurations of one sweep, and ``read`` has its tables. That of the metrics must have been
    read with the columns `COLUMNS`; one that was never recorded may be missing.
    """
    if not ranking.best:
        return None
    best = ranking.best[0]
    score = best.scores[0]
    trials = {trial.trial for trial in best.trials}
    return compute_sampling_error(
        score.metric, score.mean, count_examples(read), read_deviation(read, trials)
    )


def count_examples(read: Tables) -> int:
    """Return the smallest number of validation examples in any epoch of any trial; 0 if none was recorded.

    ``read`` has the tables of a sweep.
    """
    from sweep.store import reading

    counted = reading.numbers(read.metrics, EXAMPLES, missing=math.nan)
    counted = counted[counted > 0]
    return int(counted.min()) if len(counted) else 0


def read_deviation(read: Tables, trials: Collection[int]) -> float | None:
    """Return the standard deviation of the loss over validation examples in the last epoch of ``trials``.

    It is the root mean square over those of the trials that recorded it; None if none of them did. ``read`` has the
    tables of their sweep, ``trials`` are their numbers.
    """
    import numpy as np

    from sweep.store import reading

    trial_of_row = reading.numbers(read.metrics, "trial", missing=-1)
    is_theirs = np.isin(trial_of_row, list(trials))
    values = reading.numbers(read.metrics, DEVIATION, missing=math.nan)
    # of each trial, the value of the last epoch, which replaces those of the epochs before it
    last = dict(zip(trial_of_row[is_theirs].tolist(), values[is_theirs].tolist(), strict=True))
    known = []
    for value in last.values():
        if not math.isnan(value):
            known.append(value)
    if not known:
        return None
    return math.sqrt(sum(value**2 for value in known) / len(known))
