"""How a validation loss differs between examples: what NumPy makes of Keras's own losses, and a bootstrap of them."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest
from small import Small, assignment, train

from trainables.keras_trainable import session_of

pytestmark = pytest.mark.keras

NAME = "validation_loss_std"


class Weighted(Small):
    def data(self, hp: Any) -> Any:
        train, (x, y) = super().data(hp)
        return train, (x, y, np.linspace(0.5, 2.0, len(x), dtype=np.float32))


class TwoOutputs(Small):
    def data(self, hp: Any) -> Any:
        return tuple(
            (x, {"class": y, "sum": x.sum(axis=1, keepdims=True)}) for x, y in super().data(hp)
        )

    def model(self, hp: Any) -> keras.Model:
        x = keras.Input((6,))
        hidden = keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2")(x)
        return keras.Model(
            x, {n: keras.layers.Dense(u, name=n)(hidden) for n, u in (("class", 3), ("sum", 1))}
        )

    def loss(self, hp: Any, model: Any) -> Any:
        return {"class": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "sum": "mse"}


class Scalar(Small):
    def loss(self, hp: Any, model: Any) -> Any:
        return lambda y_true, y_pred: keras.ops.mean(
            keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        )


class OwnLoss(Small):
    def model(self, hp: Any) -> keras.Model:
        class Mine(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.dense = keras.layers.Dense(3)

            def call(self, x: Any) -> Any:
                return self.dense(x)

            def compute_loss(
                self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: Any = None
            ) -> Any:
                return keras.ops.mean(
                    keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
                )

        return Mine()

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def each(trainable: Small, **params: Any) -> tuple[np.ndarray[Any, Any], Any]:
    """The loss of each example of the validation by Keras's functions, and the last epoch's report."""
    given = assignment(**params)
    (report,) = train(trainable, given)[-1:]
    model = session_of(trainable).trial.program.model
    x, y, *weight = trainable.data(None)[1]
    found = model.predict(x, verbose=0)
    crossentropy = keras.losses.sparse_categorical_crossentropy
    if isinstance(found, dict):
        losses = crossentropy(y["class"], found["class"], from_logits=True).numpy()
        return losses * params.get("class_weight", 1) + np.square(found["sum"] - y["sum"])[
            :, 0
        ], report
    losses = crossentropy(y, found, from_logits=True).numpy()
    return losses * (weight[0] if weight else 1.0), report


@pytest.mark.parametrize("trainable", [Small, Weighted, TwoOutputs])
def test_it_is_what_numpy_says(trainable: type[Small]) -> None:
    losses, report = each(trainable(), epochs=1)
    assert report.measures[NAME] == pytest.approx(losses.std(), rel=1e-4)
    draws = np.random.default_rng(0).choice(losses, (20_000, len(losses))).mean(axis=1)
    assert report.measures[NAME] / math.sqrt(len(losses)) == pytest.approx(draws.std(), rel=0.03)


def test_batches_and_replicas_change_nothing() -> None:
    whole = train(Small(), assignment(epochs=1, optimizer="sgd"))[0].measures[NAME]
    small = train(Small(), assignment(epochs=1, optimizer="sgd", validation_batch_size=7))[
        0
    ].measures[NAME]
    three = train(Small(), assignment(3, epochs=1, optimizer="sgd", validation_batch_size=7))[
        0
    ].measures[NAME]
    assert (small, three) == (pytest.approx(whole, rel=1e-5), pytest.approx(whole, rel=1e-4))


@pytest.mark.parametrize("trainable", [Scalar, OwnLoss])
def test_where_a_loss_is_no_mean_over_examples_nothing_is_said(trainable: type[Small]) -> None:
    assert NAME not in train(trainable(), assignment(epochs=1))[0].measures
