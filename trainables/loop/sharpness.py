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

from trainables.numbers.live import LiveNumber
from trainables.replicas import random_layers

TINY = 1e-12


@contextmanager
def climbed(
    strategy: tf.distribute.Strategy,
    weights: Sequence[keras.Variable],
    gradients: Sequence[Any],
    rho: LiveNumber,
    others: Sequence[keras.Variable],
) -> Iterator[None]:
    """Move these weights by ``rho`` along their gradient inside the block; afterwards all is as it was, bit for bit.

    ``others``: variables that a forward pass changes (moving statistics), which count each batch once. Called across
    replicas.
    """

    def step(found: Sequence[Any]) -> list[Any]:
        length = tf.convert_to_tensor(rho) / (tf.linalg.global_norm(found) + TINY)
        return [g * tf.cast(length, g.dtype) for g in found]

    def copies() -> tuple[list[Any], list[Any]]:
        return [tf.identity(v.value) for v in weights], [tf.identity(v.value) for v in others]

    others = [v for v in others if not random_layers.is_seed(v)]  # which are counted on when the batch is done
    kept_weights, kept_others = strategy.run(copies)
    for weight, by in zip(weights, strategy.run(step, args=(list(gradients),)), strict=True):
        strategy.extended.update(weight.value, lambda w, d: w.assign_add(tf.cast(d, w.dtype)), args=(by,))
    yield
    for variable, value in zip([*weights, *others], [*kept_weights, *kept_others], strict=True):
        strategy.extended.update(variable.value, lambda v, before: v.assign(before), args=(value,))
