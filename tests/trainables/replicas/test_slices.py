from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainables.replicas import keras_corrections, slices

pytestmark = pytest.mark.keras


def on_replicas(count: int, compute: Callable[[], Any]) -> list[Any]:
    """What each of so many replicas gives."""
    devices = [f"/cpu:{i}" for i in range(count)]
    ops = tf.distribute.HierarchicalCopyAllReduce() if count % 2 == 0 else tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=ops)
    found = tf.function(lambda: strategy.run(compute), autograph=False)()
    flat = [strategy.experimental_local_results(value) for value in tf.nest.flatten(found)]
    return [tf.nest.pack_sequence_as(found, values) for values in zip(*flat, strict=True)]


def replica() -> tf.Tensor:
    return tf.convert_to_tensor(tf.distribute.get_replica_context().replica_id_in_sync_group)


@pytest.mark.parametrize("count", [2, 3])
def test_values_of_several_types_are_summed(count: int) -> None:
    def compute() -> list[Any]:
        own = tf.cast(replica() + 1, tf.float32)
        values = [own * tf.ones((2, 3)), tf.cast(own, tf.float16), own * 10, tf.cast(own * tf.ones(2), tf.float64)]
        return slices.sum_over_replicas(values)

    total = count * (count + 1) / 2
    for found in on_replicas(count, compute):
        assert [v.dtype.name for v in found] == ["float32", "float16", "float32", "float64"]
        for value, expected in zip(found, [total, total, 10 * total, total], strict=True):
            np.testing.assert_array_equal(value, np.full(value.shape, expected))


def test_each_replica_knows_the_values_of_all() -> None:
    for found in on_replicas(
        3, lambda: slices.of_each_replica(tf.cast(replica(), tf.float32) + tf.constant([0.0, 0.5]))
    ):
        np.testing.assert_array_equal(found, [[0, 0.5], [1, 1.5], [2, 2.5]])


@pytest.mark.parametrize("middle", [0.0, 3.0, -1e4])
@pytest.mark.parametrize("size", [2, 13])  # of three replicas one has nothing, or one more than others
def test_batch_statistics_are_those_of_float64_also_far_from_zero(middle: float, size: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(middle, 1.0, (size, 5, 4)).astype(np.float32) + np.arange(4, dtype=np.float32)
    layer = keras.layers.BatchNormalization()
    layer.build(x.shape)

    def compute() -> Any:
        cut = slices.cut(tf.constant(size), replica(), 3)
        rows = tf.constant(x)[cut.start : cut.stop]
        with slices.entered(cut), tf.GradientTape() as tape:
            tape.watch(rows)
            mean, variance = keras_corrections._global_moments(layer, rows, None)
            value = tf.reduce_sum(mean + 2 * variance)
        return mean, variance, tape.gradient(value, rows), rows, cut.count

    exact = x.astype(np.float64)
    mean, variance = exact.mean((0, 1)), exact.var((0, 1))
    for found in on_replicas(3, compute):
        np.testing.assert_allclose(found[0], mean, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(
            found[1], variance, rtol=2e-3 if middle < 0 else 1e-6
        )  # as float32 knows means of 10,000
        if int(found[4]):  # replicas sum what each finds for the same value: three times it
            expected = 3 * (1 + 4 * (found[3].numpy().astype(np.float64) - mean)) / (5 * size)
            np.testing.assert_allclose(found[2], expected, rtol=1e-4, atol=4e-3 if middle < 0 else 1e-6)
