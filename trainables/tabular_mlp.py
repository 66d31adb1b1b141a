"""A multilayer perceptron on scikit-learn's diabetes table: regression on real data, no download."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import KerasTrainable


class TabularMLP(KerasTrainable):
    """A network that predicts the progress of diabetes within a year from ten columns about a patient.

    353 patients are for training and 89 for validation. Besides the standard hyperparameters it reads ``width`` (64)
    and ``depth`` (2) of the hidden layers, ``normalization`` (none, batch or layer) and ``dropout`` (0). A loss of 1 is
    that of always predicting the mean.
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Return standardised columns and targets for training and for validation, with the same split for every trial.

        Mean and standard deviation are those of the training data, so that nothing leaks from the validation data.
        """
        x, y = load_diabetes(return_X_y=True)
        x_train, x_val, y_train, y_val = train_test_split(
            x, y[:, None], test_size=0.2, random_state=0
        )
        return (
            (_standardised(x_train, x_train), _standardised(y_train, y_train)),
            (_standardised(x_val, x_train), _standardised(y_val, y_train)),
        )

    def model(self, hp: Hyperparameters) -> keras.Model:
        """Return a network with hidden layers of one width and a linear float32 output.

        The loss is not defined here: for these targets, squared error is the default.
        """
        width = hp.integer("width", 64)
        normalization = hp.choice("normalization", ("none", "batch", "layer"), "none")
        layers: list[Any] = [keras.Input((10,))]
        for _ in range(hp.integer("depth", 2)):
            # Batch normalization subtracts any bias, and adds an offset of its own.
            layers.append(keras.layers.Dense(width, use_bias=normalization != "batch"))
            if normalization == "batch":
                layers.append(keras.layers.BatchNormalization())
            elif normalization == "layer":
                layers.append(keras.layers.LayerNormalization())
            layers += [keras.layers.ReLU(), keras.layers.Dropout(self.dropout(hp))]
        return keras.Sequential(
            [*layers, keras.layers.Dense(1, dtype="float32")], name="tabular_mlp"
        )


def _standardised(values: Any, reference: Any) -> Any:
    return ((values - reference.mean(axis=0)) / reference.std(axis=0)).astype(np.float32)
