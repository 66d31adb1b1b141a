"""ASHA decides as Ray Tune's own does, rung by rung."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from sweep.events import EpochReported
from sweep.schedulers.asha import AshaScheduler
from sweep.space.objectives import Objective
from sweep.space.termination import Asha, decision_epochs

EPOCHS = 20


def report(trial: int, epoch: int, value: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=epoch, metrics={"m": value}, time=0.0, time_s=1.0)


def rays_verdicts(rule: Asha, goal: str, reports: list[EpochReported]) -> list[tuple[int, int]]:
    """Which trials Ray stops at which epoch, asked about the decision epochs alone, with its brackets drawn as ours."""
    ray = AsyncHyperBandScheduler(
        time_attr="epoch",
        metric="m",
        mode=goal[:3],
        max_t=max(min(rule.max_iter or EPOCHS, EPOCHS), rule.min_iter) * (1 + 1e-9),
        grace_period=rule.min_iter,
        reduction_factor=rule.eta,
        brackets=rule.brackets,
        stop_last_trials=False,
    )
    trials: dict[int, SimpleNamespace] = {}
    stopped: dict[int, int] = {}
    for event in reports:
        if event.trial in stopped or event.epoch not in decision_epochs(rule, EPOCHS):
            continue
        if event.trial not in trials:
            trials[event.trial] = SimpleNamespace(trial_id=str(event.trial))
            np.random.seed(event.trial)
            ray.on_trial_add(None, trials[event.trial])
        result = {"epoch": event.epoch, "m": event.metrics["m"]}
        if ray.on_trial_result(None, trials[event.trial], result) == TrialScheduler.STOP:
            stopped[event.trial] = event.epoch
    return list(stopped.items())


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("values", [1000, 4], ids=["all differ", "ties"])
@pytest.mark.parametrize(
    "rule", [Asha(), Asha(2, None, 2), Asha(1, 9, 3), Asha(1, None, 1.3), Asha(2, 30, 4), Asha(1, None, 2, 3)]
)
def test_it_stops_what_ray_stops(rule: Asha, values: int, goal: str) -> None:
    draws = random.Random(str(rule))
    epochs = dict.fromkeys(range(120), 0)
    reports = []
    while epochs:
        trial = draws.choice(sorted(epochs)[:8])
        epochs[trial] += 1
        reports.append(report(trial, epochs[trial], draws.randrange(values) / 8))
        if epochs[trial] == EPOCHS:
            del epochs[trial]
    scheduler = AshaScheduler(rule, Objective("m", goal), EPOCHS)
    ours = [(event.trial, event.epoch) for event in reports if scheduler.observe(event)]
    assert ours == rays_verdicts(rule, goal, reports)
    assert ours


def test_the_reason_names_the_cutoff() -> None:
    scheduler = AshaScheduler(Asha(1, None, 2), Objective("m", "maximize"), EPOCHS)
    assert [scheduler.observe(report(trial, 1, value)) for trial, value in enumerate([0.9, 0.8, 0.1])] == [
        None,
        "asha: m 0.8 at epoch 1 below the cutoff 0.9",
        "asha: m 0.1 at epoch 1 below the cutoff 0.85",
    ]


def test_the_bracket_of_a_trial_depends_on_its_number_alone() -> None:
    first, second = (AshaScheduler(Asha(1, None, 2, 3), Objective("m", "minimize"), 17) for _ in range(2))
    brackets = {trial: first.bracket(trial) for trial in range(60)}
    assert brackets == {trial: second.bracket(trial) for trial in reversed(range(60))}
    counts = [list(brackets.values()).count(bracket) for bracket in range(3)]
    assert counts[0] > counts[1] > counts[2] > 0


def test_more_brackets_than_rungs_are_no_mistake() -> None:
    scheduler = AshaScheduler(Asha(4, None, 4, 5), Objective("m", "minimize"), 8)
    assert {scheduler.bracket(trial) for trial in range(99)} <= set(range(5))


def test_numpys_global_state_is_left_as_it_was() -> None:
    np.random.seed(5)
    expected = np.random.random()
    np.random.seed(5)
    AshaScheduler(Asha(brackets=2), Objective("m", "minimize"), 9).observe(report(0, 1, 1.0))
    assert np.random.random() == expected


@pytest.mark.parametrize("eta", [1.5, 2, 3, 4, 10])
def test_the_cutoff_is_numpys_percentile(eta: float) -> None:
    draws = random.Random(0)
    scheduler = AshaScheduler(Asha(1, None, eta), Objective("m", "maximize"), EPOCHS)
    scores: list[float] = []
    for trial in range(60):
        reason = scheduler.observe(report(trial, 1, score := draws.random()))
        cutoff = float(np.percentile(scores, (1 - 1 / eta) * 100)) if scores else -math.inf
        assert bool(reason) == (score < cutoff)
        assert reason is None or reason.endswith(f"{cutoff:.6g}")
        scores.append(score)
