"""The median rule decides as Ray Tune's own does, without averaging everything anew."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
from ray.tune.schedulers import MedianStoppingRule, TrialScheduler

from sweep.events import EpochReported
from sweep.schedulers.median import MedianScheduler
from sweep.space.objectives import Objective
from sweep.space.termination import Median

EPOCHS = 12


class Named(SimpleNamespace):
    __hash__ = object.__hash__


def report(trial: int, epoch: int, value: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=epoch, metrics={"m": value}, time=0.0, time_s=1.0)


def rays_verdicts(rule: Median, goal: str, reports: list[EpochReported]) -> list[tuple[int, int]]:
    ray = MedianStoppingRule(
        time_attr="epoch",
        metric="m",
        mode=goal[:3],
        grace_period=rule.grace,
        min_samples_required=rule.min_trials,
        min_time_slice=math.inf,
        hard_stop=True,
    )
    trials = {trial: Named(trial_id=str(trial)) for trial in {event.trial for event in reports}}
    stopped: dict[int, int] = {}
    for event in reports:
        if event.trial in stopped or event.epoch == EPOCHS or not math.isfinite(event.metrics["m"]):
            continue
        result = {"epoch": event.epoch, "m": event.metrics["m"]}
        if ray.on_trial_result(None, trials[event.trial], result) == TrialScheduler.STOP:
            stopped[event.trial] = event.epoch
    return list(stopped.items())


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["all epochs", "some without the objective"])
@pytest.mark.parametrize("rule", [Median(), Median(grace=4, min_trials=1), Median(grace=2, min_trials=10)])
def test_it_stops_what_ray_stops(rule: Median, missing: float, goal: str) -> None:
    draws = random.Random(str(rule))
    epochs = dict.fromkeys(range(60), 0)
    reports = []
    while epochs:
        trial = draws.choice(sorted(epochs)[:8])
        epochs[trial] += 1
        value = math.nan if draws.random() < missing else draws.random() + draws.random() / epochs[trial]
        reports.append(report(trial, epochs[trial], value))
        if epochs[trial] == EPOCHS:
            del epochs[trial]
    scheduler = MedianScheduler(rule, Objective("m", goal), EPOCHS)
    ours = [(event.trial, event.epoch) for event in reports if scheduler.observe(event)]
    assert ours == rays_verdicts(rule, goal, reports)
    assert ours


def test_the_reason_names_the_median() -> None:
    scheduler = MedianScheduler(Median(min_trials=2), Objective("m", "maximize"), EPOCHS)
    for trial, value in enumerate([0.2, 0.6]):
        assert scheduler.observe(report(trial, 1, value)) is None
    assert scheduler.observe(report(2, 1, 0.1)) == "median: m 0.1 at epoch 1 below the cutoff 0.4"


def test_trials_that_are_all_alike_go_on() -> None:
    scheduler = MedianScheduler(Median(), Objective("m", "minimize"), 100)
    for epoch in range(1, 100):  # 0.1 + 0.1 + ... is not a multiple of 0.1
        assert not any(scheduler.observe(report(trial, epoch, 0.1)) for trial in range(9))
