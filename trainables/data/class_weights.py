"""Class weights as sample weights, which every loss and loop understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.data.sources import Buckets, DataError, Stream


def build(hp: Hyperparameters, labels: Any) -> Mapping[int, float] | None:
    """The weights that ``class_weights`` asks for: none, or balanced (the mean class weighs 1).

    ``labels``: all training labels, None where they are a stream. Raises ValueError or DataError.
    """
    kind = hp.text("class_weights", "none", standard=True)
    if kind == "none":
        return None
    if labels is None or not hasattr(labels, "dtype") or not np.issubdtype(labels.dtype, np.integer):
        raise DataError("class_weights is balanced, but the targets are no array of integer labels")
    found, counts = np.unique(labels, return_counts=True)
    return {int(label): len(labels) / (len(found) * count) for label, count in zip(found, counts, strict=True)}


def labels_of(data: Any) -> Any:
    """All labels of a data set, None where they are a stream."""
    if isinstance(data, Buckets):
        labels = [part[1] for part in data.parts]
        return np.concatenate(labels) if all(np.ndim(part) == 1 for part in labels) else None
    return data[1] if isinstance(data, tuple) and len(data) > 1 else None


def apply(data: Any, weights: Mapping[int, float] | None) -> Any:
    """The data with sample weights by label, times those that it has; a label without weight counts 1.

    Raises DataError for targets that are no integer labels.
    """
    if not weights:
        return data
    if isinstance(data, Buckets):
        return Buckets(tuple(apply(part, weights) for part in data.parts))
    if isinstance(data, tuple) and len(data) == 1:
        raise DataError("class_weights are given, but the data has no targets")
    if not isinstance(data, tuple | tf.data.Dataset | Stream):
        raise DataError(f"class_weights are given, but the data is a {type(data).__name__}; let it give sample weights")
    labels = np.array(sorted(weights), np.int64)
    values = np.array([*(weights[int(label)] for label in labels), 1.0], np.float32)

    def by_label(y: Any) -> Any:
        place = tf.searchsorted(labels, tf.reshape(tf.cast(y, tf.int64), [-1]))
        found = tf.gather(labels, tf.minimum(place, len(labels) - 1)) == tf.reshape(tf.cast(y, tf.int64), [-1])
        return tf.reshape(tf.gather(values, tf.where(found, place, len(labels))), tf.shape(y))

    if isinstance(data, tf.data.Dataset | Stream):
        return data.map(lambda x, y, *given: (x, y, _product(by_label(y), given)))
    x, y, *given = data
    if not hasattr(y, "dtype") or not (np.issubdtype(y.dtype, np.integer) or y.dtype == bool):
        raise DataError("class_weights are given, but the targets are no array of integer labels")
    flat = np.asarray(y).astype(np.int64)
    place = np.minimum(np.searchsorted(labels, flat), len(labels) - 1)
    return x, y, _product(np.where(labels[place] == flat, values[place], np.float32(1.0)), given)


def _product(by_label: Any, given: Any) -> Any:
    return by_label * given[0] if given else by_label
