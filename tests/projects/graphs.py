"""Of which subject is a paper? Its words and whom it cites: two graph convolutions over one graph."""

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
        "units": {"values": [4, 8]},
        "learning_rate": {"value": 0.02},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


def citations() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(6)
    subject = random.integers(0, 3, 80)
    words = (random.random((80, 10)) < 0.2 + 0.5 * (np.arange(10) % 3 == subject[:, None])).astype(
        "float32"
    )
    edges = random.random((80, 80)) < np.where(subject[:, None] == subject, 0.1, 0.01)
    edges = (edges | edges.T | np.eye(80, dtype=bool)).astype("float32")
    return words, edges / edges.sum(1, keepdims=True), subject.astype("int32")


class GraphNet(keras.Model):
    """Takes numbers of nodes, looks them up in the whole graph."""

    def __init__(self, words: np.ndarray, edges: np.ndarray, units: int) -> None:
        super().__init__()
        self.words, self.edges = words, edges
        self.first, self.second = (
            layers.Dense(units, activation="relu"),
            layers.Dense(units, activation="relu"),
        )
        self.head = layers.Dense(3)

    def call(self, nodes: Any) -> Any:
        edges = ops.convert_to_tensor(self.edges)
        x = self.first(ops.matmul(edges, ops.convert_to_tensor(self.words)))
        x = self.second(ops.matmul(edges, x))
        return self.head(ops.take(x, nodes, axis=0))


class Papers(KerasTrainable):
    def data(self, hp: Any) -> Any:
        self.words, self.edges, y = citations()
        nodes = np.arange(80, dtype="int32")
        return (nodes[:60], y[:60]), (nodes[60:], y[60:])

    def model(self, hp: Any) -> keras.Model:
        return GraphNet(self.words, self.edges, hp.integer("units"))

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self, hp: Any, model: Any) -> Any:
        return ["accuracy"]


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    return model.fit(x, y, 16, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = Papers
