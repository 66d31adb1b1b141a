"""What fresh seeds and the test data said of the finalists: the answer of a sweep, and how much of it was luck."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from sweep.analysis import race
from sweep.analysis.race import Race, Racer, Rules, Run
from sweep.analysis.trials import Sweep, Trial
from sweep.events import Params, Role
from sweep.space.domains import configuration
from sweep.space.objectives import Objective, objective
from sweep.statistics.racing import ALPHA
from sweep.statistics.verdicts import LEAST, TOO_FEW
from sweep.store.sweep_info import SweepInfo

METHOD = (
    f"Student's t on what the finalists differ by, seed by seed; all intervals and drop-outs together hold with "
    f"{100 * (1 - ALPHA):.0f} %"
)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A finalist, in the metric's own direction."""

    place: int  # from 1; those that dropped out come after those that are left
    verdict: str  # best, ties, worse or undecided
    undecided: str  # why
    reason: str  # why it dropped out, "" for those that are left
    is_baseline: bool
    params: Params
    selected: float  # its score in the search
    mean: float | None  # over its fresh seeds
    seeds: int  # fresh ones
    difference: float | None  # its mean less that of the best; None of the best itself
    low: float | None  # interval of that
    high: float | None
    tested: Mapping[str, float]  # on the test data, over the fresh seeds that were tested
    trials: tuple[int, ...]  # of its fresh seeds


@dataclass(frozen=True, slots=True)
class Confirmation:
    """How the race stands, or has ended."""

    metric: str
    goal: str
    over: str  # why it is over, "" while it goes on
    decided: bool
    seeds: int  # fresh ones at most
    epochs: int  # that it took
    method: str
    rows: tuple[Confirmed, ...]

    @property
    def best(self) -> Confirmed:
        return self.rows[0]

    @property
    def baseline(self) -> Confirmed | None:
        return next((row for row in self.rows if row.is_baseline), None)


def of_sweep(sweep: Sweep) -> Confirmation | None:
    """What a sweep's trials confirm; None where no fresh seed was ever asked for."""
    rules = _rules(sweep.folder.read_info())
    if rules is None or not any(trial.role is Role.CONFIRM for trial in sweep.trials):
        return None
    first = objective(*sweep.objectives[0])
    raced = race.run([_run(trial, first) for trial in sweep.trials], rules)
    if not raced.racers:
        return None
    groups: dict[str, list[Trial]] = {}
    for trial in sweep.trials:
        if trial.role is Role.CONFIRM:
            groups.setdefault(configuration(trial.params), []).append(trial)
    rows = tuple(
        _confirmed(place, racer, raced, groups.get(racer.key, []), first)
        for place, racer in enumerate(raced.racers, start=1)
    )
    return Confirmation(first.name, first.goal, raced.over, raced.decided, rules.seeds, raced.epochs, METHOD, rows)


def _confirmed(place: int, racer: Racer, raced: Race, trials: list[Trial], first: Objective) -> Confirmed:
    mean = None if math.isnan(racer.mean) else first.of_loss(racer.mean)
    verdict, why = _verdict(racer, raced)
    ends: tuple[float | None, float | None] = (None, None)
    if racer.behind is not None and math.isfinite(racer.half):
        low, high = sorted(first.of_loss(racer.behind + side * racer.half) for side in (-1, 1))
        ends = low, high
    names = dict.fromkeys(name for trial in trials for name in trial.tested)
    tested = {name: fmean(t.tested[name] for t in trials if name in t.tested) for name in names}
    return Confirmed(
        place=place,
        verdict=verdict,
        undecided=why,
        reason=racer.out,
        is_baseline=racer.is_baseline,
        params=racer.params,
        selected=first.of_loss(racer.selected),
        mean=mean,
        seeds=len(racer.losses),
        difference=None if racer.behind is None else first.of_loss(racer.behind),
        low=ends[0],
        high=ends[1],
        tested=tested,
        trials=tuple(trial.trial for trial in trials),
    )


def _verdict(racer: Racer, raced: Race) -> tuple[str, str]:
    """The verdict and, where there is none, why."""
    if racer.out:
        return ("worse", "") if racer.behind is not None else ("undecided", racer.out)
    if racer.key == raced.racers[0].key and any(one.out and one.behind is not None for one in raced.racers):
        return "best", ""
    if not raced.over:
        return "undecided", "the race goes on"
    if raced.over.startswith("out of budget"):
        return "undecided", "out of budget"
    if len(racer.losses) < LEAST:
        return "undecided", TOO_FEW
    return ("best" if racer.key == raced.racers[0].key else "ties"), ""


def _run(trial: Trial, first: Objective) -> Run:
    loss = first.to_loss(trial.metrics.get(first.name, math.nan))
    return Run(trial.trial, trial.params, trial.role, trial.repeat, trial.fold, trial.status, loss, trial.epochs)


def _rules(info: SweepInfo) -> Rules | None:
    match info.confirm:
        case {"seeds": int(seeds), "finalists": int(finalists), "budget": budget}:
            share = float(budget.rstrip("% ")) / 100 if isinstance(budget, str) else None
            return Rules(seeds, finalists, share, info.repeats, info.folds)
    return None
