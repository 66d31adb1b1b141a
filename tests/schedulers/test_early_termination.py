"""The rules of early termination, against what they are taken from."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, TrialScheduler

from sweep.events import EpochReported
from sweep.schedulers.early_termination import (
    AshaScheduler,
    HyperbandScheduler,
    MedianScheduler,
    RankHeaps,
)
from sweep.space.early_terminate import Asha, Hyperband, Median, compute_decision_epochs
from sweep.space.objectives import Objective


@given(
    st.lists(st.floats(-9, 9) | st.integers(0, 3).map(float), max_size=40),
    st.sampled_from([1.2, 2.0, 3.0, 50.0]),
)
def test_the_neighbours_of_a_rank_are_those_of_the_sorted_numbers(
    numbers: list[float], share: float
) -> None:
    ranks = RankHeaps(lambda count: int(count / share))
    assert (ranks.largest_below, ranks.smallest_above, len(ranks)) == (None, None, 0)
    for count, number in enumerate(numbers, start=1):
        ranks.add(number)
        known, rank = sorted(numbers[:count]), int(count / share)
        assert ranks.largest_below == (known[rank - 1] if rank else None)
        assert ranks.smallest_above == known[rank]
        assert len(ranks) == count


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
        if event.trial in stopped or event.epoch not in compute_decision_epochs(rule, EPOCHS):
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
    "rule",
    [
        Asha(),
        Asha(2, None, 2),
        Asha(1, 9, 3),
        Asha(1, None, 1.3),
        Asha(2, 30, 4),
        Asha(1, None, 2, 3),
    ],
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
    assert [
        scheduler.observe(report(trial, 1, value)) for trial, value in enumerate([0.9, 0.8, 0.1])
    ] == [
        None,
        "asha: m 0.8 at epoch 1 below the cutoff 0.9",
        "asha: m 0.1 at epoch 1 below the cutoff 0.85",
    ]


def test_the_bracket_of_a_trial_depends_on_its_number_alone() -> None:
    first, second = (
        AshaScheduler(Asha(1, None, 2, 3), Objective("m", "minimize"), 17) for _ in range(2)
    )
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


def reasons(scheduler: HyperbandScheduler, trial: int, values: list[float]) -> dict[int, str]:
    found = {}
    for epoch, value in enumerate(values, start=1):
        event = EpochReported(trial=trial, epoch=epoch, metrics={"m": value}, time=0.0, time_s=1.0)
        if reason := scheduler.observe(event):
            found[epoch] = reason
    return found


def build(goal: str = "minimize", *, strict: bool = False, eta: float = 2) -> HyperbandScheduler:
    return HyperbandScheduler(
        Hyperband(min_iter=2, eta=eta, strict=strict), Objective("m", goal), 10
    )


def test_the_best_half_of_those_that_came_so_far_goes_on() -> None:
    scheduler = build()
    stopped = [
        bool(reasons(scheduler, trial, [9.0, loss])) for trial, loss in enumerate([5, 6, 4, 5, 4.5])
    ]
    # cutoffs, of rank n // 2: 5 of [5]; 6 of [5, 6]; 5 of [4, 5, 6]; 5 of [4, 5, 5, 6]; 5 of [4, 4.5, 5, 5, 6]
    assert stopped == [False, False, False, False, False]
    assert reasons(scheduler, 5, [9.0, 5.5]) == {
        2: "hyperband: m 5.5 at epoch 2 above the cutoff 5"
    }


@pytest.mark.parametrize(("strict", "stopped"), [(False, False), (True, True)])
def test_only_a_strict_rule_forgets_what_a_trial_reached_before(
    strict: bool, stopped: bool
) -> None:
    scheduler = build(strict=strict)
    for trial in range(4):
        reasons(scheduler, trial, [9.0, 5.0])
    assert bool(reasons(scheduler, 4, [3.0, 8.0])) is stopped


def test_maximizing_names_values_as_they_were_reported() -> None:
    scheduler = build("maximize", eta=3)
    for trial in range(3):
        reasons(scheduler, trial, [0.1, 0.9])
    assert reasons(scheduler, 3, [0.1, 0.4]) == {
        2: "hyperband: m 0.4 at epoch 2 below the cutoff 0.9"
    }


def test_each_bracket_has_values_of_its_own() -> None:
    scheduler = build()
    for trial in range(3):
        assert reasons(scheduler, trial, [5.0] * 9) == {}
    assert list(reasons(scheduler, 3, [4.0, 4.0, 4.0, 9.0, 9.0])) == []
    assert list(reasons(scheduler, 4, [9.0, 9.0, 1.0, 1.0])) == [2]


MEDIAN_EPOCHS = 12


class Named(SimpleNamespace):
    __hash__ = object.__hash__


def median_report(trial: int, epoch: int, value: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=epoch, metrics={"m": value}, time=0.0, time_s=1.0)


def rays_median_verdicts(
    rule: Median, goal: str, reports: list[EpochReported]
) -> list[tuple[int, int]]:
    ray = MedianStoppingRule(
        time_attr="epoch",
        metric="m",
        mode=goal[:3],
        grace_period=rule.min_iter,
        min_samples_required=rule.min_trials,
        min_time_slice=math.inf,
        hard_stop=True,
    )
    trials = {trial: Named(trial_id=str(trial)) for trial in {event.trial for event in reports}}
    stopped: dict[int, int] = {}
    for event in reports:
        if (
            event.trial in stopped
            or event.epoch == MEDIAN_EPOCHS
            or not math.isfinite(event.metrics["m"])
        ):
            continue
        result = {"epoch": event.epoch, "m": event.metrics["m"]}
        if ray.on_trial_result(None, trials[event.trial], result) == TrialScheduler.STOP:
            stopped[event.trial] = event.epoch
    return list(stopped.items())


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["all epochs", "some without the objective"])
@pytest.mark.parametrize(
    "rule", [Median(), Median(min_iter=4, min_trials=1), Median(min_iter=2, min_trials=10)]
)
def test_the_median_rule_stops_what_ray_stops(rule: Median, missing: float, goal: str) -> None:
    draws = random.Random(str(rule))
    epochs = dict.fromkeys(range(60), 0)
    reports = []
    while epochs:
        trial = draws.choice(sorted(epochs)[:8])
        epochs[trial] += 1
        value = (
            math.nan
            if draws.random() < missing
            else draws.random() + draws.random() / epochs[trial]
        )
        reports.append(median_report(trial, epochs[trial], value))
        if epochs[trial] == MEDIAN_EPOCHS:
            del epochs[trial]
    scheduler = MedianScheduler(rule, Objective("m", goal), MEDIAN_EPOCHS)
    ours = [(event.trial, event.epoch) for event in reports if scheduler.observe(event)]
    assert ours == rays_median_verdicts(rule, goal, reports)
    assert ours


def test_the_reason_names_the_median() -> None:
    scheduler = MedianScheduler(Median(min_trials=2), Objective("m", "maximize"), MEDIAN_EPOCHS)
    for trial, value in enumerate([0.2, 0.6]):
        assert scheduler.observe(median_report(trial, 1, value)) is None
    assert (
        scheduler.observe(median_report(2, 1, 0.1))
        == "median: m 0.1 at epoch 1 below the cutoff 0.4"
    )


def test_trials_that_are_all_alike_go_on() -> None:
    scheduler = MedianScheduler(Median(), Objective("m", "minimize"), 100)
    for epoch in range(1, 100):  # 0.1 + 0.1 + ... is not a multiple of 0.1
        assert not any(scheduler.observe(median_report(trial, epoch, 0.1)) for trial in range(9))
