"""Whatever a file holds, it gives a sweep or a list of mistakes, and never anything else.

``SWEEP_FUZZ=5000 pytest tests/spec/test_spec_fuzz.py`` looks longer.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema
import pytest
from hypothesis import given, settings

from sweep.errors import InputError
from sweep.spec import Spec, json_schema, load_spec, parse_spec
from sweep.spec.distributions import DISTRIBUTIONS, ParameterBlock
from sweep.spec.sweep_file import SweepFile
from sweep.spec.yaml_reader import decode_text, parse_document

SCHEMA = jsonschema.Draft202012Validator(json_schema())
EXAMPLES = int(os.environ.get("SWEEP_FUZZ", "25"))

VALID = """\
name: every key
trainable: my_model:MyModel
method: tpe
metric: {name: val_accuracy, goal: maximize, target: 0.9, impute: worst}
parameters:
  lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}
  wd: {value: "= lr / 10"}
  opt: {values: [sgd, adam], probabilities: [0.3, 0.7]}
  momentum: {min: 0.5, max: 0.99, when: {opt: sgd}}
  layers:
    parameters:
      number: {min: 1, max: 5}
      width: {distribution: q_uniform, min: 16, max: 256, q: 16, when: {layers.number: {min: 2}}}
constraints: ["lr * layers.number < 0.2"]
epochs: 27
early_terminate: {type: asha, min_iter: 1, eta: 3}
run_cap: 20
budget: {hours: 8}
training: {precision: auto}
resources: {cpus: 2, gpus: 0.5}
"""

KEYS = sorted(
    {
        *SweepFile.model_fields,
        *ParameterBlock.model_fields,
        "parameters",
        "type",
        "name",
        "goal",
        "a.b",
        "<<",
    }
)
WORDS = sorted(
    {
        *DISTRIBUTIONS,
        "grid",
        "random",
        "asha",
        "pasha",
        "hyperband",
        "median",
        "none",
        "m:M",
        "= lr",
        "lr < 1",
        "sgd",
    }
)
numbers = (
    st.integers(-3, 30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**70), 2**70)
)
scalars = st.none() | st.booleans() | numbers | st.sampled_from(WORDS) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=20,
)
blocks = st.dictionaries(st.sampled_from(sorted(ParameterBlock.model_fields)), values, max_size=4)
files = st.fixed_dictionaries(
    {"trainable": st.just("m:M"), "method": st.sampled_from(WORDS), "run_cap": st.just(3)},
    optional={
        "parameters": st.dictionaries(
            st.sampled_from(["lr", "opt", "a.b", "epochs", "n"]), blocks, max_size=3
        ),
        **dict.fromkeys(
            ("metric", "metrics", "constraints", "early_terminate", "budget", "training"), values
        ),
        **dict.fromkeys(("resources", "epochs", "name", "when"), values),
    },
)


def understood(text: str, *assignments: str) -> Spec | InputError:
    """The sweep of a text, or its mistakes; any other exception fails the test."""
    try:
        spec = parse_spec(text, "fuzz.yaml", assignments)
    except InputError as error:
        return error
    json.dumps(spec.to_json_dict(), allow_nan=False)
    # editors mark nothing that is right
    assert assignments or SCHEMA.is_valid(parse_document(text, "fuzz.yaml").data)
    return spec


def check(found: Spec | InputError) -> None:
    if isinstance(found, InputError):
        lines = [str(problem).splitlines() for problem in found.problems]
        assert [len(line) for line in lines] == [1] * len(found.problems)
        assert lines
        assert str(found).encode()  # can be printed


def test_the_valid_file_is_valid() -> None:
    assert isinstance(understood(VALID), Spec)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    check(understood(text))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary())
def test_any_bytes(raw: bytes) -> None:
    try:
        text = decode_text(raw, "fuzz.yaml")
    except InputError:
        return
    check(understood(text))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [*"{}[],:&*!|>%@`\"'#?-\t\n ~<=", "a", "b: ", "- ", "\n  ", "1", "&a", "*a", "<<: "]
        )
    )
)
def test_any_yaml_tokens(tokens: list[str]) -> None:
    check(understood("".join(tokens)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(files)
def test_any_data_with_our_keys(data: dict[str, Any]) -> None:
    check(understood(json.dumps(data)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_valid_file_with_a_stretch_replaced(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(VALID)))
    length = data.draw(st.integers(0, 20))
    new = data.draw(
        st.text(max_size=3)
        | st.sampled_from(WORDS + KEYS + ["-1", "1e400", "[", "{", '"', "\n", "null"])
    )
    check(understood(VALID[:start] + new + VALID[start + length :]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(VALID.splitlines()), values)
def test_valid_file_with_a_value_replaced(line: str, value: Any) -> None:
    key = line.partition(":")[0]
    check(understood(VALID.replace(line, f"{key}: {json.dumps(value)}")))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.sampled_from([*KEYS, "lr", "0", "layers", ""]), max_size=4), values)
def test_any_assignment(parts: list[str], value: Any) -> None:
    check(understood(VALID, f"{'.'.join(parts)}={json.dumps(value)}"))


floats = st.floats(-1e6, 1e6)
whole = st.integers(-(2**63) + 1, 2**63 - 1)
positive = st.floats(1e-6, 1e6)


def ranges(name: str, bounds: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, Any]]:
    pairs = st.tuples(bounds, bounds).map(sorted)
    return pairs.map(lambda pair: {"distribution": name, "min": pair[0], "max": pair[1]})


right_blocks = st.one_of(
    st.fixed_dictionaries(
        {
            "value": st.none() | st.booleans() | whole | floats | st.text(),
            "distribution": st.just("constant"),
        }
    ),
    st.fixed_dictionaries(
        {"values": st.lists(whole | st.text(), min_size=1, max_size=4, unique=True)}
    ),
    ranges("int_uniform", st.integers(-100, 100)),
    ranges("uniform", floats),
    ranges("log_uniform_values", positive),
    ranges("inv_log_uniform_values", positive),
    ranges("log_uniform", st.floats(-9, 0)),
    ranges("q_uniform", st.integers(-100, 100)),
    st.fixed_dictionaries(
        {"distribution": st.sampled_from(["normal", "q_normal"])},
        optional={"mu": floats, "sigma": positive},
    ),
    st.fixed_dictionaries(
        {"distribution": st.just("q_log_normal")}, optional={"q": st.integers(1, 5) | positive}
    ),
    st.fixed_dictionaries(
        {"distribution": st.sampled_from(["beta", "q_beta"])},
        optional={"a": positive, "b": positive},
    ),
)
right_files = st.fixed_dictionaries(
    {
        "trainable": st.just("m:M"),
        "method": st.sampled_from(["random", "sobol", "bayes", "nsga2"]),
        "metrics": st.lists(st.sampled_from(["a", "b"]), min_size=1, unique=True).map(
            lambda names: [{"name": name, "goal": "maximize"} for name in names]
        ),
        "run_cap": st.integers(1, 2**62),
        "parameters": st.dictionaries(
            st.sampled_from(["lr", "opt", "n.m", "n.k"]), right_blocks, min_size=1
        ).map(
            lambda found: {
                "epochs": {"values": [3, 9]},
                **{name: {**block, "when": {"epochs": 3}} for name, block in found.items()},
                "tied": {"value": "= epochs / 2"},
            }
        ),
    },
    optional={
        "description": st.text(),
        "constraints": st.just(["epochs < 9 or tied > 4"]),
        "epochs": st.integers(1, 10**6),
        "repeats": st.integers(1, 9),
        "seed": st.integers(0, 2**32 - 2**10),
        "budget": st.fixed_dictionaries(
            {}, optional={"hours": positive, "trials": st.integers(1, 9)}
        ),
        "resources": st.fixed_dictionaries(
            {"cpus": positive, "gpus": st.integers(0, 8) | st.floats(0, 1)}
        ),
        "checkpoint": st.fixed_dictionaries(
            {"every_s": st.floats(0, 1e6), "keep": st.integers(1, 9)}
        ),
    },
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(right_files)
def test_the_resolved_sweep_is_a_sweep_file(data: dict[str, Any]) -> None:
    spec = understood(json.dumps(data))
    assert isinstance(spec, Spec)
    written = json.dumps(spec.to_json_dict(), allow_nan=False)
    assert SCHEMA.is_valid(json.loads(written))
    again = parse_spec(written, "sweep.json")
    assert again == spec
    assert json.dumps(again.to_json_dict()) == written


@pytest.mark.parametrize("size", [1_000_001, 100_000_000])
def test_a_huge_file_is_refused_by_its_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as stream:
        stream.truncate(size)  # sparse
    with pytest.raises(InputError, match="more than 1,000,000 bytes"):
        load_spec(path)
