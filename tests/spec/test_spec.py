"""What a right file means: W&B's inference of distributions, defaults, overrides, the round trip."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import InputError
from sweep.space.domains import (
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogUniform,
    Normal,
    Tied,
    Uniform,
)
from sweep.space.early_terminate import RULES
from sweep.spec import Spec, load_spec, parse_spec
from sweep.spec.search_methods import STANDALONE, find_method
from sweep.spec.yaml_reader import decode_text

HEAD = "trainable: m:M\nmethod: random\nrun_cap: 9\n"


def domain(block: str) -> Domain:
    return parse_spec(f"{HEAD}parameters: {{x: {block}}}\n", "s.yaml").space.parameters[0].domain


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("{value: 3}", Constant(3)),
        ("{value: [1, 2]}", Constant([1, 2])),
        ("{values: [sgd, 1, null]}", Categorical(("sgd", 1, None))),
        ("{values: [a, b], probabilities: [0.25, 0.75]}", Categorical(("a", "b"), (0.25, 0.75))),
        ("{min: 1, max: 5}", IntUniform(1, 5)),
        ("{min: 1, max: 5.0}", Uniform(1.0, 5.0)),
        ("{min: 0.0, max: 1}", Uniform(0.0, 1.0)),
        ("{min: 0, max: 1, q: 0.5}", Uniform(0.0, 1.0, 0.5)),
        ("{distribution: q_uniform, min: 0, max: 4}", Uniform(0.0, 4.0, 1)),
        ("{distribution: log_uniform_values, min: 1e-4, max: 1e-1}", LogUniform(1e-4, 1e-1)),
        ("{distribution: log_uniform, min: -9, max: -2}", LogUniform(math.exp(-9), math.exp(-2))),
        ("{distribution: inv_log_uniform, min: 2, max: 9}", LogUniform(math.exp(-9), math.exp(-2))),
        ("{distribution: normal}", Normal(0, 1)),
        ("{distribution: constant, value: '= y'}", Constant("= y")),
    ],
)
def test_distributions_are_inferred_as_wandb_does(block: str, expected: Domain) -> None:
    assert domain(block) == expected


def test_defaults() -> None:
    spec = parse_spec(f"{HEAD}parameters: {{x: {{value: 1}}}}\n", "folder/my sweep.yaml")
    assert spec.name == "my-sweep"
    assert [(metric.name, metric.goal) for metric in spec.metrics] == [("val_loss", "minimize")]
    assert (spec.epochs, spec.repeats, spec.seed) == (10, 1, 0)
    assert spec.trials == 1


@pytest.mark.parametrize(
    ("written", "folder"),
    [
        ("my sweep", "my-sweep"),
        ("ResNet #2: lr (log)", "ResNet-2-lr-log"),
        ("a_b.c-d", "a_b.c-d"),
        ("lr & wd", "lr-wd"),
    ],
)
def test_the_name_of_a_wandb_sweep_names_a_folder(written: str, folder: str) -> None:
    assert (
        parse_spec(f"{HEAD}name: '{written}'\nparameters: {{x: {{value: 1}}}}\n", "s.yaml").name
        == folder
    )


def test_nested_and_dotted_names_are_the_same() -> None:
    nested = parse_spec(
        f"{HEAD}parameters: {{opt: {{parameters: {{lr: {{min: 0.1, max: 0.9}}}}}}}}\n", "s.yaml"
    )
    flat = parse_spec(f"{HEAD}parameters: {{opt.lr: {{min: 0.1, max: 0.9}}}}\n", "s.yaml")
    assert nested == flat
    assert [parameter.name for parameter in nested.space.parameters] == ["opt.lr"]


def test_a_tie_is_an_expression() -> None:
    spec = parse_spec(
        f"{HEAD}parameters: {{lr: {{values: [10, 20]}}, wd: {{value: '= lr / 10'}}}}\n", "s.yaml"
    )
    tied = spec.space.parameters[1].domain
    assert isinstance(tied, Tied)
    assert tied.expression.evaluate({"lr": 20}) == 2


def test_the_command_line_wins_over_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"{HEAD}epochs: 3\nparameters: {{x: {{values: [1, 2]}}}}\n")
    assert load_spec(path, environment={}).epochs == 3
    assert load_spec(path, environment={"SWEEP_SET": "epochs=4 seed=5"}).epochs == 4
    spec = load_spec(
        path, ["epochs=6", "parameters.x.values.0=7"], {"SWEEP_SET": "epochs=4 seed=5"}
    )
    assert (spec.epochs, spec.seed) == (6, 5)
    assert spec.space.parameters[0].domain == Categorical((7, 2))


def test_a_missing_file_is_the_user_s_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_spec(tmp_path / "nowhere.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        load_spec(tmp_path)


def outcome(raw: bytes) -> Spec | InputError:
    try:
        return parse_spec(decode_text(raw, "s.yaml"), "s.yaml")
    except InputError as error:
        return error


ALPHABET = st.sampled_from(
    [*"{}[]:,-&*!|>'\"%@#?<= \n\tax01.e_", "parameters", "values", "method", "min", "- "]
)


@settings(max_examples=50, deadline=None)
@given(
    st.binary(max_size=200)
    | st.lists(ALPHABET, max_size=40).map(lambda parts: "".join(parts).encode())
)
def test_any_bytes_give_a_sweep_or_mistakes(raw: bytes) -> None:
    found = outcome(raw)
    assert isinstance(found, Spec) or found.problems
    assert isinstance(
        outcome(HEAD.encode() + b"parameters: {x: {value: 1}}\n" + raw), Spec | InputError
    )


@pytest.mark.parametrize(
    ("metric", "notes"),
    [
        ("metric: {name: val_accuracy}", 1),
        ("metric: {name: val_accuracy, goal: minimize}", 0),
        ("metric: {name: val_loss}", 0),
        ("metrics: [{name: val_loss}, {name: top5_acc}, {name: F1}]", 2),
    ],
)
def test_a_goal_that_is_hardly_meant_is_noted(metric: str, notes: int) -> None:
    spec = parse_spec(
        f"trainable: a:B\nmethod: random\nrun_cap: 1\nparameters: {{x: {{value: 1}}}}\n{metric}\n",
        "s.yaml",
    )
    assert len(spec.notes) == notes
    assert all("minimized as in W&B" in note for note in spec.notes)


WITH_A_METRIC = "trainable: m:M\nmethod: random\nrun_cap: 2\nmetric: {name: loss}\n"
NOTED = {
    "a: {values: [yes, no]}": "values: yes, no: texts here, by YAML 1.2, and true, false in W&B, by YAML 1.1",
    "a: {values: [1000, 1_000]}": "values: 1_000: texts here, by YAML 1.2, and 1000 in W&B",
    "a: {value: on}": "value: on: texts here, by YAML 1.2, and true in W&B",
    "a: {values: [010, 20]}": "values: 010: decimal numbers here, by YAML 1.2, and 8 in W&B",
    "a: {value: [64, 128]}": "value: one value, the list [64, 128], in every trial; did you mean values?",
    "g: {parameters: {a: {values: [yes, no]}}}": "g.parameters.a.values: yes, no: texts here",
    "a: {values: ['yes', 'no']}": "",
    "a: {values: [off, low, high]}": "",
    "a: {values: [true, false, 1000]}": "",
    "a: {value: [64]}": "",
    "lr_drop_epochs: {value: [30, 60]}": "",
}


@pytest.mark.parametrize("block", NOTED)
def test_values_that_wandb_reads_otherwise_are_noted(block: str) -> None:
    notes = parse_spec(f"{WITH_A_METRIC}parameters: {{{block}}}\n", "s.yaml").notes
    assert len(notes) == bool(NOTED[block])
    if NOTED[block]:
        assert notes[0].startswith("s.yaml:5:")
        assert NOTED[block] in notes[0]


@pytest.mark.parametrize("epochs", ["", "epochs: 10\n"])
@pytest.mark.parametrize("more", ["", ", epochs: {value: 10}"])
@pytest.mark.parametrize("rule", ["{type: asha, min_iter: 25}", "{type: hyperband, min_iter: 25}"])
def test_a_rule_that_never_acts_says_whether_the_file_names_the_epochs(
    rule: str, more: str, epochs: str
) -> None:
    text = f"{WITH_A_METRIC}parameters: {{a: {{values: [1, 2]}}{more}}}\n{epochs}early_terminate: {rule}\n"
    with pytest.raises(InputError, match="can never stop a trial of 10 epochs") as caught:
        parse_spec(text, "s.yaml")
    is_default = "of 10 epochs, the default, for the file names none; write epochs:" in str(
        caught.value
    )
    assert is_default is not bool(more or epochs)


@pytest.mark.parametrize(
    ("more", "last"),
    [
        ("repeats: 2", 4294967296),
        ("confirm: {seeds: 4}", 4294967299),
        ("repeats: 3\nconfirm: {seeds: 2}", 4294967299),
    ],
)
def test_seeds_that_count_up_too_far_are_refused(more: str, last: int) -> None:
    text = f"{HEAD}parameters: {{x: {{min: 0.0, max: 1.0}}}}\nseed: 4294967295\n{more}\n"
    with pytest.raises(InputError) as caught:
        parse_spec(text, "s.yaml")
    assert str(caught.value) == (
        f"s.yaml:5:7: seed: 4294967295, and the seeds of repeats and confirm count up from it to {last}; "
        "expected seeds up to 4294967295: write a smaller one"
    )
    assert parse_spec(
        text.replace("seed: 4294967295", f"seed: {4294967295 - (last - 4294967295)}"), "s.yaml"
    )


def rule_of(method: str, rule: str, epochs: int = 52) -> Spec:
    parameters = (
        "{x: {values: [1, 2]}}" if find_method(method).enumerates else "{x: {min: 0, max: 1}}"
    )
    text = f"trainable: m:M\nmethod: {method}\nmetric: {{name: a}}\nrun_cap: 9\nparameters: {parameters}\n"
    return parse_spec(f"{text}epochs: {epochs}\nearly_terminate: {rule}\n", "s.yaml")


@pytest.mark.parametrize(
    "kind", [kind for kind, rule in RULES.items() if rule.first_rung_by_epochs != "never"]
)
@pytest.mark.parametrize(
    "method", [*(m.name for m in STANDALONE if m.learns), "bayes", "my:Search"]
)
def test_rules_begin_where_ranks_mean_something_with_a_method_that_learns(
    method: str, kind: str
) -> None:
    late, early = (
        rule_of(method, f"{{type: {kind}}}"),
        rule_of(method, f"{{type: {kind}, min_iter: 1}}"),
    )
    assert (late.early_terminate.min_iter, late.notes) == (6, ())
    assert early.early_terminate.min_iter == 1
    assert early.notes[0].startswith(
        f"early_terminate: {kind} decides after epoch 1 of 52; ranks may say little"
    )
    assert early.notes[0].endswith("write min_iter: 6, or leave it out")


@pytest.mark.parametrize("method", [m.name for m in STANDALONE if not m.learns])
@pytest.mark.parametrize(
    "kind", [kind for kind, rule in RULES.items() if rule.first_rung_by_epochs == "if learning"]
)
def test_rules_begin_at_once_with_a_method_that_does_not_learn(method: str, kind: str) -> None:
    spec = rule_of(method, f"{{type: {kind}}}")
    assert (spec.early_terminate.min_iter, spec.notes) == (1, ())
    # which predicts from its first pause
    assert rule_of(method, "{type: freeze_thaw}").early_terminate.min_iter == 6
    learning = rule_of("tpe", f"{{type: {kind}}}")
    assert parse_spec(json.dumps(learning.to_json_dict()), "s.json") == learning


@pytest.mark.parametrize(
    ("rule", "begins"),
    [
        ("{type: hyperband, min_iter: 3}", 3),
        ("{type: hyperband, max_iter: 27, s: 3}", 1),
        ("{type: asha, max_iter: 3}", 3),
        ("{type: asha, brackets: 3}", 2),
        ("{type: hyperband, min_iter: 6}", None),
        ("{type: asha, brackets: 2}", None),
        ("none", None),
    ],
)
def test_a_rule_that_begins_too_early_for_a_method_that_learns_is_noted(
    rule: str, begins: int | None
) -> None:
    notes = rule_of("tpe", rule.replace("none", "{type: none}")).notes
    assert [f"after epoch {begins} of 52" in note for note in notes] == (
        [] if begins is None else [True]
    )
