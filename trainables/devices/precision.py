"""Mixed precision: which dtype policy a trial trains with, set only while its model is built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from trainables.devices.placement import Placement

PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")


def resolve(choice: str, placement: Placement) -> str:
    """The policy's name; ``auto`` goes by the weakest GPU, a CPU trains in float32, a TPU in bfloat16.

    bfloat16 needs compute capability 8.0, float16 gains from 7.0 on (NVIDIA, CUDA C++ programming guide,
    table of arithmetic throughput).
    """
    if choice not in PRECISIONS:
        raise ValueError(f"precision is {choice!r}, expected one of {', '.join(PRECISIONS)}")
    if choice != "auto":
        return choice
    if placement.name == "tpu":
        return "mixed_bfloat16"
    if not placement.on_gpu:
        return "float32"
    visible = tf.config.get_visible_devices("GPU")
    capability = min(
        tuple(tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))) for gpu in visible
    )
    if capability >= (8, 0):
        return "mixed_bfloat16"
    return "mixed_float16" if capability >= (7, 0) else "float32"


@contextmanager
def policy(name: str) -> Iterator[None]:
    """Build layers under this policy; Keras keeps it per thread, so it is set here and put back."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class LossScale:
    """Dynamic loss scale for float16 gradients, one for all replicas.

    Doubled after 2,000 good updates, halved and the update skipped after a bad one (Micikevicius et al.,
    Mixed Precision Training, section 3.2). Create it under the strategy's scope.
    """

    initial, growth_updates = 2.0**15, 2000

    def __init__(self) -> None:
        self.scale = tf.Variable(self.initial, trainable=False, dtype=tf.float32, name="loss_scale")
        self.good = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_updates")

    @property
    def variables(self) -> list[tf.Variable]:
        """What a checkpoint must hold."""
        return [self.scale, self.good]

    def reset(self) -> None:
        """Back to the start of a trial."""
        self.scale.assign(self.initial)
        self.good.assign(0)

    def update(self, finite: tf.Tensor) -> None:
        """Adjust after an update; ``finite``: whether its gradients, summed over replicas, were finite."""
        good = tf.where(finite, self.good + 1, tf.zeros_like(self.good))
        grow = tf.equal(good, self.growth_updates)
        factor = tf.where(finite, tf.where(grow, 2.0, 1.0), 0.5)
        self.scale.assign(tf.maximum(self.scale * factor, 1.0))
        self.good.assign(tf.where(grow, tf.zeros_like(good), good))
