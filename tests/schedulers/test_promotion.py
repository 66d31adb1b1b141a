"""Rules that let trials pause, against what they are taken from."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.conformance.schedulers import EPOCHS, report, search
from sweep.events import EpochReported, Status, TrialEnded, TrialStarted
from sweep.schedulers import Pausing
from sweep.schedulers.early_termination import build_scheduler
from sweep.schedulers.promotion import FreezeThawScheduler, PashaScheduler, PromotionScheduler
from sweep.space.early_terminate import AshaPromotion, FreezeThaw, Pasha
from sweep.space.objectives import INFEASIBLE, Objective

LOSS = Objective("m", "minimize")


def constant(trial: int, epoch: int) -> float:
    return random.Random(trial).random()


def crossing(trial: int, epoch: int) -> float:
    return random.Random(f"{trial} {epoch}").random()


def literal(
    rungs: list[int], eta: float, trials: int, value: Callable[[int, int], float]
) -> list[tuple[int, int]]:
    """Algorithm 2 of Li et al. (2020) by one worker, as it stands there: who reports at which rung, in order."""
    came: dict[int, dict[int, float]] = {rung: {} for rung in rungs}
    promoted: dict[int, set[int]] = {rung: set() for rung in rungs}
    told: list[tuple[int, int]] = []
    begun = 0
    while True:
        job: tuple[int, int] | None = None
        for place in reversed(range(len(rungs))):
            rung = rungs[place]
            best = sorted(came[rung], key=lambda one, rung=rung: (came[rung][one], one))
            able = [one for one in best[: int(len(best) / eta + 1e-9)] if one not in promoted[rung]]
            if able:
                promoted[rung].add(able[0])
                job = able[0], place + 1
                break
        if job is None and begun == trials:
            return told
        trial, place = job or (begun, 0)
        begun += job is None
        if place < len(rungs):
            came[rungs[place]][trial] = value(trial, rungs[place])
            told.append((trial, rungs[place]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: PromotionScheduler(AshaPromotion(eta=2.0), LOSS, EPOCHS),
        lambda: PashaScheduler(Pasha(eta=2.0), LOSS, EPOCHS),
        lambda: FreezeThawScheduler(FreezeThaw(eta=2.0), LOSS, EPOCHS),
    ],
)
def test_large_losses_are_decided_upon_as_small_ones(
    make: Callable[[], PromotionScheduler],
) -> None:
    small, large = (
        search(make(), 12, lambda trial, epoch, f=f: f * crossing(trial, epoch))
        for f in (1.0, 2.0**50)
    )
    of = [
        [(e.trial, getattr(e, "epoch", 0), getattr(e, "status", "")) for e in log]
        for log in (small, large)
    ]
    assert of[0] == of[1]
    assert not any(
        "constraints" in event.reason for event in large if isinstance(event, TrialEnded)
    )


@given(
    st.integers(1, 40), st.sampled_from([1.5, 2.0, 3.0, 4.0]), st.sampled_from([constant, crossing])
)
def test_promotion_is_algorithm_2(
    trials: int, eta: float, value: Callable[[int, int], float]
) -> None:
    rule = AshaPromotion(eta=eta)
    scheduler = PromotionScheduler(rule, LOSS, EPOCHS)
    rungs = [*scheduler.decision_epochs(EPOCHS)]
    told = [
        (event.trial, event.epoch)
        for event in search(scheduler, trials, value)
        if isinstance(event, EpochReported) and event.epoch in rungs
    ]
    expected = literal(rungs, eta, trials, value)
    assert told[: len(expected)] == expected
    # the last one, which trains to its end
    assert len({trial for trial, _ in told[len(expected) :]}) <= 1


def epochs_of(
    rule: AshaPromotion | Pasha | FreezeThaw, value: Callable[[int, int], float]
) -> dict[int, int]:
    """The epochs of each of 60 trials, sorted by how many they are."""
    made = {
        AshaPromotion: PromotionScheduler,
        Pasha: PashaScheduler,
        FreezeThaw: FreezeThawScheduler,
    }[type(rule)]
    log = search(made(rule, LOSS, 27), 60, value)  # type: ignore[operator]  # each takes its own rule
    return {event.trial: event.epoch for event in log if isinstance(event, EpochReported)}


def test_pasha_grows_only_where_ranks_change() -> None:
    stable = sorted(epochs_of(Pasha(), constant).values())
    # the first two rungs, and the one that trains to the end, of EPOCHS
    assert set(stable) == {
        1,
        3,
        12,
    }
    shaky = sorted(epochs_of(Pasha(epsilon=0.0), crossing).values())
    assert 9 in shaky
    promoted = sorted(epochs_of(AshaPromotion(), crossing).values())
    assert shaky == promoted
    assert set(epochs_of(Pasha(epsilon=2.0), crossing).values()) == {1, 3, 12}


def test_the_noise_of_pasha_is_that_of_curves_that_cross_twice() -> None:
    scheduler = PashaScheduler(Pasha(eta=2), LOSS, EPOCHS)
    curves = {0: [1.0, 2.0], 1: [1.5, 1.6], 2: [0.9, 0.95]}
    for trial, values in curves.items():
        for epoch, value in enumerate(values, start=1):
            scheduler.observe(report(trial, epoch, value))
    assert scheduler.epsilon == 0.0  # 0 and 1 have crossed once
    with_more = PashaScheduler(Pasha(eta=2, min_iter=2), LOSS, EPOCHS)
    for trial, values in {0: [1.0, 2.0, 1.0, 2.0], 1: [1.5, 1.6, 1.5, 1.7]}.items():
        for epoch, value in enumerate(values, start=1):
            with_more.observe(report(trial, epoch, value))
    assert with_more.epsilon == pytest.approx(0.3)


def test_reasons() -> None:
    scheduler = PromotionScheduler(AshaPromotion(eta=2), Objective("acc", "maximize"), EPOCHS)
    for trial, value in enumerate([0.5, 0.7, 0.6]):
        scheduler.observe(
            EpochReported(trial=trial, epoch=1, metrics={"acc": value}, time=0.0, time_s=1.0)
        )
    assert scheduler.holds(0) == "asha_promotion: acc 0.5 at epoch 1"
    assert scheduler.holds(1) is None
    assert dict(scheduler.dropped(rest=True)) == {
        0: "asha_promotion: acc 0.5 at epoch 1 below the cutoff 0.7",
        2: "asha_promotion: acc 0.6 at epoch 1 below the cutoff 0.7",
    }
    few = PromotionScheduler(AshaPromotion(eta=3), LOSS, EPOCHS)
    few.observe(report(0, 1, 0.5))
    assert few.dropped(rest=True) == {
        0: "asha_promotion: m 0.5 at epoch 1, from where too few came for one to go on"
    }


def test_freeze_thaw_goes_on_with_whoever_is_predicted_best() -> None:
    """All gain alike but one: what begins best is overtaken by what is trained further."""
    scheduler = FreezeThawScheduler(FreezeThaw(share=0.0), LOSS, EPOCHS)
    for trial, value in enumerate([0.50, 0.49, 0.52, 0.9]):
        scheduler.observe(
            TrialStarted(trial=trial, trial_id="", params={}, seed=0, repeat=0, time=0.0)
        )
        scheduler.observe(report(trial, 1, value))
    assert scheduler.last() == 1
    scheduler.observe(report(1, 2, 0.49))
    # it gains little: the others are predicted to gain as little
    scheduler.observe(report(1, 3, 0.48))
    assert scheduler.last() == 1
    scheduler.observe(report(1, 4, 0.6))
    scheduler.observe(report(1, 9, 0.7))  # it has lost
    assert scheduler.last() == 0


def test_freeze_thaw_trains_on_until_no_other_is_predicted_better() -> None:
    scheduler = FreezeThawScheduler(FreezeThaw(share=0.0), LOSS, 3)
    for trial, value in enumerate([0.50, 0.55, 2.0]):
        scheduler.observe(report(trial, 1, value))
    assert scheduler.last() == 0
    scheduler.observe(report(0, 3, 0.40))
    scheduler.observe(TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=0.0))
    assert scheduler.last() is None  # 0.55 - 0.1 is above 0.40
    assert set(scheduler.dropped(rest=True)) == {1, 2}
    worse = FreezeThawScheduler(FreezeThaw(share=0.0), LOSS, 3)
    for trial, value in enumerate([0.50, 0.55, 2.0]):
        worse.observe(report(trial, 1, value))
    worse.observe(report(0, 3, 0.49))
    worse.observe(report(1, 3, 0.45))
    worse.observe(TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=0.0))
    assert worse.last() is None  # both have their epochs; the third gains 0.055 at best


def test_the_share_bounds_what_is_trained_on_while_new_ones_start() -> None:
    for share, fewest, most in [(0.0, 0, 0), (1.0, 20, 60), (2.0, 60, 120)]:
        scheduler = FreezeThawScheduler(FreezeThaw(share=share), LOSS, 81)
        rungs = (*scheduler.decision_epochs(81), 81)
        reached = dict[int, int]()
        thawed = 0
        for trial in range(60):
            value = float(np.random.default_rng(trial).random())
            scheduler.observe(report(trial, 1, value))
            reached[trial] = 1
            for one in reached:
                while scheduler.holds(one) is None and reached[one] < 81:
                    before = reached[one]
                    reached[one] = rungs[rungs.index(before) + 1]
                    thawed += reached[one] - before
                    scheduler.observe(report(one, reached[one], constant(one, 0) - before / 1000))
        assert fewest <= thawed <= most


def improving(trial: int, epoch: int) -> float:
    """Losses of a method that learns: each trial is better than all before it."""
    return float(-trial)


@pytest.mark.parametrize("value", [constant, crossing, improving])
def test_no_more_than_a_third_goes_on_from_a_rung_if_the_rule_is_capped(
    value: Callable[[int, int], float],
) -> None:
    uncapped, capped = (
        epochs_of(AshaPromotion(capped=is_capped), value).values() for is_capped in (False, True)
    )
    came = [sum(epoch >= rung for epoch in capped) for rung in (1, 3, 9)]
    assert came[0] == 60
    assert came[1] == 20  # as many as there is room for, where the losses do not get worse
    assert came[2] <= came[1] // 3
    assert sum(capped) <= sum(uncapped)


def test_without_a_cap_nearly_all_trials_that_get_better_go_on() -> None:
    assert sum(epoch >= 3 for epoch in epochs_of(AshaPromotion(), improving).values()) > 50


@pytest.mark.parametrize(("trials", "least", "completed"), [(9, 1, 1), (9, 3, 3), (2, 3, 2)])
def test_so_many_trials_train_to_the_end(trials: int, least: int, completed: int) -> None:
    rule = AshaPromotion(capped=True, min_completed=least)
    log = search(PromotionScheduler(rule, LOSS, 27), trials, constant)
    ends = [
        event.status
        for event in log
        if isinstance(event, TrialEnded) and event.status is not Status.INTERRUPTED
    ]
    assert ends.count(Status.COMPLETED) == completed
    assert len(ends) == trials


def test_the_last_to_go_on_meets_the_constraints() -> None:
    """The one at the highest rung does not; the best that does goes on, or no trial would complete."""
    scheduler = PromotionScheduler(AshaPromotion(eta=3), LOSS, EPOCHS)
    for trial, value in enumerate([0.5, 0.4, 0.6]):
        scheduler.observe(report(trial, 1, value))
    scheduler.observe(report(1, 3, INFEASIBLE))
    assert scheduler.holds(1) is not None
    assert scheduler.last() == 0


@pytest.mark.parametrize(
    ("lengths", "finished"),
    [([27, 27, 81, 81], {2}), ([27, 27, 27, 27], {0})],
    ids=["both", "short ones alone"],
)
@pytest.mark.parametrize("several", [False, True])
def test_trials_beyond_the_last_rung_complete_if_there_are_any(
    several: bool, lengths: list[int], finished: set[int]
) -> None:
    objective = Objective("m", "minimize", others=(Objective("n", "minimize"),) * several)
    scheduler = build_scheduler(AshaPromotion(min_iter=3, eta=9), objective, 81)
    assert isinstance(scheduler, Pausing)
    for trial, length in enumerate(lengths):
        scheduler.observe(
            TrialStarted(
                trial=trial, trial_id="", params={"epochs": length}, seed=0, repeat=0, time=0.0
            )
        )
        scheduler.observe(both(trial, 3))
    completed = set[int]()
    while (last := scheduler.last()) is not None:
        scheduler.observe(both(last, lengths[last]))
        scheduler.observe(TrialEnded(trial=last, status=Status.COMPLETED, reason="", time=0.0))
        completed.add(last)
    assert completed == finished


def both(trial: int, epoch: int) -> EpochReported:
    metrics = {"m": float(trial), "n": float(trial)}
    return EpochReported(trial=trial, epoch=epoch, metrics=metrics, time=0.0, time_s=1.0)


def test_a_completed_shorter_trial_does_not_do_for_longer_ones() -> None:
    scheduler = PromotionScheduler(AshaPromotion(min_iter=27, eta=9), LOSS, 81)
    for trial, length in enumerate([27, 81]):
        scheduler.observe(
            TrialStarted(
                trial=trial, trial_id="", params={"epochs": length}, seed=0, repeat=0, time=0.0
            )
        )
        scheduler.observe(report(trial, 27, float(trial)))
    scheduler.observe(TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=0.0))
    assert scheduler.last() == 1
