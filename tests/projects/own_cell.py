"""A recurrent cell of one's own in `keras.layers.RNN`: a minimal gated unit with a leak."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "val_accuracy", "goal": "maximize"},
    "parameters": {
        "units": {"value": 6},
        "leak": {"values": [0.0, 0.2]},
        "learning_rate": {"value": 0.02},
        "lr_schedule": {"value": "constant"},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


class MinimalCell(layers.Layer):
    def __init__(self, units: int, leak: float, **options: Any) -> None:
        super().__init__(**options)
        self.units, self.leak, self.state_size = units, leak, units

    def build(self, shape: Any) -> None:
        size = shape[-1] + self.units
        self.gate = self.add_weight(
            shape=(size, self.units), initializer="glorot_uniform", name="gate"
        )
        self.candidate = self.add_weight(
            shape=(size, self.units), initializer="glorot_uniform", name="candidate"
        )

    def call(self, x: Any, states: Any) -> Any:
        before = states[0]
        gate = ops.sigmoid(ops.matmul(ops.concatenate([x, before], -1), self.gate))
        new = ops.tanh(ops.matmul(ops.concatenate([x, gate * before], -1), self.candidate))
        after = (1 - gate) * before + gate * new
        after = (1 - self.leak) * after
        return after, [after]


class Signals(KerasTrainable):
    def data(self, hp: Any) -> Any:
        random = np.random.default_rng(13)
        x = random.normal(size=(120, 9, 2)).astype("float32")
        y = (x[:, :, 0].sum(1) > x[:, -3:, 1].sum(1)).astype("int32")
        return (x[:90], y[:90]), (x[90:], y[90:])

    def model(self, hp: Any) -> keras.Model:
        cell = MinimalCell(hp.integer("units"), hp.number("leak"))
        return keras.Sequential([keras.Input((9, 2)), layers.RNN(cell), layers.Dense(2)])


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    return model.fit(x, y, 16, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = Signals
