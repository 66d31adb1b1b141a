"""Eight logical CPU devices, TensorFlow started with them, so that no trial of fewer binds the process to its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8
)
tf.config.list_logical_devices("CPU")

AS_USERS_HAVE_IT = (
    "test_equivalence",
    "test_optimizer_table",
    "test_processes_are_one",
    "test_random_layers",
    "test_xla",
    "test_zoo_",
)
"""Files whose numbers are compared with those of Keras, of XLA or of other processes, on models of all kinds."""


@pytest.fixture(scope="module", autouse=True)
def graphs_as_traced(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run graphs as they are traced in most files of the daily run: to optimise them is a fifth of a trial's start.

    The files above show that optimised graphs train the same, and so does every test where ``-m`` is given.
    """
    daily = request.config.option.markexpr == "not exhaustive"
    traced = daily and not request.path.name.startswith(AS_USERS_HAVE_IT)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": traced})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
