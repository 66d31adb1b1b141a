"""The Gaussian process, for real: what the conformance suite asks of all methods, in few trials.

From its eleventh trial on it fits a model, which takes seconds.
"""

from __future__ import annotations

from importlib.util import find_spec
from statistics import fmean

import pytest

from sweep.conformance.searchers import drive, trial
from sweep.events import Event, Params, Status, TrialStarted
from sweep.runner.methods import build_searcher
from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import Beta, Categorical, LogUniform, Uniform, contains
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective
from sweep.store.ledger import ended

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason='gp needs torch: pip install "sweep-keras[gp]"'),
]

LOSS = (Objective("loss", "minimize"),)
STATES = [Status.COMPLETED, Status.COMPLETED, Status.COMPLETED, Status.DIVERGED, Status.PRUNED, Status.FAILED]
PLANE = Space((Parameter("x", Uniform(-1, 1)), Parameter("y", Uniform(-1, 1))))
MIXED = Space(
    (
        Parameter("lr", LogUniform(1e-4, 1e-1)),
        Parameter("kind", Categorical(("sgd", "adam"))),
        Parameter("momentum", Beta(2, 2, 0.1), when=Condition((("kind", OneOf(("sgd",))),))),
    ),
    (Expression.parse("lr < 0.09"),),
)


def distance(params: Params) -> float:
    return (params["x"] - 0.7) ** 2 + (params["y"] + 0.6) ** 2


def plane(number: int, params: Params) -> list[Event]:
    return trial(number, params, Status.COMPLETED, [distance(params)])


def mixed(number: int, params: Params) -> list[Event]:
    return trial(number, params, STATES[number % 6], [abs(params["lr"] - 0.01)])


def points(log: list[Event]) -> list[Params]:
    return [event.params for event in log if isinstance(event, TrialStarted)]


def test_it_comes_near_the_optimum() -> None:
    found = points(drive(build_searcher("gp", PLANE, LOSS, 0), 14, plane))
    assert fmean(map(distance, found[11:])) < 0.5 * fmean(map(distance, found[:11]))


def test_a_replayed_log_gives_the_next_suggestion_and_all_belong_to_the_space() -> None:
    searcher, resumed = (build_searcher("gp", MIXED, LOSS, 0) for _ in range(2))
    log = drive(searcher, 18, mixed)
    for event in log:
        resumed.observe(event)
    assert searcher.suggest(18) == resumed.suggest(18)
    for params in points(log):
        assert MIXED.violated(params) == []
        assert all(contains(p.domain, params[p.name]) for p in MIXED.parameters if p.applies(params))


def test_it_learns_from_an_earlier_sweep() -> None:
    past = ended(drive(build_searcher("random", PLANE, LOSS, 5), 30, plane))
    warm = build_searcher("gp", PLANE, LOSS, 0)
    assert warm.learn(past) == 30
    found = points(drive(warm, 2, plane))
    assert fmean(map(distance, found)) < 0.5 * fmean(distance(record.params) for record in past)
