"""Rows of small integers as a GPU can gather them: in words of eight bytes, with the bits that they had.

TensorFlow has no kernel that gathers integers of one or two bytes, or unsigned ones, on a GPU, and keeps every int32
argument of a compiled function in the host's memory: each update would send its examples, or all of them, over the
bus. Words of int64 are gathered where the arithmetic is, and taken apart there.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import tensorflow as tf

WORD = 8  # bytes


class Packed(tf.experimental.ExtensionType):
    """An array of integers, each row filled up to whole words; `gather` gives rows as they were.

    A tensor to TensorFlow, so that it goes wherever one goes: to replicas, and into graphs as an argument.
    """

    words: tf.Tensor  # int64, (rows, words of a row)
    none: tf.Tensor  # no row of it: how its rows look, also where that differs from bucket to bucket

    @property
    def device(self) -> str:
        """Where the words are."""
        return str(self.words.device)

    def rows(self, rows: tf.Tensor) -> tf.Tensor:
        """Some rows. Only integers of no sign are cut and shaped: kernels for int32 do that on the host."""
        dtype, words = self.none.dtype, tf.gather(self.words, rows)
        parts = tf.bitcast(words, _unsigned(dtype))
        row = tf.shape(self.none)[1:]
        static = self.none.shape[1:].num_elements()
        of_words = self.words.shape[1]
        flat = tf.reshape(parts, [tf.shape(words)[0], tf.shape(words)[1] * (WORD // dtype.size)])
        if static is None or of_words is None or static * dtype.size != of_words * WORD:
            sizes = [row[axis] for axis in range(self.none.shape.rank - 1)]
            flat = flat[:, : functools.reduce(operator.mul, sizes, 1)]
        found = tf.reshape(flat, tf.concat([tf.shape(words)[:1], row], 0))
        found.set_shape([rows.shape[0], *self.none.shape[1:]])
        return found if found.dtype == dtype else tf.bitcast(found, dtype)


def packs(dtype: np.dtype[Any]) -> bool:
    """Whether a GPU can gather such numbers in words alone."""
    return dtype.kind in "iu" and dtype != np.int64


def pack(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The words of an array and no row of it; a view where rows are whole words that lie one after the other."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    size = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
    count = -(-size // WORD)
    if size == count * WORD and array.size:
        return array.reshape(len(array), -1).view(np.int64), array[:0]
    padded = np.zeros((len(array), count * WORD), np.uint8)
    padded[:, :size] = array.reshape(len(array), size // array.dtype.itemsize).view(np.uint8).reshape(len(array), size)
    return padded.view(np.int64), array[:0]


def gather(leaf: Any, rows: tf.Tensor) -> tf.Tensor:
    """Rows of an array on a device, packed or not."""
    rows = tf.convert_to_tensor(rows)
    return leaf.rows(rows) if isinstance(leaf, Packed) else tf.gather(leaf, rows)


def unpacked(leaf: Any) -> tf.Tensor:
    """All of an array on a device."""
    return leaf.rows(tf.range(tf.shape(leaf.words)[0])) if isinstance(leaf, Packed) else leaf


def _unsigned(dtype: tf.DType) -> tf.DType:
    return {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64}[dtype.size]
