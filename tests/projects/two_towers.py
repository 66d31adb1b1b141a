"""Which film next? A tower for users, one for films; the other films of the batch are what was not watched."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "val_loss", "goal": "minimize"},
    "parameters": {
        "size": {"value": 4},
        "temperature": {"values": [0.2, 1.0]},
        "learning_rate": {"value": 0.05},
        "batch_size": {"value": 16},
        "validation_batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


def watched() -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    user = random.integers(0, 20, 128).astype("int32")
    film = ((user * 3 + random.integers(0, 3, 128)) % 30).astype("int32")
    return {"user": user, "film": film}


def towers(size: int) -> keras.Model:
    inputs = {name: keras.Input((), dtype="int32", name=name) for name in ("user", "film")}
    user = layers.Dense(size, name="of_user")(layers.Embedding(20, size)(inputs["user"]))
    film = layers.Dense(size, name="of_film")(layers.Embedding(30, size)(inputs["film"]))
    return keras.Model(inputs, {"user": user, "film": film})


class TwoTowers(KerasTrainable):
    def data(self, hp: Any) -> Any:
        rows = watched()
        train, held_out = (
            {name: a[part] for name, a in rows.items()} for part in (slice(96), slice(96, None))
        )
        return (train,), (held_out,)  # nothing to predict but one another

    def model(self, hp: Any) -> keras.Model:
        return towers(hp.integer("size"))

    def _lost(self, outputs: Any, batch: Any) -> Any:
        alike = ops.matmul(outputs["user"], ops.transpose(batch.gather(outputs["film"])))
        own = ops.arange(ops.shape(alike)[0]) + batch.first
        alike = alike / self.live.number("temperature")
        return keras.losses.sparse_categorical_crossentropy(own, alike, from_logits=True)

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        return {"loss": self._lost(model(batch.x, training=True), batch)}

    def test_step(self, model: Any, batch: Any, hp: Any) -> Any:
        return {"loss": self._lost(model(batch.x, training=False), batch)}


class Retrieval(keras.Model):
    """As one writes it in Keras."""

    def __init__(self, towers: keras.Model, temperature: float) -> None:
        super().__init__()
        self.towers, self.temperature = towers, temperature

    def call(self, x: Any, training: bool = False) -> Any:
        return self.towers(x, training=training)

    def compute_loss(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
    ) -> Any:
        alike = tf.matmul(y_pred["user"], y_pred["film"], transpose_b=True) / self.temperature
        own = tf.range(tf.shape(alike)[0])
        return tf.reduce_mean(
            keras.losses.sparse_categorical_crossentropy(own, alike, from_logits=True)
        )


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    retrieval = Retrieval(model, hp.number("temperature"))
    retrieval.compile(keras.optimizers.Adam(0.05))
    (train,), (held_out,) = data
    history: dict[str, list[float]] = {"loss": [], "val_loss": []}
    for _ in range(2):
        history["loss"] += retrieval.fit(train, batch_size=16, shuffle=False, verbose=0).history[
            "loss"
        ]
        history["val_loss"].append(retrieval.evaluate(held_out, batch_size=16, verbose=0))
    return history


TRAINABLE = TwoTowers
