"""Searchers by name, with starting points and repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from sweep.conformance.searchers import (
    FINITE,
    LOSS,
    SPACE,
    assert_belongs,
    drive,
    ended,
    epoch,
    mixed_outcome,
    started,
    trial,
)
from sweep.errors import InputError
from sweep.events import EpochReported, Event, Params, Status, TrialEnded, TrialStarted
from sweep.runner.methods import Repeated, build_searcher, complete_starting_points, scheduler
from sweep.space import Parameter, Space
from sweep.space.domains import IntUniform, LogUniform, Uniform, key
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective
from sweep.spec import parse_spec
from sweep.spec.search_methods import STANDALONE, find_method

LINE = Space((Parameter("x", Uniform(0, 1)),))


def test_an_unknown_method_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown method 'radnom'; did you mean 'random'"):
        build_searcher("radnom", LINE, LOSS, 0)


@pytest.mark.parametrize("method", ["auto", "pbt", "my_search:Climb"])
def test_a_method_that_is_not_built_from_a_space_alone_is_refused(method: str) -> None:
    with pytest.raises(InputError, match=f"unknown method '{method}'"):
        build_searcher(method, LINE, LOSS, 0)


@pytest.mark.parametrize("method", [m.name for m in STANDALONE if not m.several_objectives])
def test_several_objectives_are_refused_by_methods_for_one(method: str) -> None:
    both = (*LOSS, Objective("accuracy", "maximize"))
    with pytest.raises(
        InputError, match=f"{method} optimizes one objective only; method: tpe, or nsga2"
    ):
        build_searcher(method, LINE, both, 0)


def test_bayes_is_tpe() -> None:
    assert build_searcher("bayes", LINE, LOSS, 3).suggest(0) == build_searcher(
        "tpe", LINE, LOSS, 3
    ).suggest(0)


def test_only_repeats_are_wrapped() -> None:
    assert isinstance(build_searcher("random", LINE, LOSS, 0, repeats=2), Repeated)
    assert not isinstance(build_searcher("random", LINE, LOSS, 0), Repeated)


WHOLE = {
    "lr": 3e-4,
    "decay": 5e-5,
    "optimizer": "sgd",
    "momentum": 0.9,
    "units": 16,
    "schedule": "step",
}
PART = {"optimizer": "adam", "units": 32}
every_method = pytest.mark.parametrize("method", [m.name for m in STANDALONE])


def suggested(log: list[Event]) -> list[Params]:
    return [event.params for event in log if isinstance(event, TrialStarted)]


@every_method
def test_they_come_first_and_only_once(method: str) -> None:
    searcher = build_searcher(method, SPACE, LOSS, 0, start_with=[WHOLE, PART])
    tried = suggested(drive(searcher, 20, mixed_outcome))
    assert tried[0] == {**WHOLE, "warm": 3e-4 / 10}
    assert PART.items() <= tried[1].items()
    assert len({key(params) for params in tried}) == len(tried)
    # a grid's first is not one of its own points
    for params in tried[:1] if find_method(method).enumerates else tried:
        assert_belongs(params, SPACE)


@every_method
def test_each_is_trained_as_often_as_others(method: str) -> None:
    searcher = build_searcher(method, FINITE, LOSS, 0, repeats=2, start_with=[{"a": 4, "b": "x"}])
    tried = suggested(
        drive(
            searcher,
            4,
            lambda number, params: trial(number, params, Status.COMPLETED, [1.0], number % 2),
        )
    )
    assert tried[0] == tried[1] == {"a": 4, "b": "x"}
    assert tried[2] == tried[3] != tried[0]


def test_what_is_left_out_is_drawn_within_the_constraints() -> None:
    thin = Space(
        (
            Parameter("x", Uniform(0, 1)),
            Parameter("y", Uniform(0, 1)),
            Parameter("n", IntUniform(1, 3)),
        ),
        (Expression.parse("abs(x - y) < 1e-7"),),
    )
    (point,) = complete_starting_points(thin, [{"x": 0.25}], 0)
    assert point["x"] == 0.25
    assert thin.list_violated(point) == []
    assert complete_starting_points(thin, [{"x": 0.25}], 0) == [point]


def test_a_start_that_leaves_nothing_new_is_passed_over() -> None:
    assert complete_starting_points(FINITE, [{"a": 1, "b": "x"}, {"a": 1, "b": "x"}], 0) == [
        {"a": 1, "b": "x"}
    ]


def test_a_grid_completes_them_by_what_comes_first_and_leaves_them_out_later() -> None:
    space = Space((Parameter("x", Uniform(0, 1), grid_count=3), Parameter("n", IntUniform(1, 2))))
    searcher = build_searcher("grid", space, LOSS, 0, start_with=[{"n": 2}, {"x": 0.3}])
    tried = suggested(drive(searcher, 20, mixed_outcome))
    assert tried[:2] == [{"x": 0.0, "n": 2}, {"x": 0.3, "n": 1}]
    assert [key(params) for params in tried[2:]] == [
        key(p) for p in space.grid() if key(p) != key(tried[0])
    ]


COMPLETED, PRUNED, DIVERGED = Status.COMPLETED, Status.PRUNED, Status.DIVERGED
OOM, FAILED, INTERRUPTED = Status.OOM, Status.FAILED, Status.INTERRUPTED


class Listener:
    """A searcher that suggests its number and keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def suggest(self, number: int) -> Params | None:
        return {"n": number + 100 * len(self.heard)}

    def observe(self, event: Event) -> None:
        self.heard.append(event)


def hear(groups: Sequence[tuple[Status, list[float]]]) -> list[Event]:
    """What the inner searcher hears of the repeats of configuration 0."""
    listener = Listener()
    searcher = Repeated(listener, len(groups))
    for number, (status, losses) in enumerate(groups):
        for event in trial(number, {"n": 0}, status, losses, repeat=number):
            searcher.observe(event)
    return listener.heard


def test_each_configuration_is_suggested_as_often_as_it_repeats() -> None:
    searcher = Repeated(Listener(), 3)
    log = drive(searcher, 7, lambda number, params: [started(number, params, number % 3)])
    assert [event.params["n"] for event in log if isinstance(event, TrialStarted)] == [
        0,
        0,
        0,
        101,
        101,
        101,
        202,
    ]


def test_the_mean_is_told_once_all_repeats_have_ended() -> None:
    assert len(hear([(COMPLETED, [3.0, 1.0]), (Status.RUNNING, [5.0])])) == 1
    start, *reports, end = hear([(COMPLETED, [3.0, 1.0]), (COMPLETED, [5.0, 2.0])])
    assert isinstance(start, TrialStarted)
    assert start.trial == start.repeat == 0
    assert [
        (r.trial, r.epoch, dict(r.metrics)) for r in reports if isinstance(r, EpochReported)
    ] == [
        (0, 1, {"loss": 4.0}),
        (0, 2, {"loss": 1.5}),
    ]
    assert isinstance(end, TrialEnded)
    assert (end.trial, end.status) == (0, COMPLETED)


@pytest.mark.parametrize(
    ("groups", "status", "losses"),
    [
        ([(COMPLETED, [4.0, 2.0]), (FAILED, [9.0])], COMPLETED, [4.0, 2.0]),
        ([(COMPLETED, [4.0, 2.0]), (PRUNED, [8.0])], PRUNED, [6.0]),
        ([(PRUNED, [4.0, 2.0]), (PRUNED, [8.0])], PRUNED, [6.0]),
        ([(COMPLETED, [4.0]), (PRUNED, [])], PRUNED, []),
        ([(COMPLETED, [4.0]), (DIVERGED, [8.0])], DIVERGED, [4.0]),
        ([(OOM, []), (DIVERGED, []), (FAILED, [])], DIVERGED, []),
        ([(OOM, []), (PRUNED, [1.0])], OOM, [1.0]),
        ([(FAILED, [1.0]), (FAILED, [2.0])], FAILED, [1.5]),
    ],
)
def test_the_state_of_a_configuration(
    groups: list[tuple[Status, list[float]]], status: Status, losses: list[float]
) -> None:
    _, *reports, end = hear(groups)
    assert isinstance(end, TrialEnded)
    assert end.status is status
    assert [r.metrics["loss"] for r in reports if isinstance(r, EpochReported)] == losses


def test_only_metrics_that_all_repeats_report_have_a_mean() -> None:
    listener = Listener()
    searcher = Repeated(listener, 2)
    for event in [
        started(0, {}),
        started(1, {}),
        epoch(0, 1, loss=1.0, odd=1.0),
        epoch(1, 1, loss=2.0),
        ended(0, COMPLETED),
        ended(1, COMPLETED),
    ]:
        searcher.observe(event)
    assert [event.metrics for event in listener.heard if isinstance(event, EpochReported)] == [
        {"loss": 1.5}
    ]


@pytest.mark.parametrize("values", [(math.inf, -math.inf), (1.7e308, 1.7e308)])
def test_what_has_no_mean_is_nan(values: tuple[float, float]) -> None:
    """Two seeds that diverge in opposite directions, for example."""
    _, report, _ = hear([(DIVERGED, [value]) for value in values])
    assert isinstance(report, EpochReported)
    assert math.isnan(report.metrics["loss"])


def test_an_interrupted_repeat_keeps_its_configuration_open() -> None:
    heard = hear([(COMPLETED, [1.0]), (INTERRUPTED, [2.0])])
    assert [type(event) for event in heard] == [TrialStarted]


@pytest.mark.parametrize("method", ["grid", "random", "sobol", "tpe"])
def test_repeats_with_real_searchers(method: str) -> None:
    space = Space(
        (Parameter("lr", LogUniform(1e-4, 1e-1), grid_count=4), Parameter("n", IntUniform(1, 3)))
    )

    def outcome(number: int, params: Params) -> list[Event]:
        return trial(number, params, COMPLETED, [1.0 + number % 3, params["lr"]], number % 3)

    one, other = (
        build_searcher(method, space, (Objective("loss", "minimize"),), 0, repeats=3)
        for _ in range(2)
    )
    log = drive(one, 36, outcome)
    keys = [key(event.params) for event in log if isinstance(event, TrialStarted)]
    assert keys[::3] == keys[1::3] == keys[2::3]
    assert len(set(keys)) == 12
    for event in log:
        other.observe(event)
    assert other.suggest(36) == one.suggest(36)


@pytest.mark.parametrize("epochs", ["value: 81", "values: [27, 81]"])
@pytest.mark.parametrize("rule", ["asha", "hyperband"])
def test_a_rule_acts_on_all_epochs_of_trials_with_epochs_of_their_own(
    rule: str, epochs: str
) -> None:
    # without the key `epochs`, which is 10 by default
    file = f"""
trainable: a:B
method: random
metric: {{name: loss, goal: minimize}}
parameters: {{x: {{min: 0.0, max: 1.0}}, epochs: {{{epochs}}}}}
early_terminate: {{type: {rule}, min_iter: 27}}
run_cap: 9
"""
    stopping = scheduler(parse_spec(file, "some.yaml"), ())
    assert stopping.decision_epochs(81) == (27,)
    stopped = []
    for number in range(9):
        stopping.observe(started(number, {"x": 0.1 * number, "epochs": 81}))
        if stopping.observe(epoch(number, 27, loss=float(number))):
            stopped.append(number)
    assert 8 in stopped
