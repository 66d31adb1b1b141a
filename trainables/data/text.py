"""Arrays of texts: as inputs of a model that begins with `TextVectorization` or `StringLookup`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from trainables.data.sources import DataError


def is_text(leaf: Any) -> bool:
    """Whether an array holds texts, as NumPy's own types or as Python objects, of which the first decides."""
    if leaf.dtype.kind in "SUT":
        return True
    if not leaf.dtype.hasobject or not len(leaf):
        return False
    flat = np.asarray(leaf[:1]).reshape(-1)
    return bool(flat.size) and isinstance(flat[0], str | bytes)


def as_bytes(leaf: Any) -> np.ndarray[Any, Any]:
    """The texts as bytes of UTF-8 in an array of objects, whatever type they came in; raises DataError for others."""
    array = np.asarray(leaf)
    found = np.empty(array.size, object)
    for i, one in enumerate(array.reshape(-1)):
        if not isinstance(one, str | bytes):
            raise DataError(f"{one!r} ({type(one).__name__}) in row {i} of an array of texts, expected a text")
        found[i] = one.encode() if isinstance(one, str) else bytes(one)
    return found.reshape(array.shape)


def as_tensor(array: Any) -> Any:
    """An array of texts as a tensor, which knows its own type; others as they are."""
    if not is_text(array):
        return array
    with tf.device("/cpu:0"):
        return tf.constant(array)


def content(array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """What tells an array from others of its shape: itself, or the lengths and characters of texts."""
    if not array.dtype.hasobject:
        return [array]
    texts = list(array.reshape(-1))
    return [np.array(list(map(len, texts)), np.int64), np.frombuffer(b"".join(texts), np.uint8)]
