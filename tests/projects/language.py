"""The next letter: a language model whose output is its own table of embeddings."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "val_loss", "goal": "minimize"},
    "parameters": {
        "size": {"values": [6, 8]},
        "learning_rate": {"value": 0.01},
        "clipnorm": {"value": 1.0},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}
LETTERS = 11  # 0 is padding


class TiedModel(keras.Model):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = layers.Embedding(LETTERS, size, mask_zero=True)
        self.recurrent = layers.GRU(size, return_sequences=True)
        self.norm = layers.LayerNormalization()

    def call(self, letters: Any) -> Any:
        x = self.norm(self.recurrent(self.table(letters), mask=self.table.compute_mask(letters)))
        return ops.matmul(x, ops.transpose(self.table.embeddings))


def lines() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(12)
    x = (random.integers(1, LETTERS, (110, 1)) + np.arange(9) * random.integers(1, 3, (110, 1))) % (
        LETTERS - 1
    ) + 1
    x[np.arange(9) >= random.integers(4, 10, 110)[:, None]] = 0
    return x[:, :-1].astype("int32"), x[:, 1:].astype("int32")


class Letters(KerasTrainable):
    def data(self, hp: Any) -> Any:
        x, y = lines()
        return (x[:80], y[:80]), (x[80:], y[80:])

    def model(self, hp: Any) -> keras.Model:
        return TiedModel(hp.integer("size"))

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)

    def metrics(self, hp: Any, model: Any) -> Any:
        return []


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(0.01, clipnorm=1.0), loss)
    return model.fit(x, y, 16, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = Letters
