"""How long will it take, at the earliest, likely, and at the latest: three quantiles by the pinball loss."""

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
        "units": {"value": 8},
        "optimizer": {"values": ["adam", "rmsprop"]},
        "learning_rate": {"value": 0.01},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}
QUANTILES = (0.1, 0.5, 0.9)


def pinball(y_true: Any, y_pred: Any) -> Any:
    quantiles = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    off = y_true - y_pred
    return ops.mean(ops.maximum(quantiles * off, (quantiles - 1) * off), axis=-1)


@keras.saving.register_keras_serializable("quantiles")
class Coverage(keras.metrics.Mean):
    """How often the truth lies between the outer quantiles."""

    def __init__(self, name: str = "coverage", **options: Any) -> None:
        super().__init__(name=name, **options)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        y_true = ops.cast(ops.reshape(y_true, (-1,)), y_pred.dtype)
        between = (y_true >= y_pred[:, 0]) & (y_true <= y_pred[:, -1])
        return super().update_state(ops.cast(between, "float32"), sample_weight=sample_weight)


class Durations(KerasTrainable):
    def data(self, hp: Any) -> Any:
        random = np.random.default_rng(8)
        x = random.normal(size=(140, 4)).astype("float32")
        y = (x[:, :1] + np.abs(x[:, 1:2]) * random.gumbel(size=(140, 1))).astype("float32")
        return (x[:100], y[:100]), (x[100:], y[100:])

    def model(self, hp: Any) -> keras.Model:
        hidden = layers.Dense(hp.integer("units"), activation="swish")
        return keras.Sequential([keras.Input((4,)), hidden, layers.Dense(len(QUANTILES))])

    def loss(self, hp: Any, model: Any) -> Any:
        return pinball

    def metrics(self, hp: Any, model: Any) -> Any:
        return [Coverage()]


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    optimizer = {"adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}[
        str(hp.get("optimizer", "adam"))
    ]
    model.compile(optimizer(0.01), pinball, metrics=[Coverage()])
    return model.fit(x, y, 16, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = Durations
