"""What every searcher keeps, whatever its method."""

from __future__ import annotations

from itertools import islice, zip_longest

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from logs import drive, trial
from strategies import finite_domains, spaces

from sweep.events import Event, Params, Status, TrialStarted
from sweep.searchers.build import METHODS as ALL_METHODS
from sweep.searchers.build import build
from sweep.searchers.contract import Searcher
from sweep.searchers.novelty import uniform_draws
from sweep.space.domains import Categorical, IntUniform, LogUniform, Normal, Tied, Uniform, contains, key
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective
from sweep.space.space import Between, Condition, OneOf, Parameter, Space

LOSS = (Objective("loss", "minimize"),)
METHODS = [m for m in ALL_METHODS if m not in ("bayes", "gp")]  # gp takes minutes: test_gp.py
every_method = pytest.mark.parametrize("method", METHODS)
every_drawing_method = pytest.mark.parametrize("method", [m for m in METHODS if m != "grid"])

SPACE = Space(
    (
        Parameter("lr", LogUniform(1e-5, 1e-1), grid_count=4),
        Parameter("decay", LogUniform(1e-5, 1e-1, 1e-5), grid_count=3),
        Parameter("optimizer", Categorical(("sgd", "adam", ["custom", 1]))),
        Parameter("momentum", Uniform(0, 0.99, 0.01), grid_count=2, when=Condition((("optimizer", OneOf(("sgd",))),))),
        Parameter("units", IntUniform(16, 256, 16), grid_count=2),
        Parameter("bias", Normal(0, 1), grid_count=2, when=Condition((("units", Between(min=128)),))),
        Parameter("schedule", Categorical(("cosine", "step"), (0.7, 0.3))),
        Parameter("warm", Tied(Expression.parse("lr / 10"))),
    ),
    (Expression.parse("lr * units < 2"),),
)
FINITE = Space(
    (
        Parameter("a", IntUniform(1, 4)),
        Parameter("b", Categorical(("x", "y"))),
        Parameter("c", IntUniform(0, 1), when=Condition((("b", OneOf(("y",))),))),
    ),
    (Expression.parse("a != 3"),),
)  # 3 x (1 + 2) points

THREE = Expression.parse("6 < n < 10"), Expression.parse("x == 0.5")

STATES = [Status.COMPLETED, Status.PRUNED, Status.DIVERGED, Status.FAILED, Status.OOM, Status.RUNNING]


def build_one(method: str, space: Space = SPACE, seed: int = 0) -> Searcher:
    return build(method, space, LOSS, seed)


def mixed_outcome(number: int, params: Params) -> list[Event]:
    """Every state a trial can have, more completed than others."""
    status = STATES[number % 6] if number % 3 == 2 else Status.COMPLETED
    loss = sum(map(ord, key(params))) % 97 / 97
    return trial(number, params, status, [loss + 1, loss + 0.5, loss])


def assert_belongs(params: Params, space: Space) -> None:
    assert space.violated(params) == []
    for parameter in space.parameters:
        assert (parameter.name in params) == parameter.applies(params)
        assert parameter.name not in params or contains(parameter.domain, params[parameter.name])
    assert list(params) == [name for name in space.names if name in params]


@every_method
def test_the_same_seed_and_history_give_the_same_suggestions(method: str) -> None:
    first, second = build_one(method), build_one(method)
    assert drive(first, 25, mixed_outcome) == drive(second, 25, mixed_outcome)
    assert first.suggest(25) == second.suggest(25)


@every_method
def test_a_replayed_log_gives_the_next_suggestion(method: str) -> None:
    searcher, resumed = build_one(method), build_one(method)
    for event in drive(searcher, 25, mixed_outcome):
        resumed.observe(event)
    assert resumed.suggest(25) == searcher.suggest(25)


@every_method
def test_a_replay_of_trials_that_ran_at_once_gives_the_next_suggestion(method: str) -> None:
    searcher, resumed = build_one(method), build_one(method)
    log: list[Event] = []
    for first in range(0, 24, 4):  # four at a time, which report in turns and end in another order
        batch = []
        for number in range(first, first + 4):
            params = searcher.suggest(number)
            begin, *rest = mixed_outcome(number, params or {})
            searcher.observe(begin)
            log.append(begin)
            batch.append(rest)
        for events in zip_longest(*reversed(batch)):
            for event in filter(None, events):
                searcher.observe(event)
                log.append(event)
    for event in log:
        resumed.observe(event)
    assert resumed.suggest(24) == searcher.suggest(24)


@every_method
def test_suggesting_changes_nothing(method: str) -> None:
    searcher, asked_often = build_one(method), build_one(method)
    log = drive(searcher, 14, mixed_outcome)
    for event in log:
        if isinstance(event, TrialStarted):
            asked_often.suggest(event.trial)
            asked_often.suggest(event.trial)
        asked_often.observe(event)
    assert asked_often.suggest(14) == asked_often.suggest(14) == searcher.suggest(14)


@every_method
def test_a_started_trial_is_suggested_as_it_started(method: str) -> None:
    searcher = build_one(method)
    log = drive(searcher, 5, mixed_outcome)
    begun = {event.trial: event.params for event in log if isinstance(event, TrialStarted)}
    assert [searcher.suggest(number) for number in range(5)] == [begun[number] for number in range(5)]


@every_method
def test_trials_differ_also_while_all_are_running(method: str) -> None:
    log = drive(build_one(method), 12, lambda number, params: trial(number, params, Status.RUNNING, []))
    assert len({key(event.params) for event in log if isinstance(event, TrialStarted)}) == 12


@every_drawing_method
def test_another_seed_gives_another_sweep(method: str) -> None:
    assert build_one(method, seed=0).suggest(0) != build_one(method, seed=1).suggest(0)


@every_method
def test_a_finite_space_is_tried_completely_once_then_exhausted(method: str) -> None:
    searcher = build_one(method, FINITE)
    log = drive(searcher, 30, mixed_outcome)
    tried = [key(event.params) for event in log if isinstance(event, TrialStarted)]
    assert sorted(tried) == sorted(key(point) for point in FINITE.points())
    assert searcher.suggest(len(tried)) is None


@every_method
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 2**31))
def test_suggestions_belong_to_the_space(method: str, data: st.DataObject, seed: int) -> None:
    space = data.draw(spaces(finite_domains) if method == "grid" else spaces())
    assume(next(space.points(), None) if space.finite() else feasible_at_random(space))
    log = drive(build(method, space, LOSS, seed), 14, mixed_outcome)
    assert log
    for event in log:
        if isinstance(event, TrialStarted):
            assert_belongs(event.params, space)


def feasible_at_random(space: Space) -> bool:
    return any(space.feasible(draw) for draw in islice(uniform_draws(0, 0), 100))


@every_drawing_method
def test_constraints_that_hardly_a_point_meets_leave_different_trials(method: str) -> None:
    domains = Uniform(0, 1), LogUniform(1e-6, 1), LogUniform(1e-6, 1)
    thin = Expression.parse("1e-8 < b * c < 1.0001e-8"), Expression.parse("a < 1e-3")
    space = Space(tuple(Parameter(name, domain) for name, domain in zip("abc", domains, strict=True)), thin)
    searcher, resumed = build_one(method, space), build_one(method, space)
    log = drive(searcher, 12, mixed_outcome)
    tried = [event.params for event in log if isinstance(event, TrialStarted)]
    assert len({key(params) for params in tried}) == 12
    for params in tried:
        assert_belongs(params, space)
    for event in log:
        resumed.observe(event)
    assert resumed.suggest(12) == searcher.suggest(12)


@every_drawing_method
def test_a_space_too_large_to_count_ends_when_no_other_point_is_allowed(method: str) -> None:
    space = Space((Parameter("n", IntUniform(1, 10**9)), Parameter("x", Uniform(0, 1, 0.25))), THREE)
    log = drive(build_one(method, space), 20, mixed_outcome)
    assert sorted(event.params["n"] for event in log if isinstance(event, TrialStarted)) == [7, 8, 9]
