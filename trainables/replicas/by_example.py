"""What each example adds to a mean loss: how much that mean hangs on the examples that were chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.losses.loss import squeeze_or_expand_to_same_rank, standardize_reduction

from trainables.numbers.live import LiveNumber
from trainables.recipe.refusals import overrides_call
from trainables.replicas.slices import Slice

NAMES = ("examples_mean", "examples_square")
"""Sums of an evaluation: of what each example adds to the loss, and of the squares of that."""


def of_loss(
    loss: keras.losses.Loss, weight: LiveNumber | float | None, y_true: Any, y_pred: Any, sample_weight: Any
) -> tf.Tensor | None:
    """What each example adds to the mean that a compiled loss gives, of shape (examples,).

    None where the loss is no mean over examples (a sum, one number for a batch, masked, or divided by weights), and for
    losses of an author's own: a second call of one could change what it holds.
    """
    function = getattr(loss, "fn", loss)
    if not all(module.startswith("keras.") for module in (type(loss).__module__, function.__module__)):
        return None
    reduction = standardize_reduction(loss.reduction)
    weighed = sample_weight is not None
    if overrides_call(loss) or reduction in ("sum", "none") or (reduction == "mean_with_sample_weight" and weighed):
        return None
    if getattr(y_pred, "_keras_mask", None) is not None:
        return None
    y_true, y_pred = (
        keras.tree.map_structure(lambda t: keras.ops.convert_to_tensor(t, loss.dtype), y) for y in (y_true, y_pred)
    )
    values = keras.ops.convert_to_tensor(loss.call(y_true, y_pred), loss.dtype)
    if getattr(values, "_keras_mask", None) is not None or not values.shape.rank:  # rank 0, or not known
        return None
    if weighed:
        values, weights = squeeze_or_expand_to_same_rank(values, tf.cast(sample_weight, values.dtype))
        values = values * weights
    values = tf.cast(tf.reduce_mean(values, axis=list(range(1, values.shape.rank))), tf.float32)
    return values if weight is None else values * tf.convert_to_tensor(weight, tf.float32)


def shares(cut: Slice) -> dict[str, tf.Tensor]:
    """This slice's share of the means over the global batch of `NAMES`; NaN where a loss is no mean over examples."""
    known: Sequence[tf.Tensor | None] = cut.examples or ()
    vectors = [vector for vector in known if vector is not None]
    if not vectors or len(vectors) < len(known):
        return dict.fromkeys(NAMES, tf.constant(float("nan")))
    each, size = tf.add_n(vectors), tf.cast(cut.size, tf.float32)
    sums = [tf.reduce_sum(each) / size, tf.reduce_sum(tf.square(each)) / size]
    return {name: tf.where(cut.count > 0, value, 0.0) for name, value in zip(NAMES, sums, strict=True)}


def deviation(mean: float, square: float) -> float:
    """The standard deviation over examples; NaN where it is not known."""
    return math.sqrt(max(square - mean * mean, 0.0))
