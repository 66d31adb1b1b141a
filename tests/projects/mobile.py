"""A net like MobileNet in two phases: the head on a frozen backbone, then all of it at a lower rate."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "val_accuracy", "goal": "maximize"},
    "parameters": {
        "frozen_layers": {"value": "backbone"},
        "frozen_epochs": {"value": 1},
        "fine_tune_learning_rate": {"values": [1e-4, 1e-3]},
        "learning_rate": {"value": 0.01},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


def pictures() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(10)
    y = random.integers(0, 3, 70).astype("int32")
    x = random.normal(0, 0.5, (70, 16, 16, 3))
    x[np.arange(70), :, :, y] += 0.5
    return x.astype("float32"), y


def backbone() -> keras.Model:
    inputs = keras.Input((16, 16, 3))
    x = layers.Conv2D(4, 3, 2, padding="same", use_bias=False)(inputs)
    x = layers.ReLU(6)(layers.BatchNormalization()(x))
    for filters in (8, 8):
        x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
        x = layers.ReLU(6)(layers.BatchNormalization()(x))
        x = layers.BatchNormalization()(layers.Conv2D(filters, 1, use_bias=False)(x))
    return keras.Model(inputs, layers.GlobalAveragePooling2D()(x), name="backbone")


class Mobile(KerasTrainable):
    def data(self, hp: Any) -> Any:
        x, y = pictures()
        return (x[:50], y[:50]), (x[50:], y[50:])

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((16, 16, 3)), backbone(), layers.Dense(3, name="head")]
        )


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    history: dict[str, list[float]] = {}
    for trainable, rate in ((False, 0.01), (True, hp.number("fine_tune_learning_rate"))):
        model.get_layer("backbone").trainable = trainable
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
        for name, values in model.fit(
            x, y, 16, validation_data=held_out, shuffle=False, verbose=0
        ).history.items():
            history.setdefault(name, []).extend(values)
    return history


TRAINABLE = Mobile
