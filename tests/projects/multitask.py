"""Price and kind of a house at once: two heads, two losses, a weight to search."""

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
        "loss_weights": {"parameters": {"price": {"values": [0.2, 1.0]}}},
        "learning_rate": {"value": 0.01},
        "batch_size": {"value": 20},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


class Houses(KerasTrainable):
    def data(self, hp: Any) -> Any:
        # of whole batches: in Keras the loss of one output is the mean over batches, a shorter last one counted as much
        random = np.random.default_rng(3)
        plan, place = (
            random.normal(size=(140, 5)).astype("float32"),
            random.normal(size=(140, 2)).astype("float32"),
        )
        x = {"plan": plan, "place": place}
        price = (plan[:, :1] + place[:, 1:] ** 2).astype("float32")
        y = {"price": price, "kind": (plan[:, 1] > place[:, 0]).astype("int32")}
        return keras.tree.map_structure(lambda a: a[:100], (x, y)), keras.tree.map_structure(
            lambda a: a[100:], (x, y)
        )

    def model(self, hp: Any) -> keras.Model:
        inputs = {"plan": keras.Input((5,), name="plan"), "place": keras.Input((2,), name="place")}
        trunk = layers.Dense(16, activation="gelu")(layers.Concatenate()(list(inputs.values())))
        price = layers.Dense(1, name="price")(trunk)
        kind = layers.Dense(2, name="kind")(trunk)
        return keras.Model(inputs, {"price": price, "kind": kind})

    def loss(self, hp: Any, model: Any) -> Any:
        return {
            "price": "mse",
            "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        }

    def metrics(self, hp: Any, model: Any) -> Any:
        return {"price": [keras.metrics.MeanAbsoluteError(name="mae")], "kind": ["accuracy"]}


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    model.compile(
        keras.optimizers.Adam(0.01),
        {"price": "mse", "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
        loss_weights={"price": hp.number("loss_weights.price"), "kind": 1.0},
        metrics={"price": [keras.metrics.MeanAbsoluteError(name="mae")], "kind": ["accuracy"]},
    )
    return model.fit(x, y, 20, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = Houses
