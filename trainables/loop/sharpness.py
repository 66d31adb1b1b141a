"""Sharpness-aware minimization: the gradient is taken where the loss is highest nearby.

Source: Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, 2021, algorithm 1. The norm
is that of the global batch's gradient: papers take it for each device, which is another method on each number of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from trainables.devices.replicas import Replicas
from trainables.loop.finiteness import Before
from trainables.numbers.live import LiveNumber

TINY = 1e-12


@contextmanager
def climbed(
    replicas: Replicas,
    weights: Sequence[keras.Variable],
    gradients: Sequence[Any],
    rho: LiveNumber,
    others: Sequence[Any],
) -> Iterator[None]:
    """Move these weights by ``rho`` along their gradient inside the block; afterwards all is as it was, bit for bit.

    ``others``: variables that a forward pass may change (moving statistics, metrics), which count each batch once.
    Called across replicas.
    """

    def step(found: Sequence[Any]) -> list[Any]:
        length = tf.convert_to_tensor(rho) / (tf.linalg.global_norm(found) + TINY)
        return [g * tf.cast(length, g.dtype) for g in found]

    before = Before(replicas, [*weights, *others])
    for weight, by in zip(weights, replicas.run(step, list(gradients)), strict=True):
        replicas.change(weight.value, lambda w, d: w.assign_add(tf.cast(d, w.dtype)), by)
    yield
    before.put_back()
