"""Whether what an update computes is finite, and what follows from it, without a word to the host.

A `tf.cond` on it would let the host wait for the device in every update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf


def of(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Whether all numbers of these tensors are finite; integers are.

    One operation for each: a sum has each NaN and infinity of its terms. Numbers whose sum has no place in float32 are
    told to be infinite, as they soon would be.
    """
    sums: dict[tf.DType, list[tf.Tensor]] = {}
    for tensor in tensors:
        if tensor.dtype.is_floating:
            wide = tf.cast(tensor, tf.float32) if tensor.dtype.size < tf.float32.size else tensor
            sums.setdefault(wide.dtype, []).append(tf.reduce_sum(wide))
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.stack(found))) for found in sums.values()])


@contextmanager
def undone_unless(
    good: tf.Tensor, strategy: tf.distribute.Strategy, optimizers: Sequence[Any], others: Sequence[Any]
) -> Iterator[None]:
    """Afterwards, these optimizers and variables are as they were before, bit for bit, unless ``good``.

    Called across replicas.
    """
    own = [v for optimizer in optimizers for v in _variables(optimizer)]
    variables = list({id(_plain(v)): _plain(v) for v in (*own, *others)}.values())
    before = strategy.run(lambda: [tf.identity(v) for v in variables])
    yield
    for variable, value in zip(variables, before, strict=True):
        strategy.extended.update(
            variable, lambda v, old, keep: v.assign(tf.where(keep, v, old)), args=(value, good), group=False
        )


def _variables(optimizer: Any) -> list[Any]:
    """Also those that an author's optimizer holds as attributes."""
    held = tf.train.TrackableView(optimizer).descendants()
    return [*optimizer.variables, *(v for v in held if isinstance(v, tf.Variable))]


def _plain(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable
