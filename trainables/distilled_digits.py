"""Distillation on scikit-learn's digits: a small network learns from labels and from a large network's predictions.

This is an example of a custom `train_step`. It returns losses; the training loop computes their gradients over all
replicas and applies them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import Batch, KerasTrainable
from trainables.numbers.draws import Draws

HIDDEN = (256, 128)  # units of the teacher's hidden layers


class DistilledDigits(KerasTrainable):
    """A student network that learns to classify flattened 8 x 8 images of digits from labels and a teacher.

    300 images are for training and 1,497 for validation. Besides the standard hyperparameters it reads ``units`` (8) of
    the student, ``alpha`` (0.5, the teacher's share of the loss), ``temperature`` (4, which softens the predictions)
    and ``noise`` (0.1, the standard deviation of the noise added to the images).
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Return 300 images for training and the other 1,497 for validation, with int32 labels.

        They are the same for every trial. An image is a float32 vector of 64 pixels from 0 to 1.
        """
        x_train, x_val, y_train, y_val = _split_digits()
        return (x_train[:300], y_train[:300]), (
            np.concatenate([x_train[300:], x_val]),
            np.concatenate([y_train[300:], y_val]),
        )

    def model(self, hp: Hyperparameters) -> keras.Model:
        """Return the student, which outputs float32 logits, and keep the frozen teacher as the attribute ``teacher``.

        The first call in a process trains the teacher, see `taught`.
        """
        self.teacher = _net(*HIDDEN, name="teacher")
        self.teacher.set_weights(taught())
        self.teacher.trainable = False
        return _net(hp.integer("units", 8), name="student")

    def augment(self, x: Any, hp: Hyperparameters, draws: Draws) -> Any:
        """Add new normal noise to each image in each update, with ``noise`` as its standard deviation.

        So the teacher also labels images that are not in the data.
        """
        return x + hp.live("noise", 0.1) * draws.normal((64,))

    def train_step(
        self, model: keras.Model, batch: Batch, hp: Hyperparameters
    ) -> Mapping[str, Any]:
        """Return the distillation loss ("loss") and the distance between student and teacher ("distance"), per example.

        The loss is a mean, weighted by ``alpha``, of the cross-entropy with the labels and of the distance times the
        squared temperature. Also updates the metrics with the student's predictions.

        Source: Hinton et al., Distilling the Knowledge in a Neural Network, 2015, section 2.
        """
        alpha = hp.live("alpha", 0.5)
        temperature = hp.live("temperature", 4.0)
        logits = model(batch.x, training=True)
        batch.measure(logits)
        hard = keras.losses.sparse_categorical_crossentropy(batch.y, logits, from_logits=True)
        soft = keras.ops.softmax(self.teacher(batch.x, training=False) / temperature)
        distance = keras.losses.kl_divergence(soft, keras.ops.softmax(logits / temperature))
        # The square of the temperature makes up for the gradients of the distance, which shrink with it.
        return {
            "loss": (1 - alpha) * hard + alpha * temperature * (temperature * distance),
            "distance": distance,
        }


@functools.cache  # once per worker
def taught() -> list[Any]:
    """Train the teacher with scikit-learn for a few seconds and return its weights, each kernel before its bias.

    It is trained once per process, on the student's training images and 1,137 more. In your own trainable, load your
    weights here. The function must return the same numbers at each call, and must not draw from `random` or
    `np.random`, which belong to the trial.
    """
    x, _, y, _ = _split_digits()
    net = MLPClassifier(HIDDEN, alpha=0.1, random_state=0)
    # the same sums on every machine, and workers do not compete for cores
    with threadpool_limits(1):
        for _ in range(30):  # epochs
            net.partial_fit(x, y, classes=range(10))
    return [part for pair in zip(net.coefs_, net.intercepts_, strict=True) for part in pair]


def _net(*units: int, name: str) -> keras.Model:
    """Return a network for 64 pixels with hidden layers of ``units`` units each, and ten float32 logits."""
    hidden = []
    for n in units:
        hidden.append(keras.layers.Dense(n, activation="relu"))
    return keras.Sequential(
        [keras.Input((64,)), *hidden, keras.layers.Dense(10, dtype="float32")], name=name
    )


def _split_digits() -> Any:
    """Return images and labels as (x_train, x_validation, y_train, y_validation), with 1,437 for training.

    The split is stratified by class, and the same in each call.
    """
    x, y = load_digits(return_X_y=True)
    return train_test_split(
        (x / 16).astype(np.float32), y.astype(np.int32), test_size=360, random_state=0, stratify=y
    )
