"""What every searcher keeps, whatever its method, with and without starting points."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import finite_domains, spaces

from sweep.conformance.searchers import (
    LOSS,
    SPACE,
    SearcherConformance,
    assert_belongs,
    drive,
    mixed_outcome,
)
from sweep.events import TrialStarted
from sweep.runner.methods import build_searcher
from sweep.searchers import Searcher
from sweep.searchers.points import uniform_draws
from sweep.space import Parameter, Space
from sweep.space.domains import IntUniform, LogUniform, Uniform, key
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective
from sweep.spec.search_methods import STANDALONE, find_method

METHODS = [method.name for method in STANDALONE]
every_method = pytest.mark.parametrize("method", METHODS)
every_drawing_method = pytest.mark.parametrize(
    "method", [m.name for m in STANDALONE if not m.enumerates]
)

THREE = Expression.parse("6 < n < 10"), Expression.parse("x == 0.5")


def build_one(method: str, space: Space = SPACE, seed: int = 0) -> Searcher:
    return build_searcher(method, space, LOSS, seed)


@pytest.mark.parametrize("method", METHODS)
class TestMethods(SearcherConformance):
    @pytest.fixture(autouse=True)
    def _choose(self, method: str) -> None:
        self.method = method

    def make(self, space: Space, objectives: tuple[Objective, ...], seed: int) -> Searcher:
        return build_searcher(self.method, space, objectives, seed)


class TestMethodsThatStartWithPoints(TestMethods):
    def make(self, space: Space, objectives: tuple[Objective, ...], seed: int) -> Searcher:
        start = {"lr": 1e-3} if "lr" in space.names else {"a": 2, "b": "y", "c": 0}
        return build_searcher(self.method, space, objectives, seed, start_with=[start])


@every_method
def test_what_does_not_learn_foresees(method: str) -> None:
    assert build_one(method).foresees != find_method(method).learns


@every_drawing_method
def test_another_seed_gives_another_sweep(method: str) -> None:
    assert build_one(method, seed=0).suggest(0) != build_one(method, seed=1).suggest(0)


@every_method
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 2**31))
def test_suggestions_belong_to_the_space(method: str, data: st.DataObject, seed: int) -> None:
    space = data.draw(spaces(finite_domains) if find_method(method).enumerates else spaces())
    assume(
        next(space.points(), None) if space.cardinality is not None else feasible_at_random(space)
    )
    log = drive(build_searcher(method, space, LOSS, seed), 14, mixed_outcome)
    assert log
    for event in log:
        if isinstance(event, TrialStarted):
            assert_belongs(event.params, space)


def feasible_at_random(space: Space) -> bool:
    return any(space.complete_if_feasible(draw) for draw in islice(uniform_draws(0, 0), 100))


@every_drawing_method
def test_constraints_that_hardly_a_point_meets_leave_different_trials(method: str) -> None:
    domains = Uniform(0, 1), LogUniform(1e-6, 1), LogUniform(1e-6, 1)
    thin = Expression.parse("1e-8 < b * c < 1.0001e-8"), Expression.parse("a < 1e-3")
    space = Space(
        tuple(Parameter(name, domain) for name, domain in zip("abc", domains, strict=True)), thin
    )
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
    space = Space(
        (Parameter("n", IntUniform(1, 10**9)), Parameter("x", Uniform(0, 1, 0.25))), THREE
    )
    log = drive(build_one(method, space), 20, mixed_outcome)
    assert sorted(event.params["n"] for event in log if isinstance(event, TrialStarted)) == [
        7,
        8,
        9,
    ]
