"""Transfer learning on scikit-learn's digits: weights trained on 0 to 4 help to distinguish 5 to 9."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import KerasTrainable

HIDDEN = (128, 64)


class TransferDigits(KerasTrainable):
    """A network for the digits 5 to 9, placed anywhere in 10 x 10 grey images.

    Only 100 images are for training and 796 for validation. Besides the standard hyperparameters it reads
    ``pretrained`` (true: the hidden layers begin with weights trained on the other five digits) and ``dropout`` (0).

    The standard ``frozen_layers`` freezes the first of ``hidden_1`` and ``hidden_2``. With ``frozen_epochs`` it does so
    for that many epochs; then all layers are trained, at ``fine_tune_learning_rate``.
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Return the digits 5 to 9 as classes 0 to 4, with the same split for every trial, stratified by class."""
        x, y = _place_digits(range(5, 10), copies=1)
        x_train, x_val, y_train, y_val = train_test_split(
            x, y, train_size=100, random_state=0, stratify=y
        )
        return (x_train, y_train), (x_val, y_val)

    def model(self, hp: Hyperparameters) -> keras.Model:
        """Return a network of two hidden layers, dropout and a new head with float32 logits.

        The hidden layers get the weights of `pretrained`, unless the parameter ``pretrained`` is false.
        """
        hidden = []
        for i, n in enumerate(HIDDEN, 1):
            hidden.append(keras.layers.Dense(n, activation="relu", name=f"hidden_{i}"))
        dropout = keras.layers.Dropout(hp.number("dropout", 0.0))
        head = keras.layers.Dense(5, dtype="float32", name="head")
        model = keras.Sequential(
            [keras.Input((100,)), *hidden, dropout, head], name="transfer_digits"
        )
        # the layers have weights already, because the model has an Input
        if hp.get("pretrained", True):
            for layer, weights in zip(hidden, pretrained(), strict=True):
                layer.set_weights(weights)
        return model


@functools.cache  # once per worker
def pretrained() -> tuple[list[Any], ...]:
    """Train on digits 0 to 4 with scikit-learn for a few seconds; return kernel and bias of each hidden layer.

    In your own trainable, load your weights here. The function must return the same numbers at each call, and must not
    draw from `random` or `np.random`, which belong to the trial: a worker calls it for its first trial only.
    """
    x, y = _place_digits(range(5), copies=5)
    net = MLPClassifier(HIDDEN, random_state=0)
    # the same sums on every machine, and workers do not compete for cores
    with threadpool_limits(1):
        for _ in range(20):
            net.partial_fit(x, y, classes=range(5))
    # Without the output layer, which is for the other five digits.
    return tuple(
        [kernel, bias] for kernel, bias in zip(net.coefs_[:-1], net.intercepts_[:-1], strict=True)
    )


def _place_digits(classes: range, copies: int) -> tuple[Any, Any]:
    """Return (images at random places of 10 x 10 canvases, their classes as int32) of the digits in ``classes``.

    Each image is placed ``copies`` times, on a canvas of its own, and at the same places at each call. The canvases are
    flattened, and their pixels are from 0 to 1. The first of ``classes`` counts as 0.
    """
    x, y = load_digits(return_X_y=True)
    chosen = np.tile(np.flatnonzero(np.isin(y, classes)), copies)
    canvas = np.zeros((len(chosen), 10, 10), np.float32)
    # 0 to 2: 8 of 10 rows and columns are used
    corners = np.random.default_rng(0).integers(0, 3, (len(chosen), 2))
    for image, pixels, (row, column) in zip(
        canvas, x[chosen].reshape(-1, 8, 8), corners, strict=True
    ):
        image[row : row + 8, column : column + 8] = pixels / 16
    return canvas.reshape(-1, 100), (y[chosen] - classes.start).astype(np.int32)
