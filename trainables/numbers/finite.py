"""The test for NaN and infinity that every kind of training uses for losses, gradients and weights."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf


def all_finite(tensors: Iterable[tf.Tensor], *, by_row: bool = False) -> tf.Tensor:
    """Return a scalar tensor that is true if all numbers of ``tensors`` are finite, as without any tensors.

    Only tensors of floating types are tested; integers are always finite. With ``by_row``, the result has one value for
    each row of the tensors' first axis, but is a scalar true if there are no floating tensors. Each tensor is only
    summed (16-bit types in float32), because a sum is NaN or infinite if one of its terms is. So finite numbers whose
    sum overflows count as infinite. A `tf.cond` on the result makes the host wait for the device each time.
    """
    sums: dict[tf.DType, list[tf.Tensor]] = {}
    for tensor in tensors:
        if tensor.dtype.is_floating:
            if tensor.dtype.size < tf.float32.size:  # a sum in float16 would soon overflow
                wide = tf.cast(tensor, tf.float32)
            else:
                wide = tensor
            axes = [*range(1, wide.shape.rank)] if by_row else None  # None: all axes
            total = tf.reduce_sum(wide, axes)
            sums.setdefault(wide.dtype, []).append(total)
    finite = []
    # only sums of one type can be stacked, and then tested in one operation
    for totals in sums.values():
        finite.append(tf.reduce_all(tf.math.is_finite(tf.stack(totals)), 0))
    if finite:
        return tf.reduce_all(tf.stack(finite), 0)
    return tf.constant(True)
