"""The digits CNN with nested hyperparameters, for nested.yaml: a trainable beside its sweep file."""

from __future__ import annotations

import keras

from sweep.hyperparameters import Hyperparameters
from trainables.digits_cnn import DigitsCNN


class NestedCNN(DigitsCNN):
    """Reads ``cnn.filters``, ``cnn.depth`` and, of deep ones, ``cnn.head.units`` and ``cnn.head.dropout``."""

    def model(self, hp: Hyperparameters) -> keras.Model:
        """As many convolutions as it is deep, then a dense head if the trial has one."""
        filters = hp.integer("cnn.filters")
        layers = [keras.Input((8, 8, 1))]
        for _ in range(hp.integer("cnn.depth")):
            layers.append(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
        layers += [keras.layers.MaxPooling2D(), keras.layers.Flatten()]
        if "cnn.head.units" in hp:
            layers.append(keras.layers.Dense(hp.integer("cnn.head.units"), activation="relu"))
            layers.append(keras.layers.Dropout(hp.number("cnn.head.dropout")))
        return keras.Sequential(
            [*layers, keras.layers.Dense(10, dtype="float32")], name="nested_cnn"
        )
