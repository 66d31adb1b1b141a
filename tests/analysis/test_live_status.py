"""Where a sweep stands, by hand-made logs, and how long it will take."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import pytest
from msgspec import structs
from passing import simulate

from sweep.analysis import BudgetLimits, Outline
from sweep.analysis.live_status import (
    KINDS,
    LATEST,
    MOST,
    Best,
    RungStatus,
    Spending,
    Standing,
    ThinnedCurve,
)
from sweep.analysis.survival import Survival, estimate_seconds_left, estimate_survival
from sweep.events import (
    EpochReported,
    Event,
    Facts,
    Params,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.space.early_terminate import Asha, EarlyTermination, Hyperband, Median, NoTermination


@pytest.mark.parametrize("count", [0, 1, 2, 7, MOST - 1, MOST, MOST + 1, 1000, 4097])
@pytest.mark.parametrize("most", [0, 1, 5, 24, 1000])
def test_points_go_from_the_beginning_to_the_latest(count: int, most: int) -> None:
    curve = ThinnedCurve()
    for value in range(count):
        curve.add(float(value))
    points = curve.points(most)
    assert points == sorted(points)
    assert len(points) == min(most, len(points), count)
    if points:
        assert points[-1] == count - 1
        widest = max((after - before for before, after in pairwise(points)), default=1.0)
        assert widest <= max(2 * count / len(points), 1) + 1


def test_a_long_curve_takes_little_room() -> None:
    curve = ThinnedCurve()
    for value in range(100_000):
        curve.add(float(value))
    assert len(curve.points(10**9)) <= MOST + 1


SESSION = SessionStarted(time=1000.0, resumed=False, version="1")


def started(trial: int, time: float = 1000.0, params: Params | None = None) -> TrialStarted:
    given = {"a": trial} if params is None else params
    return TrialStarted(trial=trial, trial_id="", params=given, seed=0, repeat=0, time=time)


def epoch(
    trial: int, number: int, value: float = 0.5, time: float = 1001.0, **more: object
) -> EpochReported:
    metrics = {"acc": value}
    return EpochReported(trial=trial, epoch=number, metrics=metrics, time=time, time_s=2.0, **more)


def ended(
    trial: int,
    status: Status = Status.COMPLETED,
    reason: str = "",
    time: float = 1010.0,
    **more: object,
) -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason=reason, time=time, **more)


def of(*events: Event, **outline: object) -> Standing:
    standing = Standing(
        Outline(**{"metric": "acc", "goal": "maximize", "total": 10, "epochs": 4, **outline})
    )
    for event in events:
        standing.observe(event)
    return standing


def trial(
    number: int, values: Sequence[float], status: Status = Status.COMPLETED, **params: float
) -> list[Event]:
    epochs = [epoch(number, at, value) for at, value in enumerate(values, start=1)]
    return [started(number, params=params or None), *epochs, ended(number, status)]


def test_a_trial_from_its_start_to_its_end() -> None:
    standing = of(SESSION, started(3), epoch(3, 1, 0.25))
    assert standing.running[3].state.epoch == 1
    assert (standing.running[3].of, standing.running[3].value, standing.started) == (4, 0.25, 1)
    told = standing.observe(ended(3, facts=Facts(started=1004.0)))
    assert told is not None
    assert (told.trial, told.epochs, told.value, told.took_s) == (3, 1, 0.25, 6.0)
    assert (standing.running, standing.open, standing.finished) == ({}, {}, 1)
    assert list(standing.latest) == [told]


def test_trials_may_have_epochs_of_their_own() -> None:
    assert of(started(0, params={"epochs": 9})).open[0].of == 9


@pytest.mark.parametrize(("goal", "best"), [("maximize", 2), ("minimize", 0)])
def test_best_is_the_last_value_of_a_completed_trial(goal: str, best: int) -> None:
    events = [event for number in range(3) for event in trial(number, [0.9, 0.1 * (number + 1)])]
    events += trial(3, [99.0 if goal == "maximize" else -99.0], Status.PRUNED) + trial(
        4, [math.nan]
    )
    found = of(*events, goal=goal).best
    assert found == Best(pytest.approx(0.1 * (best + 1)), (best,), {"a": best})


def beside(number: int, role: Role, value: float) -> list[Event]:
    begin, *others = trial(number, [value], a=float(number))
    assert isinstance(begin, TrialStarted)
    return [structs.replace(begin, role=role), *others]


def test_a_baseline_may_be_best_and_fresh_seeds_are_no_part_of_the_search() -> None:
    events = [*trial(0, [0.5], a=0.0), *beside(1, Role.BASELINE, 0.9)]
    assert of(*events).best == Best(0.9, (1,), {"a": 1.0})
    standing = of(*events, *beside(2, Role.CONFIRM, 0.99))
    assert standing.best == Best(0.9, (1,), {"a": 1.0})
    assert standing.confirming == {2}


def test_of_repeats_the_mean_counts_and_how_many_there_are() -> None:
    events = [*trial(0, [0.9], a=1.0), *trial(1, [0.5], a=2.0), *trial(2, [0.6], a=2.0)]
    assert of(*events, repeats=2).best == Best(pytest.approx(0.55), (1, 2), {"a": 2.0})
    events += trial(3, [0.1], a=1.0)
    assert of(*events, repeats=2).best == Best(pytest.approx(0.55), (1, 2), {"a": 2.0})
    events += [*trial(4, [0.58], a=3.0), *trial(5, [0.58], a=3.0)]
    assert of(*events, repeats=2).best == Best(pytest.approx(0.58), (4, 5), {"a": 3.0})


def test_a_baseline_that_the_search_tries_too_is_not_best_by_its_number_of_trials() -> None:
    events = []
    for number in range(2):
        begin, *others = trial(number, [0.5], a=1.0)
        assert isinstance(begin, TrialStarted)
        events += [structs.replace(begin, role=Role.BASELINE), *others]
    events += [*trial(2, [0.5], a=1.0), *trial(3, [0.5], a=1.0)]
    events += [*trial(4, [0.9], a=2.0), *trial(5, [0.9], a=2.0)]
    assert of(*events, repeats=2).best == Best(0.9, (4, 5), {"a": 2.0})


def test_a_third_repeat_that_makes_the_best_worse() -> None:
    events = [
        *trial(0, [0.9], a=1.0),
        *trial(1, [0.9], a=1.0),
        *trial(2, [0.6], a=2.0),
        *trial(3, [0.6], a=2.0),
    ]
    events += [*trial(4, [0.6], a=2.0), *trial(5, [-0.9], a=1.0)]
    best = of(*events, repeats=3).best
    assert best is not None
    assert best.params == {"a": 2.0}


def test_rungs_count_who_came_and_who_went() -> None:
    events = [
        *trial(0, [0.1, 0.2, 0.3, 0.4]),
        *trial(1, [0.1], Status.PRUNED),
        *trial(2, [0.1, 0.1, 0.1], Status.PRUNED),
    ]
    assert of(*events, decisions=(1, 3)).rungs() == [RungStatus(1, 3, 1), RungStatus(3, 2, 1)]
    # of a rule of the user's own
    assert of(*events).rungs() == [
        RungStatus(1, 3, 1),
        RungStatus(3, 2, 1),
    ]


def test_trials_that_pause_count_as_lost_where_they_do_until_they_go_on() -> None:
    outline = {"decisions": (1, 2), "total": 4, "epochs": 8}
    pauses = [
        (started(n), epoch(n, 1), ended(n, Status.INTERRUPTED, waits=True)) for n in range(1, 4)
    ]
    events = [SESSION, *(event for one in pauses for event in one), started(0), epoch(0, 1)]
    standing = of(*events, **outline)
    assert (standing.paused, len(standing.running), standing.finished) == (3, 1, 0)
    # those that pause are not trained, as it looks
    assert standing.left_s(1001.0) == pytest.approx(7 * 2.0)
    survivors = standing.survivors()
    for event in (epoch(1, 2), epoch(1, 3)):
        standing.observe(event)
    assert (standing.paused, len(standing.running)) == (2, 2)
    assert standing.survivors() > survivors
    standing.observe(ended(2, Status.PRUNED, waits=True))
    assert (standing.paused, standing.finished) == (1, 1)
    assert standing.rungs()[0] == RungStatus(1, 4, 1)
    population = of(*events, **{**outline, "decisions": ()})
    assert population.paused == 0  # all of a population go on


def test_failures_by_their_kind() -> None:
    events: list[Event] = []
    for number, reason in enumerate(("ValueError: 1", "ValueError: 2", "worker lost: killed", "")):
        events += [started(number), ended(number, Status.FAILED, reason)]
    events += [started(9), ended(9, Status.DIVERGED, "the loss became NaN")]
    failures = of(*events).failures
    assert {kind: (one.count, one.trial) for kind, one in failures.items()} == {
        (Status.FAILED, "ValueError"): (2, 1),
        (Status.FAILED, "worker lost"): (1, 2),
        (Status.FAILED, "failed"): (1, 3),
        (Status.DIVERGED, ""): (1, 9),
    }
    assert failures[Status.FAILED, "ValueError"].reason == "ValueError: 2"


def test_a_thousand_kinds_of_failure_take_no_room() -> None:
    standing = of()
    for number in range(1000):
        standing.observe(started(number))
        standing.observe(ended(number, Status.FAILED, f"Error{number}: x"))
    assert len(standing.failures) <= KINDS + 1
    assert sum(failure.count for failure in standing.failures.values()) == 1000
    assert len(standing.latest) == LATEST


def test_a_failed_trial_that_is_tried_again_has_not_failed() -> None:
    standing = of(started(0), epoch(0, 1), ended(0, Status.FAILED, "ValueError: x"))
    standing.observe(ended(0, Status.INTERRUPTED, again=True))
    assert (standing.finished, standing.failures, list(standing.open)) == (0, {}, [0])
    standing.observe(epoch(0, 2))
    standing.observe(ended(0))
    assert (standing.ended[Status.COMPLETED], standing.ended[Status.FAILED], standing.started) == (
        1,
        0,
        1,
    )


def test_interrupted_trials_go_on_in_the_next_session() -> None:
    standing = of(SESSION, started(0), epoch(0, 1), started(1))
    told = standing.observe(ended(0, Status.INTERRUPTED))
    assert told is not None
    assert told.status is Status.INTERRUPTED
    assert list(standing.running) == [1]
    standing.observe(SessionStarted(time=2000.0, resumed=True, version="1"))
    assert (list(standing.running), list(standing.open)) == ([], [0, 1])
    standing.observe(epoch(0, 2))
    assert list(standing.running) == [0]
    assert standing.epochs == 2


def test_pauses_between_sessions_are_no_work() -> None:
    standing = of(SESSION, started(0, 1010.0), SessionEnded(time=1020.0, reason="interrupted"))
    assert (standing.over, standing.active_s(9999.0)) == ("interrupted", 20.0)
    standing.observe(SessionStarted(time=2000.0, resumed=True, version="1"))
    assert (standing.over, standing.active_s(2005.0)) == (None, 25.0)
    standing.observe(epoch(0, 1, time=2007.0))  # then it is killed
    standing.observe(SessionStarted(time=3000.0, resumed=True, version="1"))
    assert standing.active_s(3001.0) == 28.0
    assert of().active_s(5.0) == 0.0


def test_the_rate_is_that_of_the_last_seconds() -> None:
    standing = of(SESSION, started(0))
    for number in range(1, 41):
        standing.observe(epoch(0, number, time=1000.0 + number / 2))
    assert standing.epochs_per_s(1020.0) == pytest.approx(2.0, abs=0.3)
    assert standing.epochs_per_s(1040.0) == 0.0
    assert of(SESSION, started(0), epoch(0, 1, time=1000.5)).epochs_per_s(1001.0) == 1.0


def test_the_time_left_by_epochs_and_trials() -> None:
    assert of(SESSION, started(0)).left_s(1001.0) is None  # nothing is measured yet
    standing = of(SESSION, started(0), started(1), epoch(0, 1), epoch(1, 1), total=4)
    assert standing.left_s(1001.0) == 3 * 2.0 + 4 * 2.0
    assert standing.left_s(1002.0) == 3 * 2.0 + 4 * 2.0 - 1.0
    assert standing.survivors() == 4
    standing = of(SESSION, *trial(0, [0.1] * 4), started(1), total=2)
    assert standing.left_s(1011.0) == 4 * 2.0
    standing.observe(SessionEnded(time=1020.0, reason="finished"))
    assert standing.left_s(1021.0) is None


def test_more_trials_than_were_planned_are_no_more_than_all() -> None:
    failed = [one for number in range(3) for one in (started(number), ended(number))]
    # as where copies of a population fail, and others take their places
    standing = of(SESSION, *failed, total=2)
    assert (standing.finished, standing.total, standing.waiting()) == (3, 3, 0)


def test_what_a_trial_takes_beside_its_epochs_counts_for_the_next() -> None:
    standing = of(SESSION, *trial(0, [0.1] * 4), total=3)
    assert standing.left_s(1011.0) == 2 * (4 * 2.0 + 2.0)  # it took 10 s, of which epochs took 8


def test_the_start_of_a_worker_is_not_every_trial_s() -> None:
    facts = Facts(started=1009.0)  # since when it could train
    epochs = [epoch(0, at) for at in (1, 2, 3, 4)]
    standing = of(SESSION, started(0), *epochs, ended(0, time=1018.0, facts=facts), total=6)
    assert standing.left_s(1018.0) == 5 * (4 * 2.0 + 1.0)
    for number in (1, 2, 3):  # which need not compile
        begin = 1020.0 + 10 * number
        standing.observe(started(number, begin))
        for at in (1, 2, 3, 4):
            standing.observe(epoch(number, at))
        standing.observe(ended(number, time=begin + 8.5))
    assert standing.left_s(1060.0) == 2 * (4 * 2.0 + 0.5)


def test_budgets_end_it_before_its_trials_do() -> None:
    events = (SESSION, started(0), epoch(0, 1))
    assert of(*events, total=None).left_s(1010.0) is None
    assert of(*events, total=None).survivors() is None
    assert of(*events, total=None, limits=BudgetLimits(hours=0.5)).left_s(1010.0) == 1790.0
    assert of(*events, total=1000, limits=BudgetLimits(epochs=11)).left_s(1010.0) == 20.0
    assert (
        of(*events, total=None, limits=BudgetLimits(gpu_hours=1.0, gpus=2)).left_s(1010.0) == 1798.0
    )
    assert of(*events, total=None, limits=BudgetLimits(hours=0.001)).left_s(1010.0) == 0.0
    quarter = epoch(0, 1, measures={"gpus": 0.25})
    shared = BudgetLimits(gpu_hours=1.0, gpus=1, shared=True)
    assert (
        of(SESSION, started(0), quarter, total=None, limits=shared).left_s(1010.0) == 4 * 3600 - 2.0
    )


def test_fresh_seeds_do_not_count_towards_the_budgets_of_the_search() -> None:
    def fresh(number: int, time: float) -> list[Event]:
        begun = structs.replace(started(number, time), role=Role.CONFIRM)
        epochs = [epoch(number, at, time=time + 10, measures={"cost": 1.0}) for at in (1, 2)]
        return [begun, *epochs]

    limits = BudgetLimits(hours=0.1, epochs=8, gpu_hours=1.0, money=9.0, gpus=1)
    search = [started(0), epoch(0, 1, measures={"cost": 1.0}), ended(0, time=1020.0)]
    standing = of(SESSION, *search, limits=limits, total=30)
    assert standing.spent == Spending(1, 2.0, 1.0)
    for event in fresh(1, 1030.0):
        standing.observe(event)
    assert standing.survivors() == 1
    # the search is over: only the rest of the running trial is known to follow, in what time it takes
    assert standing.left_s(5000.0) == pytest.approx(2.0 * 2.0 - 2.0)
    assert standing.cost_in_all(5000.0) == 3.0 + 2 * 1.0
    assert (standing.epochs, standing.cost) == (3, 3.0)
    assert standing.spent == Spending(1, 2.0, 1.0)
    assert (standing.active_s(5000.0), standing.counted_s(5000.0)) == (4000.0, 30.0)
    standing.observe(ended(1, time=5000.0))
    standing.observe(SessionEnded(time=5000.0, reason="finished"))
    # then the search is extended
    for event in (SessionStarted(time=6000.0, resumed=True, version="1"), started(2, 6000.0)):
        standing.observe(event)
    standing.observe(epoch(2, 1, time=6010.0, measures={"cost": 1.0}))
    assert standing.counted_s(6020.0) == 30.0 + 20.0
    assert standing.left_s(6020.0) == pytest.approx((8 - 2) * 2.0)
    assert standing.cost_in_all(6020.0) == 9.0 + 2.0


def test_epochs_out_of_another_sweep_are_not_measured() -> None:
    standing = of(
        SESSION,
        started(0),
        epoch(0, 1, memo="other/0"),
        epoch(0, 2, memo="other/0"),
        ended(0, memo="x/0"),
    )
    assert (standing.epochs, standing.left_s(1011.0), standing.finished) == (0, None, 1)


def test_what_running_trials_use() -> None:
    measures = {"cpu_cores": 1.5, "memory_peak_bytes": 2e9, "gpu_utilization": 0.5, "step_s": 1.0}
    other = {"cpu_cores": 0.5, "gpu_utilization": 1.0, "memory_peak_bytes": math.nan}
    standing = of(
        started(0),
        started(1),
        started(2),
        epoch(0, 1, measures=measures),
        epoch(1, 1, measures=other),
    )
    assert standing.usage() == {"cpu_cores": 2.0, "memory_peak_bytes": 2e9, "gpu_utilization": 0.75}
    assert standing.measures
    assert of(started(0), epoch(0, 1)).usage() == {}


def test_an_event_costs_microseconds_and_old_trials_nothing() -> None:
    standing = of(total=20_000, decisions=(1, 2))
    numbers = random.Random(0)
    events: list[Event] = []
    for number in range(2000):
        status = numbers.choice([Status.COMPLETED, Status.PRUNED, Status.FAILED])
        events += [
            started(number),
            *(epoch(number, at, numbers.random()) for at in (1, 2, 3)),
            ended(number, status),
        ]
    begin = time.thread_time()
    for event in events:
        standing.observe(event)
    assert (time.thread_time() - begin) / len(events) < 50e-6  # measured: 3e-6
    begin = time.thread_time()
    standing.left_s(1010.0)
    standing.survivors()
    assert time.thread_time() - begin < 0.05  # measured: 3e-4


def test_without_losses_all_train_to_the_end() -> None:
    all_of_them = estimate_survival({1: 5, 2: 5}, {})
    assert (all_of_them.share(0, 9), all_of_them.epochs(0, 9), all_of_them.epochs(4, 9)) == (
        1.0,
        9.0,
        5.0,
    )
    assert all_of_them.epochs(9, 9) == 0.0


def test_shares_multiply_along_the_epochs() -> None:
    half = Survival(((1, 0.5), (4, 0.25)))
    assert [half.after(epoch) for epoch in (0, 1, 3, 4, 99)] == [1.0, 0.5, 0.5, 0.25, 0.25]
    assert half.epochs(0, 10) == 1 + 0.5 * 3 + 0.25 * 6
    assert half.epochs(1, 10) == 3 + 0.5 * 6  # of one that has passed the first
    assert half.share(1, 10) == 0.5
    assert half.share(0, 1) == 1.0
    assert half.epochs(0, 4) == 1 + 0.5 * 3  # what happens after the last epoch does not matter


def test_trials_that_run_count_as_far_as_they_came() -> None:
    """Ten began, nine of them ended at epoch 1: the tenth tells that trials go on beyond."""
    seen = estimate_survival({1: 10, 2: 1, 3: 1}, {1: 9})
    assert seen.after(1) == pytest.approx(0.1)
    assert seen.after(3) == seen.after(1)


def test_failures_before_the_first_epoch_count() -> None:
    assert estimate_survival({1: 3}, {0: 1}).after(0) == pytest.approx(3 / 4)
    assert estimate_survival({}, {0: 4, 2: 0}).after(0) == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("there", "waiting", "slots", "expected"),
    [
        ([], 0, 1, 0.0),
        ([5.0, 3.0], 0, 2, 5.0),
        ([5.0, 3.0], 1, 2, 13.0),
        ([5.0, 3.0], 2, 2, 15.0),
        ([], 4, 2, 20.0),
        ([2.0], 1, 4, 10.0),
        ([1.0, 1.0, 1.0], 3, 2, 11.0),  # more run than there were slots for
        ([0.0, 0.0], 10_001, 2, 50_010.0),
    ],
)
def test_free_workers_take_the_next_trial(
    there: list[float], waiting: int, slots: int, expected: float
) -> None:
    assert estimate_seconds_left(there, waiting, 10.0, slots) == expected


RULES = [
    pytest.param(NoTermination(), 0.02, id="none"),
    pytest.param(Asha(1, None, 3), 0.35, id="asha"),
    pytest.param(Hyperband(min_iter=1), 0.35, id="hyperband"),
    pytest.param(Median(3), 0.55, id="median"),  # lets its first trials live, whatever they are
]


@pytest.mark.parametrize(("rule", "tolerance"), RULES)
@pytest.mark.parametrize(("trials", "epochs", "slots"), [(27, 27, 2), (60, 27, 8), (9, 10, 4)])
def test_what_is_thought_half_way_comes_about(
    rule: EarlyTermination, tolerance: float, trials: int, epochs: int, slots: int
) -> None:
    """The median of some sweeps, when half and three quarters of the time have passed; "about" is what we say."""
    passed = [simulate(rule, trials, epochs, slots, seed) for seed in range(7)]
    for share, within in ((0.5, tolerance), (0.75, tolerance * 0.7)):
        assert median(one.at(share)[0] for one in passed) == pytest.approx(1.0, abs=within)
    assert median(one.at(0.75)[1] for one in passed) == pytest.approx(1.0, abs=0.5)


def test_a_long_sweep_is_known_early() -> None:
    passed = [simulate(Asha(1, None, 3), 400, 27, 8, seed) for seed in range(3)]
    assert median(one.at(0.25)[0] for one in passed) == pytest.approx(1.0, abs=0.2)
    assert median(one.at(0.5)[1] for one in passed) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize(("trials", "epochs", "slots"), [(27, 27, 2), (60, 27, 8)])
def test_what_a_sweep_costs_is_known_early_where_nothing_is_pruned(
    trials: int, epochs: int, slots: int
) -> None:
    passed = [simulate(NoTermination(), trials, epochs, slots, seed) for seed in range(10)]
    assert all(
        one.cost_at(share) == pytest.approx(1.0, abs=0.15)
        for one in passed
        for share in (0.05, 0.25, 0.5)
    )


@pytest.mark.parametrize("rule", [Asha(1, None, 3), Hyperband(min_iter=1), Median(3)])
def test_what_a_sweep_costs_is_known_about_where_trials_are_pruned(rule: EarlyTermination) -> None:
    """Half of them; who knew how curves go would be off by 6 to 11 %, the rest is chance."""
    passed = [simulate(rule, 100, 27, 4, seed) for seed in range(5)]
    assert median(abs(one.cost_at(0.05) - 1) for one in passed) < 0.5
    assert median(abs(one.cost_at(0.25) - 1) for one in passed) < 0.3


def test_what_a_sweep_costs_is_bounded_by_its_budget() -> None:
    priced = EpochReported(
        trial=0, epoch=1, metrics={}, time=1010.0, time_s=1.0, measures={"cost": 2.0}
    )
    standing = of(SESSION, started(0), priced, total=1000, limits=BudgetLimits(money=12.0))
    assert (standing.cost, standing.cost_in_all(1010.0), standing.left_s(1010.0)) == (
        2.0,
        12.0,
        5.0,
    )
