"""Which advertisements are clicked: the model of a table too large for one device, on synthetic data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import KerasTrainable, ShardedEmbedding

FIELDS = 8  # what is known of a request: user, page, advertisement, ...


class ClickThrough(KerasTrainable):
    """Eight whole numbers about a request, drawn by a power law as such data are, and whether it ended in a click.

    Beside the standard hyperparameters it reads ``rows`` (2000) and ``vector`` (8) of its table, ``examples`` (20000)
    and ``width`` (32) of the hidden layer. Every number has a weight of its own that the data were made with: a loss
    near 0.69 is that of guessing.
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Examples of which the last tenth validates."""
        rows, count = hp.integer("rows", 2000), hp.integer("examples", 20000)
        rng = np.random.default_rng(0)
        drawn = rng.power(0.3, (count, FIELDS)) * (rows // FIELDS)  # few numbers are met often
        ids = (drawn.astype(np.int32) + np.arange(FIELDS, dtype=np.int32) * (rows // FIELDS)).astype(np.int32)
        taste = rng.normal(0, 1, rows)
        chance = 1 / (1 + np.exp(-1.5 * taste[ids].sum(1) / np.sqrt(FIELDS)))
        clicked = (rng.random(count) < chance).astype(np.float32)[:, None]
        held_out = count // 10
        return (ids[held_out:], clicked[held_out:]), (ids[:held_out], clicked[:held_out])

    def model(self, hp: Hyperparameters) -> keras.Model:
        """One table for all fields, then a small network."""
        ids = keras.Input((FIELDS,), dtype="int32")
        table = ShardedEmbedding(hp.integer("rows", 2000), hp.integer("vector", 8), lazy=hp.flag("lazy", default=False))
        x = keras.layers.Flatten()(table(ids))
        x = keras.layers.Dense(hp.integer("width", 32), activation="relu")(x)
        return keras.Model(ids, keras.layers.Dense(1, activation="sigmoid")(x), name="click_through")

    def loss(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Of a click or none."""
        return keras.losses.BinaryCrossentropy()

    def metrics(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """The area under the curve, by which such models are judged."""
        return [keras.metrics.AUC(name="auc")]
