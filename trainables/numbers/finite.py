"""What is finite: one rule for losses, gradients and weights, whoever trains."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf


def all_finite(tensors: Iterable[tf.Tensor], *, by_row: bool = False) -> tf.Tensor:
    """Whether all numbers of these tensors are finite; integers are. ``by_row``: for each row of their first axis.

    One operation for each: a sum has each NaN and infinity of its terms. Numbers whose sum has no place in float32 are
    told to be infinite, as they soon would be. A `tf.cond` on it would let the host wait for the device each time.
    """
    sums: dict[tf.DType, list[tf.Tensor]] = {}
    for tensor in tensors:
        if tensor.dtype.is_floating:
            wide = tf.cast(tensor, tf.float32) if tensor.dtype.size < tf.float32.size else tensor
            total = tf.reduce_sum(wide, [*range(1, wide.shape.rank)] if by_row else None)
            sums.setdefault(wide.dtype, []).append(total)
    finite = [tf.reduce_all(tf.math.is_finite(tf.stack(found)), 0) for found in sums.values()]
    return tf.reduce_all(tf.stack(finite), 0) if finite else tf.constant(True)
