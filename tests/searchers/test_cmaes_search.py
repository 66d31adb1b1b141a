"""CMA-ES: that it converges, begins anew where it has, and counts each trial in its own generation."""

from __future__ import annotations

from statistics import fmean

import pytest

from sweep.conformance.searchers import drive, ended, epoch, started, trial
from sweep.events import Event, Params, Status, TrialStarted
from sweep.searchers.cmaes_search import CmaesSearcher
from sweep.space import Condition, OneOf, Parameter, Space
from sweep.space.domains import Categorical, IntUniform, Normal, Uniform
from sweep.space.objectives import Objective
from sweep.store.ledger import list_ended_trials as ended_trials

LOSS = (Objective("loss", "minimize"),)
PLANE = Space(
    (
        Parameter("x", Uniform(-1, 1)),
        Parameter("y", Normal(0, 1)),
        Parameter("c", Categorical(("a", "b"))),
    )
)


def outcome(number: int, params: Params) -> list[Event]:
    return trial(
        number, params, Status.COMPLETED, [(params["x"] - 0.5) ** 2 + (params["y"] + 0.5) ** 2]
    )


def points(log: list[Event]) -> list[Params]:
    return [event.params for event in log if isinstance(event, TrialStarted)]


def test_it_converges_on_the_numbers_and_draws_choices_at_random() -> None:
    late = points(drive(CmaesSearcher(PLANE, LOSS, 0), 120, outcome))[90:]
    assert fmean(point["x"] for point in late) == pytest.approx(0.5, abs=0.05)
    assert fmean(point["y"] for point in late) == pytest.approx(-0.5, abs=0.05)
    assert {point["c"] for point in late} == {"a", "b"}


def two_valleys(number: int, params: Params) -> list[Event]:
    """A wide one, in which the search begins, and a deeper one in the corner."""
    x, y = params["x"], params["y"]
    return trial(
        number,
        params,
        Status.COMPLETED,
        [round(min(x**2 + y**2, 9 * ((x - 3) ** 2 + (y - 3) ** 2) - 1), 6)],
    )


def test_one_that_has_converged_begins_anew_elsewhere_and_finds_the_deeper_valley() -> None:
    space = Space((Parameter("x", Uniform(-4, 4)), Parameter("y", Uniform(-4, 4))))
    searcher, resumed = CmaesSearcher(space, LOSS, 0), CmaesSearcher(space, LOSS, 0)
    log = drive(searcher, 600, two_valleys)
    assert searcher.restarts > 1
    assert any(abs(point["x"] - 3) + abs(point["y"] - 3) < 0.1 for point in points(log))
    for event in log:
        resumed.observe(event)
    assert resumed.restarts == searcher.restarts
    assert resumed.suggest(600) == searcher.suggest(600)


def test_a_trial_of_an_earlier_generation_no_longer_counts() -> None:
    searcher, without = CmaesSearcher(PLANE, LOSS, 0), CmaesSearcher(PLANE, LOSS, 0)
    late = started(0, {"x": -1.0, "y": 1.0, "c": "a"})
    for one in (searcher, without):
        one.observe(late)
    log = drive(searcher, 0, outcome)
    for number in range(1, 10):  # more than a generation
        events = outcome(number, searcher.suggest(number) or {})
        log += events
        for event in events:
            searcher.observe(event)
            without.observe(event)
    searcher.observe(epoch(0, 1, loss=-99.0))
    searcher.observe(ended(0, Status.COMPLETED))
    assert searcher.suggest(10) == without.suggest(10)


@pytest.mark.parametrize("status", [Status.DIVERGED, Status.OOM])
def test_it_keeps_away_from_where_trials_end_badly(status: Status) -> None:
    def half(number: int, params: Params) -> list[Event]:
        return trial(number, params, status if params["x"] > 0 else Status.COMPLETED, [1.0])

    late = points(drive(CmaesSearcher(PLANE, LOSS, 0), 90, half))[60:]
    assert fmean(point["x"] > 0 for point in late) < 0.25


def test_failures_say_nothing_unless_the_objective_says_what() -> None:
    def failing(number: int, params: Params) -> list[Event]:
        return trial(number, params, Status.FAILED, [params["x"]])

    plain, latest = (
        CmaesSearcher(PLANE, (Objective("loss", "minimize", impute),), 0)
        for impute in (None, "latest")
    )
    assert abs(fmean(point["x"] for point in points(drive(plain, 80, failing)))) < 0.2
    assert fmean(point["x"] for point in points(drive(latest, 80, failing))[40:]) < -0.5


def test_pruned_trials_and_those_of_earlier_sweeps_count_with_their_last_value() -> None:
    past = ended_trials(
        e
        for n in range(30)
        for e in trial(n, {"x": n / 15 - 1, "y": 0.0, "c": "a"}, Status.PRUNED, [n])
    )
    searcher = CmaesSearcher(PLANE, LOSS, 0)
    assert searcher.learn(past) == 30
    assert fmean(point["x"] for point in points(drive(searcher, 10, outcome))) < -0.3


def test_a_space_without_numbers_is_searched_at_random() -> None:
    when = Condition((("c", OneOf(("a",))),))
    space = Space(
        (Parameter("c", Categorical(("a", "b", "d"))), Parameter("n", IntUniform(1, 3), when=when))
    )
    log = drive(
        CmaesSearcher(space, LOSS, 0),
        9,
        lambda number, params: trial(number, params, Status.COMPLETED, [1.0]),
    )
    assert len(points(log)) == 5
