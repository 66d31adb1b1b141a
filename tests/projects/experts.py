"""A mixture of experts, with the usual loss that keeps the gate from choosing always the same one."""

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
        "experts": {"value": 3},
        "balance": {"values": [0.0, 0.1]},
        "learning_rate": {"value": 0.01},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


class Mixture(layers.Layer):
    def __init__(self, experts: int, units: int, balance: float, **options: Any) -> None:
        super().__init__(**options)
        self.experts, self.units, self.balance = experts, units, balance
        self.gate = layers.Dense(experts, activation="softmax")

    def build(self, shape: Any) -> None:
        self.gate.build(shape)
        size = (self.experts, shape[-1], self.units)
        self.kernel = self.add_weight(shape=size, initializer="glorot_uniform", name="kernel")
        self.bias = self.add_weight(
            shape=(self.experts, self.units), initializer="zeros", name="bias"
        )

    def call(self, x: Any) -> Any:
        gate = self.gate(x)
        chosen = ops.one_hot(ops.argmax(gate, axis=-1), self.experts)
        self.add_loss(
            self.balance * self.experts * ops.sum(ops.mean(chosen, axis=0) * ops.mean(gate, axis=0))
        )
        outputs = ops.gelu(ops.einsum("bi,eio->beo", x, self.kernel) + self.bias)
        return ops.sum(outputs * (gate * chosen)[..., None], axis=1)


class Experts(KerasTrainable):
    def data(self, hp: Any) -> Any:
        random = np.random.default_rng(7)
        x = random.normal(size=(140, 6)).astype("float32")
        y = np.where(x[:, 0] > 0, x[:, 1] > 0, x[:, 2] > x[:, 3]).astype("int32")
        return (x[:100], y[:100]), (x[100:], y[100:])

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        x = Mixture(hp.integer("experts"), 8, hp.number("balance"))(inputs)
        return keras.Model(inputs, layers.Dense(2)(x))


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model.fit(x, y, 16, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = Experts
