"""What a searcher learns of earlier sweeps, and what failed trials count as."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from statistics import fmean

import numpy as np
import pytest
from msgspec import structs
from optuna.trial import TrialState

from sweep.conformance.searchers import drive, trial
from sweep.events import EpochReported, Event, Params, Status, TrialEnded, TrialStarted
from sweep.runner.methods import build_searcher
from sweep.searchers import Searcher
from sweep.searchers.optuna_search import OptunaSearcher, TPESampler
from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import Categorical, Constant, LogUniform, Tied, Uniform
from sweep.space.draws import Belief
from sweep.space.expressions import Expression
from sweep.space.objectives import Impute, Objective
from sweep.store.ledger import TrialState as Record
from sweep.store.ledger import list_ended_trials

LOSS = (Objective("loss", "minimize"),)
PLANE = Space(
    (
        Parameter("x", Uniform(-1, 1)),
        Parameter("y", Uniform(-1, 1)),
        Parameter("c", Categorical(("a", "b"))),
    )
)
LEARNING = ["tpe", "gp", "cmaes", "nsga2"]


def distance(params: Params) -> float:
    return (params["x"] - 0.7) ** 2 + (params["y"] + 0.6) ** 2


def outcome(number: int, params: Params) -> list[Event]:
    return trial(number, params, Status.COMPLETED, [distance(params)])


def earlier(points: list[Params], status: Status = Status.COMPLETED) -> list[Record]:
    return list_ended_trials(
        event
        for number, params in enumerate(points)
        for event in trial(number, params, status, [1.0])
    )


def random_sweep(trials: int) -> list[Record]:
    return list_ended_trials(drive(build_searcher("random", PLANE, LOSS, 5), trials, outcome))


def mean_distance(searcher: Searcher, trials: int) -> float:
    log = drive(searcher, trials, outcome)
    return fmean(distance(event.params) for event in log if isinstance(event, TrialStarted))


@pytest.mark.parametrize(
    ("method", "trials", "share"),
    [("tpe", 60, 0.5), ("gp", 60, 0.5), ("cmaes", 60, 0.5), ("nsga2", 250, 0.8)],
)
def test_a_sweep_that_learned_begins_nearer_to_the_optimum(
    method: str, trials: int, share: float
) -> None:
    past = random_sweep(trials)
    cold, warm = (build_searcher(method, PLANE, LOSS, 0) for _ in range(2))
    assert warm.learn(past) == trials
    assert mean_distance(warm, 10) < share * mean_distance(cold, 10)


@pytest.mark.parametrize("method", LEARNING)
@pytest.mark.parametrize("trials", [1, 3, 11])
def test_who_learns_and_observes_the_same_suggests_the_same(method: str, trials: int) -> None:
    first, second = (build_searcher(method, PLANE, LOSS, 0) for _ in range(2))
    for searcher in (first, second):
        assert searcher.learn(random_sweep(trials)) == trials
    for event in drive(first, 9, outcome):
        second.observe(event)
    assert first.suggest(9) == second.suggest(9)


@pytest.mark.parametrize("method", ["grid", "random", "sobol"])
def test_methods_that_learn_from_no_result_learn_nothing(method: str) -> None:
    space = Space((Parameter("c", Categorical(("a", "b"))),))
    cold, warm = (build_searcher(method, space, LOSS, 0) for _ in range(2))
    assert warm.learn(earlier([{"c": "a"}])) == 0
    assert [warm.suggest(n) for n in range(3)] == [cold.suggest(n) for n in range(3)]


def test_configurations_of_earlier_sweeps_are_not_skipped() -> None:
    searcher = build_searcher("tpe", Space((Parameter("c", Categorical(("a", "b"))),)), LOSS, 0)
    assert searcher.learn(earlier([{"c": "a"}, {"c": "b"}])) == 2
    log = drive(searcher, 9, lambda number, params: trial(number, params, Status.COMPLETED, [1.0]))
    assert sorted(event.params["c"] for event in log if isinstance(event, TrialStarted)) == [
        "a",
        "b",
    ]


def test_repeats_learn_as_well() -> None:
    searcher = build_searcher("tpe", PLANE, LOSS, 0, repeats=3)
    assert [searcher.learn(random_sweep(trials)) for trials in (4, 3)] == [4, 3]


@pytest.mark.parametrize(
    ("params", "lies"),
    [
        ({"x": 0.5, "kind": "sgd", "momentum": 0.9, "decay": 0.05}, True),
        ({"x": 0.5, "kind": "adam", "decay": 0.05}, True),
        ({"x": 0.5, "kind": "adam", "momentum": 0.9}, True),  # not of this space, so no matter
        ({"x": 0.5, "kind": "adam", "size": 8, "width": 3}, True),
        ({"x": 0.5, "kind": "adam", "size": 16}, False),
        ({"x": 0.5, "kind": "adam", "decay": 0.06}, False),
        ({"x": 0.5, "kind": "lion"}, False),
        ({"x": 5.0, "kind": "adam"}, False),
        ({"x": "much", "kind": "adam"}, False),
        ({"x": 0.5, "kind": "sgd"}, False),
        ({"x": 0.95, "kind": "adam"}, False),  # violates the constraint
        ({"x": 0.5}, False),
    ],
)
@pytest.mark.parametrize("method", LEARNING)
def test_only_trials_that_lie_in_the_space_count(method: str, params: Params, lies: bool) -> None:
    when = Condition((("kind", OneOf(("sgd",))),))
    space = Space(
        (
            Parameter("x", LogUniform(0.01, 1)),
            Parameter("kind", Categorical(("sgd", "adam"))),
            Parameter("momentum", Uniform(0, 0.99), when=when),
            Parameter("decay", Tied(Expression.parse("x / 10"))),
            Parameter("size", Constant(8)),
        ),
        (Expression.parse("x < 0.9"),),
    )
    searcher = build_searcher(method, space, LOSS, 0)
    assert searcher.learn(earlier([params])) == lies
    assert searcher.suggest(0) is not None


def test_trials_without_the_objective_do_not_count_and_those_without_an_end_are_none() -> None:
    searcher = build_searcher("tpe", PLANE, (Objective("accuracy", "maximize"),), 0)
    point = {"x": 0.0, "y": 0.0, "c": "a"}
    assert searcher.learn(earlier([point, point])) == 0
    assert searcher.learn(earlier([point, point], Status.INFEASIBLE)) == 0
    assert earlier([point], Status.RUNNING) == []


@pytest.mark.parametrize("method", LEARNING)
@pytest.mark.parametrize("status", [Status.PRUNED, Status.DIVERGED, Status.OOM, Status.FAILED])
def test_every_end_can_be_learned_from(method: str, status: Status) -> None:
    searcher = build_searcher(method, PLANE, LOSS, 0)
    points = [{"x": x / 10, "y": 0.5, "c": "b"} for x in range(6)]
    assert searcher.learn([*earlier(points, status), *random_sweep(6)]) == 12
    assert drive(searcher, 8, outcome)
    assert searcher.suggest(8) is not None


IMPUTED = [
    (None, Status.FAILED, TrialState.FAIL, None),
    (None, Status.DIVERGED, TrialState.COMPLETE, 3.3),
    ("worst", Status.FAILED, TrialState.COMPLETE, 3.3),
    ("worst", Status.OOM, TrialState.COMPLETE, 3.3),
    ("latest", Status.FAILED, TrialState.COMPLETE, 5.0),
    ("best", Status.DIVERGED, TrialState.COMPLETE, 2.0),
    ("best", Status.OOM, TrialState.COMPLETE, 2.0),
]


@pytest.mark.parametrize(("impute", "status", "state", "value"), IMPUTED)
@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_what_a_failed_trial_counts_as(
    goal: str, impute: Impute | None, status: Status, state: TrialState, value: float | None
) -> None:
    objective = Objective("loss", goal, impute)
    searcher = OptunaSearcher("nsga2", PLANE, (objective,), 0)
    numbers = count()
    for end, losses in [
        (Status.COMPLETED, [3.0]),
        (Status.COMPLETED, [0.0]),
        (status, [2.0, 5.0, float("nan")]),
        (status, []),
    ]:
        number = next(numbers)
        point = {"x": number / 10, "y": 0.0, "c": "a"}
        for event in trial(number, point, end, [objective.sign * loss for loss in losses]):
            searcher.observe(event)
    *_, third, empty = searcher.study().trials
    assert third.state is state
    assert third.values == (None if value is None else [pytest.approx(objective.sign * value)])
    assert empty.values == (None if value is None else [pytest.approx(objective.sign * 3.3)])


def test_tpe_is_told_worst_as_a_trial_that_it_ranks_last() -> None:
    told = []
    for impute in ("worst", "latest"):
        searcher = OptunaSearcher("tpe", PLANE, (Objective("loss", "minimize", impute),), 0)
        for event in trial(0, {"x": 0.0, "y": 0.0, "c": "a"}, Status.FAILED, [2.0]):
            searcher.observe(event)
        (found,) = searcher.study().trials
        told.append((found.state, found.values, found.intermediate_values))
    assert told == [(TrialState.PRUNED, None, {}), (TrialState.COMPLETE, [2.0], {})]


HALF = (Objective("loss", "minimize", None, (Expression.parse("size <= 0"),)),)


def half(number: int, params: Params) -> list[Event]:
    """Trials whose x is above 0 are too large, and the best is there."""
    start, report, end = trial(number, params, Status.COMPLETED, [distance(params)])
    assert isinstance(report, EpochReported)
    assert isinstance(end, TrialEnded)
    status = Status.INFEASIBLE if params["x"] > 0 else Status.COMPLETED
    reported = structs.replace(report, metrics={**report.metrics, "size": params["x"]})
    return [start, reported, structs.replace(end, status=status)]


@pytest.mark.parametrize(
    ("method", "trials"), [("tpe", 40), ("gp", 30), ("cmaes", 60), ("nsga2", 250)]
)
def test_who_learns_stays_where_constraints_over_metrics_hold(method: str, trials: int) -> None:
    late: list[float] = []
    for seed in range(3):  # each may try what is just beyond the border for a while
        log = drive(build_searcher(method, PLANE, HALF, seed), trials, half)
        late += [event.params["x"] for event in log if isinstance(event, TrialStarted)][
            -trials // 3 :
        ]
    assert sum(x <= 0 for x in late) > 0.65 * len(late)
    unbound = drive(build_searcher(method, PLANE, LOSS, 0), trials, outcome)
    free = [event.params["x"] for event in unbound if isinstance(event, TrialStarted)][
        -trials // 3 :
    ]
    assert sum(x <= 0 for x in free) < 0.35 * len(free)


def test_tpe_goes_to_where_constraints_hold_before_it_has_seen_any_that_do() -> None:
    narrow = (Objective("loss", "minimize", None, (Expression.parse("size <= -1.9"),)),)

    def outcome_of(number: int, params: Params) -> list[Event]:
        start, report, end = trial(number, params, Status.INFEASIBLE, [distance(params)])
        assert isinstance(report, EpochReported)
        return [
            start,
            structs.replace(report, metrics={**report.metrics, "size": params["x"] + params["y"]}),
            end,
        ]

    log = drive(build_searcher("tpe", PLANE, narrow, 0), 40, outcome_of)
    sums = [
        event.params["x"] + event.params["y"] for event in log if isinstance(event, TrialStarted)
    ]
    assert fmean(sums[-15:]) < -1.0 < fmean(sums[:10])


def test_past_trials_are_judged_by_the_constraints_of_today() -> None:
    past = list_ended_trials(
        event
        for number in range(3)
        for event in half(number, {"x": number - 1.0, "y": 0.0, "c": "a"})
    )
    searcher = OptunaSearcher("tpe", PLANE, HALF, 0)
    assert searcher.learn(past) == 3
    states = [one.state for one in searcher.study().trials]
    assert states == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED]
    unbound = OptunaSearcher("tpe", PLANE, LOSS, 0)
    unbound.learn(past)
    assert [one.state for one in unbound.study().trials] == [TrialState.COMPLETE] * 3


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_a_good_prior_begins_nearer_to_the_optimum_and_a_wrong_one_is_overcome(method: str) -> None:
    def believing(x: float, y: float) -> Space:
        beliefs = {"x": Belief(x, "high"), "y": Belief(y, "high")}
        return Space(tuple(replace(one, belief=beliefs.get(one.name)) for one in PLANE.parameters))

    plain, good, wrong = (
        [mean_distance(build_searcher(method, space, LOSS, seed), 15) for seed in range(5)]
        for space in (PLANE, believing(0.6, -0.5), believing(-0.9, 0.9))
    )
    assert fmean(good) < 0.8 * fmean(plain)
    assert fmean(wrong) > fmean(plain)
    late = [
        best_distance(build_searcher(method, believing(-0.9, 0.9), LOSS, seed), 60)
        for seed in range(5)
    ]
    assert fmean(late) < 0.1


def best_distance(searcher: Searcher, trials: int) -> float:
    return min(
        distance(event.params)
        for event in drive(searcher, trials, outcome)
        if isinstance(event, TrialStarted)
    )


def test_a_prior_weighs_what_tpe_prefers() -> None:
    space = Space(
        (Parameter("x", Uniform(-1, 1), belief=Belief(0.9, "high")), Parameter("y", Uniform(-1, 1)))
    )
    samples = {"x": np.array([-0.9, 0.0, 0.9]), "y": np.zeros(3)}

    class Flat:
        def log_pdf(self, samples: dict[str, np.ndarray]) -> np.ndarray:
            return np.zeros(3)

    found = {}
    for trials in (10, 1000):
        sampler = TPESampler(space, 0, trials, multivariate=True, group=False)
        found[trials] = sampler._compute_acquisition_func(samples, Flat(), Flat())
    assert list(found[10]) == sorted(found[10])
    assert np.ptp(found[10]) == pytest.approx(100 * np.ptp(found[1000]))
