"""The searcher that models learning curves, beside what the conformance suite asks of all searchers."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from statistics import fmean

import pytest
from msgspec import structs

from sweep.conformance.searchers import LOSS, SPACE, drive, ended, epoch, started, trial
from sweep.events import Event, Params, Status, TrialStarted
from sweep.runner.methods import build_searcher
from sweep.searchers.gp_search import END, GaussianProcessSearcher
from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import Categorical, Constant, LogUniform, Uniform
from sweep.space.draws import Belief
from sweep.space.objectives import Objective

PLANE = Space((Parameter("x", Uniform(-1, 1)), Parameter("y", Uniform(-1, 1))))
POINT: Params = {"x": 0.0, "y": 0.0}


def distance(params: Params) -> float:
    return (params["x"] - 0.7) ** 2 + (params["y"] + 0.6) ** 2


def outcome(number: int, params: Params) -> list[Event]:
    return trial(number, params, Status.COMPLETED, [distance(params)])


def points(log: list[Event]) -> list[Params]:
    return [event.params for event in log if isinstance(event, TrialStarted)]


def told(*events: list[Event], objective: Objective = LOSS[0]) -> GaussianProcessSearcher:
    """Return a searcher that has observed these events."""
    searcher = GaussianProcessSearcher(PLANE, (objective,), 0)
    for several in events:
        for event in several:
            searcher.observe(event)
    return searcher


def counted(searcher: GaussianProcessSearcher) -> list[tuple[int, float, float]]:
    """Return trial, rung and loss of each result that the model is told."""
    return [(one.place, one.rung, one.loss) for one in searcher.results]


def pause(number: int) -> Event:
    return structs.replace(ended(number, Status.INTERRUPTED), waits=True)


def test_it_comes_to_the_optimum_in_few_trials() -> None:
    found = points(drive(build_searcher("gp", PLANE, LOSS, 0), 15, outcome))
    assert min(map(distance, found)) < 1e-3


def test_trials_that_run_at_once_do_not_crowd() -> None:
    searcher = build_searcher("gp", PLANE, LOSS, 0)
    log = drive(searcher, 12, outcome)
    running = drive(
        searcher,
        20,
        lambda number, params: trial(number, params, Status.RUNNING, []) if number >= 12 else [],
    )
    out = points(running)
    gaps = [
        math.dist(one.values(), other.values()) for one in out for other in out if one is not other
    ]
    assert len(out) == 8
    assert min(gaps) > 1e-3
    assert len(points(log)) == 12


def test_a_rung_is_where_trials_pause_and_all_that_came_there_count() -> None:
    searcher = told(
        [started(0, POINT), *(epoch(0, at, loss=9.0 - at) for at in range(1, 5))],  # goes on
        [started(1, {"x": 0.5, "y": 0.0}), epoch(1, 1, loss=3.0), epoch(1, 2, loss=2.0), pause(1)],
        [started(2, {"x": 0.9, "y": 0.0}), epoch(2, 1, loss=4.0), epoch(2, 2, loss=3.0), pause(2)],
    )
    assert counted(searcher) == [(0, 2, 7.0), (1, 2, 2.0), (2, 2, 3.0)]
    searcher.observe(epoch(0, 5, loss=1.0))
    searcher.observe(ended(0, Status.COMPLETED))
    assert counted(searcher)[3:] == [(0, END, 1.0)]


@pytest.mark.parametrize(
    ("status", "losses", "expected"),
    [
        (Status.COMPLETED, [5.0, 4.0, 3.0], [(2, 4.0), (END, 3.0)]),
        # stopped by patience: it has trained whole
        (
            Status.COMPLETED,
            [5.0],
            [(2, 5.0), (END, 5.0)],
        ),
        (Status.PRUNED, [5.0], [(2, 5.0)]),  # below the rung: as good as it was
        (Status.PRUNED, [5.0, 4.0, 3.0], [(2, 4.0)]),
        (Status.DIVERGED, [5.0, math.nan], [(2, 5.0), (END, math.inf)]),
        (Status.DIVERGED, [math.nan], [(2, math.inf)]),
        (Status.OOM, [], [(2, math.inf)]),
        (Status.FAILED, [5.0, 4.0, 3.0], [(2, 4.0)]),
        (Status.FAILED, [], []),
        (Status.RUNNING, [5.0], []),
        (Status.RUNNING, [5.0, 4.0], [(2, 4.0)]),
    ],
)
def test_what_a_trial_counts_as_is_a_value_with_its_rung(
    status: Status, losses: list[float], expected: list[tuple[float, float]]
) -> None:
    rung = [
        [started(n, {"x": n / 9, "y": 0.0}), epoch(n, 1, loss=3.0), epoch(n, 2, loss=2.0), pause(n)]
        for n in (0, 1)
    ]
    searcher = told(*rung, trial(2, POINT, status, losses))
    assert [(at, loss) for place, at, loss in counted(searcher) if place == 2] == expected


@pytest.mark.parametrize(
    ("impute", "expected"), [(None, []), ("worst", [math.inf]), ("latest", [4.0]), ("best", [2.0])]
)
def test_a_failed_trial_counts_by_impute(impute: str | None, expected: list[float]) -> None:
    searcher = told(
        trial(0, POINT, Status.FAILED, [2.0, 4.0]), objective=Objective("loss", "minimize", impute)
    )
    assert [loss for _, _, loss in counted(searcher)] == expected


def quick_or_good(params: Params, at: int) -> float:
    """Return the loss of a trial that ends best at x = 0.7 and y = 0, and begins best at x = -0.7."""
    quick, slow = (params["x"] + 0.7) ** 2, (params["x"] - 0.7) ** 2
    return (1 - at / 9) * (1 + quick) + at / 9 * slow + 0.1 * params["y"] ** 2


def pause_most(number: int, params: Params) -> list[Event]:
    """Return the events of a trial: a third of them train for 9 epochs, the others pause after 3."""
    reports = [epoch(number, at, loss=quick_or_good(params, at)) for at in range(1, 10)]
    if number % 3:
        return [started(number, params), *reports[:3], pause(number)]
    return [started(number, params), *reports, ended(number, Status.COMPLETED)]


def test_quick_starters_do_not_take_over() -> None:
    late = points(drive(build_searcher("gp", PLANE, LOSS, 0), 30, pause_most))[20:]
    assert all(params["x"] > 0.4 for params in late)


def test_what_a_trial_would_show_before_it_pauses_is_not_known_yet() -> None:
    """Near copies of the best trials teach nothing at the rung where most trials pause."""
    found = points(drive(build_searcher("gp", PLANE, LOSS, 0), 40, pause_most))
    nearest = []
    for place, params in enumerate(found):
        if place >= 8:  # later than the design
            nearest.append(
                min(math.dist(params.values(), other.values()) for other in found[:place])
            )
    assert sum(distance > 0.1 for distance in nearest) > 0.8 * len(nearest)
    assert min(quick_or_good(params, 9) for params in found[::3]) < 0.005


def test_conditional_parameters_and_choices_are_learned() -> None:
    sgd = Condition((("kind", OneOf(("sgd",))),))
    space = Space(
        (
            Parameter("kind", Categorical(("sgd", "adam", "lion"))),
            Parameter("momentum", Uniform(0, 1), when=sgd),
            Parameter("rate", LogUniform(1e-4, 1)),
        )
    )

    def cost(params: Params) -> float:
        own = (
            (params["momentum"] - 0.8) ** 2
            if params["kind"] == "sgd"
            else 0.3
            if params["kind"] == "adam"
            else 0.6
        )
        return own + 0.1 * (math.log10(params["rate"]) + 2) ** 2

    runs = [
        points(
            drive(
                build_searcher("gp", space, LOSS, seed),
                30,
                lambda n, p: trial(n, p, Status.COMPLETED, [cost(p)]),
            )
        )
        for seed in range(3)
    ]
    assert fmean(min(map(cost, run)) for run in runs) < 0.01
    assert fmean(run[-1]["kind"] == "sgd" for run in runs) > 0.5


def test_a_suggestion_takes_no_longer_where_many_results_are_known() -> None:
    space = Space(tuple(Parameter(f"x{one}", Uniform(0, 1)) for one in range(7)))
    searcher = build_searcher("gp", space, LOSS, 0)
    random = build_searcher("random", space, LOSS, 1)
    took = []
    for number in range(900):
        params = random.suggest(number)
        assert params is not None
        for event in trial(number, params, Status.COMPLETED, [sum(params.values())]):
            searcher.observe(event)
        if number in (299, 300, 898, 899):
            began = time.process_time()
            searcher.suggest(number + 1)
            took.append(time.process_time() - began)
    assert min(took[2:]) < 2 * min(took[:2]) + 0.05
    assert min(took) < 0.5  # 0.1 s on a machine that does nothing else


def test_a_space_without_a_choice_has_one_suggestion() -> None:
    searcher = build_searcher("gp", Space((Parameter("x", Constant(1)),)), LOSS, 0)
    assert points(drive(searcher, 3, lambda n, p: trial(n, p, Status.COMPLETED, [1.0]))) == [
        {"x": 1}
    ]


def test_all_trials_that_fail_leave_the_design() -> None:
    log = drive(build_searcher("gp", PLANE, LOSS, 0), 9, lambda n, p: trial(n, p, Status.OOM, []))
    assert len(points(log)) == 9
    silent = drive(
        build_searcher("gp", PLANE, LOSS, 0), 9, lambda n, p: trial(n, p, Status.FAILED, [])
    )
    assert points(silent) == points(drive(build_searcher("sobol", PLANE, LOSS, 0), 9, outcome))


def test_a_belief_draws_the_search_and_fades() -> None:
    def believing(x: float, y: float) -> Space:
        beliefs = {"x": Belief(x, "high"), "y": Belief(y, "high")}
        return Space(tuple(replace(one, belief=beliefs[one.name]) for one in PLANE.parameters))

    good, wrong = (
        [points(drive(build_searcher("gp", space, LOSS, seed), 25, outcome)) for seed in range(3)]
        for space in (believing(0.6, -0.5), believing(-0.9, 0.9))
    )
    assert fmean(fmean(map(distance, run[:8])) for run in good) < fmean(
        fmean(map(distance, run[:8])) for run in wrong
    )
    assert fmean(min(map(distance, run)) for run in wrong) < 0.02


def test_a_trial_of_another_space_is_no_result() -> None:
    searcher = GaussianProcessSearcher(SPACE, LOSS, 0)
    for event in trial(0, {"lr": 1e-3}, Status.COMPLETED, [1.0]):
        searcher.observe(event)
    assert counted(searcher) == []
