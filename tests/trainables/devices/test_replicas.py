from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from several_replicas import on_replicas, replica

from trainables.devices.replicas import stack_over_replicas, sum_over_replicas

pytestmark = pytest.mark.keras


@pytest.mark.parametrize("count", [2, 3])
def test_values_of_several_types_are_summed(count: int) -> None:
    def compute() -> list[Any]:
        own = tf.cast(replica() + 1, tf.float32)
        values = [
            own * tf.ones((2, 3)),
            tf.cast(own, tf.float16),
            own * 10,
            tf.cast(own * tf.ones(2), tf.float64),
        ]
        return sum_over_replicas(values)

    total = count * (count + 1) / 2
    for found in on_replicas(count, compute):
        assert [v.dtype.name for v in found] == ["float32", "float16", "float32", "float64"]
        for value, expected in zip(found, [total, total, 10 * total, total], strict=True):
            np.testing.assert_array_equal(value, np.full(value.shape, expected))


def test_each_replica_knows_the_values_of_all() -> None:
    for found in on_replicas(
        3, lambda: stack_over_replicas(tf.cast(replica(), tf.float32) + tf.constant([0.0, 0.5]))
    ):
        np.testing.assert_array_equal(found, [[0, 0.5], [1, 1.5], [2, 2.5]])
