"""Training and validation data as one, for a model that is to learn from all there is."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from trainables.data.sources import Buckets, DataError, Rows, Stream


def joined(train: Any, validation: Any) -> Any:
    """All examples of what `data` returned; raises DataError where the two are not of one kind."""
    if validation is None:
        raise DataError("all_data joins training and validation data, and data() returns no validation data")
    kinds = tuple(map(_kind, (train, validation)))
    if kinds[0] != kinds[1]:
        raise DataError(f"all_data joins data of one kind, and data() returns {kinds[0]} and {kinds[1]}")
    if isinstance(train, tf.data.Dataset):
        return train.concatenate(validation)
    if isinstance(train, Stream):
        return _joined_streams(train, validation)
    if isinstance(train, Buckets):
        return Buckets((*train.parts, *validation.parts))
    if kinds[0] != "arrays":
        raise DataError(f"all_data joins arrays, sequences in buckets and streams, and data() returns a {kinds[0]}")
    if len(train) != len(validation):
        more = "training" if len(train) > len(validation) else "validation"
        what = "targets" if min(len(train), len(validation)) == 1 else "sample weights"
        raise DataError(f"all_data joins data of one kind, and only the {more} data has {what}")
    try:
        return tf.nest.map_structure(_joined_arrays, tuple(train), tuple(validation))
    except (TypeError, ValueError) as error:
        raise DataError(f"training and validation data cannot be joined: {error}") from error


def _kind(data: Any) -> str:
    return "arrays" if isinstance(data, tuple | list) and not isinstance(data, Buckets) else type(data).__name__


def _joined_arrays(first: Any, second: Any) -> Any:
    if isinstance(first, Rows) and isinstance(second, Rows):
        shape = (len(first) + len(second), *first.shape[1:])
        return Rows(shape, first.dtype, lambda: chain(first.blocks(), second.blocks()))
    arrays = [part.numpy() if hasattr(part, "numpy") else part for part in (first, second)]
    return np.concatenate([np.asarray(part) for part in arrays])


def _joined_streams(first: Stream, second: Stream) -> Stream:
    one, other = first.size, second.size
    known = one is not None and other is not None

    def ordered(seed: int | None, number: int) -> tf.data.Dataset:
        parts = [part.read(seed, number) for part in (first, second)]
        if seed is None:
            return parts[0].concatenate(parts[1])
        weights = [float(one or 1), float(other or 1)] if known else None  # both end at about the same time
        return tf.data.Dataset.sample_from_datasets(parts, weights, seed=(seed + number) & 0x7FFFFFFF)

    return Stream(ordered, one + other if one is not None and other is not None else None)
