"""Data of a trial, made from the parts that `data` returned: folds, joined parts, and class weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.contract import Assignment
from sweep.hyperparameters import Hyperparameters
from trainables.data.files import Images
from trainables.data.passes import Order
from trainables.data.sources import (
    BlockArray,
    Buckets,
    DataError,
    Stream,
    is_one_hot,
    lacks_targets,
    mix_seeds,
)

PARTS, FOLDS, WHOLE = "parts", "folds", "whole"


def choose_cut(assignment: Assignment) -> str:
    """Return how a trial cuts its data into training and validation data.

    The result is `WHOLE` (all of it trains) if ``all_data`` of the sweep file's ``training`` is true, otherwise `FOLDS`
    if the trial has a fold, otherwise `PARTS` (as returned by `data`).
    """
    if assignment.training.get("all_data", False):
        return WHOLE
    if assignment.fold is None:
        return PARTS
    return FOLDS


def concatenate_parts(train: Any, validation: Any) -> Any:
    """Return training and validation data as one data set, from which folds are cut.

    It is ``train`` if ``validation`` is None; otherwise each validation array follows its training array. Raises
    DataError if they are not tuples of arrays, have other structures, or have rows of other shapes.
    """
    for data, name in ((train, "training"), (validation, "validation")):
        if data is not None and type(data) is not tuple:
            raise DataError(
                f"{name} data: {type(data).__name__}, expected arrays (x, y), which folds can be cut from"
            )
    if validation is None:
        return train
    try:
        tf.nest.assert_same_structure(train, validation)
        return tf.nest.map_structure(_join_arrays, train, validation)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"folds are cut from training and validation data together, which are not alike: {reason}"
        ) from error


def fold_rows(labels: Any, size: int, fold: int, folds: int, seed: int) -> tuple[Order, Order]:
    """Return the rows that fold ``fold`` (from 0) of ``folds`` trains with, and those that it validates with.

    Both are ascending. The folds are drawn at random from ``seed`` alone, so calls for all folds fit together. Their
    validation rows are disjoint, and the numbers of these differ by at most one. ``size`` is the number of all
    examples, and ``labels`` are all targets or None: if they are one integer or boolean per example, each class is
    spread evenly over the folds.
    Raises: DataError: if there are fewer rows than folds.
    """
    if size < folds:
        raise DataError(f"{size} examples, expected at least one for each of {folds} folds")
    random = np.random.Generator(np.random.Philox(mix_seeds(seed, 0)))
    order = random.permutation(size)
    if (
        hasattr(labels, "dtype")
        and labels.dtype.kind in "iub"
        and int(np.prod(labels.shape)) == size
    ):
        # the class of each row, numbered from 0
        _, class_of_row = np.unique(np.asarray(labels).reshape(-1), return_inverse=True)
        # Classes one after the other, each in the random order of its examples. Which class begins is random as well,
        # because it decides which folds get an extra example of a class.
        turn_of_class = random.permutation(class_of_row.max() + 1)
        order = order[np.argsort(turn_of_class[class_of_row][order], kind="stable")]
    fold_of_row = np.empty(size, np.int64)
    fold_of_row[order] = np.arange(size) % folds  # deal the examples out in turns
    rows = np.arange(size, dtype=np.int32)
    return rows[fold_of_row != fold], rows[fold_of_row == fold]


def join_data(train: Any, validation: Any) -> Any:
    """Return training and validation data as one data set to train on, for ``all_data``.

    Arrays, buckets and datasets are concatenated. Two `Stream` are mixed at random in shuffled passes, and read one
    after the other in others; the result takes no other shuffle buffer.
    Raises: DataError: if there is no validation data, or the two are not of one kind that can be joined, such as a
    `PyDataset`, if only one of them has targets or weights, or if rows of arrays differ in shape.
    """
    if validation is None:
        raise DataError(
            "all_data joins training and validation data, and data() returns no validation data"
        )
    kind, other_kind = _kind_of_data(train), _kind_of_data(validation)
    if kind != other_kind:
        raise DataError(
            f"all_data joins data of one kind, and data() returns {kind} and {other_kind}"
        )
    if isinstance(train, tf.data.Dataset):
        return train.concatenate(validation)
    if isinstance(train, Stream):
        return _join_streams(train, validation)
    if isinstance(train, Buckets):
        return Buckets((*train.parts, *validation.parts))
    if kind != "arrays":
        raise DataError(
            f"all_data joins arrays, sequences in buckets and streams, and data() returns a {kind}"
        )
    if len(train) != len(validation):
        more = "training" if len(train) > len(validation) else "validation"
        # (x,) lacks targets, and (x, y) sample weights.
        if min(len(train), len(validation)) == 1:
            what = "targets"
        else:
            what = "sample weights"
        raise DataError(f"all_data joins data of one kind, and only the {more} data has {what}")
    try:
        return tf.nest.map_structure(_join_arrays, tuple(train), tuple(validation))
    except (TypeError, ValueError) as error:
        raise DataError(f"training and validation data cannot be joined: {error}") from error


def _kind_of_data(data: Any) -> str:
    """Return "arrays" for a tuple or list that is not `Buckets`, otherwise the name of the type."""
    if isinstance(data, tuple | list) and not isinstance(data, Buckets):
        return "arrays"
    return type(data).__name__


def _join_arrays(first: Any, second: Any) -> Any:
    """Return one array with the rows of both: a `BlockArray` or `Images` of two such, else an array in memory.

    Raises DataError if only one is `Images`, and NumPy's errors if the rows differ in shape.
    """
    if isinstance(first, BlockArray) and isinstance(second, BlockArray):
        shape = (len(first) + len(second), *first.shape[1:])
        return BlockArray(shape, first.dtype, lambda: chain(first.blocks(), second.blocks()))
    if isinstance(first, Images) and isinstance(second, Images):
        return first.concatenate(second)
    if isinstance(first, Images) or isinstance(second, Images):
        raise DataError(
            "images of training or validation data are decoded at each use, and others are not, expected the same keep "
            "in both calls of image_folder()"
        )
    arrays = []
    for part in (first, second):
        arrays.append(np.asarray(part.numpy() if hasattr(part, "numpy") else part))
    return np.concatenate(arrays)


def _join_streams(first: Stream, second: Stream) -> Stream:
    """Return a stream with the examples of both: mixed at random with a seed, and else one stream after the other.

    The first stream's share of the mixture follows from the sizes; it is a half if one of them is unknown.
    """
    # `share`: the fraction of examples that are drawn from the first stream, until one of the streams ends.
    if first.size is None or second.size is None:
        size = None
        share = 0.5
    else:
        size = first.size + second.size
        # so that both streams end at about the same time
        share = max(first.size, 1) / (max(first.size, 1) + max(second.size, 1))

    def ordered(seed: int | None, number: int) -> tf.data.Dataset:
        parts = []
        for part in (first, second):
            parts.append(part.read(seed, number))
        if seed is None:
            return parts[0].concatenate(parts[1])
        return tf.data.Dataset.choose_from_datasets(
            parts, draw_choices(share, seed, number), stop_on_empty_dataset=False
        )

    return Stream(ordered, size, order="joined", endless=first.endless or second.endless)


CHOICES = 1024
"""Number of choices that are drawn at a time."""


def draw_choices(share: float, seed: int, number: int) -> tf.data.Dataset:
    """Return an endless dataset of random 0 and 1: from which of two streams each next example is taken.

    0 is the first stream, with probability ``share``, and 1 the second. The draws depend only on (seed, number). A
    permutation of all examples would need memory for each, and their number may be unknown.
    """
    key = tf.constant(mix_seeds(seed, number), tf.int64)

    def draw_block(block: tf.Tensor) -> tf.Tensor:
        drawn = tf.random.stateless_uniform([CHOICES], tf.stack([key, block]), alg="philox")
        return tf.cast(drawn >= share, tf.int64)

    return tf.data.Dataset.counter().map(draw_block).unbatch()


def compute_class_weights(hp: Hyperparameters, labels: Any) -> Mapping[int, float] | None:
    """Return a weight by label if ``class_weights`` is "balanced"; None if it is "none", the default.

    A class of mean size has the weight 1, a class of half that size the weight 2. Only labels that occur get a weight.
    ``labels`` are all training labels: whole numbers, or one-hot.
    Raises: TypeError: if the parameter is not a text. ValueError: if it is another text. DataError: if the targets are
    no labels, or ``labels`` is None, as for a stream.
    """
    kind = hp.text("class_weights", "none", standard=True)
    if kind == "none":
        return None
    labels = _as_labels(labels)
    if labels is None:
        raise DataError(f"class_weights is balanced, but {NO_LABELS}")
    labels = labels.reshape(-1)
    found, counts = np.unique(labels, return_counts=True)
    weights = {}
    for label, count in zip(found, counts, strict=True):
        weights[int(label)] = len(labels) / (len(found) * count)
    return weights


def get_labels(data: Any) -> Any:
    """Return all targets of a data set, with one-hot targets converted to integers and others unchanged.

    Targets of a tuple are returned whatever they are, also if they are no labels. Returns None if there are no targets,
    for data that is neither a tuple nor buckets, such as a stream, and for buckets whose targets are neither one number
    per example nor one-hot.
    """
    if isinstance(data, Buckets):
        labels = [part[1] for part in data.parts if len(part) > 1]  # one array for each bucket
        # Targets of each element of a sequence have another length in each bucket, so they are not one-hot.
        may_be_one_hot = len({np.shape(part)[1:] for part in labels}) == 1
        if len(data.parts) == 1 and _has_target_per_element(data.parts[0]):
            may_be_one_hot = False
        if may_be_one_hot and _are_one_hot(labels):
            labels = [_to_class_indices(np.asarray(part), hot=True) for part in labels]
        one_per_example = all(np.shape(part) in ((len(part),), (len(part), 1)) for part in labels)
        if not labels or not one_per_example:
            return None
        return np.concatenate(labels)
    if isinstance(data, tuple) and len(data) > 1:
        targets = data[1]
    else:
        targets = None
    if _are_one_hot([targets]):
        return _as_labels(targets)
    return targets


def _has_target_per_element(part: Sequence[Any]) -> bool:
    """Return whether each example of a bucket has as many targets, all integers, as its sequences have elements.

    ``part`` is a bucket: (x,), (x, y) or (x, y, sample_weight). It is enough that one input has sequences of the length
    of the targets.
    """
    if len(part) < 2 or np.ndim(part[1]) < 2 or np.asarray(part[1]).dtype.kind not in "iub":
        return False
    shapes = [np.shape(leaf) for leaf in tf.nest.flatten(part[0])]
    return np.shape(part[1])[1] in {shape[1] for shape in shapes if len(shape) > 1}


FIRST = 128
"""Examples of a stream that decide whether its targets are one-hot; every later one is checked as it is read."""
NO_LABELS = "the targets are no array of labels, whole numbers or one-hot"


def add_class_weights(data: Any, weights: Mapping[int, float] | None) -> Any:
    """Return the data with its sample weights multiplied by the weight of each example's label.

    ``weights`` has a weight by label; if it is None or empty, the data is returned unchanged. A label that is not in it
    has the weight 1. Data without sample weights gets them. ``data`` itself is not changed.
    Raises: DataError: if there are no targets, targets are neither whole numbers nor one-hot, such as several classes
    per example, or the data is neither a tuple of arrays, buckets nor a stream, such as a `PyDataset`. Targets of a
    stream after the first 128 are checked while it is read, which then fails.
    """
    if not weights:
        return data
    hot = _are_one_hot(_some_targets(data))  # None: targets are neither one-hot nor labels
    if hot is None:
        raise DataError(f"class_weights are given, but {NO_LABELS}")
    labels = np.array(sorted(weights), np.int64)
    # the weight of each of `labels`, and at the end that of all others
    values = np.array([*(weights[int(label)] for label in labels), 1.0], np.float32)
    if isinstance(data, tf.data.Dataset | Stream):

        def of_example(x: Any, y: Any, *own_weights: Any) -> Any:
            return (
                x,
                y,
                _multiply_weights(_look_up_weights(y, labels, values, hot=hot), own_weights),
            )

        return data.map(of_example)

    def of_arrays(x: Any, y: Any, *own_weights: Any) -> Any:
        indices = _to_class_indices(np.asarray(y), hot=hot)
        # A label above all in `weights` is placed behind the last one; the comparison below tells that it is another.
        place = np.minimum(np.searchsorted(labels, indices), len(labels) - 1)
        by_label = np.where(labels[place] == indices, values[place], np.float32(1.0))
        return x, y, _multiply_weights(by_label, own_weights)

    if isinstance(data, Buckets):
        return Buckets(tuple(of_arrays(*part) for part in data.parts))
    return of_arrays(*data)


def _count_equal(y: tf.Tensor, number: int) -> tf.Tensor:
    """Return, for each row along the last axis, how many of its numbers equal ``number``."""
    return tf.reduce_sum(tf.cast(y == tf.cast(number, y.dtype), tf.int32), -1)


def _look_up_weights(y: tf.Tensor, labels: Any, values: Any, *, hot: bool) -> tf.Tensor:
    """Return the weights of an example's targets ``y`` as a tensor of their shape, in a stream's pipeline.

    With ``hot``, ``y`` is one-hot, and the result lacks its last axis. ``labels`` is sorted. ``values`` has their
    weights and, as its last entry, the weight of all other labels. Adds an assertion, which fails while the stream is
    read if targets are not whole numbers, or not one-hot if ``hot`` is True.
    """
    if y.dtype.is_floating:
        are_valid = tf.reduce_all(y == tf.round(y))
    else:
        are_valid = tf.constant(True)
    indices = y
    if hot:
        zeros = _count_equal(y, 0)
        ones = _count_equal(y, 1)
        are_valid = tf.reduce_all(tf.logical_and(ones == 1, zeros == tf.shape(y)[-1] - 1))
        indices = tf.argmax(tf.cast(y, tf.float32), -1)
    what = f"class_weights are given, the first targets are {'one-hot' if hot else 'whole numbers'}, and others are not"
    # no weight is looked up before the test
    with tf.control_dependencies([tf.debugging.Assert(are_valid, [what])]):
        flat = tf.reshape(tf.cast(indices, tf.int64), [-1])
    place = tf.searchsorted(labels, flat)
    known = tf.gather(labels, tf.minimum(place, len(labels) - 1)) == flat
    weights = tf.gather(values, tf.where(known, place, len(labels)))
    return tf.reshape(weights, tf.shape(indices))


def _some_targets(data: Any) -> list[Any]:
    """Return a list of arrays of targets, each with an axis of examples.

    They are all targets in one array, one array per bucket, or one array for each of a stream's first 128 examples,
    which are read.
    Raises: DataError: if there are no targets, or the data is neither arrays, buckets nor a stream.
    """
    if isinstance(data, Buckets):
        return [targets for part in data.parts for targets in _some_targets(part)]
    if isinstance(data, tuple):
        if len(data) > 1:
            return [data[1]]
        raise DataError("class_weights are given, but the data has no targets")
    if not isinstance(data, tf.data.Dataset | Stream):
        raise DataError(
            f"class_weights are given, but the data is a {type(data).__name__}; let it give sample weights"
        )
    if isinstance(data, Stream):
        dataset = data.read(None, 0)
    else:
        dataset = data
    if lacks_targets(dataset.element_spec):
        raise DataError("class_weights are given, but the data has no targets")
    first_targets = []
    with tf.device("/cpu:0"):
        for _, y, *_ in dataset.take(FIRST).as_numpy_iterator():
            # `_are_one_hot` refuses nested targets
            first_targets.append(y[None] if hasattr(y, "dtype") else y)
    return first_targets


def _are_one_hot(targets: Sequence[Any]) -> bool | None:
    """Return True if all targets are one-hot, False if all are labels (see `_are_labels`), None if they are neither.

    ``targets`` are arrays. None of them at all gives False, and one that is no array gives None.
    """
    if not all(hasattr(part, "dtype") for part in targets):
        return None
    rows = [np.asarray(part) for part in targets]
    if rows and all(map(is_one_hot, rows)):
        return True
    if all(map(_are_labels, rows)):
        return False
    return None


def _are_labels(rows: np.ndarray[Any, Any]) -> bool:
    """Return whether an array has labels: integers or booleans of any shape, or whole floats with one per example.

    `fit` takes the same floats as labels. It also accepts floats that are not whole, and rounds them; here they are no
    labels.
    """
    return rows.dtype.kind in "iub" or (
        rows.dtype.kind == "f"
        and rows.shape[1:] in ((), (1,))
        and bool((rows == np.round(rows)).all())
    )


def _to_class_indices(rows: np.ndarray[Any, Any], *, hot: bool) -> np.ndarray[Any, Any]:
    """Return labels as int64; of one-hot rows (``hot``), the index of the largest entry of each."""
    found: np.ndarray[Any, Any] = rows.argmax(-1) if hot else rows
    return found.astype(np.int64)


def _as_labels(targets: Any) -> Any:
    """Return targets as an array of int64, one-hot ones as class indices; None if they are no labels or no array.

    Labels keep their shape. Class indices lack the last axis of the one-hot targets.
    """
    hot = _are_one_hot([targets])
    if hot is None:
        return None
    return _to_class_indices(np.asarray(targets), hot=hot)


def _multiply_weights(by_label: Any, own_weights: Any) -> Any:
    """Return weights of labels multiplied by the data's own weights.

    ``own_weights`` is the rest of an example after (x, y): a tuple of one array, or empty if there are no weights.
    """
    if not own_weights:  # the data has no sample weights: the tuple `*own_weights` is empty
        return by_label
    (own,) = own_weights
    # Numbers of shape (rows, 1), such as a Series, would be broadcast with those of shape (rows,) to (rows, rows).
    # Examples of a stream have no axis of rows.
    if np.shape(by_label) == (*np.shape(own), 1):
        by_label = by_label[..., 0]
    elif np.shape(own) == (*np.shape(by_label), 1):
        own = own[..., 0]
    return by_label * own
