"""Says before a confirmation what it will train, and refuses one whose budget is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sweep import prices
from sweep.analysis import confirmation, read_sweep
from sweep.analysis.confirmation import Race, Rules, Run
from sweep.errors import RefusedError
from sweep.events import Role, Status
from sweep.runner import earlier_times
from sweep.runner.resuming import ResumableSweep
from sweep.space.objectives import objective
from sweep.spec import Spec
from sweep.spec.blocks import Confirm
from sweep.statistics.racing import FIRST_SEEDS
from sweep.text import counted

MOST_TRIES = 20  # budgets to try until one allows the wanted seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmingPlan:
    """What `confirm` will train, at most: it is less if finalists drop out early."""

    finalists: int  # that are left, with the baseline
    seeds: int  # more fresh seeds of each
    trials: int
    epochs: int
    minutes: float | None  # after which a trial ends; None if only its epochs end it
    hours: float | None  # None if no trial has been timed
    # at the lowest and at the highest price of a GPU hour; None if unknown
    cost: tuple[float, float] | None
    # the share of the search that limits the seeds; "" if the budget allows all of them
    budget: str
    larger: str  # a budget that allows enough seeds for a verdict; "" if this one does
    over: str  # why there is nothing to train; "" if there is


def plan_confirmation(sweep: ResumableSweep) -> ConfirmingPlan:
    """Return what confirming a sweep will train, at most; if that is nothing, `ConfirmingPlan.over` says why.

    Trials of the confirmation that have ended are not counted again. Without ``confirm`` in the sweep file, the
    defaults of its keys are used.

    Raises:
        RefusedError: if no trial has completed, or the budget of the confirmation does not allow one more seed for
            each remaining finalist.
        StoreError: if the log is missing or damaged.
    """
    spec = sweep.spec
    rules = confirmation.make_rules(spec.confirm or Confirm(), spec)
    found = read_sweep(sweep.folder)
    if not any(trial.status is Status.COMPLETED for trial in found.trials):
        raise sweep.folder.make_none_completed_error()
    first_objective = objective(spec.objectives[0].name, spec.objectives[0].goal)
    runs = [confirmation.make_run(trial, first_objective) for trial in found.trials]
    race = confirmation.run_race(runs, rules)
    if race.out_of_budget:
        _refuse_budget(sweep, rules, runs, race)
    seeds = _count_seeds(race, rules)
    left = [racer for racer in race.racers if not racer.out]
    done = len(left[0].losses) if left else 0  # all that are left have the same number of seeds
    # `Racer.epochs` is of one seed, with all its folds
    epochs = seeds * sum(racer.epochs for racer in left)
    trials = seeds * len(left) * (rules.folds or 1)
    # the next seed begins when all finalists have trained the present one, so no more than these train at once
    of_one_seed = len(left) * (rules.folds or 1)
    at_once = max(
        min(earlier_times.count_concurrent_trials(spec, sweep.simulated_gpus), of_one_seed), 1
    )
    hours = _predict_hours(sweep, trials, epochs)
    # the budget, not `Rules.seeds`, determines the number of seeds
    is_limited = not race.over and done + seeds < rules.seeds
    too_few = is_limited and done + seeds < FIRST_SEEDS  # with fewer, finalists cannot be compared
    return ConfirmingPlan(
        finalists=len(left),
        seeds=seeds,
        trials=trials,
        epochs=epochs,
        minutes=spec.minutes,
        hours=None if hours is None else hours / at_once,
        # of all hours: it does not matter how many trials run at once
        cost=_predict_cost(spec, hours),
        budget=_get_budget(spec) if is_limited else "",
        larger=_find_larger_budget(rules, runs, FIRST_SEEDS) if too_few else "",
        over=race.over,
    )


def _count_seeds(race: Race, rules: Rules) -> int:
    """Return how many more seeds each remaining finalist gets: up to `Rules.seeds` in total, within the budget.

    Return 0 if the confirmation is over.
    """
    left = [racer for racer in race.racers if not racer.out]
    epochs_per_seed = sum(racer.epochs for racer in left)  # one seed of each
    if race.over or not epochs_per_seed:
        return 0
    # all that are left have the same number of seeds
    seeds = rules.seeds - len(left[0].losses)
    # without a budget, the quotient below would be NaN, which `int` refuses
    if math.isinf(race.allowed):
        return seeds
    unspent = race.allowed - race.epochs
    return min(seeds, int(unspent // epochs_per_seed))


def _get_budget(spec: Spec) -> str:
    """Return the budget of the confirmation in the sweep file, such as ``20%``; "" without ``confirm`` or a budget."""
    if spec.confirm is None or spec.confirm.budget is None:
        return ""
    return spec.confirm.budget


def _refuse_budget(sweep: ResumableSweep, rules: Rules, runs: list[Run], race: Race) -> None:
    """Raise a `RefusedError`: the confirmation's budget is spent or too small; its hint has a budget that is enough.

    ``runs`` are all trials of the sweep, and ``race`` the state of their confirmation, which must have ended because
    the budget does not allow another seed.
    """
    # two or more: with fewer, the race has ended for another reason
    left = [racer for racer in race.racers if not racer.out]
    each = sum(racer.epochs for racer in left)
    searched = sum(one.epochs for one in runs if one.role is not Role.CONFIRM)
    share = f"{_get_budget(sweep.spec)} of the search's {searched:,} epochs"
    finalists = counted(len(left), "finalist")
    if race.epochs:  # a part of the budget was used
        rest = max(race.allowed - race.epochs, 0)
        what = f"{share} is spent: one more fresh seed for each of {finalists} takes {each:,}, with {rest:.0f} left"
    else:
        what = f"{share} is {race.allowed:.0f}, too few: one fresh seed for each of {finalists} takes {each:,}"
    # for one more seed each, and for as many in total as a comparison of finalists needs
    wanted = max(len(left[0].losses) + 1, FIRST_SEEDS)
    larger = _find_larger_budget(rules, runs, wanted)
    budgets = f"--budget {larger}"
    if larger != "none":
        budgets += ", or --budget none"
    hint = f"allow more: python -m sweep confirm {sweep.folder.address} {budgets}"
    search_on = f"or search on: {sweep.folder.to_resume} --run-cap N"  # the budget is a share of the search, and grows
    raise RefusedError.one(f"{sweep.folder.name}: confirm.budget", what, f"{hint}; {search_on}")


def _find_larger_budget(rules: Rules, runs: list[Run], wanted: int) -> str:
    """Return a budget for the confirmation that allows each finalist ``wanted`` seeds in total.

    If `Rules.seeds` is lower than ``wanted``, it allows that many. It is a share of the epochs of search and baseline
    such as ``60%``, in whole percent; the present budget if that is enough. It is ``none`` if ``rules`` has no budget,
    nothing was searched, or no share is found in `MOST_TRIES` tries. ``runs`` are all trials of the sweep.
    """
    searched = sum(one.epochs for one in runs if one.role is not Role.CONFIRM)
    share = rules.share
    if share is None or not searched:
        return "none"
    # a larger budget may let more finalists take part, which then need a larger one again: hence the repetition
    for _ in range(MOST_TRIES):
        with_share = replace(rules, share=share)
        race = confirmation.run_race(runs, with_share)
        left = [racer for racer in race.racers if not racer.out]
        done = len(left[0].losses) if left else 0
        seeds = done + _count_seeds(race, with_share)
        if not race.out_of_budget and seeds >= min(wanted, rules.seeds):
            return f"{round(100 * share)}%"
        needed = race.epochs + (wanted - done) * sum(racer.epochs for racer in left)
        # in whole percent, always rising
        share = max(math.ceil(100 * needed / searched), round(100 * share) + 1) / 100
    return "none"


def _predict_hours(sweep: ResumableSweep, trials: int, epochs: int) -> float | None:
    """Return the hours that ``trials`` trials with ``epochs`` epochs in total take one after another.

    If minutes end the trials, ``epochs`` is ignored. Return None if no epoch of the sweep was timed and no minutes end
    its trials. Raises `StoreError` if the log is missing or damaged.
    """
    spec = sweep.spec
    timing = earlier_times.measure_sweep(sweep.folder)
    if spec.minutes is not None:
        # a trial is then counted in `Spec.length` units, whose seconds are known even if nothing was measured
        timing = earlier_times.time_units(spec, timing)
        epochs = trials * spec.length
    if timing is None:
        return None
    return (trials * timing.trial_s + epochs * timing.epoch_s) / 3600


def _predict_cost(spec: Spec, hours: float | None) -> tuple[float, float] | None:
    """Return the lowest and the highest cost of trials that train for ``hours`` in total, one after another.

    Return None if the hours are unknown, GPUs have no price, or trials use no GPU.
    """
    if hours is None or spec.resources.price is None or not spec.resources.trial_gpus:
        return None
    low, high = prices.find_price_bounds(spec.resources.price)
    gpu_hours = hours * spec.resources.trial_gpus
    return gpu_hours * low, gpu_hours * high
