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
    with pytest.raises(DataError, match="class_weights are given, but the targets are no array of integer labels"):
        class_weights.apply((X, X), WEIGHTS)


@pytest.mark.parametrize(("kind", "error"), [("equal", ValueError), ("balanced", DataError)])
def test_what_cannot_be_balanced(kind: str, error: Any) -> None:
    with pytest.raises(error, match="class_weights is"):
        class_weights.build(Hyperparameters({"class_weights": kind}), None)
