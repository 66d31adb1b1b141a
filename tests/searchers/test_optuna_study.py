"""Sweeps as Optuna studies, and the importance of parameters."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from sweep.events import Params, Status, Value
from sweep.searchers.optuna_study import StudiedTrial, compute_importances, make_axis, make_study
from sweep.space.domains import (
    Beta,
    Categorical,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Uniform,
)

ACC = (("acc", "maximize"),)
BOTH = (("acc", "maximize"), ("loss", "minimize"))


def told(
    status: Status, epochs: Sequence[float] = (0.5, 0.75), params: Params | None = None
) -> StudiedTrial:
    by_epoch = dict(enumerate(epochs, start=1))
    last = {"acc": epochs[-1], "loss": 1 - epochs[-1]} if epochs else {}
    ended = None if status in (Status.RUNNING, Status.INTERRUPTED) else 30.0
    given = {"x": 0.5} if params is None else params
    return StudiedTrial(
        params=given,
        status=status,
        reason="",
        started=10.0,
        ended=ended,
        metrics=last,
        epochs=len(epochs),
        by_epoch=by_epoch,
    )


@pytest.mark.parametrize(
    ("status", "alive", "state", "value"),
    [
        (Status.COMPLETED, True, TrialState.COMPLETE, 0.75),
        (Status.PRUNED, True, TrialState.PRUNED, 0.75),
        (Status.DIVERGED, True, TrialState.FAIL, None),
        (Status.OOM, True, TrialState.FAIL, None),
        (Status.FAILED, True, TrialState.FAIL, None),
        (Status.RUNNING, True, TrialState.RUNNING, None),
        (Status.RUNNING, False, TrialState.WAITING, None),
        (Status.INTERRUPTED, True, TrialState.WAITING, None),
    ],
)
def test_states(status: Status, alive: bool, state: TrialState, value: float | None) -> None:
    (trial,) = make_study("s", ACC, {"x": Uniform(0, 1)}, [told(status)], alive=alive).trials
    assert (trial.state, trial.value, trial.intermediate_values) == (
        state,
        value,
        {1: 0.5, 2: 0.75},
    )
    assert (trial.duration is None) == (not state.is_finished())


@pytest.mark.parametrize("epochs", [(), (math.nan,), (math.inf,)])
@pytest.mark.parametrize("status", Status)
def test_what_is_not_finite_is_no_value(status: Status, epochs: tuple[float, ...]) -> None:
    (trial,) = make_study("s", ACC, {"x": Uniform(0, 1)}, [told(status, epochs)]).trials
    assert trial.values is None
    assert trial.state is not TrialState.COMPLETE


@pytest.mark.parametrize(
    ("domain", "seen", "expected"),
    [
        (LogUniform(1e-5, 1e-1), [1e-3], FloatDistribution(1e-5, 1e-1, log=True)),
        (LogUniform(1.0, 64.0, 8.0), [8.0], FloatDistribution(8.0, 64.0, log=True)),
        (Uniform(0.0, 1.0), [0.5], FloatDistribution(0, 1)),
        (Uniform(0, 1), [0, 1], FloatDistribution(0, 1)),
        (Uniform(0.0, 1.0, 0.1), [0.1 + 0.2], FloatDistribution(0, 1)),  # not on its quantum
        (Uniform(0.0, 1.0, 0.1), [0.3], FloatDistribution(0, 1, step=0.1)),
        (Uniform(0, 10, 2), [4, 6.0], IntDistribution(0, 10, step=2)),
        (Uniform(0.0, 1.0), [1.5], FloatDistribution(0, 1.5)),  # of another space
        (IntUniform(1, 9), [3], IntDistribution(1, 9)),
        (IntUniform(1, 9, 4), [4], IntDistribution(4, 8, step=4)),
        (IntUniform(8, 512, log=True), [64], IntDistribution(8, 512, log=True)),
        (Normal(1.0, 0.5), [1.2], FloatDistribution(-1, 3)),
        (Normal(0.0, 1.0), [-7.0], FloatDistribution(-7, 4)),
        (Normal(0.0, 4.0, 2), [2], IntDistribution(-16, 16, step=2)),
        (LogNormal(0.0, 1.0), [1.0], FloatDistribution(math.exp(-4), math.exp(4), log=True)),
        (Beta(2.0, 2.0), [0.5], FloatDistribution(0, 1)),
        (
            Categorical((None, True, "a", 0.5)),
            [None],
            CategoricalDistribution((None, True, "a", 0.5)),
        ),
        (Categorical((1, 1.0, True)), [True], CategoricalDistribution(("1", "1.0", "true"))),
        (
            Categorical(([1, 2], {"a": 1}, "b")),
            ["b"],
            CategoricalDistribution(("[1, 2]", '{"a": 1}', "b")),
        ),
        (Categorical(("[1]", [1])), [[1]], CategoricalDistribution(('"[1]"', "[1]"))),
        (Categorical(("a",)), ["b", "a"], CategoricalDistribution(("a", "b"))),
        # as a table gives it
        (
            Categorical((1, 0.5)),
            [1.0, 0.5],
            CategoricalDistribution((1, 0.5)),
        ),
        (None, [1, 3], IntDistribution(1, 3)),
        (None, [1, 2.5], FloatDistribution(1, 2.5)),
        (None, ["a", None, True], CategoricalDistribution(("a", None, True))),
    ],
)
def test_axes(
    domain: Domain | None, seen: list[Value], expected: optuna.distributions.BaseDistribution
) -> None:
    found = make_axis(domain, seen)
    assert found.distribution == expected
    for value in seen:
        there = found.encode(value)
        assert expected._contains(expected.to_internal_repr(there))
        if there != value:
            assert isinstance(there, str)


def test_values_keep_their_types() -> None:
    typed = make_axis(Categorical((None, True, "a", 0.5, 2)), [])
    assert [repr(typed.encode(value)) for value in (None, True, "a", 0.5, 2.0)] == [
        "None",
        "True",
        "'a'",
        "0.5",
        "2",
    ]
    assert [
        type(make_axis(domain, [2]).encode(2)) for domain in (Uniform(0, 3), IntUniform(0, 3))
    ] == [float, int]


def test_conditional_parameters_are_missing_and_constants_left_out() -> None:
    domains: dict[str, Domain | None] = {"kind": Categorical(("a", "b")), "x": Uniform(0, 1)}
    points: list[Params] = [{"kind": "a", "epochs": 3}, {"kind": "b", "x": 0.5, "epochs": 3}]
    found = make_study(
        "s", ACC, domains, [told(Status.COMPLETED, params=params) for params in points]
    )
    assert [trial.params for trial in found.trials] == [{"kind": "a"}, {"kind": "b", "x": 0.5}]


def test_several_objectives() -> None:
    trials = [told(Status.COMPLETED), told(Status.PRUNED), told(Status.COMPLETED, (math.nan,))]
    found = make_study("s", BOTH, {"x": Uniform(0, 1)}, trials)
    assert found.metric_names == ["acc", "loss"]
    assert [trial.values for trial in found.trials] == [[0.75, 0.25], [0.75, 0.25], None]
    assert [trial.number for trial in found.best_trials] == [0]
    assert not any(trial.intermediate_values for trial in found.trials)  # Optuna refuses them here


@pytest.mark.parametrize("objectives", [ACC, BOTH])
def test_samplers_go_on_with_it(objectives: tuple[tuple[str, str], ...]) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    statuses = [
        Status.COMPLETED,
        Status.PRUNED,
        Status.FAILED,
        Status.COMPLETED,
        Status.INTERRUPTED,
    ]
    epochs = [(0.1, k / 40) for k in range(40)]
    trials = [
        told(statuses[k % 5], epochs[k], {"x": k / 40, "opt": "ab"[k % 2] if k % 3 else None})
        for k in range(40)
    ]
    found = make_study(
        "s", objectives, {"x": Uniform(0, 1), "opt": Categorical(("a", "b", None))}, trials
    )
    found.sampler = optuna.samplers.TPESampler(seed=0)

    def objective(trial: optuna.Trial) -> float | tuple[float, ...]:
        x = trial.suggest_float("x", 0, 1)
        trial.suggest_categorical("opt", ["a", "b", None])
        return (x, 1 - x)[: len(objectives)] if len(objectives) > 1 else x

    found.optimize(objective, n_trials=12)
    went_on = [trial for trial in found.trials if trial.number < 40 and trial.number % 5 == 4]
    # what waited came first, as it was
    assert [trial.state for trial in went_on] == [TrialState.COMPLETE] * 8
    assert [trial.params["x"] for trial in went_on] == [k / 40 for k in range(4, 40, 5)]
    assert len(found.trials) == 44


def trials(count: int, noise: float = 0.01) -> list[tuple[Params, float]]:
    draws = random.Random(1)
    found: list[tuple[Params, float]] = []
    for _ in range(count):
        params = {
            "rate": 10 ** draws.uniform(-4, -1),
            "kind": draws.choice([True, None, "x"]),
            "idle": draws.random(),
        }
        if params["kind"] == "x":
            params["inner"] = draws.random()
        found.append((params, abs(params["rate"] - 0.01) + draws.gauss(0, noise)))
    return found


def test_what_matters_comes_first_with_shares_that_add_up() -> None:
    found = compute_importances(trials(300), ["idle", "kind", "rate", "inner"])
    assert found[0].param == "rate"
    assert abs(sum(one.share for one in found) - 1) < 1e-9
    assert all(0 <= one.low <= one.share <= one.high <= 1 for one in found)


def test_few_trials_are_less_sure_and_fewer_than_ten_say_nothing() -> None:
    few, many = (compute_importances(trials(count), ["rate", "idle"])[0] for count in (12, 900))
    assert few.high - few.low > many.high - many.low
    assert compute_importances(trials(9), ["rate"]) == []
    assert compute_importances(trials(20), []) == []


def test_nothing_is_said_of_a_parameter_that_no_trial_has() -> None:
    found = compute_importances(trials(40), ["rate", "momentum", "idle"])
    assert {one.param for one in found} == {"rate", "idle"}
    assert compute_importances(trials(40), ["momentum"]) == []


def test_the_same_trials_give_the_same_numbers() -> None:
    assert compute_importances(trials(40), ["rate", "idle"]) == compute_importances(
        trials(40), ["rate", "idle"]
    )


def test_values_are_near_each_other_on_the_scale_on_which_they_were_drawn() -> None:
    drawn: dict[str, Domain] = {"rate": LogUniform(1e-4, 0.1), "idle": Uniform(0, 1)}
    assert compute_importances(trials(40), ["rate", "idle"], drawn) == compute_importances(
        trials(40), ["rate", "idle"]
    )
    assert compute_importances(
        trials(40), ["rate", "idle"], {"rate": Uniform(0, 1)}
    ) != compute_importances(trials(40), ["rate", "idle"])


def test_parameters_of_one_value_and_equal_losses() -> None:
    flat = [({"a": 1, "b": str(n)}, 0.5) for n in range(20)]
    found = compute_importances(flat, ["a", "b"])
    assert {one.param for one in found} == {"a", "b"}


def test_an_infeasible_trial_is_never_the_best() -> None:
    told = [
        StudiedTrial(
            params={"x": x},
            status=status,
            reason="",
            started=0.0,
            ended=1.0,
            metrics={"loss": x},
            epochs=1,
            by_epoch={},
        )
        for x, status in (
            (0.1, Status.INFEASIBLE),
            (0.3, Status.COMPLETED),
            (0.2, Status.COMPLETED),
        )
    ]
    made = make_study("s", [("loss", "minimize")], {"x": Uniform(0, 1)}, told)
    assert [one.state for one in made.trials] == [TrialState.COMPLETE] * 3
    assert made.best_trial.number == 2
