"""Models for benchmarks/fused.py that are not among those of `trainables`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from trainables.keras_trainable import KerasTrainable


class DigitsMLP(KerasTrainable):
    """A dense network with layers of 64, 64 and 10 units, batch normalization and dropout."""

    def data(self, hp: Any) -> Any:
        x, y = load_digits(return_X_y=True)
        a, b, c, d = train_test_split(
            (x / 16).astype("float32"), y.astype("int32"), test_size=0.2, random_state=0, stratify=y
        )
        return (a, c), (b, d)

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(64, use_bias=False),
                keras.layers.BatchNormalization(),
                keras.layers.ReLU(),
                keras.layers.Dropout(self.dropout(hp)),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dropout(self.dropout(hp)),
                keras.layers.Dense(10, dtype="float32"),
            ]
        )


class TokenLSTM(KerasTrainable):
    """An embedding and an LSTM that find out which of four pairs is among sixteen random tokens."""

    def data(self, hp: Any) -> Any:
        rng = np.random.default_rng(0)
        x = rng.integers(1, 50, (1200, 16)).astype("int32")
        y, at = rng.integers(0, 4, 1200).astype("int32"), rng.integers(0, 14, 1200)
        x[np.arange(1200), at], x[np.arange(1200), at + 1] = y + 1, 7
        return (x[:1000], y[:1000]), (x[1000:], y[1000:])

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((16,), dtype="int32"),
                keras.layers.Embedding(50, 16),
                keras.layers.LSTM(32),
                keras.layers.Dropout(self.dropout(hp)),
                keras.layers.Dense(4, dtype="float32"),
            ]
        )
