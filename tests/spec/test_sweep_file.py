"""The top level of a sweep file: early termination, and what parameter servers ask."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from sweep.errors import InputError
from sweep.events import Value
from sweep.space.early_terminate import (
    Asha,
    AshaPromotion,
    EarlyTermination,
    FreezeThaw,
    Hyperband,
    Median,
    NoTermination,
    Pasha,
)
from sweep.spec import parse_spec, sweep_file
from sweep.spec.sweep_file import EarlyTerminate
from sweep.spec.validation import Document

BLOCKS: TypeAdapter[EarlyTerminate] = TypeAdapter(EarlyTerminate)
PATH = ("early_terminate",)


@pytest.mark.parametrize(
    ("block", "rule"),
    [
        ({"type": "none"}, NoTermination()),
        ({"type": "asha"}, Asha(1, None, 3.0, 1)),
        (
            {"type": "asha", "min_iter": 2, "max_iter": 20, "eta": 4, "brackets": 2},
            Asha(2, 20, 4.0, 2),
        ),
        ({"type": "asha_promotion"}, AshaPromotion(1, None, 3.0)),
        (
            {"type": "asha_promotion", "min_iter": 2, "max_iter": 20, "eta": 4},
            AshaPromotion(2, 20, 4.0),
        ),
        ({"type": "pasha"}, Pasha(1, 3.0, None)),
        ({"type": "pasha", "min_iter": 2, "eta": 4, "epsilon": 0.01}, Pasha(2, 4.0, 0.01)),
        ({"type": "freeze_thaw"}, FreezeThaw(1, 3.0, 0.5)),
        ({"type": "freeze_thaw", "min_iter": 2, "eta": 2, "share": 1}, FreezeThaw(2, 2.0, 1.0)),
        ({"type": "median", "min_iter": 5, "min_trials": 4}, Median(5, 4)),
        ({"type": "hyperband", "min_iter": 3}, Hyperband(min_iter=3)),
        ({"type": "hyperband", "max_iter": 27, "s": 2}, Hyperband(max_iter=27, s=2)),
        ({"type": "hyperband", "min_iter": 3, "strict": True}, Hyperband(min_iter=3, strict=True)),
        # W&B accepts these two and goes by its own precedence.
        ({"type": "hyperband", "min_iter": 3, "eta": 2, "s": 3}, Hyperband(min_iter=3, eta=2.0)),
        ({"type": "hyperband", "min_iter": 5, "max_iter": 50, "s": 2}, Hyperband(max_iter=50, s=2)),
    ],
)
def test_rules(block: dict[str, Value], rule: EarlyTermination) -> None:
    document = Document("s.yaml")
    assert sweep_file.build_rule(BLOCKS.validate_python(block), PATH, document) == rule
    assert not document.mistakes
    assert (
        sweep_file.build_rule(BLOCKS.validate_python(sweep_file.rule_to_dict(rule)), PATH, document)
        == rule
    )


def test_no_block_is_no_rule() -> None:
    assert sweep_file.build_rule(None, PATH, Document("s.yaml")) == NoTermination()


@pytest.mark.parametrize(
    ("rule", "epochs", "acts"),
    [
        (NoTermination(), 1, True),  # asked to do nothing, it does that
        (Asha(min_iter=9), 10, True),
        (Asha(min_iter=10), 10, False),
        (Asha(brackets=3), 10, True),
        (Asha(brackets=4), 10, False),
        (Median(min_iter=1), 2, True),
        (Median(min_iter=1), 1, False),
        (Hyperband(min_iter=3), 4, True),
        (Hyperband(max_iter=81, s=2), 9, False),
        (Hyperband(max_iter=81, s=2), 10, True),
    ],
)
def test_a_rule_that_never_acts_is_noted(rule: EarlyTermination, epochs: int, acts: bool) -> None:
    document = Document("s.yaml")
    sweep_file.check_rule_can_act(rule, epochs, PATH, document)
    assert (not document.mistakes) is acts


FILE = """
name: s
trainable: trainables.click_through:ClickThrough
method: grid
parameters: {{learning_rate: {{value: 0.01}}{more}}}
training: {{strategy: parameter_server{training}}}
resources: {{{resources}}}
"""


def read(
    more: str = "", training: str = "", resources: str = "workers: 2, servers: 1"
) -> list[str]:
    try:
        parse_spec(FILE.format(more=more, training=training, resources=resources), "s.yaml")
    except InputError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_a_plain_one_is_taken() -> None:
    assert read() == []
    assert (
        read(", optimizer: {values: [sgd, Adam, adamw]}, clipnorm: {value: 1.0}", ", patience: 3")
        == []
    )
    assert read(resources="servers: 3, gpus: 1") == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"resources": "workers: 2"},
            "resources.servers is 0; write resources: {workers: 2, servers: 1}",
        ),
        (
            {"training": ", loop: fit"},
            "training.loop: fit, which in Keras 3 knows no parameter servers",
        ),
        (
            {"training": ", precision: mixed_bfloat16"},
            "training.precision: mixed_bfloat16, and servers keep",
        ),
        (
            {"training": ", jit_compile: true"},
            "training.jit_compile: true, and updates on servers do not go",
        ),
        (
            {"training": ", cross_device: ring"},
            "training.cross_device: ring, and nothing is summed",
        ),
        ({"resources": "servers: 1, gpus: 2"}, "resources.gpus: 2, expected 0 or 1"),
        ({"resources": "servers: 1, gpus: auto"}, "resources.gpus: auto, expected 0 or 1"),
        ({"resources": "servers: 1, gpus: 0.5"}, "resources.gpus: 0.5, expected 0 or 1"),
        (
            {"more": ", sam_rho: {value: 0.1}"},
            "parameters.sam_rho: not with a parameter server: the weights may",
        ),
        (
            {"more": ", optimizer: {values: [adam, lion]}"},
            "parameters.optimizer: 'lion', expected sgd, adam, adamw",
        ),
    ],
)
def test_what_it_cannot_is_refused_with_the_reason(given: dict[str, str], expected: str) -> None:
    (found,) = read(**given)
    assert expected in found


def test_servers_are_for_a_parameter_server_alone() -> None:
    text = FILE.format(more="", training="", resources="servers: 1").replace(
        "parameter_server", "mirrored"
    )
    with pytest.raises(
        InputError, match=r"resources\.servers: 1, and training\.strategy is mirrored"
    ):
        parse_spec(text, "s.yaml")


@pytest.mark.parametrize(
    ("more", "noted"),
    [
        ("method: random\nbudget: {hours: 1}", True),
        ("method: random\nrun_cap: 9", False),
        ("method: random\nbudget: {trials: 9, hours: 1}", False),
        ("method: grid", False),
    ],
)
def test_a_rule_that_lets_trials_pause_wants_an_end_of_the_search(more: str, noted: bool) -> None:
    file = "trainable: a:B\nparameters: {a: {values: [1, 2]}}\nmetric: {name: loss}\nearly_terminate: {type: pasha}\n"
    notes = parse_spec(file + more, "s.yaml").notes
    assert (
        any(
            "without run_cap, trials that pause when the sweep ends stay interrupted" in note
            for note in notes
        )
        is noted
    )


def test_a_target_of_the_second_metric_is_noted() -> None:
    file = "trainable: a:B\nmethod: grid\nparameters: {a: {values: [1, 2]}}\n"
    metrics = (
        "metrics: [{name: a, goal: maximize, target: 1}, {name: b, goal: maximize, target: 2}]"
    )
    (note,) = parse_spec(f"{file}{metrics}", "s.yaml").notes
    assert note.startswith("the target of b has no effect")
