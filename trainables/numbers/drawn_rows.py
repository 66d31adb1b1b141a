"""What the present code draws random numbers for: which rows of a batch, and whether XLA compiles it.

A part draws what the whole batch would, cut.

Thread-local: TensorFlow traces each replica in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import tensor_util

HOST = "on_host"
"""In the names of what makes keys, of integers that the host has: GPUs would be asked for them, and hand them back."""

_present = threading.local()


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows ``start`` to ``start + count`` of a batch of ``size``, or those at ``places``."""

    size: tf.Tensor
    start: tf.Tensor
    count: tf.Tensor
    places: tf.Tensor | None = None


@contextmanager
def drawn_for(rows: Rows | None) -> Iterator[None]:
    """Draw for these rows inside the block; None: what is asked for, as it is."""
    before = current()
    _present.rows = rows
    try:
        yield
    finally:
        _present.rows = before


def current() -> Rows | None:
    """The rows that are drawn for, if not all."""
    return getattr(_present, "rows", None)


@contextmanager
def for_xla() -> Iterator[None]:
    """Trace for XLA inside the block; in this thread."""
    before, _present.xla = is_compiling(), True
    try:
        yield
    finally:
        _present.xla = before


def is_compiling() -> bool:
    """Whether what is traced now goes through XLA."""
    return getattr(_present, "xla", False)


@contextmanager
def on_host() -> Iterator[None]:
    """Let the host compute inside the block what makes keys."""
    # In a program of XLA's there is no other place.
    with nullcontext() if is_compiling() else tf.device("/cpu:0"), tf.name_scope(HOST):
        yield


def have_a_batch(shape: tf.Tensor) -> bool:
    """Whether a shape begins with a size that is unknown while tracing; what has no batch in it is the same for all."""
    static = tensor_util.constant_value_as_shape(shape)
    return bool(static.rank) and static[0] is None


def of_the_whole(
    rows: Rows, draw: Callable[..., tf.Tensor], given: Mapping[str, Any], *, group: int | None
) -> tf.Tensor:
    """The rows of what a stateless kernel draws for the whole batch.

    A reshaped batch (of time steps, of heads) has a multiple of the rows, example by example. ``group``: how many
    numbers each step of the counter gives, where a kernel can begin with the first row; None where it cannot.
    """
    shape = tf.convert_to_tensor(given["shape"])
    static = tensor_util.constant_value_as_shape(shape)
    times = shape[0] // tf.maximum(rows.count, 1)
    with drawn_for(None):
        if rows.places is not None or group is None:
            full = draw(**{**given, "shape": tf.concat([[rows.size * times], shape[1:]], 0)})
            if rows.places is None:
                return tf.ensure_shape(full[rows.start * times : (rows.start + rows.count) * times], static)
            apart = tf.reshape(full, tf.concat([[rows.size, times], shape[1:]], 0))
            return tf.ensure_shape(tf.reshape(tf.gather(apart, rows.places), shape), static)
        with on_host():
            before = tf.cast(rows.start * times, tf.int64) * tf.cast(tf.reduce_prod(shape[1:]), tf.int64)
            odd = tf.cast(before % group, tf.int32)
            counter = _later(given["counter"], before // group)
            count = tf.reshape(odd + tf.reduce_prod(shape), [1])
        found = draw(**{**given, "shape": count, "counter": counter})
    return tf.ensure_shape(tf.reshape(found[odd:], shape), static)


def _later(counter: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """A counter of 128 bits in two words, the lower first, after so many steps."""
    low = counter[0] + tf.cast(steps, tf.uint64)
    return tf.stack([low, counter[1] + tf.cast(low < counter[0], tf.uint64)])
