"""What a trial makes of the parts that `data` returned: cut into folds, joined, or their classes weighed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.contract import Assignment
from sweep.hyperparameters import Hyperparameters
from trainables.data.passes import Order
from trainables.data.sources import Buckets, DataError, Rows, Stream, mixed

PARTS, FOLDS, WHOLE = "parts", "folds", "whole"


def cut_of(assignment: Assignment) -> str:
    """How the examples are cut into those that train and those that validate."""
    if assignment.training.get("all_data", False):
        return WHOLE
    return PARTS if assignment.fold is None else FOLDS


def uncut(train: Any, validation: Any) -> Any:
    """Training and validation data put together; raises DataError for what cannot be cut into folds."""
    for data, name in ((train, "training"), (validation, "validation")):
        if data is not None and type(data) is not tuple:
            raise DataError(f"{name} data: {type(data).__name__}, expected arrays (x, y), which folds can be cut from")
    if validation is None:
        return train
    try:
        tf.nest.assert_same_structure(train, validation)
        return tf.nest.map_structure(_concatenated, train, validation)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"folds are cut from training and validation data together, which are not alike: {reason}"
        ) from error


def fold_rows(labels: Any, size: int, fold: int, folds: int, seed: int) -> tuple[Order, Order]:
    """The rows to train and to validate with, in their order; the folds of one seed have no row in common.

    ``labels``: all targets; where they are one integer (or true and false) an example, each class is spread evenly.
    Raises DataError for fewer rows than folds.
    """
    if size < folds:
        raise DataError(f"{size} examples, expected at least one for each of {folds} folds")
    draws = np.random.Generator(np.random.Philox(mixed(seed, 0)))
    order = draws.permutation(size)
    if hasattr(labels, "dtype") and labels.dtype.kind in "iub" and int(np.prod(labels.shape)) == size:
        _, classes = np.unique(np.asarray(labels).reshape(-1), return_inverse=True)
        places = draws.permutation(classes.max() + 1)  # of the classes: which of them a fold has one more of
        order = order[np.argsort(places[classes][order], kind="stable")]
    number = np.empty(size, np.int64)
    number[order] = np.arange(size) % folds
    rows = np.arange(size, dtype=np.int32)
    return rows[number != fold], rows[number == fold]


def _concatenated(one: Any, other: Any) -> Any:
    return np.concatenate([np.asarray(one), np.asarray(other)])


def joined(train: Any, validation: Any) -> Any:
    """All examples of what `data` returned; raises DataError where the two are not of one kind."""
    if validation is None:
        raise DataError("all_data joins training and validation data, and data() returns no validation data")
    kinds = tuple(map(_kind_of_data, (train, validation)))
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


def _kind_of_data(data: Any) -> str:
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


def balanced(hp: Hyperparameters, labels: Any) -> Mapping[int, float] | None:
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


def weighed(data: Any, weights: Mapping[int, float] | None) -> Any:
    """The data with sample weights by label, times those that it has; a label without weight counts 1.

    Raises DataError for targets that are neither whole numbers nor one-hot, as those with several classes at once.
    """
    if not weights:
        return data
    if isinstance(data, Buckets):
        return Buckets(tuple(weighed(part, weights) for part in data.parts))
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
