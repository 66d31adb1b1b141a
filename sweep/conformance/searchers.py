"""Tests that every searcher (`sweep.searchers.Searcher`) must pass, and functions that create logs for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import zip_longest

from sweep.events import EpochReported, Event, Params, Status, TrialEnded, TrialStarted
from sweep.searchers import Searcher, SpaceChanging
from sweep.space import Between, Condition, OneOf, Parameter, Space
from sweep.space.domains import (
    Categorical,
    IntUniform,
    LogUniform,
    Normal,
    Tied,
    Uniform,
    contains,
    key,
)
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective


def started(trial: int, params: Params, repeat: int = 0) -> TrialStarted:
    return TrialStarted(
        trial=trial, trial_id=f"t{trial}", params=params, seed=0, repeat=repeat, time=100.0 + trial
    )


def epoch(trial: int, number: int, **metrics: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=number, metrics=metrics, time=200.0 + trial, time_s=1.0)


def ended(trial: int, status: Status, reason: str = "") -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason=reason, time=300.0 + trial)


def trial(
    number: int, params: Params, status: Status, losses: Iterable[float], repeat: int = 0
) -> list[Event]:
    """Return the events of a trial: its start, one report for each of ``losses``, and its end with ``status``.

    The reports have the metric ``loss``, in epochs 1, 2, ... With `Status.RUNNING`, there is no end, because the trial
    has not ended. ``repeat`` is that of its start.
    """
    reports = []
    for index, loss in enumerate(losses, start=1):
        reports.append(epoch(number, index, loss=loss))
    end = []
    if status is not Status.RUNNING:
        end.append(ended(number, status))
    return [started(number, params, repeat), *reports, *end]


def drive(
    searcher: Searcher, count: int, outcome: Callable[[int, Params], Iterable[Event]]
) -> list[Event]:
    """Simulate up to ``count`` trials, numbered from 0, one after another with a searcher; return all events in order.

    ``outcome(number, params)`` returns the events of a trial with the parameters that the searcher has suggested, the
    first of which is its start. The searcher observes them before it is asked for the next trial. There are fewer
    trials if it suggests none any more.
    """
    return drive_on(searcher, 0, count, outcome)


def drive_on(
    searcher: Searcher, first: int, count: int, outcome: Callable[[int, Params], Iterable[Event]]
) -> list[Event]:
    """Simulate up to ``count`` trials, numbered from ``first``, as `drive` does; return their events alone.

    The searcher must have observed the trials before ``first`` already.
    """
    log: list[Event] = []
    for number in range(first, first + count):
        params = searcher.suggest(number)
        if params is None:
            break
        for event in outcome(number, params):
            searcher.observe(event)
            log.append(event)
    return log


LOSS = (Objective("loss", "minimize"),)
SPACE = Space(
    (
        Parameter("lr", LogUniform(1e-5, 1e-1), grid_count=4),
        Parameter("decay", LogUniform(1e-5, 1e-1, 1e-5), grid_count=3),
        Parameter("optimizer", Categorical(("sgd", "adam", ["custom", 1]))),
        Parameter(
            "momentum",
            Uniform(0, 0.99, 0.01),
            grid_count=2,
            when=Condition((("optimizer", OneOf(("sgd",))),)),
        ),
        Parameter("units", IntUniform(16, 256, 16), grid_count=2),
        Parameter(
            "bias", Normal(0, 1), grid_count=2, when=Condition((("units", Between(min=128)),))
        ),
        Parameter("schedule", Categorical(("cosine", "step"), (0.7, 0.3))),
        Parameter("warm", Tied(Expression.parse("lr / 10"))),
    ),
    (Expression.parse("lr * units < 2"),),
)
# 3 x (1 + 2) points
FINITE = Space(
    (
        Parameter("a", IntUniform(1, 4)),
        Parameter("b", Categorical(("x", "y"))),
        Parameter("c", IntUniform(0, 1), when=Condition((("b", OneOf(("y",))),))),
    ),
    (Expression.parse("a != 3"),),
)

# SPACE with other ranges of `lr` and `decay` and other optimizers
OTHER = Space(
    (
        Parameter("lr", LogUniform(1e-4, 1.0), grid_count=4),
        Parameter("decay", LogUniform(1e-5, 1e-2, 1e-5), grid_count=3),
        Parameter("optimizer", Categorical(("sgd", "adam", "lion"))),
        *SPACE.parameters[3:],
    ),
    SPACE.constraints,
)
# 4 x (1 + 2) points
GROWN = Space((Parameter("a", IntUniform(1, 5)), *FINITE.parameters[1:]), FINITE.constraints)
STATES = [
    Status.COMPLETED,
    Status.INFEASIBLE,
    Status.PRUNED,
    Status.DIVERGED,
    Status.FAILED,
    Status.OOM,
    Status.RUNNING,
]


def mixed_outcome(number: int, params: Params) -> list[Event]:
    """Return the events of a trial of three epochs, whose falling losses, from 0 to 2, follow from its parameters.

    Its number determines its status: two of three trials are completed, and the others are pruned or out of memory in
    turns.
    """
    if number % 3 == 2:
        status = STATES[number % 6]  # index 2: pruned, index 5: out of memory
    else:
        status = Status.COMPLETED
    # any function will do that depends on nothing but the parameters
    loss = sum(map(ord, key(params))) % 97 / 97
    return trial(number, params, status, [loss + 1, loss + 0.5, loss])


def assert_belongs(params: Params, space: Space) -> None:
    """Raise AssertionError unless a configuration lies in the space and has exactly the parameters that apply.

    Its values must lie in their domains and meet the constraints of the space, and its parameters must have the order
    that they have there.
    """
    assert space.list_violated(params) == []
    for parameter in space.parameters:
        assert (parameter.name in params) == parameter.applies(params)
        assert parameter.name not in params or contains(parameter.domain, params[parameter.name])
    assert list(params) == [name for name in space.names if name in params]


class SearcherConformance(ABC):
    """Base class of a searcher's tests: derive a class whose name begins with Test and implement ``make``."""

    @abstractmethod
    def make(self, space: Space, objectives: tuple[Objective, ...], seed: int) -> Searcher:
        """Return a new searcher under test for ``space`` that optimizes ``objectives``, at least one, with ``seed``.

        The class that is derived for a searcher must implement this.
        """

    def build(self, space: Space) -> Searcher:
        """Return a new searcher under test for ``space`` that minimizes the metric ``loss`` with seed 0."""
        return self.make(space, LOSS, 0)

    def test_the_same_seed_and_history_give_the_same_suggestions(self) -> None:
        first = self.build(SPACE)
        second = self.build(SPACE)
        assert drive(first, 25, mixed_outcome) == drive(second, 25, mixed_outcome)
        assert first.suggest(25) == second.suggest(25)

    def test_a_replayed_log_gives_the_next_suggestion(self) -> None:
        searcher = self.build(SPACE)
        resumed = self.build(SPACE)
        for event in drive(searcher, 25, mixed_outcome):
            resumed.observe(event)
        assert resumed.suggest(25) == searcher.suggest(25)

    def test_a_replay_of_trials_that_ran_at_once_gives_the_next_suggestion(self) -> None:
        searcher = self.build(SPACE)
        resumed = self.build(SPACE)
        log: list[Event] = []
        # four at a time, which report in turns and end in another order
        for first in range(0, 24, 4):
            reports_of_four = []  # all events of each of the four trials but its start
            for number in range(first, first + 4):
                params = searcher.suggest(number)
                # it is not None: `SPACE` has more points
                start, *reports = mixed_outcome(number, params or {})
                searcher.observe(start)
                log.append(start)
                reports_of_four.append(reports)
            # one event of each trial at a time; None after the last event of a trial
            for events in zip_longest(*reversed(reports_of_four)):
                for event in filter(None, events):
                    searcher.observe(event)
                    log.append(event)
        for event in log:
            resumed.observe(event)
        assert resumed.suggest(24) == searcher.suggest(24)

    def test_suggesting_changes_nothing(self) -> None:
        searcher = self.build(SPACE)
        asked_often = self.build(SPACE)
        log = drive(searcher, 14, mixed_outcome)
        for event in log:
            if isinstance(event, TrialStarted):
                asked_often.suggest(event.trial)
                asked_often.suggest(event.trial)
            asked_often.observe(event)
        assert asked_often.suggest(14) == asked_often.suggest(14) == searcher.suggest(14)

    def test_a_started_trial_is_suggested_again_if_asked(self) -> None:
        searcher = self.build(SPACE)
        log = drive(searcher, 5, mixed_outcome)
        begun = {}
        for event in log:
            if isinstance(event, TrialStarted):
                begun[event.trial] = event.params
        assert [searcher.suggest(number) for number in range(5)] == [
            begun[number] for number in range(5)
        ]

    def test_trials_differ_also_while_all_are_running(self) -> None:
        log = drive(
            self.build(SPACE), 12, lambda number, params: trial(number, params, Status.RUNNING, [])
        )
        assert len({key(event.params) for event in log if isinstance(event, TrialStarted)}) == 12

    def test_a_finite_space_is_tried_completely_once_then_exhausted(self) -> None:
        searcher = self.build(FINITE)
        log = drive(searcher, 30, mixed_outcome)  # more trials than the space has points
        tried = []
        for event in log:
            if isinstance(event, TrialStarted):
                tried.append(key(event.params))
        assert sorted(tried) == sorted(key(point) for point in FINITE.points())
        assert searcher.suggest(len(tried)) is None

    def test_suggestions_belong_to_the_space(self) -> None:
        log = drive(self.build(SPACE), 14, mixed_outcome)
        assert log
        for event in log:
            if isinstance(event, TrialStarted):
                assert_belongs(event.params, SPACE)

    def test_in_a_changed_space_it_goes_on_as_a_replay_does(self) -> None:
        searcher = self.build(SPACE)
        resumed = self.build(SPACE)
        # a searcher whose space cannot be changed is not tested; both are asked for type checkers
        if not isinstance(searcher, SpaceChanging) or not isinstance(resumed, SpaceChanging):
            return
        log = drive(searcher, 14, mixed_outcome)
        searcher.change_space(OTHER)
        later = drive_on(searcher, 14, 8, mixed_outcome)
        for event in log:
            resumed.observe(event)
        resumed.change_space(OTHER)
        for event in later:
            resumed.observe(event)
        assert resumed.suggest(22) == searcher.suggest(22)
        begun = []
        for event in (*log, *later):
            if isinstance(event, TrialStarted):
                begun.append(event.params)
        assert len(set(map(key, begun))) == len(begun)
        for params in begun[14:]:
            assert_belongs(params, OTHER)

    def test_a_space_that_grows_is_tried_completely(self) -> None:
        searcher = self.build(FINITE)
        if not isinstance(searcher, SpaceChanging):  # its space cannot be changed
            return
        log = drive(searcher, 30, mixed_outcome)
        count = sum(isinstance(event, TrialStarted) for event in log)
        searcher.change_space(GROWN)
        later = drive_on(searcher, count, 30, mixed_outcome)  # again more than there are points
        tried = []
        for event in (*log, *later):
            if isinstance(event, TrialStarted):
                tried.append(key(event.params))
        assert sorted(tried) == sorted(key(point) for point in GROWN.points())

    def test_a_searcher_that_foresees_suggests_the_same_in_any_order(self) -> None:
        one = self.build(SPACE)
        other = self.build(SPACE)
        if one.foresees:
            forwards = [one.suggest(number) for number in range(12)]
            # The second searcher is asked for trial 11 first; `[::-1]` puts its answers into the order of the trials.
            assert forwards == [other.suggest(number) for number in reversed(range(12))][::-1]
