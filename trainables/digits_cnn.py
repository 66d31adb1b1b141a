"""A small convolutional network for scikit-learn's handwritten digits: real data, no download."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import KerasTrainable
from trainables.numbers.draws import Draws
from trainables.recipe import augmentation

STRENGTH = {"none": 0.0, "low": 0.1, "medium": 0.3, "high": 0.6}  # of augmentation, for `affine`


class DigitsCNN(KerasTrainable):
    """A convolutional network that sorts grey images of 8 x 8 pixels into ten classes.

    1,437 images are for training and 360 for validation. Besides the standard hyperparameters it reads ``augmentation``
    (none, low, medium or high), ``filters`` (16) and ``dropout`` (0).
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Return float32 images scaled to [0, 1] with int32 labels, for training and for validation.

        The split is stratified by class, and the same for every trial.
        """
        x, y = load_digits(return_X_y=True)
        images = (x.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
        x_train, x_val, y_train, y_val = train_test_split(
            images, y.astype(np.int32), test_size=0.2, random_state=0, stratify=y
        )
        return (x_train, y_train), (x_val, y_val)

    def model(self, hp: Hyperparameters) -> keras.Model:
        """Return a network of two convolutions and two dense layers, with ten float32 logits and no softmax."""
        filters = hp.integer("filters", 16)
        layers = [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(filters, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(2 * filters, 3, strides=2, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(self.dropout(hp)),
            keras.layers.Dense(10, dtype="float32"),
        ]
        return keras.Sequential(layers, name="digits_cnn")

    def augment(self, x: Any, hp: Hyperparameters, draws: Draws) -> Any:
        """Rotate, scale and shift each image a little at random, as far as ``augmentation`` says.

        The images are unchanged if it is "none" or missing. ``x`` is a batch of images; the result is a new one.
        """
        if "augmentation" not in hp:
            return x
        return augmentation.affine(x, draws, hp.live("augmentation", meaning=STRENGTH))
