"""Verdicts: which configurations are not the best.

The best configuration is chosen by the scores that are then compared, so it looks better than it is. A test of each
pair with it therefore errs too often: among ten configurations without any difference, Holm's adjustment calls some
worse in a seventh of all sweeps. Adjusting for all pairs is safe, but answers more than was asked. The method here is a
model confidence set (Hansen, Lunde and Nason, Econometrica 79, 2011). As long as the configurations that are left are
not all equally good, the one furthest behind the best is called worse and removed. Each test permutes signs (see
`permutations.check_equality`). In at most 5 % of sweeps, a configuration is called worse although it is in truth among
the best ones. Several objectives may have no single best; then a configuration is worse if one of the Pareto front
beats it in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, structs

from sweep.statistics.intervals import (
    ALPHA,
    compute_fold_correction,
    compute_mean_interval,
    compute_t_test,
)
from sweep.statistics.means import choose_scale, compute_mean, scale_up
from sweep.statistics.power import LEAST, count_seeds_needed, estimate_more_seeds

if TYPE_CHECKING:
    from sweep.statistics.permutations import Floats

TOO_FEW = "too few seeds"

K = TypeVar("K", bound=Hashable)
Scores = Mapping[Hashable, float]
"""The score of a configuration by seed; finite numbers only."""
Table = Mapping[K, Scores]


class Verdict(StrEnum):
    """The verdict on a configuration."""

    BEST = "best"  # the best one, if another one could be compared with it
    TIES = "ties"  # enough seeds, but not shown to be worse than the best
    WORSE = "worse"
    UNDECIDED = "undecided"


class Compared(Struct, frozen=True):
    """The result of comparing a configuration with the best one over their common seeds."""

    verdict: Verdict
    seeds: int  # in common with the best; for the best itself, all of its seeds
    # its mean minus the best one's; None for the best and without common seeds
    difference: float | None = None
    difference_low: float | None = None  # 95 % interval of this difference alone, by Student's t
    difference_high: float | None = None
    p: float | None = None  # two-sided, of this comparison, unadjusted
    # decides the verdict; largest p up to its removal, or as in `compare_fronts`
    p_adjusted: float | None = None
    p_error: float | None = None  # standard error of a p-value of 0.05, if signs were drawn
    # number of further seeds that would decide, if the difference is as it seems
    more: int | None = None
    undecided: str = ""  # the reason, if undecided


def compare_configurations(
    table: Table[K], *, maximize: bool, best: K | None = None, folds: int = 0
) -> dict[K, Compared]:
    """Return the verdict on each configuration that has scores, in the order of ``table``; {} if none has.

    ``table`` has the scores of each configuration by seed; ``maximize`` says whether larger ones are better. ``best``
    is the configuration with which the others are compared, by default the one with the best mean, the first of
    several. Raises KeyError if it has no scores but others have. ``folds`` is the number of folds of a
    cross-validation, 0 if there is none, and not 1. The scores of a cross-validation share examples, so differences are
    tested by the t-test of Nadeau and Bengio, otherwise by permuting signs.

    A configuration with fewer seeds in common with the best than a verdict needs is undecided: `LEAST` with folds,
    otherwise the result of `count_seeds_needed`. Any other one is worse if its adjusted p-value (`_step_down`, times
    the result of `_count_groups`) is at most 5 %, and ties otherwise. The best one itself is best if at least one other
    is not undecided. A difference that is too large for a float becomes the largest float.
    """
    scored = {name: scores for name, scores in table.items() if scores}
    if not scored:
        return {}
    sign = -1.0 if maximize else 1.0  # with it, the smaller of two scores is better
    leader = best
    if leader is None:
        leader = min(scored, key=lambda name: sign * compute_mean(scored[name].values()))
    others = [name for name in scored if name != leader]
    shared = compute_fold_correction(folds)
    groups = _count_groups(scored)
    needed = LEAST if folds else count_seeds_needed(groups)
    differences = {}  # of each configuration's scores to the leader's, divided by the scale
    scales = {}
    for name in others:
        differences[name], scales[name] = _scale_differences(scored[name], scored[leader])
    compared = [name for name in others if len(differences[name]) >= needed]
    behind = {name: sign * compute_mean(differences[name]) > 0 for name in compared}
    tested = {name: scored[name] for name in (leader, *compared)}  # the leader must come first
    if folds:
        tests = _test_by_folds(tested, leader, behind, shared)
    else:
        tests = _test_by_signs(tested, behind, maximize=maximize)
    found = {}
    for name in others:
        values = differences[name]
        test = tests.get(name)
        # one without a test has too few seeds; with enough seeds, it is tested together with all others
        comparisons = len(compared) if test else len(others)
        more = estimate_more_seeds(values, comparisons, shared)
        if more is not None:
            more = max(more, needed - len(values))
        comparison = _make_comparison(values, scales[name], shared, more)
        found[name] = _add_verdict(comparison, test, groups)
    return {
        name: found.get(name) or _describe_leader(len(scores), found.values())
        for name, scores in scored.items()
    }


def _count_groups(scored: Table[K]) -> int:
    """Return the number of groups of two or more configurations that are connected by common seeds; at least 1.

    Two configurations are connected if they have `LEAST` seeds in common, or if each is connected to a third one.

    Only the group of the best configuration is tested, and it is chosen by the same scores: of two groups of equal
    configurations, it tends to be the one whose differences are large by chance. So its p-values are multiplied by
    the number of groups (Bonferroni).
    """
    # for each group, the set of seeds of each of its configurations
    groups: list[list[set[Hashable]]] = []
    for scores in scored.values():
        seeds = set(scores)
        if len(seeds) < LEAST:  # too few to be connected to any other
            continue
        # the configuration joins all groups to which it is connected into one
        joined = [seeds]
        apart = []
        for group in groups:
            if any(len(seeds & others) >= LEAST for others in group):
                joined += group
            else:
                apart.append(group)
        groups = [*apart, joined]
    return max(sum(len(group) > 1 for group in groups), 1)


@dataclass(frozen=True, slots=True)
class _Test:
    """The p-value of a configuration's comparison, its adjusted p-value, and the sampling error."""

    p: float
    adjusted: float
    error: float | None  # standard error of a p-value of 0.05; None if no signs were drawn


def _test_by_signs(scored: Table[K], behind: Mapping[K, bool], *, maximize: bool) -> dict[K, _Test]:
    """Return the sign tests of the configurations in ``behind`` against the best one, by name; {} if that is empty.

    ``scored`` has exactly these and the best configuration, which comes first. ``behind`` is True for configurations
    with a worse mean than the best one's, over their common seeds. ``maximize`` says whether larger scores are better.
    The adjusted p-values are those of `_step_down`. All tests have the same sampling error, the largest of the sets'
    tests; it is None if all signs were permuted and none drawn.
    """
    if not behind:
        return {}
    import numpy as np

    from sweep.statistics import permutations

    names = list(scored)
    table = _align_scores(scored)
    if not maximize:
        table = -table  # larger is better from here on
    column = {name: index for index, name in enumerate(names)}
    errors: list[float] = []  # filled by `test`

    def test(left: Sequence[K]) -> tuple[float, K]:
        """Test a set of configurations for equality; return the p-value and the configuration furthest behind."""
        found = permutations.check_equality(table[:, [column[name] for name in left]])
        if found.error is not None:
            errors.append(found.error)
        return found.p, left[found.furthest]

    adjusted = _step_down(names, behind, test)
    # A seed that one of the two lacks counts as a difference of 0. No test depends on the scale, and a difference of
    # halves is never too large for a float.
    apart = np.nan_to_num(table[:, 1:] / 2 - table[:, :1] / 2)
    single = dict(zip(names[1:], permutations.check_differences(apart).p.tolist(), strict=True))
    error = max(errors, default=None)
    tests = {}
    for name in behind:
        tests[name] = _Test(single[name], adjusted[name], error)
    return tests


def _test_by_folds(
    scored: Table[K], first: K, behind: Mapping[K, bool], shared: float
) -> dict[K, _Test]:
    """Return the tests of the configurations in ``behind`` by t-tests of Nadeau and Bengio, by name.

    ``scored`` has exactly these and the best configuration, ``first``. ``behind`` is True for configurations with a
    worse mean than the best one's, over their common seeds. ``shared`` is the result of `compute_fold_correction`. The
    adjusted p-values are those of `_step_down`, where the p-value of a set is the smallest one of a comparison with the
    best, times the number of pairs of the set, at most 1. There is no sampling error.
    """
    single = {}  # the p-value of each comparison with the best
    for name in behind:
        single[name] = compute_t_test(_scale_differences(scored[name], scored[first])[0], shared)

    def test(left: Sequence[K]) -> tuple[float, K]:
        """Test a set of configurations for equality; return the p-value and the configuration furthest behind."""
        furthest = min((name for name in left if name != first), key=single.__getitem__)
        p = single[furthest] * len(left) * (len(left) - 1) / 2  # times the number of pairs
        return min(p, 1.0), furthest

    adjusted = _step_down(list(scored), behind, test)
    tests = {}
    for name in behind:
        tests[name] = _Test(single[name], adjusted[name], None)
    return tests


def _step_down(
    names: Sequence[K], behind: Mapping[K, bool], test: Callable[[Sequence[K]], tuple[float, K]]
) -> dict[K, float]:
    """Test smaller and smaller sets, each time removing the configuration furthest behind; return adjusted p-values.

    ``test`` returns the p-value of a set and the configuration to remove. The adjusted p-value of a configuration is
    the largest p-value of the sets up to its removal, 1 if it is not removed; there is one for each of ``names``.

    Removal stops when a p-value is 1 or one configuration is left. It also stops if the one to remove is the best one
    by its mean, which ``behind`` lacks, or is ahead of the best one over their common seeds, so that ``behind`` is
    False. Both may be so if seeds are missing.
    """
    adjusted = dict.fromkeys(names, 1.0)
    left = list(names)
    largest = 0.0
    while len(left) > 1 and largest < 1.0:
        p, furthest = test(left)
        if not behind.get(furthest, False):
            break
        largest = max(largest, p)
        adjusted[furthest] = largest
        left.remove(furthest)
    return adjusted


def _align_scores(scored: Table[K]) -> Floats:
    """Return all scores as an array of shape (seeds, configurations), NaN for missing ones.

    Configurations are in the order of ``scored``, seeds in the order in which they first appear.
    """
    import numpy as np

    seeds = list(dict.fromkeys(seed for scores in scored.values() for seed in scores))
    columns = []
    for scores in scored.values():
        columns.append([scores.get(seed, math.nan) for seed in seeds])
    return np.column_stack(columns)


def compute_differences(scores: Scores, others: Scores) -> list[float]:
    """Return ``scores`` minus ``others`` for each seed that both have, in the order of ``scores``."""
    differences = []
    for seed, score in scores.items():
        if seed in others:
            differences.append(score - others[seed])
    return differences


def _scale_differences(scores: Scores, others: Scores) -> tuple[list[float], float]:
    """Return the differences as `compute_differences` does, divided by a scale, and the scale.

    The list is empty if no seed is common. The scale is 1 unless scores are so large that their differences or squares
    may be too large for a float.
    """
    scale = choose_scale([*scores.values(), *others.values()])
    scaled = {seed: score / scale for seed, score in scores.items()}
    scaled_others = {seed: score / scale for seed, score in others.items()}
    return compute_differences(scaled, scaled_others), scale


def _make_comparison(
    differences: Sequence[float], scale: float, shared: float, more: int | None
) -> Compared:
    """Return a comparison that has no verdict yet: the mean of the differences, with its 95 % interval if it has one.

    ``differences`` were divided by ``scale``, which is undone in the result. ``shared`` is the result of
    `compute_fold_correction`, 0 without folds. ``more`` is the number of further seeds that would decide, if the
    difference is as it seems. The verdict is "undecided", by reason of too few seeds. Without differences the reason is
    that no seed is common, and the mean and interval are None.
    """
    count = len(differences)
    if not count:
        return Compared(
            Verdict.UNDECIDED, 0, more=more, undecided="no seed in common with the best"
        )
    mean = scale_up(compute_mean(differences), scale)
    low: float | None = None
    high: float | None = None
    interval = compute_mean_interval(differences, shared=shared)
    if interval is not None:
        low, high = (scale_up(end, scale) for end in interval)
    return Compared(Verdict.UNDECIDED, count, mean, low, high, more=more, undecided=TOO_FEW)


def _add_verdict(comparison: Compared, test: _Test | None, groups: int) -> Compared:
    """Return a copy of a comparison with the p-values and the verdict of ``test``; if that is None, the comparison.

    The adjusted p-value is multiplied by ``groups``, the result of `_count_groups`, and is at most 1. The verdict is
    "worse" if it is at most 5 %, and `more` becomes None. Otherwise the verdict is "ties".
    """
    if test is None:
        return comparison
    adjusted = min(test.adjusted * groups, 1.0)
    tested = structs.replace(comparison, p=test.p, p_adjusted=adjusted, p_error=test.error)
    if adjusted > ALPHA:
        return structs.replace(tested, verdict=Verdict.TIES, undecided="")
    return structs.replace(tested, verdict=Verdict.WORSE, more=None, undecided="")


def _describe_leader(seeds: int, others: Iterable[Compared]) -> Compared:
    """Return the entry of the best configuration, which has scores with ``seeds`` seeds.

    ``others`` are the comparisons of all other configurations with it. Its verdict is "best" if at least one of
    ``others`` is not undecided. Otherwise it is "undecided", with the reason that there are too few seeds, or that
    there is nothing to compare with if no other has a seed in common.
    """
    verdicts = [one.verdict for one in others if one.seeds]
    if not verdicts:
        return Compared(Verdict.UNDECIDED, seeds, undecided="nothing to compare with")
    if all(verdict is Verdict.UNDECIDED for verdict in verdicts):
        return Compared(Verdict.UNDECIDED, seeds, undecided=TOO_FEW)
    return Compared(Verdict.BEST, seeds)


def compare_fronts(
    tables: Sequence[Table[K]],
    *,
    maximize: Sequence[bool],
    front: Collection[K],
    folds: Mapping[K, int] | None = None,
) -> dict[K, Compared]:
    """Return the verdict on each configuration that has scores in all objectives, in the order of the first table.

    ``tables`` has the scores of each objective, with the same seeds for a configuration in all of them; ``maximize``
    says for each whether larger scores are better. ``folds`` is the number of folds of each configuration, None if
    there are none; configurations with different numbers must have no seed in common. ``front`` has the configurations
    of the Pareto front, which must have scores.

    A configuration of the front is compared with all others, and any other one with each of the front. Of these, only
    those count with which it has as many seeds in common as a verdict needs; if there is none, it is undecided.
    Otherwise, one of the front is best, since no other has better means in all objectives. Any other one is worse if
    one of the front has better means in all objectives and each of these differences is significant; if not, it ties.

    The p-value of a comparison is the largest of those of the objectives (Berger, Technometrics 24, 1982), and that of
    a configuration is the smallest of its comparisons. It is adjusted by the number of all pairs, since the front was
    chosen by the same scores. Differences and intervals are not given.
    """
    names = list(tables[0])
    for table in tables:
        names = [name for name in names if table.get(name)]  # those that have scores
    pairs = len(names) * (len(names) - 1) // 2
    found = {}
    for name in names:
        folds_each = folds[name] if folds else 0
        if folds_each:
            needed = LEAST
        else:
            needed = count_seeds_needed(pairs)
        # One of the front is compared with all others, because none is better than it in all objectives.
        rivals: Collection[K] = names if name in front else front
        # the number of seeds in common with each rival, which is the same in all objectives
        common = {
            rival: len(compute_differences(tables[0][name], tables[0][rival]))
            for rival in rivals
            if rival != name
        }
        most = max(common.values(), default=0)
        if name in front and not most:
            found[name] = Compared(
                Verdict.UNDECIDED, len(tables[0][name]), undecided="nothing to compare with"
            )
        elif most < needed:
            found[name] = Compared(Verdict.UNDECIDED, most, more=needed - most, undecided=TOO_FEW)
        elif name in front:
            found[name] = Compared(Verdict.BEST, len(tables[0][name]))
        else:
            p_values = []
            for rival, count in common.items():
                if count >= needed:
                    scores = [(table[name], table[rival]) for table in tables]
                    p_values.append(_test_domination(scores, maximize, folds_each))
            p = min(p_values)  # not empty, because ``most`` is one of the counts
            adjusted = min(p * pairs, 1.0)
            if adjusted <= ALPHA:
                verdict = Verdict.WORSE
            else:
                verdict = Verdict.TIES
            found[name] = Compared(verdict, most, p=p, p_adjusted=adjusted)
    return found


def _test_domination(
    scores: Sequence[tuple[Scores, Scores]], maximize: Sequence[bool], folds: int
) -> float:
    """Test whether one configuration is worse than another in all objectives; return the p-value.

    ``scores`` has for each objective the pair of the one configuration's scores and the other's, and ``maximize``
    whether larger ones are better. They must have common seeds, the same ones in all objectives. ``folds`` is the
    number of folds, 0 without a cross-validation. The p-value is the largest of the objectives' two-sided p-values, or
    1 if the first configuration's mean is better or equal in any objective.
    """
    differences = []  # a list for each objective
    for one, other in scores:
        differences.append(_scale_differences(one, other)[0])  # no p-value depends on the scale
    for mean, larger_is_better in zip(map(compute_mean, differences), maximize, strict=True):
        is_better = (mean > 0) == larger_is_better
        if mean == 0 or is_better:
            return 1.0
    if folds:
        shared = compute_fold_correction(folds)
        return max(compute_t_test(values, shared) for values in differences)
    import numpy as np

    from sweep.statistics import permutations

    return float(permutations.check_differences(np.array(differences).T).p.max())
