"""What tests let several replicas of this process compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainables.devices.replicas import Replicas, get_replica_index


def on_replicas(count: int, compute: Callable[[], Any]) -> list[Any]:
    """What each of so many replicas gives."""
    devices = [f"/cpu:{i}" for i in range(count)]
    ops = (
        tf.distribute.HierarchicalCopyAllReduce()
        if count % 2 == 0
        else tf.distribute.ReductionToOneDevice()
    )
    replicas = Replicas(tf.distribute.MirroredStrategy(devices, cross_device_ops=ops))
    found = tf.function(lambda: replicas.run(compute), autograph=False)()
    flat = [replicas.of_each(value) for value in tf.nest.flatten(found)]
    return [tf.nest.pack_sequence_as(found, values) for values in zip(*flat, strict=True)]


def replica() -> tf.Tensor:
    """Which of them this is."""
    return tf.convert_to_tensor(get_replica_index()[1])
