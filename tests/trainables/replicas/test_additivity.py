from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from trainables.recipe.refusals import Refused
from trainables.replicas import additivity, global_losses, keras_corrections

pytestmark = pytest.mark.keras

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(9, 5, 4)).astype(np.float32)
Y = RANDOM.normal(size=(9, 5, 2)).astype(np.float32)
WEIGHTS = RANDOM.uniform(0.5, 2.0, size=(9, 5)).astype(np.float32)
X[1, 2:] = X[4, 1:] = 0.0  # what the mask leaves out


def check(loss: Any, *, masked: bool = False, weights: Any = None, adds: Any = None) -> None:
    layers = [keras.layers.Masking()] if masked else []
    model = keras.Sequential([keras.Input((5, 4)), *layers, keras.layers.Dense(2, activity_regularizer=adds)])
    model.compile("sgd", loss=loss)
    data = (X, Y) if weights is None else (X, Y, weights)
    batch = tuple(part[:1] for part in data)
    keras_corrections.build_symbolically(model, batch)
    keras_corrections.take_whole_losses(model)
    losses = global_losses.install(model, {}, batch, whole=False)
    additivity.check(model, losses, data, lambda: None)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
def test_losses_of_keras_are_means_over_their_parts(reduction: str, weights: Any, *, masked: bool) -> None:
    check(keras.losses.MeanSquaredError(reduction=reduction), masked=masked, weights=weights, adds="l2")


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, p: ops.sum(ops.square(y - p)),
        lambda y, p: ops.std(p),
        lambda y, p: ops.max(ops.abs(y - p)),
    ],
)
def test_sums_and_comparisons_are_not(loss: Any) -> None:
    with pytest.raises(Refused, match=r"not the mean over its examples: [\d.]+ for 9 of them, [\d.]+ as"):
        check(loss)


def test_a_mean_that_the_author_takes_is_one() -> None:
    check(lambda y, p: ops.mean(ops.square(y - p)))
