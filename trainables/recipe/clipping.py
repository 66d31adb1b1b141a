"""Clipping of gradients: its three kinds, which one a trial asks for, and its implementation.

As in Keras, a bound of 0 turns it off.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from sweep.hyperparameters import Hyperparameters

READS = ("clipnorm", "global_clipnorm", "clipvalue")
KINDS = READS


def list_kinds(hp: Hyperparameters) -> tuple[str, ...]:
    """Return the kind of clipping that a trial asks for, such as "clipnorm", as a tuple; () if it does not clip.

    Raises: ValueError: if there is more than one.
    """
    found = tuple(kind for kind in KINDS if kind in hp)
    if len(found) > 1:
        raise ValueError(f"{' and '.join(found)} are set, expected at most one kind of clipping")
    return found


def read_bounds(hp: Hyperparameters) -> dict[str, float]:
    """Return the bound of clipping by its kind, such as ``{"clipnorm": 1.0}``; empty if the trial does not clip.

    The numbers become constants of the graph.
    Raises: ValueError or TypeError: if there is more than one kind, or a bound is wrong.
    """
    return {kind: hp.number(kind, standard=True) for kind in list_kinds(hp)}


def clip(
    gradients: Sequence[Any],
    bounds: Mapping[str, tf.Tensor | float],
    groups: Sequence[Sequence[int]] | None = None,
) -> list[Any]:
    """Return the gradients clipped as Keras does; sparse gradients must have each row only once.

    ``bounds`` maps kinds of clipping (see `KINDS`) to their bounds, and is applied in its order; a bound that is not
    positive has no effect. For "clipnorm", each of ``groups`` has the indices of the gradients that are parts of one
    weight's gradient; by default, each weight has one gradient. The other kinds ignore ``groups``. With
    "global_clipnorm", all gradients become NaN if their common norm is not finite.
    """
    clipped = list(gradients)
    if groups is None:
        groups = [[index] for index in range(len(clipped))]
    for kind, given in bounds.items():
        bound = tf.convert_to_tensor(given, tf.float32)
        is_on = bound > 0
        if kind == "clipvalue":
            bound = tf.where(is_on, bound, float("inf"))
            change = functools.partial(_clip_values, bound=bound)
            clipped = [_map_values(g, change) for g in clipped]
        elif kind == "global_clipnorm":
            scale = tf.where(is_on, _compute_global_scale(clipped, bound), 1.0)
            change = functools.partial(_multiply, scale=scale)
            clipped = [_map_values(g, change) for g in clipped]
        else:  # clipnorm
            for group in groups:
                norm = tf.linalg.global_norm([clipped[index] for index in group])
                # As in Keras, t * bound / max(norm, bound); both numbers are 1 if the bound is off.
                factor = tf.where(is_on, bound, 1.0)
                divisor = tf.where(is_on, tf.maximum(tf.cast(norm, tf.float32), bound), 1.0)
                change = functools.partial(_multiply_and_divide, factor=factor, divisor=divisor)
                for index in group:
                    clipped[index] = _map_values(clipped[index], change)
    return clipped


def _compute_global_scale(gradients: Sequence[Any], bound: tf.Tensor) -> tf.Tensor:
    """Return the factor by which clipping to a global norm scales all gradients; NaN if their norm is not finite.

    It is 1 if the norm is at most ``bound``, which must be above 0. Use it with `multiply_no_nan`, which TensorFlow
    does not reorder. In (gradient * scale) * rate, TensorFlow's graph optimizer may multiply the two numbers first,
    depending on where the rate comes from. With several processes, the last digit would then differ.
    """
    norm = tf.linalg.global_norm(gradients)
    # NaN if the norm is not finite
    return bound * tf.minimum(1.0 / norm, 1.0 / bound) + (norm - norm)


def _clip_values(gradient: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
    bound = tf.cast(bound, gradient.dtype)
    return tf.clip_by_value(gradient, -bound, bound)


def _multiply(gradient: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    return tf.math.multiply_no_nan(gradient, tf.cast(scale, gradient.dtype))


def _multiply_and_divide(gradient: tf.Tensor, factor: tf.Tensor, divisor: tf.Tensor) -> tf.Tensor:
    return gradient * tf.cast(factor, gradient.dtype) / tf.cast(divisor, gradient.dtype)


def _map_values(gradient: Any, change: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)
