"""Is a review a good one? The vocabulary is learned by `data` and kept in a module of helpers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import words

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "val_accuracy", "goal": "maximize"},
    "parameters": {
        "most_words": {"values": [6, 40]},
        "learning_rate": {"value": 0.02},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}
GOOD = ["fine", "lovely", "great", "superb", "bright", "warm"]
POOR = ["poor", "dull", "awful", "weak", "grim", "cold"]
FILLING = ["film", "story", "actor", "scene", "music", "ending", "plot", "dialogue"]


def reviews() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    y = random.integers(0, 2, 120)
    rows = [[*random.choice(GOOD if good else POOR, 2), *random.choice(FILLING, 4)] for good in y]
    return np.array([" ".join(random.permutation(row)) for row in rows]), y.astype("int32")


class Reviews(KerasTrainable):
    def data(self, hp: Any) -> Any:
        x, y = reviews()
        words.learn(x[:90], hp.integer("most_words"))
        return (x[:90], y[:90]), (x[90:], y[90:])

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((), dtype="string"),
                words.vectorizer(6),
                keras.layers.Embedding(words.size(), 8, mask_zero=True),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(2),
            ]
        )


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    import tensorflow as tf

    train, held_out = (tf.data.Dataset.from_tensor_slices(part) for part in data)
    return model.fit(
        train.batch(16), validation_data=held_out.batch(256), epochs=2, shuffle=False, verbose=0
    ).history


TRAINABLE = Reviews
