"""The next picture of a film of moving squares, by ConvLSTM layers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "val_loss", "goal": "minimize"},
    "parameters": {
        "filters": {"value": 3},
        "learning_rate": {"values": [0.003, 0.03]},
        "batch_size": {"value": 8},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


def films() -> np.ndarray:
    random = np.random.default_rng(11)
    start, move = random.integers(0, 8, (40, 2)), random.integers(-1, 2, (40, 2))
    found = np.zeros((40, 5, 8, 8, 1), "float32")
    for film, (row, column), (down, right) in zip(found, start, move, strict=True):
        for number, frame in enumerate(film):
            rows, columns = (
                np.arange(2) + at for at in (row + number * down, column + number * right)
            )
            frame[np.ix_(rows % 8, columns % 8)] = 1.0
    return found


class NextFrame(KerasTrainable):
    def data(self, hp: Any) -> Any:
        film = films()
        x, y = film[:, :-1], film[:, 1:]
        return (x[:28], y[:28]), (x[28:], y[28:])

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((None, 8, 8, 1)),
                layers.ConvLSTM2D(hp.integer("filters"), 3, padding="same", return_sequences=True),
                layers.LayerNormalization(),
                layers.Conv3D(1, 3, padding="same", activation="sigmoid"),
            ]
        )

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.BinaryCrossentropy()

    def metrics(self, hp: Any, model: Any) -> Any:
        return []


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    model.compile(
        keras.optimizers.Adam(hp.number("learning_rate")), keras.losses.BinaryCrossentropy()
    )
    return model.fit(x, y, 8, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = NextFrame
