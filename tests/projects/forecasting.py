"""Tomorrow's demand from the days before: windows of a series, scaled by what the training part was like."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "val_mae", "goal": "minimize"},
    "parameters": {
        "window": {"values": [7, 14]},
        "units": {"value": 8},
        "learning_rate": {"value": 0.01},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


def demand() -> np.ndarray:
    days = np.arange(160)
    noise = np.random.default_rng(0).normal(0, 0.3, len(days))
    return (20 + 5 * np.sin(2 * np.pi * days / 7) + 0.02 * days + noise).astype("float32")


class Demand(KerasTrainable):
    def data(self, hp: Any) -> Any:
        series, window = demand(), hp.integer("window")
        train, held_out = series[:120], series[120 - window :]
        self.mean, self.spread = float(train.mean()), float(train.std())

        def windows(part: np.ndarray) -> Any:
            return keras.utils.timeseries_dataset_from_array(
                part[:-1, None], part[window:, None], sequence_length=window, batch_size=None
            )

        return windows(train), windows(held_out)

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((hp.integer("window"), 1)),
                keras.layers.Rescaling(1 / self.spread, offset=-self.mean / self.spread),
                keras.layers.LSTM(hp.integer("units")),
                keras.layers.Dense(1),
                keras.layers.Rescaling(self.spread, offset=self.mean),
            ]
        )

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.Huber()

    def metrics(self, hp: Any, model: Any) -> Any:
        return [keras.metrics.MeanAbsoluteError(name="mae")]


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    mae = keras.metrics.MeanAbsoluteError(name="mae")
    model.compile(keras.optimizers.Adam(0.01), keras.losses.Huber(), metrics=[mae])
    train, held_out = data
    return model.fit(
        train.batch(16), validation_data=held_out.batch(256), epochs=2, shuffle=False, verbose=0
    ).history


TRAINABLE = Demand
