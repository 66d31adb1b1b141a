"""A GAN with spectral normalisation in the critic and the hinge loss: two networks, two optimizers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from trainables.keras_trainable import KerasTrainable, Update

SPACE = {
    "method": "grid",
    "metric": {"name": "distance", "goal": "minimize"},
    "parameters": {
        "critic_steps": {"values": [1, 2]},
        "learning_rate": {"value": 0.01},
        "batch_size": {"value": 16},
    },
    "epochs": 2,
}


class SpectralGAN(KerasTrainable):
    def data(self, hp: Any) -> Any:
        angle = np.random.default_rng(14).uniform(0, 2 * np.pi, 90)
        # points of a circle
        return np.stack([np.cos(angle), np.sin(angle)], 1).astype("float32"), None

    def model(self, hp: Any) -> keras.Model:
        hidden = [
            layers.SpectralNormalization(layers.Dense(8, activation="leaky_relu")) for _ in range(2)
        ]
        self.critic = keras.Sequential(
            [keras.Input((2,)), *hidden, layers.SpectralNormalization(layers.Dense(1))]
        )
        return keras.Sequential(
            [keras.Input((3,)), layers.Dense(8, activation="relu"), layers.Dense(2)]
        )

    def updates(self, hp: Any, model: Any) -> Any:
        critic = keras.optimizers.Adam(0.01, beta_1=0.5)
        return [
            Update("critic", self.critic, critic, times=hp.integer("critic_steps")),
            Update("made", model),
        ]

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        made = model(batch.draws.normal((3,)), training=True)
        if batch.turn == "made":
            return {
                "made": -self.critic(made, training=True)[:, 0],
                "distance": ops.abs(ops.norm(made, axis=1) - 1),
            }
        true, false = self.critic(batch.x, training=True), self.critic(made, training=True)
        return {"critic": (ops.relu(1 - true) + ops.relu(1 + false))[:, 0]}


TRAINABLE = SpectralGAN
