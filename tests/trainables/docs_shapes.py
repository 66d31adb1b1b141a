"""What the page on augmentation leaves out of its example of a detection."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from trainables.keras_trainable import KerasTrainable


class Detection(KerasTrainable):
    """Three boxes, the last of which pads, and two points in each picture."""

    def data(self, hp: Any) -> Any:
        random = np.random.default_rng(0)
        x = random.normal(size=(60, 16, 16, 1)).astype(np.float32)
        low = random.uniform(0, 0.5, (60, 3, 2))
        boxes = np.concatenate([low, low + 0.4], 2).astype(np.float32)
        boxes[:, 2] = 0
        labels = np.tile(np.int32([0, 1, -1]), (60, 1))
        y = {"boxes": boxes, "labels": labels, "points": boxes[:, :2, :2]}
        return (x, y), None

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((16, 16, 1))
        flat = layers.Flatten()(inputs)
        sizes = {"boxes": (3, 4), "labels": (3, 2), "points": (2, 2)}
        outputs = {
            n: layers.Reshape(s, name=n)(layers.Dense(s[0] * s[1])(flat)) for n, s in sizes.items()
        }
        return keras.Model(inputs, outputs)

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return {
            "boxes": "huber",
            "points": "huber",
            "labels": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        }

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return None
