"""Which scores of which trials are compared, and which are not: what stands between a ranking and its verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from statistics import fmean

from sweep.analysis.trials import Trial
from sweep.events import Status
from sweep.statistics import fronts, verdicts
from sweep.statistics.verdicts import Compared, Verdict
from sweep.store.sweep_info import Objectives

PAIRED = (
    "paired sign-flip permutation of scores with the same seeds ({count}), Holm over {comparisons}, and the largest "
    "difference of all pairs, for the best was chosen by the same scores; 95 % intervals by Student's t"
)
FOLDED = (
    "corrected resampled t-test of folds (Nadeau and Bengio), Holm over {comparisons} and over all pairs; 95 % "
    "intervals by the same t"
)
FRONT = (
    "a configuration is worse where one of the front is better in all objectives, each by paired sign-flip permutation "
    "of scores with the same seeds, adjusted for all pairs"
)


def by_seed(trials: Iterable[Trial], metric: str) -> dict[Hashable, float]:
    """The finite scores of trials by seed and fold; of several trainings with one seed their mean."""
    found: dict[Hashable, list[float]] = {}
    for trial in trials:
        value = trial.metrics.get(metric, math.nan)
        if math.isfinite(value):
            found.setdefault((trial.seed, trial.fold), []).append(value)
    return {seed: fmean(values) for seed, values in found.items()}


def judge(
    rows: Mapping[int, Sequence[Trial]], objectives: Objectives, best: Collection[int], folds: int
) -> dict[int, Compared]:
    """The verdict on each of the rows, by their number.

    A configuration that diverged with some of its seeds is compared with none: the seeds that are left would flatter
    it. Nor is one of which no trial completed.
    """
    reasons = {row: _unfit(trials, objectives) for row, trials in rows.items()}
    fit = {row: [trial for trial in rows[row] if trial.status is Status.COMPLETED] for row in rows if not reasons[row]}
    goals = [goal == "maximize" for _, goal in objectives]
    tables = [{row: by_seed(trials, metric) for row, trials in fit.items()} for metric, _ in objectives]
    front = [row for row in rows if row in best]
    found: dict[int, Compared] = {}
    if not front or any(reasons[row] for row in front) or not tables:
        pass
    elif len(tables) > 1:
        found = fronts.compare(tables, maximize=goals, front=front, folds=folds)
    else:
        found = verdicts.compare(tables[0], maximize=goals[0], best=front[0], folds=folds)
    why = next((f"the first {reasons[row]}" for row in front if reasons[row]), "nothing to compare with")
    return {row: found.get(row) or Compared(Verdict.UNDECIDED, 0, reason=reasons[row] or why) for row in rows}


def method(judged: Iterable[Compared], folds: int, *, several: bool) -> str:
    """How those verdicts were reached that were; empty where there is none."""
    tested = [one for one in judged if one.p is not None]
    if several:
        return FRONT if tested else ""
    if not tested:
        return ""
    comparisons = f"{len(tested)} comparison{'s' * (len(tested) > 1)}"
    drawn = next((one.p_error for one in tested if one.p_error), None)
    count = "all patterns" if drawn is None else f"drawn patterns, p to {drawn:.1g}"
    return (FOLDED if folds else PAIRED).format(comparisons=comparisons, count=count)


def _unfit(trials: Sequence[Trial], objectives: Objectives) -> str:
    """Why the trials of a configuration are not compared; empty where they are."""
    diverged = sum(
        trial.status is Status.DIVERGED
        or (
            trial.status is Status.COMPLETED
            and any(not math.isfinite(trial.metrics.get(m, math.nan)) for m, _ in objectives)
        )
        for trial in trials
    )
    if diverged:
        return "diverged" if len(trials) == 1 else f"diverged with {diverged} of {len(trials)} seeds"
    if not any(trial.status is Status.COMPLETED for trial in trials):
        kinds = Counter(trial.status.value for trial in trials)
        return f"none completed: {', '.join(kinds)}" if len(trials) > 1 else next(iter(kinds))
    return ""
