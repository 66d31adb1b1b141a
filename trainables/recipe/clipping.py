"""Clipping of gradients: its three kinds, which of them a trial asks for, and the one way to do it.

As in Keras, a bound of 0 is off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from sweep.hyperparameters import Hyperparameters

READS = ("clipnorm", "global_clipnorm", "clipvalue")
KINDS = READS


def kinds(hp: Hyperparameters) -> tuple[str, ...]:
    """Which clipping a trial asks for; raises ValueError for more than one kind."""
    found = tuple(kind for kind in KINDS if kind in hp)
    if len(found) > 1:
        raise ValueError(f"{' and '.join(found)} are set, expected at most one kind of clipping")
    return found


def bounds(hp: Hyperparameters) -> dict[str, float]:
    """The bound of each kind of clipping that a trial asks for, where it is fixed in the graph."""
    return {kind: hp.number(kind, standard=True) for kind in kinds(hp)}


def clip(
    gradients: Sequence[Any], bounds: Mapping[str, tf.Tensor | float], groups: Sequence[Sequence[int]] | None = None
) -> list[Any]:
    """Clip the gradients of the global batch, as Keras defines the kinds; those of rows must name each row once.

    ``bounds`` by kind; ``groups``: the places of gradients that are parts of one weight's, by default each alone.
    """
    found = list(gradients)
    for kind, given in bounds.items():
        bound = tf.convert_to_tensor(given, tf.float32)
        on = bound > 0
        if kind == "clipvalue":
            bound = tf.where(on, bound, float("inf"))
            found = [_each(g, lambda t, by=bound: _within(t, by)) for g in found]
        elif kind == "global_clipnorm":
            scale = tf.where(on, _of_all(found, bound), 1.0)
            found = [_each(g, lambda t, by=scale: tf.math.multiply_no_nan(t, tf.cast(by, t.dtype))) for g in found]
        else:
            for group in [[place] for place in range(len(found))] if groups is None else groups:
                norm = tf.linalg.global_norm([found[place] for place in group])
                times, over = tf.where(on, bound, 1.0), tf.where(on, tf.maximum(tf.cast(norm, tf.float32), bound), 1.0)
                for place in group:
                    found[place] = _each(
                        found[place], lambda t, n=times, by=over: t * tf.cast(n, t.dtype) / tf.cast(by, t.dtype)
                    )
    return found


def _of_all(gradients: Sequence[Any], bound: tf.Tensor) -> tf.Tensor:
    """The scale of `tf.clip_by_global_norm`, for products that TensorFlow's graph optimizer leaves as they are.

    Of those in (gradient * scale) * rate it multiplies the numbers first, or not, by where the rate comes from: with
    several processes the last digit would be another one.
    """
    norm = tf.linalg.global_norm(gradients)
    return bound * tf.minimum(1.0 / norm, 1.0 / bound) + (norm - norm)  # NaN where the norm is not finite


def _within(gradient: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
    bound = tf.cast(bound, gradient.dtype)
    return tf.clip_by_value(gradient, -bound, bound)


def _each(gradient: Any, change: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)
