"""Click prediction for advertisements, on synthetic data: a model whose table can be too large for one device."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import KerasTrainable, ShardedEmbedding

FIELDS = 8  # features of a request: user, page, advertisement, ...


class ClickThrough(KerasTrainable):
    """A model that predicts from eight integers about a request whether it ends in a click.

    The integers follow a power law, as such data do. Each has a hidden weight from which the labels were drawn. A loss
    of 0.69 is that of guessing.

    Besides the standard hyperparameters it reads ``rows`` (2000), ``vector`` (8) and ``lazy`` (false) of its table,
    ``examples`` (20000), and ``width`` (32) of the hidden layer.
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Return ``examples`` synthetic examples, the first tenth of them as validation data.

        Each has eight int32 below ``rows`` as its input, and a float32 0 or 1 as its target. They are the same at each
        call with the same hyperparameters.
        """
        rows = hp.integer("rows", 2000)
        count = hp.integer("examples", 20000)
        rng = np.random.default_rng(0)
        # a few of the numbers occur often
        drawn = rng.power(0.3, (count, FIELDS)) * (rows // FIELDS)
        # Each field has its own part of the table's rows.
        ids = (
            drawn.astype(np.int32) + np.arange(FIELDS, dtype=np.int32) * (rows // FIELDS)
        ).astype(np.int32)
        hidden_weights = rng.normal(0, 1, rows)
        # The square root keeps the variance of the sum independent of the number of fields.
        chance = 1 / (1 + np.exp(-1.5 * hidden_weights[ids].sum(1) / np.sqrt(FIELDS)))
        clicked = (rng.random(count) < chance).astype(np.float32)[:, None]
        held_out = count // 10
        return (ids[held_out:], clicked[held_out:]), (ids[:held_out], clicked[:held_out])

    def model(self, hp: Hyperparameters) -> keras.Model:
        """Return a network of one embedding table for all fields and a hidden layer; it outputs a probability.

        The table has ``rows`` vectors of ``vector`` numbers, and the hidden layer ``width`` units.
        """
        ids = keras.Input((FIELDS,), dtype="int32")
        table = ShardedEmbedding(
            hp.integer("rows", 2000), hp.integer("vector", 8), lazy=hp.flag("lazy", default=False)
        )
        x = keras.layers.Flatten()(table(ids))
        x = keras.layers.Dense(hp.integer("width", 32), activation="relu")(x)
        return keras.Model(
            ids, keras.layers.Dense(1, activation="sigmoid")(x), name="click_through"
        )

    def loss(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Return the binary crossentropy between clicks and predictions."""
        return keras.losses.BinaryCrossentropy()

    def metrics(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Return the area under the ROC curve, the usual measure for such models."""
        return [keras.metrics.AUC(name="auc")]
