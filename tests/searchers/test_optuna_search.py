"""Optuna's samplers as searchers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from statistics import fmean

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from sweep.conformance.searchers import drive, ended, epoch, started, trial
from sweep.events import Event, Params, Status, TrialStarted
from sweep.runner.methods import build_searcher
from sweep.searchers.optuna_search import OptunaSearcher, SamplerName, list_common_distributions
from sweep.searchers.optuna_storage import SearcherStorage
from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Tied,
    Uniform,
    key,
)
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective

SPACE = Space(
    (Parameter("lr", LogUniform(1e-5, 1e-1)), Parameter("units", IntUniform(16, 256, 16)))
)
PLANE = Space((Parameter("x", Uniform(0, 1)), Parameter("y", Uniform(0, 1))))
LOSS = (Objective("loss", "minimize"),)
BOTH = (Objective("loss", "minimize"), Objective("accuracy", "maximize"))
POINT: Params = {"lr": 1e-3, "units": 32}

COMPLETE, PRUNED, FAIL = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL
TOLD = {
    "tpe": {
        Status.COMPLETED: (COMPLETE, 0.5),
        Status.PRUNED: (PRUNED, 0.5),
        Status.DIVERGED: (PRUNED, None),
        Status.OOM: (PRUNED, None),
        Status.FAILED: (FAIL, None),
    },
    "nsga2": {
        Status.COMPLETED: (COMPLETE, 0.5),
        Status.PRUNED: (PRUNED, 0.5),
        Status.DIVERGED: (COMPLETE, 0.55),
        Status.OOM: (COMPLETE, 0.55),
        Status.FAILED: (FAIL, None),
    },
}
CASES = [(method, status) for method, states in TOLD.items() for status in states]


@pytest.mark.parametrize(("method", "status"), CASES)
def test_an_ended_trial_is_told_as_what_it_was(method: str, status: Status) -> None:
    searcher = OptunaSearcher(method, SPACE, LOSS, 0)
    for event in [
        *trial(0, POINT, Status.COMPLETED, [2.0, 0.5]),
        *trial(1, POINT, status, [2.0, 0.5]),
    ]:
        searcher.observe(event)
    told = searcher.study().trials[1]
    state, value = TOLD[method][status]
    assert told.state is state
    assert told.params == POINT
    found = told.values[0] if told.values else told.intermediate_values.get(2)
    if status is not Status.FAILED:
        assert found == (None if value is None else pytest.approx(value))
    assert told.datetime_complete is not None


@pytest.mark.parametrize("method", ["tpe", "nsga2"])
def test_no_trial_is_running_after_its_end_and_asking_adds_none(method: str) -> None:
    searcher = OptunaSearcher(method, SPACE, LOSS, 0)
    states = list(TOLD["tpe"])
    drive(
        searcher, 12, lambda number, params: trial(number, params, states[number % 5], [2.0, 0.5])
    )
    searcher.suggest(12)
    told = searcher.study().trials
    assert len(told) == 12
    assert all(one.state.is_finished() for one in told)


def test_a_running_and_an_interrupted_trial_are_running_then_end_once() -> None:
    searcher = OptunaSearcher("tpe", SPACE, LOSS, 0)
    for event in [started(0, POINT), epoch(0, 1, loss=1.0), ended(0, Status.INTERRUPTED)]:
        searcher.observe(event)
        assert [one.state for one in searcher.study().trials] == [TrialState.RUNNING]
    for event in [epoch(0, 2, loss=0.5), ended(0, Status.COMPLETED)]:
        searcher.observe(event)
    assert [(one.state, one.value) for one in searcher.study().trials] == [(COMPLETE, 0.5)]


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_what_is_not_finite_is_never_a_value(goal: str) -> None:
    searcher = OptunaSearcher("tpe", SPACE, (Objective("loss", goal),), 0)
    for event in trial(0, POINT, Status.COMPLETED, [2.0, float("nan")]):
        searcher.observe(event)
    (told,) = searcher.study().trials
    assert (told.state, told.values, told.intermediate_values) == (PRUNED, None, {})


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_a_diverged_trial_counts_as_worse_than_any(goal: str) -> None:
    objective = Objective("loss", goal)
    searcher = OptunaSearcher("nsga2", SPACE, (objective,), 0)
    for number, loss in enumerate([3.0, -1.0, 7.0]):
        for event in trial(number, POINT, Status.COMPLETED, [loss]):
            searcher.observe(event)
    for event in trial(3, POINT, Status.DIVERGED, [float("nan")]):
        searcher.observe(event)
    losses = [objective.sign * one.value for one in searcher.study().trials]
    assert losses[3] > max(losses[:3])


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_tpe_comes_nearer_to_the_optimum_than_its_random_start(goal: str) -> None:
    sign = Objective("loss", goal).sign

    def distance(params: Mapping[str, float]) -> float:
        return (params["x"] - 0.3) ** 2 + (params["y"] - 0.8) ** 2

    def outcome(number: int, params: Params) -> list[Event]:
        return trial(number, params, Status.COMPLETED, [sign * distance(params)])

    log = drive(build_searcher("tpe", PLANE, (Objective("loss", goal),), 0), 30, outcome)
    distances = [distance(event.params) for event in log if isinstance(event, TrialStarted)]
    assert sum(distances[20:]) / 10 < sum(distances[:10]) / 20


def test_values_and_distributions_that_optuna_lacks_survive_the_study() -> None:
    space = Space(
        (
            Parameter("layers", Categorical(([64, 32], {"n": 1}, None, True))),
            Parameter("noise", Normal(0, 1)),
            Parameter("decay", LogUniform(1e-5, 1e-1, 1e-5)),
            Parameter("kind", Categorical(("a", "b"), (0.9, 0.1))),
        )
    )
    searcher = OptunaSearcher("tpe", space, LOSS, 0)
    drive(searcher, 12, lambda number, params: trial(number, params, Status.COMPLETED, [number]))
    told = searcher.study().trials
    assert all(set(one.params) == set(space.names) for one in told)
    assert {one.params["layers"] for one in told} <= {
        key(v) for v in ([64, 32], {"n": 1}, None, True)
    }


def two_metrics(number: int, params: Params) -> list[Event]:
    status = [Status.COMPLETED, Status.COMPLETED, Status.DIVERGED][number % 3]
    report = epoch(number, 1, loss=float(params["x"]), accuracy=float(params["y"]))
    return [started(number, params), report, ended(number, status)]


@pytest.mark.parametrize("method", ["nsga2", "tpe"])
def test_two_objectives(method: str) -> None:
    searcher, resumed = (OptunaSearcher(method, PLANE, BOTH, 0) for _ in range(2))
    for event in drive(searcher, 9, two_metrics):
        resumed.observe(event)
    assert searcher.suggest(9) == resumed.suggest(9)
    study = searcher.study()
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    told = [one for one in study.trials if one.number % 3 < 2]
    assert all(one.values == [one.params["x"], one.params["y"]] for one in told)
    assert {one.number % 3 for one in study.best_trials} <= {0, 1}


@pytest.mark.parametrize("method", ["tpe", "nsga2"])
def test_the_study_that_lives_on_is_the_one_made_anew_of_the_log(method: str) -> None:
    searcher, log = OptunaSearcher(method, PLANE, LOSS, 0), list[Event]()
    statuses = [*([Status.COMPLETED] * 3), Status.DIVERGED, Status.PRUNED, Status.FAILED]
    running: list[list[Event]] = []
    for number in range(60):
        begin, *rest = trial(
            number,
            searcher.suggest(number) or {},
            statuses[number % 6],
            [60.0 - number, number % 7],
        )
        running.append(rest)
        for event in [begin, *(running.pop(0) if number > 3 else [])]:  # four at a time
            searcher.observe(event)
            log.append(event)
        if number % 10 == 9:
            anew = OptunaSearcher(method, PLANE, LOSS, 0)
            for event in log:
                anew.observe(event)
            assert anew.suggest(number + 1) == searcher.suggest(number + 1)
            assert anew.study().trials == searcher.study().trials


def test_a_suggestion_tells_the_study_only_what_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    tell = SearcherStorage.set_trial
    monkeypatch.setattr(
        SearcherStorage,
        "set_trial",
        lambda self, number, one: (told.append(number), tell(self, number, one))[1],
    )
    searcher = OptunaSearcher("tpe", PLANE, LOSS, 0)
    drive(searcher, 100, lambda number, params: trial(number, params, Status.COMPLETED, [2.0, 0.5]))
    assert len(told) <= 2 * 100  # each as it is asked for, and once it has ended


UNIT = FloatDistribution(0, 1)
LINE = Space((Parameter("x", Uniform(-1, 1)),))


def told(
    events: list[Event], space: Space = LINE, method: SamplerName = "tpe"
) -> list[FrozenTrial]:
    searcher = OptunaSearcher(method, space, LOSS, 0)
    for event in events:
        searcher.observe(event)
    return searcher.study().trials


@pytest.mark.parametrize(
    ("domain", "value", "distribution", "internal"),
    [
        (Uniform(0, 2), 0.5, FloatDistribution(0, 2), 0.5),
        (Uniform(0.05, 0.95, 0.1), 0.3, FloatDistribution(0.1, 0.9, step=0.1), 0.3),
        (Uniform(32, 128, 32), 64, FloatDistribution(32, 128, step=32), 64),
        (LogUniform(1e-4, 1), 0.01, FloatDistribution(1e-4, 1, log=True), 0.01),
        (IntUniform(1, 9), 3, IntDistribution(1, 9), 3),
        (IntUniform(3, 20, 8), 16, IntDistribution(8, 16, step=8), 16),
        (IntUniform(1, 99, log=True), 3, IntDistribution(1, 99, log=True), 3),
        (
            Categorical((1, [2, 3], "x")),
            [2, 3],
            CategoricalDistribution(("1", "[2, 3]", '"x"')),
            "[2, 3]",
        ),
        (LogUniform(0.01, 1, 0.01), 0.1, UNIT, 0.5),
        (Normal(2, 1), 2.0, UNIT, 0.5),
        (LogNormal(0, 1), 1.0, UNIT, 0.5),
        (Beta(3, 3), 0.5, UNIT, 0.5),
        (Categorical(("a", "b", "c"), (0.4, 0.2, 0.4)), "b", UNIT, 0.5),
    ],
)
def test_what_optuna_draws_itself_and_what_is_mapped(
    domain: Domain,
    value: object,
    distribution: optuna.distributions.BaseDistribution,
    internal: object,
) -> None:
    (found,) = told([started(0, {"x": value})], Space((Parameter("x", domain),)))
    assert found.distributions == {"x": distribution}
    assert found.params["x"] == (
        pytest.approx(internal) if isinstance(internal, float) else internal
    )
    assert distribution._contains(distribution.to_internal_repr(found.params["x"]))


def test_only_searched_parameters_that_apply_are_told() -> None:
    space = Space(
        (
            Parameter("on", Categorical((True, False))),
            Parameter("x", Uniform(0, 1), when=Condition((("on", OneOf((True,))),))),
            Parameter("fixed", Constant(3)),
            Parameter("double", Tied(Expression.parse("2 * x"))),
        )
    )
    events = [
        started(0, {"on": False, "fixed": 3}),
        started(1, {"on": True, "x": 0.5, "fixed": 3, "double": 1.0}),
    ]
    assert [one.params for one in told(events, space)] == [
        {"on": "false"},
        {"on": "true", "x": 0.5},
    ]


@pytest.mark.parametrize("params", [{"x": 7.0}, {"x": "high"}])
def test_trials_of_another_space_are_no_part_of_the_study(params: Params) -> None:
    assert told(trial(-1, params, Status.COMPLETED, [1.0])) == []


def test_a_first_trial_that_is_bad_has_a_finite_value() -> None:
    (found,) = told(trial(0, {"x": 0.1}, Status.DIVERGED, []), method="nsga2")
    assert found.state is TrialState.COMPLETE
    assert found.value == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("status", "fewest", "most"), [(Status.DIVERGED, 0.0, 0.4), (Status.FAILED, 0.9, 1.0)]
)
def test_tpe_keeps_away_from_where_trials_diverge_but_learns_nothing_from_failures(
    status: Status, fewest: float, most: float
) -> None:
    def outcome(number: int, params: Params) -> list[Event]:
        return trial(number, params, status if params["x"] > 0 else Status.COMPLETED, [1.0])

    log = drive(OptunaSearcher("tpe", LINE, LOSS, 0), 40, outcome)
    late = [event.params["x"] for event in log if isinstance(event, TrialStarted)][20:]
    assert fewest <= fmean(x > 0 for x in late) <= most


def test_nsga2_reaches_its_second_generation_also_in_a_replay() -> None:
    def outcome(number: int, params: Params) -> list[Event]:
        return trial(number, params, Status.COMPLETED, [params["x"] ** 2])

    searcher, resumed = (OptunaSearcher("nsga2", LINE, LOSS, 0) for _ in range(2))
    for event in drive(searcher, 55, outcome):
        resumed.observe(event)
    for one in (searcher, resumed):
        generations = [t.system_attrs["NSGAIISampler:generation"] for t in one.study().trials]
        assert generations == [0] * 50 + [1] * 5
    assert resumed.suggest(55) == searcher.suggest(55)


@pytest.mark.parametrize("method", ["tpe", "nsga2"])
def test_several_objectives_with_every_state(method: SamplerName) -> None:
    states = [Status.COMPLETED, Status.PRUNED, Status.DIVERGED, Status.FAILED, Status.OOM]

    def outcome(number: int, params: Params) -> list[Event]:
        report = epoch(number, 1, loss=params["x"] ** 2, accuracy=params["x"])
        return [started(number, params), report, ended(number, states[number % 5])]

    searcher = OptunaSearcher(method, LINE, BOTH, 0)
    drive(searcher, 15, outcome)
    params = searcher.suggest(15)
    assert params is not None
    assert -1 <= params["x"] <= 1


def test_optuna_is_silent_and_left_as_it_was(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    verbosity = optuna.logging.get_verbosity()
    when = Condition((("x", OneOf((0.0,))),))
    searcher = OptunaSearcher(
        "tpe", Space((*LINE.parameters, Parameter("y", Uniform(0, 1), when=when))), LOSS, 0
    )
    with caplog.at_level(logging.DEBUG):
        drive(searcher, 12, lambda number, params: trial(number, params, Status.COMPLETED, [1.0]))
    assert not caplog.records
    assert capfd.readouterr().err == ""
    assert optuna.logging.get_verbosity() == verbosity


def test_tpe_keeps_away_from_where_another_trial_runs() -> None:
    def distance(seed: int, status: Status) -> float:
        """Of the next suggestion from a trial that was suggested for the same place."""
        searcher = OptunaSearcher("tpe", LINE, LOSS, seed)
        for number in range(20):
            point = {"x": number / 10 - 1}
            for event in trial(number, point, Status.COMPLETED, [abs(point["x"] - 0.3)]):
                searcher.observe(event)
        for number in range(20, 26):
            for event in trial(number, {"x": 0.3 + (number - 22) / 1000}, status, []):
                searcher.observe(event)
        return abs((searcher.suggest(26) or {})["x"] - 0.3)

    seeds = range(10)
    assert fmean(distance(s, Status.RUNNING) for s in seeds) > 1.5 * fmean(
        distance(s, Status.FAILED) for s in seeds
    )


@pytest.mark.parametrize("method", ["tpe", "nsga2"])
def test_what_trials_have_in_common_is_what_optuna_would_find(method: SamplerName) -> None:
    space = Space(
        (
            Parameter("z", Uniform(0, 1)),
            Parameter("fixed", Constant(3)),
            Parameter("one", Uniform(2, 2)),
            Parameter("a", Categorical(("s", "t"))),
            Parameter("double", Tied(Expression.parse("2 * z"))),
        )
    )
    searcher = OptunaSearcher(method, space, LOSS, 0)
    drive(searcher, 3, lambda number, params: trial(number, params, Status.COMPLETED, [1.0]))
    found = optuna.search_space.intersection_search_space(searcher.study().trials)
    assert list(list_common_distributions(space)) == ["a", "z"]
    assert list_common_distributions(space) == {
        name: known for name, known in found.items() if not known.single()
    }
