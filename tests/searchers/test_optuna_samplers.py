"""Optuna's samplers: what they draw themselves, and that they learn from what the study tells them."""

from __future__ import annotations

import logging
from statistics import fmean

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from sweep.conformance.searchers import drive, ended, epoch, started, trial
from sweep.events import Event, Params, Status, TrialStarted
from sweep.searchers.optuna_samplers import Method, common
from sweep.searchers.optuna_search import OptunaSearcher
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
)
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective
from sweep.space.space import Condition, OneOf, Parameter, Space

LOSS = (Objective("loss", "minimize"),)
BOTH = (*LOSS, Objective("accuracy", "maximize"))
UNIT = FloatDistribution(0, 1)
LINE = Space((Parameter("x", Uniform(-1, 1)),))


def told(events: list[Event], space: Space = LINE, method: Method = "tpe") -> list[FrozenTrial]:
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
        (Categorical((1, [2, 3], "x")), [2, 3], CategoricalDistribution(("1", "[2, 3]", '"x"')), "[2, 3]"),
        (LogUniform(0.01, 1, 0.01), 0.1, UNIT, 0.5),
        (Normal(2, 1), 2.0, UNIT, 0.5),
        (LogNormal(0, 1), 1.0, UNIT, 0.5),
        (Beta(3, 3), 0.5, UNIT, 0.5),
        (Categorical(("a", "b", "c"), (0.4, 0.2, 0.4)), "b", UNIT, 0.5),
    ],
)
def test_what_optuna_draws_itself_and_what_is_mapped(
    domain: Domain, value: object, distribution: optuna.distributions.BaseDistribution, internal: object
) -> None:
    (found,) = told([started(0, {"x": value})], Space((Parameter("x", domain),)))
    assert found.distributions == {"x": distribution}
    assert found.params["x"] == (pytest.approx(internal) if isinstance(internal, float) else internal)
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
    events = [started(0, {"on": False, "fixed": 3}), started(1, {"on": True, "x": 0.5, "fixed": 3, "double": 1.0})]
    assert [one.params for one in told(events, space)] == [{"on": "false"}, {"on": "true", "x": 0.5}]


@pytest.mark.parametrize("params", [{"x": 7.0}, {"x": "high"}])
def test_trials_of_another_space_are_no_part_of_the_study(params: Params) -> None:
    assert told(trial(-1, params, Status.COMPLETED, [1.0])) == []


def test_a_first_trial_that_is_bad_has_a_finite_value() -> None:
    (found,) = told(trial(0, {"x": 0.1}, Status.DIVERGED, []), method="nsga2")
    assert found.state is TrialState.COMPLETE
    assert found.value == pytest.approx(0.1)


@pytest.mark.parametrize(("status", "fewest", "most"), [(Status.DIVERGED, 0.0, 0.4), (Status.FAILED, 0.9, 1.0)])
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
def test_several_objectives_with_every_state(method: Method) -> None:
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
    searcher = OptunaSearcher("tpe", Space((*LINE.parameters, Parameter("y", Uniform(0, 1), when=when))), LOSS, 0)
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
    assert fmean(distance(s, Status.RUNNING) for s in seeds) > 1.5 * fmean(distance(s, Status.FAILED) for s in seeds)


@pytest.mark.parametrize("method", ["tpe", "nsga2"])
def test_what_trials_have_in_common_is_what_optuna_would_find(method: Method) -> None:
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
    assert list(common(space)) == ["a", "z"]
    assert common(space) == {name: known for name, known in found.items() if not known.single()}
