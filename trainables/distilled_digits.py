"""Distillation on scikit-learn's bundled digits: a small net learns from labels and from what a large one thinks.

An example of a training step of one's own: the loop takes the gradients, over all replicas, and applies them.
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

HIDDEN = (256, 128)


class DistilledDigits(KerasTrainable):
    """Ten classes of 8 x 8 grey images, flattened; 300 to train on, 1,497 to validate.

    Beside the standard hyperparameters it reads ``units`` (8) of the student, ``alpha`` (0.5: the share of the
    teacher's opinion in the loss), ``temperature`` (4: how soft that is) and ``noise`` (0.1, added to the images).
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Pixels from 0 to 1; the split is the same for every trial and stratified by class."""
        x_train, x_val, y_train, y_val = _digits()
        return (x_train[:300], y_train[:300]), (
            np.concatenate([x_train[300:], x_val]),
            np.concatenate([y_train[300:], y_val]),
        )

    def model(self, hp: Hyperparameters) -> keras.Model:
        """The student, logits in float32; the teacher is kept beside it, and is not trained."""
        self.teacher = _net(*HIDDEN, name="teacher")
        self.teacher.set_weights(taught())
        self.teacher.trainable = False
        return _net(hp.integer("units", 8), name="student")

    def augment(self, x: Any, hp: Hyperparameters, draws: Draws) -> Any:
        """Noise, other for each image and update: the teacher is asked about images that nobody has labelled."""
        return x + hp.live("noise", 0.1) * draws.normal((64,))

    def train_step(self, model: keras.Model, batch: Batch, hp: Hyperparameters) -> Mapping[str, Any]:
        """Hinton et al., Distilling the Knowledge in a Neural Network, 2015, section 2."""
        alpha, temperature = hp.live("alpha", 0.5), hp.live("temperature", 4.0)
        logits = model(batch.x, training=True)
        batch.measure(logits)
        hard = keras.losses.sparse_categorical_crossentropy(batch.y, logits, from_logits=True)
        soft = keras.ops.softmax(self.teacher(batch.x, training=False) / temperature)
        distance = keras.losses.kl_divergence(soft, keras.ops.softmax(logits / temperature))
        return {"loss": (1 - alpha) * hard + alpha * temperature * (temperature * distance), "distance": distance}


@functools.cache  # once per worker
def taught() -> list[Any]:
    """The weights of the teacher: a few seconds with scikit-learn, on the images that the student sees and 1,137 more.

    Put here what loads your own. It must give the same numbers whenever it is called, and must not draw from `random`
    or `np.random`, which are the trial's.
    """
    x, _, y, _ = _digits()
    net = MLPClassifier(HIDDEN, alpha=0.1, random_state=0)
    with threadpool_limits(1):  # the same sums on every machine, and workers do not fight for cores
        for _ in range(30):
            net.partial_fit(x, y, classes=range(10))
    return [part for pair in zip(net.coefs_, net.intercepts_, strict=True) for part in pair]


def _net(*units: int, name: str) -> keras.Model:
    hidden = [keras.layers.Dense(n, activation="relu") for n in units]
    return keras.Sequential([keras.Input((64,)), *hidden, keras.layers.Dense(10, dtype="float32")], name=name)


def _digits() -> Any:
    x, y = load_digits(return_X_y=True)
    return train_test_split((x / 16).astype(np.float32), y.astype(np.int32), test_size=360, random_state=0, stratify=y)
