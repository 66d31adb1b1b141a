"""Fresh seeds for the configurations that may be the best: which trials to train next, and the results so far.

The finalists race: each that is left trains with one more seed, then those that are clearly worse drop out. The race is
a pure function of a sweep's trials, so that a resumed session, a report and a test come to the same result. Only fresh
seeds count, because the finalists were chosen by their scores in the search.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sweep.analysis.sweep_rows import Sweep, Trial
from sweep.events import UNFINISHED, Params, Role, Status
from sweep.space.domains import configuration_key, group_by_configuration
from sweep.space.objectives import Objective, objective
from sweep.statistics.intervals import ALPHA
from sweep.statistics.means import compute_mean
from sweep.statistics.power import LEAST
from sweep.statistics.racing import FIRST_SEEDS, look_at_race
from sweep.statistics.verdicts import TOO_FEW
from sweep.store.sweep_info import SweepInfo
from sweep.text import parse_percent

if TYPE_CHECKING:
    from sweep.spec import Spec
    from sweep.spec.blocks import Confirm
    from sweep.store.ledger import Ledger

BROKEN = "did not complete with a fresh seed"
# seeds per finalist that the budget must allow; otherwise the number of finalists is reduced
AFFORDED = 3

Key: TypeAlias = str
"""Identifies a configuration: trials with equal parameters have the same key."""


@dataclass(frozen=True, slots=True)
class Run:
    """A trial with its result, as the race needs it."""

    trial: int
    params: Params
    role: Role
    repeat: int
    fold: int | None
    status: Status
    loss: float  # its final objective, smaller is better; NaN if it has none
    epochs: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of the race: number of seeds and finalists, its budget, and repeats and folds of the search."""

    seeds: int
    finalists: int
    share: float | None  # the part of the search's epochs that the race may use; None: no limit
    repeats: int  # of the search
    folds: int | None
    equal_tells: bool = False  # see `look_at_race`


@dataclass(frozen=True, slots=True)
class Racer:
    """A finalist, and its results in the race so far."""

    key: Key
    params: Params
    is_baseline: bool
    selected: float  # its loss in the search
    losses: tuple[float, ...]  # of its fresh seeds so far, in order
    epochs: int  # that one more seed takes
    # its mean loss minus the leader's, over their common seeds; None for the leader, or without seeds
    behind: float | None = None
    half: float = math.inf  # half the width of that difference's interval
    out: str = ""  # why it dropped out, in words
    is_broken: bool = False  # it dropped out because a training with a fresh seed failed

    @property
    def mean(self) -> float:
        """The mean loss over its fresh seeds; NaN if it has none."""
        if self.losses:
            return compute_mean(self.losses)
        return math.nan


@dataclass(frozen=True, slots=True)
class Race:
    """The state of a race."""

    # the leader, then the others that are left, then those that dropped out
    racers: tuple[Racer, ...] = ()
    # trials to start now: configuration, repeat, fold
    wanted: tuple[tuple[Params, int, int | None], ...] = ()
    over: str = ""  # why it has ended, in words; "" while it goes on
    out_of_budget: bool = False  # it has ended because another seed takes more epochs than are left
    decided: bool = False  # only one finalist is left
    # epochs used: of seeds that all those left completed, and of finalists that failed
    epochs: int = 0
    allowed: float = math.inf  # epochs that it may use
    left: tuple[Key, ...] = ()  # the finalists that are left; empty if there were fewer than two


def run_race(runs: Iterable[Run], rules: Rules) -> Race:
    """Return the state of the race, computed from the trials of a sweep whose search has ended.

    ``runs`` are all trials of the sweep: of the search, the baseline and the confirmation. A finalist one of whose
    trainings with fresh seeds failed is the last among the racers, and the next best candidate replaces it. Of the
    finalists that fail, only the first `Rules.finalists` are replaced. The budget is the share `Rules.share` of all
    epochs of the search and the baseline; the epochs of the replaced finalists with fresh seeds count for it as well.
    With fewer than two finalists that have not failed, the race is over.
    """
    runs = list(runs)
    fresh = find_fresh_repeats(runs, rules)
    allowed = math.inf
    if rules.share is not None:
        allowed = rules.share * sum(one.epochs for one in runs if one.role is not Role.CONFIRM)
    scores, begun = _score_fresh_seeds(runs, rules)
    failed = []  # keys of the configurations with a fresh seed that failed, whose loss is NaN
    for key, losses in scores.items():
        if any(map(math.isnan, losses.values())):
            failed.append(key)
    # further ones drop out, but are not replaced, so that replacements end
    failed = failed[: rules.finalists]
    ranked = list_candidates(runs, rules)
    racers = finalists(ranked, rules, allowed, failed)  # others replace those that failed
    broken = []  # the racers that failed
    for racer, _ in ranked:
        if racer.key in failed:
            broken.append(_drop_broken(racer))
    # the epochs of finalists that failed count for the budget of the others
    lost = sum(
        one.epochs
        for one in runs
        if one.role is Role.CONFIRM and configuration_key(one.params) in failed
    )
    if len(racers) < 2:
        if racers:
            what = "a single configuration is"
        else:
            what = "no configuration is"
        over = f"{what} left to race: nothing to tell apart"
        alone = []  # the single racer with its losses so far, or empty
        for racer in racers:
            losses_so_far = _list_fresh_losses(scores.get(racer.key, {}), fresh)
            alone.append(replace(racer, losses=losses_so_far))
        spent = sum(racer.epochs * len(racer.losses) for racer in alone)
        return Race(racers=(*alone, *broken), over=over, epochs=spent + lost, allowed=allowed)
    race = _run_seeds(racers, scores, begun, rules, fresh, allowed - lost)
    return replace(race, racers=(*race.racers, *broken), epochs=race.epochs + lost, allowed=allowed)


def find_fresh_repeats(runs: Iterable[Run], rules: Rules) -> range:
    """Return the repeat numbers of the race: as many consecutive numbers as it has fresh seeds.

    They begin at the lowest repeat of a confirmation trial among ``runs``. If there is none, they follow all repeats
    that the sweep file asks for or that a trial of the search or the baseline has.
    """
    confirmed = []  # repeats of confirmation trials
    after_search = rules.repeats
    for one in runs:
        if one.role is Role.CONFIRM:
            confirmed.append(one.repeat)
        else:
            after_search = max(after_search, one.repeat + 1)
    first = min(confirmed, default=after_search)
    return range(first, first + rules.seeds)


def list_leader_trials(runs: Sequence[Run], rules: Rules) -> list[Run] | None:
    """Return the completed trials of the race's leader, its first racer; None if there is no finalist or no such trial.

    These are only its trials with fresh seeds or, before one of them has completed, those of the search or the
    baseline. Trials without a finite loss do not count. ``runs`` are all trials of the sweep, as for `run_race`.
    """
    race = run_race(runs, rules)
    if not race.racers:
        return None
    leader = race.racers[0]
    own = []
    for one in runs:
        if configuration_key(one.params) == leader.key and _has_result(one):
            own.append(one)
    fresh = [one for one in own if one.role is Role.CONFIRM]
    return fresh or own or None


Candidates: TypeAlias = list[tuple[Racer, list[float]]]
"""Configurations that completed, best first, each with its loss in each repeat of the search."""


def list_candidates(runs: Iterable[Run], rules: Rules) -> Candidates:
    """Return the configurations that completed all repeats of the search, best first, with their loss in each repeat.

    Each is a pair of a `Racer` without fresh seeds and its losses, which must all be finite, ordered by their mean. A
    loss is the mean over the folds, if there are any. The baseline is a candidate like any other; trials of the
    confirmation do not count.
    """
    searched = [one for one in runs if one.role is not Role.CONFIRM]
    completed: Candidates = []
    for key, group in group_by_configuration(searched).items():
        losses = _mean_losses(group, rules)
        if losses is None:  # a repeat is missing, or has no finite loss
            continue
        # of one seed, with all its folds
        epochs = max(one.epochs for one in group) * (rules.folds or 1)
        is_baseline = any(one.role is Role.BASELINE for one in group)
        racer = Racer(
            key,
            group[0].params,
            is_baseline,
            selected=compute_mean(losses),
            losses=(),  # none with a fresh seed
            epochs=epochs,
        )
        completed.append((racer, losses))
    return sorted(completed, key=lambda candidate: candidate[0].selected)


def finalists(
    found: Candidates, rules: Rules, allowed: float, without: Collection[Key] = ()
) -> list[Racer]:
    """Choose the finalists among the candidates: the best ones of the search, in their order, and then the baseline.

    Of the search, there are at most `Rules.finalists`. If it had repeats, configurations that these show to be worse
    than the best of the search are left out. If the budget does not allow `AFFORDED` seeds for each finalist, the last
    ones of the search are left out, until it does or two finalists, with the baseline, are left. The baseline is only
    left out by ``without``.

    Arguments:
        found: the candidates, best first, each with its losses in the search.
        rules: the settings of the race.
        allowed: epochs that the race may use.
        without: keys of candidates that are left out.
    """
    remaining = []
    for candidate in found:
        if candidate[0].key not in without:
            remaining.append(candidate)
    searched = []
    for candidate in remaining:
        if not candidate[0].is_baseline:
            searched.append(candidate)
    best_searched = [racer for racer, _ in _drop_worse(searched, rules)]
    baseline = []  # one racer, or none if there is no baseline
    for racer, _ in remaining:
        if racer.is_baseline:
            baseline.append(racer)
    costs = []  # epochs of one seed
    for racer in best_searched[: rules.finalists]:
        costs.append(racer.epochs)
    count = count_affordable(costs, [racer.epochs for racer in baseline], allowed)
    return best_searched[:count] + baseline


def count_affordable(costs: Sequence[int], baseline: Sequence[int], allowed: float) -> int:
    """Return how many of the best finalists, besides the baseline, can train `AFFORDED` seeds each within the budget.

    The result is at least 2, or 1 if there is a baseline, even if the budget is too small, but at most the number of
    finalists in ``costs``.

    Arguments:
        costs: epochs of one seed of each finalist, best first, without the baseline.
        baseline: epochs of one seed of the baseline, as the only item; empty if there is none.
        allowed: epochs that all, with the baseline, may use.
    """
    fewest = max(2 - len(baseline), 1)  # so that there is something to compare
    count = len(costs)
    while count > fewest:
        if AFFORDED * (sum(costs[:count]) + sum(baseline)) <= allowed:
            break
        count -= 1
    return count


def _mean_losses(group: Sequence[Run], rules: Rules) -> list[float] | None:
    """Return a configuration's loss for each repeat, averaged over folds; None if a repeat or a fold of one lacks it.

    One lacks it if no trial of it has completed with a finite loss. The repeats are in ascending order: all that the
    sweep asks for, and further ones that have a trial in ``group``, which has all trials of the configuration.
    """
    losses = {}
    for one in group:
        if _has_result(one):
            losses[one.repeat, one.fold] = one.loss
    means = []
    for repeat in sorted({*range(rules.repeats), *(one.repeat for one in group)}):
        trials = [(repeat, fold) for fold in _list_folds(rules)]
        if any(trial not in losses for trial in trials):
            return None
        means.append(compute_mean(losses[trial] for trial in trials))
    return means


def _list_folds(rules: Rules) -> Sequence[int | None]:
    """Return the numbers of the folds with which each seed is trained; (None,) if there is no cross-validation."""
    if rules.folds:
        return range(rules.folds)
    return (None,)


def _has_result(one: Run) -> bool:
    """Return whether a trial completed with a finite loss."""
    return one.status is Status.COMPLETED and math.isfinite(one.loss)


def _drop_worse(ranked: Candidates, rules: Rules) -> Candidates:
    """Return the candidates without those that the repeats of the search show to be worse than the best.

    Only as many repeats as each of them has are compared. With fewer than two of these or of the candidates, nothing is
    shown and all are returned.
    """
    # the number of losses that each has: fewer than some have, if the number of repeats was changed
    common = min((len(losses) for _, losses in ranked), default=0)
    if len(ranked) < 2 or common < FIRST_SEEDS:
        return ranked
    losses = [losses[:common] for _, losses in ranked]
    # `FIRST_SEEDS` means a single look, because the search is over
    look = look_at_race(losses, FIRST_SEEDS, equal_tells=rules.equal_tells)
    remaining = []
    for index, candidate in enumerate(ranked):
        if index not in look.out:
            remaining.append(candidate)
    return remaining


def _score_fresh_seeds(
    runs: Iterable[Run], rules: Rules
) -> tuple[dict[Key, dict[int, float]], set[tuple[Key, int, int | None]]]:
    """Return the losses of fresh repeats by configuration and repeat, and the trials with fresh seeds that have begun.

    The loss of a repeat is the mean over its folds. It is NaN once a fold has ended without a finite loss. Before that,
    the repeat is missing until all of its folds have ended. A trial that has begun, whether it has ended or not, is
    the tuple (key of its configuration, repeat, fold). Only trials of the confirmation count.
    """
    # by configuration and repeat: the losses of the folds that have ended
    ended: dict[tuple[Key, int], dict[int | None, float]] = {}
    begun: set[tuple[Key, int, int | None]] = set()
    for one in runs:
        if one.role is not Role.CONFIRM:
            continue
        key = configuration_key(one.params)
        begun.add((key, one.repeat, one.fold))
        if one.status not in UNFINISHED:
            loss = one.loss if _has_result(one) else math.nan
            ended.setdefault((key, one.repeat), {})[one.fold] = loss
    scores: dict[Key, dict[int, float]] = {}
    for (key, repeat), losses in ended.items():
        # a NaN makes the mean NaN, whatever the folds that are missing
        if len(losses) == (rules.folds or 1) or any(map(math.isnan, losses.values())):
            scores.setdefault(key, {})[repeat] = compute_mean(losses.values())
    return scores, begun


def _list_fresh_losses(scores: Mapping[int, float], fresh: range) -> tuple[float, ...]:
    """Return a configuration's losses with the fresh seeds, in order, up to the first that has none or a NaN.

    ``scores`` has its losses by repeat, ``fresh`` the repeats of the fresh seeds.
    """
    losses: list[float] = []
    for repeat in fresh:
        loss = scores.get(repeat, math.nan)
        if math.isnan(loss):
            break
        losses.append(loss)
    return tuple(losses)


def _list_not_begun(
    racers: Sequence[Racer], repeat: int, begun: set[tuple[Key, int, int | None]], rules: Rules
) -> list[tuple[Params, int, int | None]]:
    """Return the trials of ``racers`` with the seed ``repeat`` that have not begun, as (configuration, repeat, fold).

    ``begun`` has those that have begun, with the configuration's key in place of the configuration.
    """
    trials = []
    for racer in racers:
        for fold in _list_folds(rules):
            if (racer.key, repeat, fold) not in begun:
                trials.append((racer.params, repeat, fold))
    return trials


def _take_scores(
    racers: Sequence[Racer], repeat: int, scores: Mapping[Key, Mapping[int, float]]
) -> tuple[list[Racer], list[Racer]]:
    """Return the racers with their loss in ``repeat`` added, and separately those whose training with it failed.

    ``scores`` has, by the racer's key and the repeat, the loss of each racer in ``repeat``; NaN if the training failed.
    """
    continuing, broken = [], []
    for racer in racers:
        loss = scores[racer.key][repeat]
        if math.isnan(loss):
            broken.append(_drop_broken(racer))
        else:
            continuing.append(replace(racer, losses=(*racer.losses, loss)))
    return continuing, broken


def _run_seeds(
    racers: Sequence[Racer],
    scores: Mapping[Key, Mapping[int, float]],
    begun: set[tuple[Key, int, int | None]],
    rules: Rules,
    fresh: range,
    allowed: float,
) -> Race:
    """Compute the state of the race by going through the fresh seeds in order, as far as there are results.

    All remaining finalists train with a seed; then those that failed or are shown to be worse than the leader drop out.
    At the first seed that lacks results, the race waits; those of its trials that have not begun become `Race.wanted`.
    It is over once fewer than two finalists are left, a seed would exceed ``allowed`` epochs, or all seeds are trained.
    ``racers`` are the finalists without fresh losses, at least two, ``fresh`` the repeats of the fresh seeds;
    ``scores`` and ``begun`` are those of `_score_fresh_seeds`.
    """
    left = list(racers)
    out: list[Racer] = []  # those that have dropped out
    wanted: list[tuple[Params, int, int | None]] = []
    spent = 0
    over = ""
    out_of_budget = False
    for repeat in fresh:
        cost = sum(racer.epochs for racer in left)  # epochs of this seed for all that are left
        if spent + cost > allowed:
            out_of_budget = True
            over = (
                f"out of budget: one more seed for each of {len(left)} finalists takes {cost} epochs, with "
                f"{allowed - spent:.0f} left; --budget 50% or --budget none allows more"
            )
            break
        # those whose trials with this seed have not all ended
        waiting = [racer for racer in left if repeat not in scores.get(racer.key, {})]
        if waiting:
            wanted = _list_not_begun(waiting, repeat, begun, rules)
            break
        spent += cost
        left, broken = _take_scores(left, repeat, scores)
        left, worse = _split_off_worse(left, rules)
        # the last to drop out come first, and among these the failures last
        out = worse + broken + out
        if len(left) < 2:
            if left:
                over = "decided"
            else:
                over = "no finalist completed its fresh seeds"
            break
    else:  # all seeds were trained
        over = f"{len(left)} are not told apart by {rules.seeds} fresh seeds"
    left = _compare_with_leader(left, rules)
    return Race(
        racers=(*left, *out),
        wanted=tuple(wanted),
        over=over,
        out_of_budget=out_of_budget,
        decided=len(left) == 1,
        epochs=spent,
        allowed=allowed,
        left=tuple(racer.key for racer in left),
    )


def _drop_broken(racer: Racer) -> Racer:
    """Return a copy of a racer that is marked as dropped out, because a training with a fresh seed failed."""
    return replace(racer, out=BROKEN, is_broken=True)


def _split_off_worse(left: Sequence[Racer], rules: Rules) -> tuple[list[Racer], list[Racer]]:
    """Return the racers that stay in the race, and those that drop out because they are shown to be worse.

    The former are in their present order. The latter are in the order of their mean loss, each with its difference to
    the leader and the reason. All racers must have the same seeds so far. Of fewer than two, none drops out.
    """
    if len(left) < 2:
        return list(left), []
    look = look_at_race(
        [racer.losses for racer in left], rules.seeds, equal_tells=rules.equal_tells
    )
    reason = f"told apart after {len(left[0].losses)} seeds"
    worse = []
    for index in look.out:
        worse.append(
            replace(left[index], behind=look.behind[index], half=look.half[index], out=reason)
        )
    worse.sort(key=lambda racer: racer.mean)
    staying = [racer for index, racer in enumerate(left) if index not in look.out]
    return staying, worse


def _compare_with_leader(left: Sequence[Racer], rules: Rules) -> list[Racer]:
    """Return the racers in the order of their mean loss, each but the leader with its difference to the leader.

    If there are fewer than two, no difference is set. If no fresh seed has been trained yet, none is set either, and
    the order stays as it is.
    """
    # all of them have been trained with the same fresh seeds, so the first one tells whether there are any
    if len(left) < 2 or not left[0].losses:
        return list(left)
    look = look_at_race(
        [racer.losses for racer in left], rules.seeds, equal_tells=rules.equal_tells
    )
    compared = list(left)
    for index, racer in enumerate(left):
        if index != look.leader:
            # the difference of the mean losses, and half the width of its interval
            compared[index] = replace(racer, behind=look.behind[index], half=look.half[index])
    return sorted(compared, key=lambda racer: racer.mean)


METHOD = (
    f"Student's t on what the finalists differ by, seed by seed; all intervals and drop-outs together hold with "
    f"{100 * (1 - ALPHA):.0f} %"
)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The result of a finalist, as scores of the metric rather than losses."""

    place: int  # from 1; those that dropped out come last
    verdict: str  # best, ties, worse or undecided
    undecided: str  # the reason, if undecided
    reason: str  # why it dropped out, in words; "" if it is left
    is_broken: bool  # it dropped out because a training with a fresh seed failed
    is_baseline: bool
    params: Params
    selected: float  # its score in the search
    mean: float | None  # over its fresh seeds
    seeds: int  # number of fresh seeds
    difference: float | None  # its mean minus the best one's; None for the best
    low: float | None  # of the interval of the difference
    high: float | None
    tested: Mapping[str, float]  # means on the test data, over the fresh seeds that were tested
    trials: tuple[int, ...]  # with its fresh seeds


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The results of all finalists, and how the race stands or has ended."""

    metric: str
    goal: str
    over: str  # why it has ended; "" while it goes on
    decided: bool
    seeds: int  # fresh seeds per finalist, at most
    epochs: int  # that it used
    method: str
    rows: tuple[Confirmed, ...]

    @property
    def best(self) -> Confirmed:
        """The leader: the winner once the race is decided; one of the last to drop out if none is left."""
        return self.rows[0]

    @property
    def baseline(self) -> Confirmed | None:
        """The baseline's result; None if the baseline is not among the finalists, or if there is none."""
        return next((row for row in self.rows if row.is_baseline), None)


def of_sweep(sweep: Sweep) -> Confirmation | None:
    """Return the results of a sweep's confirmation.

    Returns None if the sweep has no ``confirm``, no trial with a fresh seed, or no finalist. The first objective
    decides. Raises `StoreError` if its sweep.json cannot be read.
    """
    rules = _read_rules(sweep.folder.read_info())
    if rules is None or not any(trial.role is Role.CONFIRM for trial in sweep.trials):
        return None
    first = objective(*sweep.objectives[0])
    race = run_race([make_run(trial, first) for trial in sweep.trials], rules)
    if not race.racers:
        return None
    groups = group_by_configuration(trial for trial in sweep.trials if trial.role is Role.CONFIRM)
    rows = []
    for place, racer in enumerate(race.racers, start=1):
        rows.append(_describe_finalist(place, racer, race, groups.get(racer.key, []), first))
    return Confirmation(
        first.name,
        first.goal,
        race.over,
        race.decided,
        rules.seeds,
        race.epochs,
        METHOD,
        tuple(rows),
    )


def _describe_finalist(
    place: int, racer: Racer, race: Race, trials: list[Trial], first: Objective
) -> Confirmed:
    """Return the result of a racer, with its losses and differences converted to scores of the metric.

    ``place`` is its position among the racers, from 1. ``trials`` are those with its fresh seeds, ``first`` is the
    objective that decides. The interval is None as long as its width is unknown. The means on the test data are over
    those of the trials that were tested.
    """
    if math.isnan(racer.mean):
        mean = None
    else:
        mean = first.from_loss(racer.mean)
    verdict, why = _judge_racer(racer, race)
    low: float | None = None
    high: float | None = None
    if racer.behind is not None and math.isfinite(racer.half):
        # a loss is the score or its negative, so differences are converted in the same way
        ends = (racer.behind - racer.half, racer.behind + racer.half)
        low, high = sorted(map(first.from_loss, ends))
    test_values: dict[str, list[float]] = {}
    for trial in trials:
        for name, value in trial.tested.items():
            test_values.setdefault(name, []).append(value)
    return Confirmed(
        place=place,
        verdict=verdict,
        undecided=why,
        reason=racer.out,
        is_broken=racer.is_broken,
        is_baseline=racer.is_baseline,
        params=racer.params,
        selected=first.from_loss(racer.selected),
        mean=mean,
        seeds=len(racer.losses),
        difference=None if racer.behind is None else first.from_loss(racer.behind),
        low=low,
        high=high,
        tested={name: compute_mean(values) for name, values in test_values.items()},
        trials=tuple(trial.trial for trial in trials),
    )


def _judge_racer(racer: Racer, race: Race) -> tuple[str, str]:
    """Return the verdict on a racer (best, ties, worse or undecided), and why it is undecided, or "" if it is not.

    A racer that has dropped out is worse, or undecided if its training failed. The leader is best as soon as another
    one was shown to be worse. Any other racer is undecided if `_explain_undecided` gives a reason. Without one, the
    leader is best, and the others tie.
    """
    if racer.out:
        if racer.behind is None:  # its training failed, so it was not compared
            return ("undecided", racer.out)
        return ("worse", "")
    is_first = racer.key == race.racers[0].key
    # the leader is shown to be better than one that dropped out, even while the race goes on
    if is_first and any(one.out and one.behind is not None for one in race.racers):
        return "best", ""
    reason = _explain_undecided(racer, race)
    if reason:
        return "undecided", reason
    return ("best" if is_first else "ties"), ""


def _explain_undecided(racer: Racer, race: Race) -> str:
    """Return why a racer that has not dropped out is undecided; "" if nothing prevents a verdict.

    It is the first that holds of these: the race goes on, it ran out of budget, all other finalists failed or there is
    no other, or the racer has fewer than `LEAST` fresh seeds.
    """
    if not race.over:
        return "the race goes on"
    if race.out_of_budget:
        return "out of budget"
    if all(one.is_broken for one in race.racers if one.key != racer.key):
        return "nothing to compare with"
    if len(racer.losses) < LEAST:
        return TOO_FEW
    return ""


def list_runs(ledger: Ledger, first: Objective) -> list[Run]:
    """Return all trials of a ledger in the form that `run_race` needs; ``first`` is the objective that decides.

    The loss of a trial is that of its last epoch, also if it has not ended; NaN without a finite value.
    """
    runs = []
    for one in ledger.trials.values():
        loss = first.loss(one.last)
        last = math.nan if loss is None else loss
        runs.append(
            Run(
                one.number,
                one.params,
                one.role,
                one.start.repeat,
                one.start.fold,
                one.status,
                last,
                one.reported,
            )
        )
    return runs


def find_race(ledger: Ledger, spec: Spec) -> Race:
    """Return the state of the race according to a ledger; an empty race if the sweep file has no ``confirm``."""
    if spec.confirm is None:
        return Race()
    return run_race(list_runs(ledger, spec.objectives[0]), make_rules(spec.confirm, spec))


def make_rules(confirm: Confirm, spec: Spec) -> Rules:
    """Return the settings of the race from a sweep file and its block ``confirm``."""
    seeds, finalists, share = confirm.seeds, confirm.finalists, confirm.share()
    return Rules(seeds, finalists, share, spec.repeats, spec.folds, equal_tells=confirm.race == 1)


def make_run(trial: Trial, first: Objective) -> Run:
    """Return a trial in the form that `run_race` needs; ``first`` is the objective that decides.

    Its loss is that of its last epoch, also if it has not ended; NaN if it has no value of that objective.
    """
    loss = first.to_loss(trial.metrics.get(first.name, math.nan))
    return Run(
        trial.trial,
        trial.params,
        trial.role,
        trial.repeat,
        trial.fold,
        trial.status,
        loss,
        trial.epochs,
    )


def _read_rules(info: SweepInfo) -> Rules | None:
    """Return the settings of the race from a sweep.json; None if it has no ``confirm``, or an incomplete one.

    A ``budget`` that is a text is a percentage; anything else is no limit.
    """
    match info.confirm:
        case {"seeds": int(seeds), "finalists": int(finalists), "budget": budget}:
            if isinstance(budget, str):
                share = parse_percent(budget)
            else:
                share = None
            return Rules(
                seeds,
                finalists,
                share,
                info.repeats,
                info.folds,
                equal_tells=info.race_version == 1,
            )
    return None
