from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, train

from trainables.devices import precision
from trainables.devices.placement import Placement
from trainables.devices.replicas import Replicas
from trainables.keras_trainable import session_of

pytestmark = pytest.mark.keras

ASKED = {"deterministic": True}
CPU, GPU = (
    Placement(Replicas(tf.distribute.OneDeviceStrategy("/cpu:0")), "one_device", (d,))
    for d in ("cpu:0", "gpu:0")
)


@pytest.fixture(autouse=True)
def as_by_default() -> Iterator[None]:
    yield
    precision.set_determinism(CPU, deterministic=False)


def test_a_process_can_do_both() -> None:
    precision.set_determinism(CPU, deterministic=True)
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    precision.set_determinism(CPU, deterministic=False)
    assert tf.config.experimental.tensor_float_32_execution_enabled()


def test_sums_are_made_in_the_order_of_the_program_where_that_is_promised() -> None:
    """TensorFlow's arithmetic optimizer adds a + (b + c) in an order that differs between processes."""
    found = []
    for placement, deterministic in ((CPU, False), (CPU, True), (GPU, True), (GPU, False)):
        precision.set_determinism(placement, deterministic=deterministic)
        found.append(tf.config.optimizer.get_experimental_options()["arithmetic_optimization"])
    assert found == [False, False, False, True]


@pytest.mark.parametrize(
    ("capability", "deterministic", "timed", "found"),
    [
        (
            (9, 0),
            False,
            True,
            {"tf32": "on", "cudnn": "fastest when tried", "may_differ": precision.MAY_DIFFER},
        ),
        (
            (8, 0),
            False,
            False,
            {"tf32": "on", "cudnn": "heuristic", "may_differ": precision.MAY_DIFFER},
        ),
        (
            (7, 5),
            False,
            True,
            {"tf32": "off", "cudnn": "fastest when tried", "may_differ": precision.MAY_DIFFER},
        ),
        ((9, 0), True, True, {"tf32": "off", "cudnn": "deterministic"}),
    ],
)
def test_a_trial_says_how_its_numbers_came_about(
    capability: tuple[int, int], deterministic: bool, timed: bool, found: dict[str, str]
) -> None:
    precision.set_determinism(CPU, deterministic=deterministic)
    assert (
        precision.describe_gpu_numerics(capability, deterministic=deterministic, timed=timed)
        == found
    )


def test_a_trial_that_asks_for_it_gets_the_same_bits_warm_and_cold_and_a_program_of_its_own() -> (
    None
):
    first, other = Small(), Small()
    cold = train(first, assignment(training=ASKED))
    assert first.facts().numerics == {"deterministic": "yes"}
    bits = session_of(first).trial.program.state.copy_all()
    train(first, assignment())
    assert first.facts().numerics == {}
    assert first.facts().structures == 2
    warm = train(first, assignment(training=ASKED))
    again = train(other, assignment(training=ASKED))
    assert [e.metrics for e in cold] == [e.metrics for e in warm] == [e.metrics for e in again]
    for found in (first, other):
        for path, arrays in session_of(found).trial.program.state.copy_all().items():
            for a, b in zip(arrays, bits[path], strict=True):
                np.testing.assert_array_equal(a, b)
