"""Estimates before a sweep runs which differences it can distinguish from noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from sweep import analysis
from sweep.analysis import ranking
from sweep.errors import SweepError
from sweep.runner.pricing import Confirming
from sweep.spec import Spec
from sweep.statistics.intervals import compute_fold_correction
from sweep.statistics.power import (
    LEAST,
    compute_detectable_difference,
    compute_spread,
    count_seeds_needed,
)
from sweep.statistics.racing import FIRST_SEEDS, compute_race_level
from sweep.store.folder import ResultsFolder, list_begun_sweeps

LOOKED_AT = 20  # largest number of sweeps searched, the newest first


@dataclass(frozen=True, slots=True)
class Known:
    """What an earlier sweep of the same trainable has shown of the noise of the metric."""

    sweep: str
    level: float  # mean of the metric over the trials of its best configuration
    spread: float | None  # standard deviation over seeds, pooled over configurations
    examples: int  # validation examples; 0 if not counted
    # of the validation loss over examples, for that configuration
    loss_deviation: float | None = None


@dataclass(frozen=True, slots=True)
class Detectable:
    """The smallest differences of the first metric that a sweep can tell from noise."""

    configurations: int | None
    seeds: int  # trainings of each configuration
    needed: int  # fewest seeds that can distinguish so many configurations
    confirmed: bool  # only finalists are compared, by fresh seeds
    # difference detected about half the time; None with too few seeds or an unknown spread
    by_seeds: float | None
    examples: ranking.SamplingError | None
    # examples needed to detect the difference that seeds can, if there are fewer
    examples_needed: int | None
    known: Known | None


def detectable(
    spec: Spec,
    configurations: int | None,
    known: Known | None,
    confirming: Confirming | None = None,
) -> Detectable:
    """Return the smallest differences of the first metric that a sweep can tell from noise.

    There are two: one that its seeds show, and one that its validation examples show. Without ``known``, both are None.
    The first is also None if the spread over seeds is not known, if there are fewer seeds than needed, or for a single
    configuration; the second, if the sampling error is not known.

    Arguments:
        configurations: number of configurations to compare. If it is None or 0, 2 are assumed, but without ``confirm``,
            the result has the value as given.
        known: the noise that an earlier sweep has shown.
        confirming: number of finalists and seeds that the budget of a confirmation allows, if known. If the sweep file
            has ``confirm`` and there are two or more configurations, only finalists are compared, by fresh seeds.
    """
    searched = configurations or 2
    # First, how many configurations are compared, and by how many seeds each. `compared` is the number by which
    # differences are computed, `reported` the one in the result, which stays as given if it is only assumed.
    reported: int | None
    if spec.confirm is None or searched < 2:
        # all configurations of the search, by its own seeds
        compared = searched
        reported = configurations
        seeds = spec.trials_each
        if len(spec.metrics) < 2:
            needed = LEAST
        else:  # each pair is compared by a p-value of its own, which is adjusted for the number of pairs
            needed = count_seeds_needed(compared * (compared - 1) // 2)
    else:
        # only finalists, by fresh seeds in a race: as many of both as the budget allows, if that is known
        if confirming is not None:
            compared = confirming.finalists
            seeds = confirming.seeds
        else:
            compared = min(spec.confirm.finalists, searched)
            seeds = spec.confirm.seeds
        reported = compared
        needed = FIRST_SEEDS
    # the difference that seeds show
    by_seeds = None
    if known is not None and known.spread is not None and seeds >= needed and compared > 1:
        by_seeds = _compute_detectable(spec, known.spread, seeds, compared)
    # the difference that the validation examples show and, if it is larger, how many of them the seeds call for
    examples = None
    examples_needed = None
    if spec.metrics:
        metric = spec.metrics[0].name
    else:
        # not used: without a metric, no earlier sweep is known (`find_earlier_results`)
        metric = ""
    if known is not None:
        examples = ranking.compute_sampling_error(
            metric, known.level, known.examples, known.loss_deviation
        )
        if examples and by_seeds and by_seeds < examples.difference:
            examples_needed = ranking.count_needed_examples(by_seeds, examples.deviation)
    return Detectable(
        configurations=reported,
        seeds=seeds,
        needed=needed,
        confirmed=spec.confirm is not None,
        by_seeds=by_seeds,
        examples=examples,
        examples_needed=examples_needed,
        known=known,
    )


def find_earlier_results(results: Path, spec: Spec) -> Known | None:
    """Return the noise shown by the most recent sweep with the same trainable and first metric.

    The most recent sweep is the one whose log has changed last. Sweeps that show the spread over seeds are preferred to
    more recent ones. Damaged sweeps are skipped, and so are those without a ranked trial. Return None if there is no
    such sweep among the newest `LOOKED_AT` ones in the folder ``results``, or if ``spec`` has no metric.
    """
    if not spec.metrics:
        return None
    found = None  # the most recent one, in case that none shows the spread over seeds
    for folder in list_begun_sweeps(results)[:LOOKED_AT]:
        try:
            known = _read_noise(folder, spec)
        except SweepError:  # damaged; commands that read it for its own sake report that
            continue
        found = found or known
        if known is not None and known.spread is not None:
            return known
    return found


def _read_noise(folder: ResultsFolder, spec: Spec) -> Known | None:
    """Return the noise that a sweep has shown; None if its trainable or first metric differ or it ranks no trial.

    The first metric is compared by its name alone. Raises `SweepError` if the sweep is damaged.
    """
    from sweep.store import reading

    info = folder.read_info()
    # empty if sweep.json names no objective; then the metric differs as well
    first_metric = [name for name, _ in info.objectives[:1]]
    if info.trainable != spec.trainable or first_metric != [spec.metrics[0].name]:
        return None
    read = reading.read_tables(folder, ranking.COLUMNS)
    ranked = ranking.rank([analysis.make_sweep(folder, read)])
    if not ranked.best:
        return None
    spread = compute_spread(
        row.scores[0].values for row in ranked.rows if row.completed and row.scores
    )
    best = ranked.best[0]
    loss_deviation = ranking.read_deviation(read, {trial.trial for trial in best.trials})
    return Known(
        folder.name, best.scores[0].mean, spread, ranking.count_examples(read), loss_deviation
    )


def _compute_detectable(spec: Spec, spread: float, seeds: int, compared: int) -> float:
    """Return the difference of two means that a sweep detects in about half of all cases.

    With ``confirm``, it is detected by the race between the finalists, otherwise by the verdict, which corrects for
    folds. ``spread`` is the standard deviation over seeds. ``compared`` is the number of configurations that are
    compared, with ``seeds`` trials each.
    """
    if spec.confirm is not None:
        return _compute_race_difference(spread, seeds, compared)
    return compute_detectable_difference(
        spread, seeds, compared, compute_fold_correction(spec.folds)
    )


def _compute_race_difference(spread: float, seeds: int, finalists: int) -> float:
    """Return the difference of two means that the race's last comparison shows in about half of all cases.

    ``spread`` is the standard deviation over seeds. There must be at least two of both ``seeds`` and ``finalists``.
    Results with equal seeds are taken to be uncorrelated. The test is the one of `look_at_race`.
    """
    from scipy.special import stdtrit

    freedom = (finalists - 1) * (seeds - 1)
    level = compute_race_level(finalists, seeds)  # of the test's p-value
    # Student's t: how many standard errors are significant
    standard_errors = float(stdtrit(freedom, 1 - level / 2))
    return standard_errors * spread * math.sqrt(2 / seeds)
