"""What a parameter server asks of a file, and refuses."""

from __future__ import annotations

import pytest

from sweep.errors import InputError
from sweep.spec import parse

FILE = """
name: s
trainable: trainables.click_through:ClickThrough
method: grid
parameters: {{learning_rate: {{value: 0.01}}{more}}}
training: {{strategy: parameter_server{training}}}
resources: {{{resources}}}
"""


def read(more: str = "", training: str = "", resources: str = "workers: 2, servers: 1") -> list[str]:
    try:
        parse(FILE.format(more=more, training=training, resources=resources), "s.yaml")
    except InputError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_a_plain_one_is_taken() -> None:
    assert read() == []
    assert read(", optimizer: {values: [sgd, Adam, adamw]}, clipnorm: {value: 1.0}", ", patience: 3") == []
    assert read(resources="servers: 3, gpus: 1") == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"resources": "workers: 2"}, "resources.servers is 0; write resources: {workers: 2, servers: 1}"),
        ({"training": ", loop: fit"}, "training.loop: fit, which in Keras 3 knows no parameter servers"),
        ({"training": ", precision: mixed_bfloat16"}, "training.precision: mixed_bfloat16, and servers keep"),
        ({"training": ", jit_compile: true"}, "training.jit_compile: true, and updates on servers do not go"),
        ({"training": ", cross_device: ring"}, "training.cross_device: ring, and nothing is summed"),
        ({"resources": "servers: 1, gpus: 2"}, "resources.gpus: 2, expected 0 or 1"),
        ({"resources": "servers: 1, gpus: auto"}, "resources.gpus: auto, expected 0 or 1"),
        ({"resources": "servers: 1, gpus: 0.5"}, "resources.gpus: 0.5, expected 0 or 1"),
        ({"more": ", sam_rho: {value: 0.1}"}, "parameters.sam_rho: not with a parameter server: an update of two"),
        ({"more": ", optimizer: {values: [adam, lion]}"}, "parameters.optimizer: 'lion', expected sgd, adam, adamw"),
    ],
)
def test_what_it_cannot_is_refused_with_the_reason(given: dict[str, str], expected: str) -> None:
    (found,) = read(**given)
    assert expected in found


def test_servers_are_for_a_parameter_server_alone() -> None:
    text = FILE.format(more="", training="", resources="servers: 1").replace("parameter_server", "mirrored")
    with pytest.raises(InputError, match=r"resources\.servers: 1, and training\.strategy is mirrored"):
        parse(text, "s.yaml")
