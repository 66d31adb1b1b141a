"""What constraints and ties leave of a space."""

from __future__ import annotations

import re

import pytest

from sweep.errors import InputError
from sweep.spec import Spec, parse_spec

HEAD = "trainable: m:M\nmethod: {method}\nrun_cap: 9\nparameters:\n"


def sweep(parameters: str, *constraints: str, method: str = "random") -> Spec:
    listed = "".join(f"  - {text!r}\n" for text in constraints)
    text = f"{HEAD.format(method=method)}  {parameters}\nconstraints:\n{listed}" if listed else ""
    return parse_spec(text or f"{HEAD.format(method=method)}  {parameters}\n", "s.yaml")


@pytest.mark.parametrize(
    "constraint",
    [
        "lr < 0.5",
        "0.1 < lr < 0.9 and n >= 2",
        "lr * n <= 2 or opt == 'sgd'",
        "opt in ['sgd', 'adam']",
        "not (opt == 'adam' and n > 3)",
        "min(lr, 0.5) + sqrt(n) < 3",
        "lr < 0.01",  # 1 in 100
    ],
)
def test_constraints_that_leave_something(constraint: str) -> None:
    parameters = "lr: {min: 0.0, max: 1.0}\n  n: {min: 1, max: 5}\n  opt: {values: [sgd, adam]}"
    spec = sweep(parameters, constraint)
    assert [found.text for found in spec.space.constraints] == [constraint]


TORN = """
trainable: m:M
method: random
run_cap: 2
metrics: [{name: val/loss}, {name: top 5, goal: maximize}, {name: acc, goal: maximize}]
parameters: {val: {values: [1, 2]}}
"""


@pytest.mark.parametrize("name", ["val/loss", "top 5"])
def test_an_objective_that_needs_backquotes_is_named(name: str) -> None:
    with pytest.raises(
        InputError,
        match=re.escape(f"is read as a calculation; put the name in backquotes: `{name}`"),
    ):
        parse_spec(f'{TORN}constraints: ["{name} < 0.5"]\n', "s.yaml")
    assert parse_spec(
        f'{TORN}constraints: ["`{name}` < 0.5", "acc > 0.1"]\n', "s.yaml"
    ).constraints[0].names == {name}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("batch_time", "batch_size: {values: [16, 32]}"),
        ("latency", "latent: {values: [2, 8]}"),
        ("val_loss", "loss: {values: [mse, mae]}"),
        ("val_loss", "val_los: {values: [1, 2]}"),  # an objective is known to be a metric
    ],
)
def test_a_metric_may_have_a_name_like_that_of_a_parameter(name: str, parameters: str) -> None:
    spec = sweep(parameters, f"{name} <= 0.5")
    assert [one.text for one in spec.constraints] == [f"{name} <= 0.5"]


def test_a_parameter_that_is_misspelt_is_named() -> None:
    with pytest.raises(InputError, match=r"no parameter 'dropuot'.*did you mean 'dropout'"):
        sweep("dropout: {min: 0.0, max: 0.5}", "dropuot < 0.4")


def test_one_point_of_a_large_finite_space_is_enough() -> None:
    spec = sweep("a: {min: 1, max: 9000}", "a == 77")
    assert spec.trials == 1


def test_a_grid_is_counted_by_its_own_points() -> None:
    spec = sweep(
        "a: {min: 0.0, max: 1.0, count: 5}\n  b: {min: 1, max: 3}", "a < b - 0.5", method="grid"
    )
    assert len(list(spec.space.grid())) == 2 + 5 + 5
    assert spec.trials == 9  # the run_cap


def test_a_constraint_on_an_absent_parameter_does_not_apply() -> None:
    spec = sweep("a: {values: [1, 2]}\n  b: {value: 5, when: {a: 2}}", "b < a")
    assert list(spec.space.points()) == [{"a": 1}]


@pytest.mark.parametrize("text", ["n / (n - 2) > 0", "log(n - 2) >= 0"])
def test_where_a_constraint_has_no_value_it_does_not_hold(text: str) -> None:
    points = list(sweep("n: {min: 1, max: 5}", text).space.points())
    assert {"n": 2} not in points
    assert {"n": 5} in points


def test_the_same_file_is_judged_alike_every_time() -> None:
    parameters = "a: {min: 0.0, max: 1.0}\n  b: {min: 0.0, max: 1.0}"
    judgements = set()
    for _ in range(3):
        try:
            sweep(parameters, "a < 0.0005")
            judgements.add("right")
        except InputError as error:
            judgements.add(str(error))
    assert len(judgements) == 1


@pytest.mark.parametrize(
    ("parameter", "given", "value"),
    [
        # as Optuna and Ray Tune compute the multiples of a step
        ("{distribution: q_uniform, min: 0, max: 0.9, q: 0.1}", 0.1 + 0.2, 0.3),
        ("{distribution: q_normal, q: 0.1}", 0.6 - 0.2 * 3, 0.0),
        ("{values: [0.1, 0.2, 0.3]}", 0.1 + 0.2, 0.3),
        ("{distribution: log_uniform, min: -9.210340371976182, max: 0}", 1e-4, 1e-4),
        # as pandas reads a column in which a row has none
        ("{values: [8, 16]}", 16.0, 16),
        ("{min: 1, max: 9}", 3.0, 3),
        # it is there as it is
        ("{values: [8, 8.0, x]}", 8.0, 8.0),
    ],
)
def test_what_other_tools_have_found_is_a_start(parameter: str, given: float, value: float) -> None:
    file = f"{HEAD.format(method='random')}  p: {parameter}\n"
    (start,) = parse_spec(f"{file}start_with: [{{p: {given}}}]\n", "s.yaml").start_with
    assert start["p"] == pytest.approx(value, rel=1e-12)
    assert type(start["p"]) is type(value)
    baseline = parse_spec(f"{file}baseline: {{p: {given}}}\n", "s.yaml").baseline
    assert baseline == start


def test_what_lies_between_the_values_is_no_start() -> None:
    with pytest.raises(InputError, match=r"number 0\.3001, expected a multiple of 0\.1"):
        parse_spec(
            f"{HEAD.format(method='random')}  p: {{min: 0, max: 1, q: 0.1}}\n"
            "start_with: [{p: 0.3001}]\n",
            "s.yaml",
        )
