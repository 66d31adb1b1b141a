"""Where in the picture is the disc? A small U-Net with skip connections."""

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
        "filters": {"value": 4},
        "learning_rate": {"values": [0.003, 0.01]},
        "batch_size": {"value": 8},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


def discs() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    rows, columns = np.mgrid[:16, :16]
    at, radius = random.uniform(4, 12, (40, 2)), random.uniform(2, 5, 40)
    inside = (rows - at[:, :1, None]) ** 2 + (columns - at[:, 1:, None]) ** 2 < radius[
        :, None, None
    ] ** 2
    x = inside + random.normal(0, 0.4, inside.shape)
    return x[..., None].astype("float32"), inside.astype("int32")


def block(x: Any, filters: int) -> Any:
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


class UNet(KerasTrainable):
    def data(self, hp: Any) -> Any:
        x, y = discs()
        return (x[:28], y[:28]), (x[28:], y[28:])

    def model(self, hp: Any) -> keras.Model:
        filters = hp.integer("filters")
        inputs = keras.Input((16, 16, 1))
        first = block(inputs, filters)
        second = block(layers.MaxPooling2D()(first), 2 * filters)
        bottom = block(layers.MaxPooling2D()(second), 4 * filters)
        x = block(layers.Concatenate()([layers.UpSampling2D()(bottom), second]), 2 * filters)
        x = block(layers.Concatenate()([layers.UpSampling2D()(x), first]), filters)
        return keras.Model(inputs, layers.Conv2D(2, 1)(x))

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self, hp: Any, model: Any) -> Any:
        return [keras.metrics.MeanIoU(2, sparse_y_pred=False, name="iou")]


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    iou = keras.metrics.MeanIoU(2, sparse_y_pred=False, name="iou")
    model.compile(keras.optimizers.Adam(hp.number("learning_rate")), loss, metrics=[iou])
    return model.fit(x, y, 8, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = UNet
