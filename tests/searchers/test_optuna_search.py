"""Optuna's study, made of the log: each trial told as what it was."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import pytest
from optuna.trial import TrialState

from sweep.conformance.logs import drive, ended, epoch, started, trial
from sweep.errors import InputError
from sweep.events import Event, Params, Status, TrialStarted
from sweep.searchers.build import build
from sweep.searchers.optuna_search import OptunaSearcher
from sweep.searchers.optuna_storage import ToldTrials
from sweep.space.domains import Categorical, IntUniform, LogUniform, Normal, Uniform, key
from sweep.space.objectives import Objective
from sweep.space.space import Parameter, Space

SPACE = Space((Parameter("lr", LogUniform(1e-5, 1e-1)), Parameter("units", IntUniform(16, 256, 16))))
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
    for event in [*trial(0, POINT, Status.COMPLETED, [2.0, 0.5]), *trial(1, POINT, status, [2.0, 0.5])]:
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
    drive(searcher, 12, lambda number, params: trial(number, params, states[number % 5], [2.0, 0.5]))
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

    log = drive(build("tpe", PLANE, (Objective("loss", goal),), 0), 30, outcome)
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
    assert {one.params["layers"] for one in told} <= {key(v) for v in ([64, 32], {"n": 1}, None, True)}


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


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(InputError, match=r'gp needs the package torch.*pip install "sweep-keras\[gp\]"'):
        build("gp", SPACE, LOSS, 0)


@pytest.mark.parametrize("method", ["tpe", "nsga2"])
def test_the_study_that_lives_on_is_the_one_made_anew_of_the_log(method: str) -> None:
    searcher, log = OptunaSearcher(method, PLANE, LOSS, 0), list[Event]()
    statuses = [*([Status.COMPLETED] * 3), Status.DIVERGED, Status.PRUNED, Status.FAILED]
    running: list[list[Event]] = []
    for number in range(60):
        begin, *rest = trial(number, searcher.suggest(number) or {}, statuses[number % 6], [60.0 - number, number % 7])
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


def test_a_suggestion_tells_the_study_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    tell = ToldTrials.tell
    monkeypatch.setattr(ToldTrials, "tell", lambda self, number, one: (told.append(number), tell(self, number, one))[1])
    searcher = OptunaSearcher("tpe", PLANE, LOSS, 0)
    drive(searcher, 100, lambda number, params: trial(number, params, Status.COMPLETED, [2.0, 0.5]))
    assert len(told) <= 2 * 100  # each as it is asked for, and once it has ended
