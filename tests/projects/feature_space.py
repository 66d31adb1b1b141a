"""A table of mixed columns through Keras's `FeatureSpace`, fitted on the training part and applied in `data`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.utils import FeatureSpace

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "val_accuracy", "goal": "maximize"},
    "parameters": {
        "bins": {"values": [3, 6]},
        "learning_rate": {"value": 0.01},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


def patients() -> tuple[dict[str, np.ndarray], np.ndarray]:
    random = np.random.default_rng(9)
    age = random.integers(20, 80, 120).astype("int64")
    pulse = random.normal(70, 9, 120).astype("float32")
    kind = random.choice(["a", "b", "c"], 120)
    y = ((age > 50) ^ (kind == "a")).astype("int32")
    return {"age": age, "pulse": pulse, "kind": kind}, y


class Patients(KerasTrainable):
    def data(self, hp: Any) -> Any:
        x, y = patients()
        train, held_out = (
            {name: a[part] for name, a in x.items()} for part in (slice(90), slice(90, None))
        )
        space = FeatureSpace(
            features={
                "age": FeatureSpace.float_discretized(num_bins=hp.integer("bins")),
                "pulse": FeatureSpace.float_normalized(),
                "kind": FeatureSpace.string_categorical(num_oov_indices=0),
            },
            output_mode="concat",
        )
        space.adapt(tf.data.Dataset.from_tensor_slices(train).batch(32))
        return (np.asarray(space(train)), y[:90]), (np.asarray(space(held_out)), y[90:])

    def model(self, hp: Any) -> keras.Model:
        hidden = keras.layers.Dense(8, activation="tanh")
        return keras.Sequential(
            [keras.Input(self.example[0].shape[1:]), hidden, keras.layers.Dense(2)]
        )


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    (x, y), held_out = data
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model.fit(x, y, 16, validation_data=held_out, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = Patients
