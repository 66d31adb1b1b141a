"""A batch inside of the graph: how it is cut, gathered and counted."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainables.data.passes import unpacked
from trainables.data.residence import gather
from trainables.devices.replicas import here
from trainables.replicas import slices
from trainables.replicas.slices import Slice


def cuts(size: tf.Tensor, micro_batches: int) -> list[Slice]:
    """This replica's slices of a global batch: one of each micro-batch, differing by one example at most.

    Micro-batches are the same parts of the global batch whatever the number of replicas.
    """
    replicas, replica = here()
    return [slices.cut(size, i * replicas + replica, replicas * micro_batches) for i in range(micro_batches)]


def take(tensors: Any, rows: tf.Tensor) -> tuple[Any, Any, Any]:
    """Gather rows of (x,), (x, y) or (x, y, sample_weight); None for what there is not."""
    return unpacked(tf.nest.map_structure(lambda leaf: gather(leaf, rows), tensors))


def cut(leaf: tf.Tensor, start: Any, stop: Any = None) -> tf.Tensor:
    """Rows one after the other. Kernels for int32 would do it on the host."""
    if leaf.dtype != tf.int32:
        return leaf[start:stop]
    return tf.cast(tf.cast(leaf, tf.int64)[start:stop], tf.int32)


def added(totals: dict[str, tf.Tensor], losses: dict[str, tf.Tensor], rows: tf.Tensor) -> dict[str, tf.Tensor]:
    """Sums of losses by examples, with one more batch."""
    examples = tf.cast(tf.shape(rows)[0], tf.float32)
    return {name: totals[name] + losses[name] * examples for name in totals}


def as_float32(predicted: Any) -> Any:
    def cast(t: tf.Tensor) -> tf.Tensor:
        if not t.dtype.is_floating or t.dtype == tf.float32:
            return t
        wide = tf.cast(t, tf.float32)
        mask = getattr(t, "_keras_mask", None)
        if mask is not None:
            wide._keras_mask = mask
        return wide

    return tf.nest.map_structure(cast, predicted)


def as_slices(gradient: Any) -> Any:
    return tf.IndexedSlices(*gradient) if isinstance(gradient, tuple) else gradient
