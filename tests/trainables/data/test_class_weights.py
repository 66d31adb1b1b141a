from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.data import class_weights
from trainables.data.sources import DataError, from_dataset

pytestmark = pytest.mark.keras

X = np.zeros((6, 1), np.float32)
LABELS = np.array([0, 3, 3, 7, -1, 900], np.int32)
WEIGHTS = {0: 2.0, 3: 0.5, 7: 3.0}
EXPECTED = [2.0, 0.5, 0.5, 3.0, 1.0, 1.0]


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_label_without_weight_counts_one(shape: tuple[int, ...], *, streamed: bool) -> None:
    labels = LABELS.reshape(shape)
    if streamed:
        stream = from_dataset(tf.data.Dataset.from_tensor_slices((X, labels)))
        found = np.array([w for *_, w in class_weights.apply(stream, WEIGHTS).read(None, 0).as_numpy_iterator()])
    else:
        found = class_weights.apply((X, labels), WEIGHTS)[2]
    np.testing.assert_array_equal(found, np.reshape(EXPECTED, shape))


def test_they_multiply_the_weights_of_the_examples() -> None:
    given = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(class_weights.apply((X, LABELS, given), WEIGHTS)[2], given * EXPECTED)


def test_other_targets_have_no_classes() -> None:
    several = np.array([[1, 1, 0], [0, 1, 0]], np.float32)
    for targets in (X, np.full(6, 0.5, np.float32), several):
        with pytest.raises(DataError, match="class_weights are given, but the targets are no array of labels, whole n"):
            class_weights.apply((np.zeros(len(targets)), targets), WEIGHTS)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
@pytest.mark.parametrize("streamed", [False, True])
def test_targets_that_are_one_hot_are_weighed_as_labels(dtype: Any, *, streamed: bool) -> None:
    labels = np.array([0, 2, 2, 1, 0, 2])
    y = np.eye(3)[labels].astype(dtype)
    if streamed and dtype != np.float32:
        pytest.skip("in a stream, whole numbers are the labels of several places")
    weights = class_weights.build(Hyperparameters({"class_weights": "balanced"}), class_weights.labels_of((X, y)))
    assert weights == class_weights.build(Hyperparameters({"class_weights": "balanced"}), labels)
    if streamed:
        stream = from_dataset(tf.data.Dataset.from_tensor_slices((X, y)))
        found = [w for *_, w in class_weights.apply(stream, weights).read(None, 0).as_numpy_iterator()]
    else:
        found = class_weights.apply((X, y), weights)[2]
    expected = class_weights.apply((X, labels), weights)[2]
    np.testing.assert_array_equal(found, expected)
    assert found[0] == 1.0


@pytest.mark.parametrize(("kind", "error"), [("equal", ValueError), ("balanced", DataError)])
def test_what_cannot_be_balanced(kind: str, error: Any) -> None:
    with pytest.raises(error, match="class_weights is"):
        class_weights.build(Hyperparameters({"class_weights": kind}), None)
