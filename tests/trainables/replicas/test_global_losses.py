"""Every loss of a batch in parts is what Keras computes for the whole batch on one device."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainables.replicas import global_losses, keras_corrections, slices
from trainables.replicas.slices import Slice

pytestmark = pytest.mark.keras

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(7, 5, 4)).astype(np.float32)
Y = RANDOM.normal(size=(7, 5, 2)).astype(np.float32)
WEIGHTS = RANDOM.uniform(0.5, 2.0, size=(7, 5)).astype(np.float32)
X[1, 2:] = X[4, 1:] = 0.0  # what the mask leaves out


BATCH = (X[:1], Y[:1], WEIGHTS[:1])


def model_with(loss: Any, *, masked: bool, **compiled: Any) -> keras.Model:
    first = [keras.layers.Masking()] if masked else []
    model = keras.Sequential([keras.Input((5, 4)), *first, keras.layers.Dense(2)])
    model.compile("sgd", loss=loss, **compiled)
    keras_corrections.create_variables(model, BATCH)
    return model


def in_parts(model: keras.Model, cuts: list[int], weight: Any) -> float:
    """The global loss out of slices of the batch, one after the other, as micro-batches compute it."""
    losses = global_losses.replace_losses(model, {}, BATCH, whole=False)
    size = tf.constant(len(X))
    edges = list(zip([0, *cuts], [*cuts, len(X)], strict=True))

    def run(totals: dict[str, tf.Tensor] | None) -> list[tuple[Slice, tf.Tensor]]:
        done = []
        for start, stop in edges:
            with slices.entering(
                Slice(size, tf.constant(start), tf.constant(stop), len(edges), totals=totals)
            ) as cut:
                given = None if weight is None else weight[start:stop]
                predicted = model(X[start:stop])
                done.append(
                    (cut, model.compute_loss(X[start:stop], Y[start:stop], predicted, given))
                )
        return done

    ones = {loss.name: tf.constant(1.0) for loss in losses}
    counts = {loss.name: 0.0 for loss in losses}
    for cut, _ in run(ones):
        counts = {name: counts[name] + float(cut.counts.get(name, 0.0)) for name in counts}
    totals = {name: tf.constant(count) for name, count in counts.items()}
    return float(sum(tf.where(cut.count > 0, value * cut.share, 0.0) for cut, value in run(totals)))


@pytest.mark.parametrize(
    "reduction", ["sum_over_batch_size", "mean", "mean_with_sample_weight", "sum"]
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weight", [None, WEIGHTS])
@pytest.mark.parametrize("cuts", [[], [3], [1, 1, 6]])
def test_parts_make_the_whole(reduction: str, masked: bool, weight: Any, cuts: list[int]) -> None:
    model = model_with(keras.losses.MeanSquaredError(reduction=reduction), masked=masked)
    whole = float(model.compute_loss(X, Y, model(X), weight))
    assert in_parts(model, cuts, weight) == pytest.approx(whole, rel=1e-6)


def test_masks_lie_on_the_tensors_where_keras_puts_them() -> None:
    embedded = keras.layers.Embedding(4, 2, mask_zero=True)(tf.constant([[1, 0]]))
    assert embedded._keras_mask.numpy().tolist() == [[True, False]]
    ignoring = keras.losses.SparseCategoricalCrossentropy(ignore_class=2)
    values = ignoring.call(tf.constant([0, 2]), tf.constant([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]))
    assert values._keras_mask.numpy().tolist() == [True, False]


def test_a_loss_without_reduction_is_refused() -> None:
    model = model_with(keras.losses.MeanSquaredError(reduction="none"), masked=False)
    with pytest.raises(ValueError, match="reduction 'none', expected a mean or a sum"):
        global_losses.replace_losses(model, {}, BATCH, whole=False)


def test_a_weight_for_no_output_is_refused() -> None:
    model = model_with("mse", masked=False)
    with pytest.raises(ValueError, match="loss_weights names other, the model's losses are: "):
        global_losses.replace_losses(model, {"other": 2.0}, BATCH, whole=False)
