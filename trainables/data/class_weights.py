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
    labels = _as_labels(labels)
    if labels is None:
        raise DataError("class_weights is balanced, but the targets are no array of labels, whole numbers or one-hot")
    labels = labels.reshape(-1)
    found, counts = np.unique(labels, return_counts=True)
    return {int(label): len(labels) / (len(found) * count) for label, count in zip(found, counts, strict=True)}


def labels_of(data: Any) -> Any:
    """All labels of a data set, those of one-hot targets as whole numbers; None where they are a stream."""
    if isinstance(data, Buckets):
        labels = [part[1] for part in data.parts if len(part) > 1]
        return np.concatenate(labels) if labels and all(np.ndim(part) == 1 for part in labels) else None
    targets = data[1] if isinstance(data, tuple) and len(data) > 1 else None
    return _as_labels(targets) if one_hot(targets) else targets


def apply(data: Any, weights: Mapping[int, float] | None) -> Any:
    """The data with sample weights by label, times those that it has; a label without weight counts 1.

    Raises DataError for targets that are neither whole numbers nor one-hot, as those with several classes at once.
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
        if y.dtype.is_floating and y.shape.rank and (y.shape[-1] or 0) > 1:
            y = tf.argmax(y, -1)
        place = tf.searchsorted(labels, tf.reshape(tf.cast(y, tf.int64), [-1]))
        found = tf.gather(labels, tf.minimum(place, len(labels) - 1)) == tf.reshape(tf.cast(y, tf.int64), [-1])
        return tf.reshape(tf.gather(values, tf.where(found, place, len(labels))), tf.shape(y))

    if isinstance(data, tf.data.Dataset | Stream):
        return data.map(lambda x, y, *given: (x, y, _product(by_label(y), given)))
    x, y, *given = data
    found = _as_labels(y)
    if found is None:
        raise DataError("class_weights are given, but the targets are no array of labels, whole numbers or one-hot")
    place = np.minimum(np.searchsorted(labels, found), len(labels) - 1)
    return x, y, _product(np.where(labels[place] == found, values[place], np.float32(1.0)), given)


def one_hot(targets: Any) -> bool:
    """Whether an array holds a 1 for the class of each example, and 0 for all others."""
    if not hasattr(targets, "dtype") or len(targets.shape) < 2 or targets.shape[-1] < 2:
        return False
    rows = np.asarray(targets)
    return rows.dtype.kind in "iubf" and bool(((rows == 0) | (rows == 1)).all() and (rows.sum(-1) == 1).all())


def _as_labels(targets: Any) -> Any:
    """Targets as whole numbers, as Keras's class weights take them; None for what is no label."""
    if one_hot(targets):
        return np.asarray(targets).argmax(-1)
    if not hasattr(targets, "dtype"):
        return None
    rows = np.asarray(targets)
    whole = rows.dtype.kind in "iub" or (
        rows.dtype.kind == "f" and rows.ndim < 2 and bool((rows == np.round(rows)).all())
    )
    return rows.astype(np.int64) if whole else None


def _product(by_label: Any, given: Any) -> Any:
    return by_label * given[0] if given else by_label
