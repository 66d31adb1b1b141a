"""The resolved sweep, and one of its configurations as a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sweep.events import Value
from sweep.space.early_terminate import Own
from sweep.space.objectives import Objective
from sweep.spec import Spec, parse_spec, resolved


def sweep(text: str) -> Spec:
    return parse_spec(f"trainable: m:M\n{text}", "folder/s.yaml")


@pytest.mark.parametrize(
    ("text", "trials"),
    [
        ("method: grid\nparameters: {a: {values: [1, 2, 3]}, b: {min: 1, max: 4}}", 12),
        ("method: grid\nrun_cap: 5\nparameters: {a: {values: [1, 2, 3]}, b: {min: 1, max: 4}}", 5),
        ("method: grid\nparameters: {a: {min: 0.0, max: 1.0, count: 7}}", 7),
        ("method: grid\nparameters: {a: {value: 1}}", 1),
        (
            "method: grid\nparameters: {a: {min: 0.0, max: 1.0, count: 3}}\nstart_with: [{a: 0.5}, {a: 0.3}]",
            4,
        ),
        ("method: random\nparameters: {a: {values: [1, 2, 3]}}", 3),
        ("method: random\nparameters: {a: {values: [1, 2, 3]}}\nstart_with: [{a: 2}]", 3),
        ("method: random\nrun_cap: 8\nparameters: {a: {values: [1, 2, 3]}}", 3),
        ("method: random\nrun_cap: 8\nparameters: {a: {min: 0.0, max: 1.0}}", 8),
        (
            "method: random\nrun_cap: 8\nbudget: {trials: 6}\nparameters: {a: {min: 0.0, max: 1.0}}",
            6,
        ),
        ("method: random\nbudget: {hours: 1}\nparameters: {a: {min: 0.0, max: 1.0}}", None),
        ("method: random\nbudget: {epochs: 99}\nparameters: {a: {min: 0.0, max: 1.0}}", None),
    ],
)
def test_trials(text: str, trials: int | None) -> None:
    assert sweep(text).trials == trials


def test_a_zero_that_is_written_is_no_key_that_is_left_out() -> None:
    said = "training: {data_seed: 0}\nresources: {gpus: 1, price_per_gpu_hour: 0, co2_g_per_kwh: 0}"
    spec = sweep(f"method: grid\nseed: 5\n{said}\nparameters: {{a: {{values: [1, 2]}}}}")
    assert spec.data_seed == 0
    again = parse_spec(json.dumps(spec.to_json_dict()), "sweep.json")
    assert (again.data_seed, again.resources) == (0, spec.resources)
    assert (again.resources.price, again.resources.co2_g_per_kwh) == (0.0, 0.0)


def test_repeats_do_not_count_as_configurations() -> None:
    assert sweep("method: grid\nrepeats: 5\nparameters: {a: {values: [1, 2]}}").trials == 2


def test_a_parameter_called_epochs_takes_the_place_of_the_key() -> None:
    spec = sweep(
        "method: grid\nepochs: 7\nparameters: {a: {values: [1, 2]}, epochs: {value: 3, when: {a: 1}}}"
    )
    assert [spec.trial_epochs(params) for params in spec.space.grid()] == [3, 7]


def test_objectives() -> None:
    several = "metrics: [{name: acc, goal: maximize, target: 0.9}, {name: size}]"
    spec = sweep(f"method: nsga2\nrun_cap: 3\n{several}\nparameters: {{a: {{min: 1, max: 3}}}}")
    assert spec.objectives == (
        Objective("acc", "maximize", others=(Objective("size", "minimize"),)),
        Objective("size", "minimize", others=(Objective("acc", "maximize"),)),
    )
    assert [metric.target for metric in spec.metrics] == [0.9, None]


@pytest.mark.parametrize(
    ("name", "folder"),
    [("lr_wd", "lr_wd"), ("my first  sweep", "my-first-sweep"), ("1.2-b", "1.2-b")],
)
def test_names(name: str, folder: str) -> None:
    assert sweep(f"name: {name}\nmethod: grid\nparameters: {{a: {{value: 1}}}}").name == folder


def test_bayes_is_tpe() -> None:
    text = "method: bayes\nmetric: {name: loss}\nrun_cap: 3\nparameters: {a: {min: 1, max: 3}}"
    assert sweep(text).method == "tpe"


def test_training_is_plain_data() -> None:
    spec = sweep(
        "method: grid\ntraining: {precision: float32, patience: 3}\nparameters: {a: {value: 1}}"
    )
    assert spec.training == {
        "precision": "float32",
        "strategy": "auto",
        "cross_device": "auto",
        "loop": "own",
        "patience": 3,
    }


def test_a_resolved_sweep_keeps_its_name_in_another_file() -> None:
    spec = sweep("method: grid\nproject: p\nparameters: {a.b: {values: [1, 2]}}")
    again = parse_spec(json.dumps(spec.to_json_dict()), "results/s/sweep.json")
    assert again == spec
    assert again.name == "s"
    assert (spec.ignored_keys, again.ignored_keys) == (("project",), ())


def test_what_names_a_user_s_own_parts_is_kept() -> None:
    spec = sweep(
        "method: a.b:Search\nmetric: {name: loss}\nearly_terminate: c:Stop\nrun_cap: 3\n"
        "parameters: {x: {min: 0.0, max: 2.0}, n: {distribution: int_log_uniform_values, min: 1, max: 9}}\n"
        "start_with: [{x: 1, n: 3}]\n"
    )
    assert spec.method == "a.b:Search"
    assert spec.early_terminate == Own("c:Stop")
    assert type(spec.start_with[0]["x"]) is float
    assert parse_spec(json.dumps(spec.to_json_dict()), "s.json") == spec


def test_a_baseline_is_whole_and_need_not_lie_in_the_space() -> None:
    spec = sweep(
        "method: random\nrun_cap: 3\nmetric: {name: loss}\nbaseline: {lr: 5, opt: adam}\nconfirm: {budget: 150.5%}\n"
        "parameters: {lr: {min: 0.1, max: 1.0}, opt: {values: [adam, sgd]}, m: {min: 0.0, max: 1.0, when: {opt: sgd}},"
        " c: {value: 3}, w: {value: = lr / 10}, d: {min: 0.0, max: 1.0}}"
    )
    assert spec.baseline == {"lr": 5, "opt": "adam", "c": 3, "w": 0.5}
    assert spec.notes == ("baseline does not set d: the trainable's own default, if it has one",)
    assert spec.confirm is not None
    assert spec.confirm.share() == 1.505
    assert parse_spec(json.dumps(spec.to_json_dict()), "s.json") == spec


def test_keys_without_an_effect_are_named() -> None:
    foreign = "apiVersion: 0.0.1\nkind: sweep\ncontroller: {type: local}\njob: x\n"
    text = f"{foreign}method: grid\nparameters: {{a: {{value: 1}}}}\n"
    metric = "metric: {name: loss, impute: worst, impute_while_running: latest}\n"
    assert sweep(text + metric).ignored_keys == (
        "apiVersion",
        "kind",
        "controller",
        "job",
        "metric.impute_while_running",
        "metric.impute",
    )


def test_a_searcher_of_ones_own_may_learn() -> None:
    spec = sweep(
        "method: my_search:Climb\nmetric: {name: loss, impute: best}\nwarm_start: [last]\nparameters: {a: {value: 1}}\n"
    )
    assert (spec.warm_start, spec.ignored_keys) == (("last",), ())


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
    spec = parse_spec(FILE, "wide.yaml")
    params: dict[str, Value] = {"x": 0.1 + 0.2, "outer.inner": "a", "y": 3}
    text = resolved.format_sweep_file(
        resolved.make_trial_file(spec, params, 12, "one"), ["A trial.", "Two\nlines"]
    )
    assert text.startswith("# A trial.\n# Two\n# lines\nname: one\n")
    one = parse_spec(text, "one.yaml")
    assert (one.name, one.seed, one.repeats, one.trials, one.method) == ("one", 12, 1, 1, "grid")
    assert {p.name: p.domain.value for p in one.space.parameters} == params
    for kept in (
        "description",
        "trainable",
        "metrics",
        "epochs",
        "data_seed",
        "resources",
        "retries",
        "checkpoint",
    ):
        assert getattr(one, kept) == getattr(spec, kept), kept
    assert {**one.training, "data_seed": None} == {**spec.training, "data_seed": None}
    assert "data_seed" not in str(resolved.make_trial_file(spec, params, spec.seed, "one"))
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
        *(
            "\u2028 \x85 é 😀",
            "'\"\\",
            "- x",
            "{",
            " lead",
            [1, [2.5, None], {"a b": "c"}],
            {"deep": {"er": [1]}},
            [],
        ),
    ],
    ids=repr,
)
def test_every_value_comes_back(value: Value) -> None:
    spec = parse_spec(FILE, "wide.yaml")
    one = parse_spec(
        resolved.format_sweep_file(resolved.make_trial_file(spec, {"v": value}, 0, "one"), []),
        "one.yaml",
    )
    (parameter,) = one.space.parameters
    found = parameter.domain.value
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("value", ["no", "On", "y", "null", "é 😀"])
def test_a_text_is_one_to_readers_of_yaml_1_1_too(value: Value) -> None:
    text = resolved.format_sweep_file(
        resolved.make_trial_file(parse_spec(FILE, "wide.yaml"), {"v": value}, 0, "one"), []
    )
    assert yaml.safe_load(text)["parameters"] == {"v": {"value": value}}


def test_what_is_left_at_its_default_is_not_written(tmp_path: Path) -> None:
    spec = parse_spec(
        "trainable: a:B\nmethod: random\nparameters: {x: {min: 0.0, max: 1.0}}\nrun_cap: 3",
        "s.yaml",
    )
    assert resolved.format_sweep_file(resolved.make_trial_file(spec, {"x": 0.5}, 0, "one"), []) == (
        'name: one\ntrainable: "a:B"\nmethod: grid\nmetric: {name: val_loss, goal: minimize}\n'
        "parameters:\n  x: {value: 0.5}\nepochs: 10\nseed: 0\n"
    )
