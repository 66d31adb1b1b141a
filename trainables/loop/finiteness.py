"""Whether what an update computes is finite, and what follows from it, without a word to the host.

A `tf.cond` on it would let the host wait for the device in every update.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainables.devices.replicas import Replicas
from trainables.state import owned


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


class Before:
    """The values of variables at one point of a graph, and the way back to them; used across replicas."""

    def __init__(self, replicas: Replicas, variables: Iterable[Any]) -> None:
        """Of these ``variables``, only those that are written from here on cost anything."""
        self._replicas = replicas
        self._variables = list({id(_plain(v)): _plain(v) for v in variables}.values())
        self._graph = tf.compat.v1.get_default_graph()
        self._values = replicas.run(lambda: [tf.identity(v) for v in self._variables])
        self._first = len(self._graph.get_operations())

    def put_back(self, unless: Any = False) -> None:
        """Let all be as it was, bit for bit, where ``unless`` is not true."""
        eager = tf.executing_eagerly()
        handles = set() if eager else owned.written(self._graph, self._first)
        for variable, value in zip(self._variables, self._values, strict=True):
            parts = self._replicas.of_each(variable)
            if eager or any(id(part.handle) in handles for part in parts):
                self._replicas.change(variable, lambda v, old, keep: v.assign(tf.where(keep, v, old)), value, unless)


def variables(optimizer: Any) -> list[Any]:
    """All of an optimizer's, also those that an author's own holds as attributes."""
    held = tf.train.TrackableView(optimizer).descendants()
    return [*optimizer.variables, *(v for v in held if isinstance(v, tf.Variable))]


def _plain(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable
