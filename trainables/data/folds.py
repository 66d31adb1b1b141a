"""Cross-validation: the examples of `data` cut into folds, each of which validates once what the others train."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from sweep.contract import Assignment
from trainables.data.ahead import Order
from trainables.data.sources import DataError, mixed

PARTS, FOLDS, WHOLE = "parts", "folds", "whole"


def cut_of(assignment: Assignment) -> str:
    """How the examples are cut into those that train and those that validate."""
    if assignment.training.get("all_data", False):
        return WHOLE
    return PARTS if assignment.fold is None else FOLDS


def whole(train: Any, validation: Any) -> Any:
    """Training and validation data put together; raises DataError for what cannot be cut into folds."""
    for data, name in ((train, "training"), (validation, "validation")):
        if data is not None and type(data) is not tuple:
            raise DataError(f"{name} data: {type(data).__name__}, expected arrays (x, y), which folds can be cut from")
    if validation is None:
        return train
    try:
        tf.nest.assert_same_structure(train, validation)
        return tf.nest.map_structure(_joined, train, validation)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"folds are cut from training and validation data together, which are not alike: {reason}"
        ) from error


def cut(labels: Any, size: int, fold: int, folds: int, seed: int) -> tuple[Order, Order]:
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


def _joined(one: Any, other: Any) -> Any:
    return np.concatenate([np.asarray(one), np.asarray(other)])
