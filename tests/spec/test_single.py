"""One trial as a sweep file of its own, read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.events import Value
from sweep.spec import parse, single

FILE = """
name: wide
description: "a: b # c"
trainable: a.b:C
method: tpe
metrics: [{name: val_loss}, {name: "é: {size}", goal: maximize}]
parameters:
  x: {min: 0.0, max: 1.0}
  outer: {parameters: {inner: {values: [a, b]}}}
  y: {value: 3, when: {outer.inner: a}}
run_cap: 50
constraints: ["x < 0.9"]
repeats: 4
seed: 10
epochs: 7
training: {precision: float32, loop: fit}
resources: {cpus: 2, gpus: 0.5, trial_hours: 4}
budget: {hours: 8}
retries: 2
checkpoint: {every_s: 5}
"""


def test_a_trial_is_trained_as_its_sweep_trained_it() -> None:
    spec = parse(FILE, "wide.yaml")
    params: dict[str, Value] = {"x": 0.1 + 0.2, "outer.inner": "a", "y": 3}
    text = single.text(single.of_trial(spec, params, 12, "one"), ["A trial.", "Two\nlines"])
    assert text.startswith("# A trial.\n# Two\n# lines\nname: one\n")
    one = parse(text, "one.yaml")
    assert (one.name, one.seed, one.repeats, one.trials(), one.method) == ("one", 12, 1, 1, "grid")
    assert {p.name: p.domain.value for p in one.space.parameters} == params  # type: ignore[union-attr]  # constants
    for kept in ("description", "trainable", "metrics", "epochs", "data_seed", "resources", "retries", "checkpoint"):
        assert getattr(one, kept) == getattr(spec, kept), kept
    assert {**one.training, "data_seed": None} == {**spec.training, "data_seed": None}
    assert "data_seed" not in str(single.of_trial(spec, params, spec.seed, "one"))
    assert one.budget.hours is None
    assert (one.run_cap, one.space.constraints) == (None, ())


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            0,
            -7,
            2**53,
            1e-05,
            1e300,
            "",
            "null",
            "yes",
            "1e-4",
            "= 2 * x",
            "# no",
            "a: b",
            "tab\tand\nline",
        ),
        *("\u2028 \x85 é 😀", "'\"\\", "- x", "{", " lead", [1, [2.5, None], {"a b": "c"}], {"deep": {"er": [1]}}, []),
    ],
    ids=repr,
)
def test_every_value_comes_back(value: Value) -> None:
    spec = parse(FILE, "wide.yaml")
    one = parse(single.text(single.of_trial(spec, {"v": value}, 0, "one"), []), "one.yaml")
    (parameter,) = one.space.parameters
    found = parameter.domain.value  # type: ignore[union-attr]  # a constant
    assert (found, type(found)) == (value, type(value))


def test_what_is_left_at_its_default_is_not_written(tmp_path: Path) -> None:
    spec = parse("trainable: a:B\nmethod: random\nparameters: {x: {min: 0.0, max: 1.0}}\nrun_cap: 3", "s.yaml")
    assert single.text(single.of_trial(spec, {"x": 0.5}, 0, "one"), []) == (
        'name: one\ntrainable: "a:B"\nmethod: grid\nmetric: {name: val_loss, goal: minimize}\n'
        "parameters:\n  x: {value: 0.5}\nepochs: 10\nseed: 0\n"
    )
