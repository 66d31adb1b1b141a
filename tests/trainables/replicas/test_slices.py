from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from several_replicas import on_replicas, replica

from trainables.replicas import keras_corrections, slices

pytestmark = pytest.mark.keras


@pytest.mark.parametrize("middle", [0.0, 3.0, -1e4])
# of three replicas one has nothing, or one more than others
@pytest.mark.parametrize("size", [2, 13])
def test_batch_statistics_are_those_of_float64_also_far_from_zero(middle: float, size: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(middle, 1.0, (size, 5, 4)).astype(np.float32) + np.arange(4, dtype=np.float32)
    layer = keras.layers.BatchNormalization()
    layer.build(x.shape)

    def compute() -> Any:
        cut = slices.cut(tf.constant(size), replica(), 3)
        rows = tf.constant(x)[cut.start : cut.stop]
        with slices.entering(cut), tf.GradientTape() as tape:
            tape.watch(rows)
            mean, variance = keras_corrections.compute_global_moments(layer, rows, None)
            value = tf.reduce_sum(mean + 2 * variance)
        return mean, variance, tape.gradient(value, rows), rows, cut.count

    exact = x.astype(np.float64)
    mean, variance = exact.mean((0, 1)), exact.var((0, 1))
    for found in on_replicas(3, compute):
        np.testing.assert_allclose(found[0], mean, rtol=1e-6, atol=1e-6)
        # as float32 knows means of 10,000
        np.testing.assert_allclose(found[1], variance, rtol=2e-3 if middle < 0 else 1e-6)
        if int(found[4]):  # replicas sum what each finds for the same value: three times it
            expected = 3 * (1 + 4 * (found[3].numpy().astype(np.float64) - mean)) / (5 * size)
            np.testing.assert_allclose(
                found[2], expected, rtol=1e-4, atol=4e-3 if middle < 0 else 1e-6
            )
