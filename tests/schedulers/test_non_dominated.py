"""Rules that stop early by several objectives: non-dominated ranks, and the trials that go on by them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise

import pytest

from sweep.events import EpochReported, Event, Status, TrialEnded, TrialStarted
from sweep.schedulers import Pausing, Scheduler
from sweep.schedulers.early_termination import build_scheduler
from sweep.schedulers.non_dominated import Losses, NonDominatedOrder
from sweep.space.early_terminate import Asha, AshaPromotion, EarlyTermination
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective

EPOCHS = 9
BOTH = Objective("error", "minimize", others=(Objective("accuracy", "maximize"),))
RULES: dict[str, EarlyTermination] = {
    "asha": Asha(),
    "asha brackets": Asha(brackets=2),
    "asha_promotion": AshaPromotion(),
    "asha_promotion fine": AshaPromotion(eta=1.5),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def is_better(one: Losses, other: Losses) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def fronts_by_definition(losses: Mapping[int, Losses]) -> list[set[int]]:
    """Take away what nothing else dominates, again and again."""
    left, fronts = dict(losses), []
    while left:
        front = {
            one for one in left if not any(is_better(other, left[one]) for other in left.values())
        }
        fronts.append(front)
        left = {one: values for one, values in left.items() if one not in front}
    return fronts


@pytest.mark.parametrize("objectives", [1, 2, 3, 5])
@pytest.mark.parametrize("levels", [3, 1000])
def test_fronts_are_those_of_the_definition_after_each_trial(objectives: int, levels: int) -> None:
    numbers = random.Random(objectives)
    order, known = NonDominatedOrder(), dict[int, Losses]()
    for trial in range(60):
        known[trial] = tuple(float(numbers.randrange(levels)) for _ in range(objectives))
        order.add(trial, known[trial])
        expected = fronts_by_definition(known)
        assert {one: order.get_front(one) for one in known} == {
            one: place for place, front in enumerate(expected, start=1) for one in front
        }
    assert sorted(order.list_best(len(known))) == sorted(known)
    assert order.list_best(7) == order.list_best(60)[:7]


def test_within_a_front_the_farthest_from_those_before_comes_next() -> None:
    order = NonDominatedOrder()
    for trial, error in enumerate([0.0, 0.08, 0.45, 0.9, 1.0]):
        order.add(trial, (error, 1.0 - error))
    order.add(5, (2.0, 2.0))
    assert order.list_best(6) == [0, 4, 2, 3, 1, 5]


def run(
    scheduler: Scheduler, trials: int, metrics: Mapping[int, Mapping[str, float]]
) -> tuple[list[Event], list[str]]:
    """Return the events of a sweep on one worker, and why trials were stopped or never went on."""
    log: list[Event] = []
    done: dict[int, int] = {}
    paused: list[int] = []
    reasons: list[str] = []

    def tell(event: Event) -> str | None:
        log.append(event)
        return scheduler.observe(event)

    def end(trial: int, status: Status, why: str = "", *, waits: bool = False) -> None:
        tell(TrialEnded(trial=trial, status=status, reason=why, time=0.0, waits=waits))

    pausing = scheduler if isinstance(scheduler, Pausing) else None
    while True:
        trial = next(
            (one for one in paused if pausing is not None and pausing.holds(one) is None), None
        )
        if trial is None and len(done) < trials:
            trial = len(done)
            done[trial] = 0
            tell(
                TrialStarted(
                    trial=trial, trial_id="", params={"a": trial}, seed=0, repeat=0, time=0.0
                )
            )
        if trial is None and pausing is not None:
            trial = pausing.last()
        if trial is None:
            reasons += [] if pausing is None else pausing.dropped(rest=True).values()
            return log, reasons
        if trial in paused:
            paused.remove(trial)
        while True:
            done[trial] += 1
            report = EpochReported(
                trial=trial, epoch=done[trial], metrics=dict(metrics[trial]), time=0.0, time_s=0.0
            )
            why = tell(report)
            if done[trial] == EPOCHS:
                end(trial, Status.COMPLETED)
                break
            if why:
                reasons.append(why)
                end(trial, Status.PRUNED, why)
                break
            if (
                pausing is not None
                and done[trial] in pausing.decision_epochs(EPOCHS)
                and pausing.holds(trial)
            ):
                paused.append(trial)
                end(trial, Status.INTERRUPTED, waits=True)
                break


def trade_offs(count: int, seed: int = 0) -> dict[int, dict[str, float]]:
    """Every third trial is on a front of trade-offs, the others are behind it."""
    numbers = random.Random(seed)
    found = {}
    for trial in range(count):
        error, behind = numbers.random(), 0.5 * (trial % 3)
        found[trial] = {"error": error + behind, "accuracy": error - behind}
    return found


def completed(log: list[Event]) -> set[int]:
    return {
        one.trial for one in log if isinstance(one, TrialEnded) and one.status is Status.COMPLETED
    }


@every_rule
def test_both_ends_of_the_front_are_kept_and_what_is_behind_is_not(rule: EarlyTermination) -> None:
    metrics = trade_offs(60)
    log, reasons = run(build_scheduler(rule, BOTH, EPOCHS), 60, metrics)
    whole = completed(log)
    # the first ones have little to be compared with
    late = [trial for trial in whole if trial >= 30]
    assert whole
    assert len(whole) < 40
    # the others have room for more, or brackets of few trials
    if rule in (
        Asha(),
        AshaPromotion(),
    ):
        assert all(trial % 3 == 0 for trial in late)
    assert all("by non-dominated rank" in why and "\n" not in why for why in reasons)
    assert all("error" in why and "accuracy" in why for why in reasons)


@every_rule
def test_a_log_replays_to_the_same_decisions(rule: EarlyTermination) -> None:
    log, _ = run(build_scheduler(rule, BOTH, EPOCHS), 40, trade_offs(40, seed=1))
    again, resumed = build_scheduler(rule, BOTH, EPOCHS), build_scheduler(rule, BOTH, EPOCHS)
    half = len(log) // 2
    first = [again.observe(event) for event in log]
    assert [resumed.observe(event) for event in log[:half]] + [
        resumed.observe(event) for event in log[half:]
    ] == first
    if isinstance(again, Pausing) and isinstance(resumed, Pausing):
        assert [again.holds(trial) for trial in range(40)] == [
            resumed.holds(trial) for trial in range(40)
        ]


@pytest.mark.parametrize("eta", [2.0, 3.0])
def test_no_more_go_on_from_a_rung_than_it_has_room_for(eta: float) -> None:
    numbers = random.Random(0)
    metrics = {
        trial: {"error": numbers.random(), "accuracy": numbers.random()} for trial in range(80)
    }
    log, _ = run(build_scheduler(AshaPromotion(eta=eta), BOTH, EPOCHS), 80, metrics)
    reached = [
        len({e.trial for e in log if isinstance(e, EpochReported) and e.epoch == epoch})
        for epoch in (1, 4)
    ]
    assert reached[0] == 80
    assert reached[1] <= 80 / eta


def test_without_the_cap_more_go_on_as_each_new_trial_changes_who_is_among_the_best() -> None:
    numbers = random.Random(0)
    metrics = {
        trial: {"error": numbers.random(), "accuracy": numbers.random()} for trial in range(80)
    }
    reached = {}
    for is_capped in (None, True, False):
        log, _ = run(build_scheduler(AshaPromotion(capped=is_capped), BOTH, EPOCHS), 80, metrics)
        reached[is_capped] = {
            event.trial for event in log if isinstance(event, EpochReported) and event.epoch == 4
        }
    assert reached[None] == reached[True]
    assert len(reached[False]) > len(reached[True])


@pytest.mark.parametrize(("trials", "least", "expected"), [(9, 1, 1), (9, 3, 3), (2, 3, 2)])
def test_so_many_trials_train_to_the_end(trials: int, least: int, expected: int) -> None:
    metrics = {trial: {"error": float(trial), "accuracy": -float(trial)} for trial in range(trials)}
    log, _ = run(build_scheduler(AshaPromotion(min_completed=least), BOTH, EPOCHS), trials, metrics)
    assert len(completed(log)) == expected


LIMITED = Objective(
    "error",
    "minimize",
    constraints=(Expression.parse("latency <= 5"),),
    others=(Objective("accuracy", "maximize"),),
)


@pytest.mark.parametrize("rule", [Asha(), AshaPromotion()], ids=["asha", "asha_promotion"])
def test_trials_that_do_not_meet_the_constraints_rank_behind_all_that_do(
    rule: EarlyTermination,
) -> None:
    numbers = random.Random(0)
    metrics = {}
    for trial in range(60):
        meets = trial % 3 == 0
        quality = numbers.random() + (1.0 if meets else 0.0)  # those that do not would win
        metrics[trial] = {
            "error": quality,
            "accuracy": -quality,
            "latency": 4.0 if meets else 6.0 + numbers.random(),
        }
    log, reasons = run(build_scheduler(rule, LIMITED, EPOCHS), 60, metrics)
    assert {trial % 3 for trial in completed(log) if trial >= 10} == {0}
    assert any("constraints not met at epoch 1, in front" in why for why in reasons)


@pytest.mark.parametrize("rule", [Asha(), AshaPromotion()], ids=["asha", "asha_promotion"])
def test_without_one_of_the_objectives_nothing_is_decided(rule: EarlyTermination) -> None:
    scheduler = build_scheduler(rule, BOTH, EPOCHS)
    for metrics in ({"error": 1.0}, {"error": 1.0, "accuracy": float("nan")}):
        report = EpochReported(trial=0, epoch=1, metrics=metrics, time=0.0, time_s=0.0)
        assert scheduler.observe(report) is None
        assert not isinstance(scheduler, Pausing) or scheduler.holds(0) is None


def test_where_all_trials_are_on_one_front_those_that_go_on_are_spread_over_it() -> None:
    numbers = random.Random(0)
    values = [numbers.random() for _ in range(150)]
    scheduler = build_scheduler(AshaPromotion(), BOTH, EPOCHS)
    for trial, value in enumerate(values):
        metrics = {"error": value, "accuracy": value}
        scheduler.observe(
            EpochReported(trial=trial, epoch=1, metrics=metrics, time=0.0, time_s=0.0)
        )
    assert isinstance(scheduler, Pausing)
    gone = sorted(value for trial, value in enumerate(values) if scheduler.holds(trial) is None)
    assert len(gone) == 50
    assert max(after - before for before, after in pairwise(gone)) < 0.15
    assert (gone[0] < 0.1, gone[-1] > 0.9) == (True, True)
