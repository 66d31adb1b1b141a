"""A variational autoencoder as in Keras's guide: a model with its own `train_step`, which has no targets."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from trainables.keras_trainable import KerasTrainable

SPACE = {
    "method": "grid",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {
        "latent": {"values": [2, 3]},
        "learning_rate": {"value": 0.01},
        "batch_size": {"value": 16},
        "shuffle": {"value": False},
    },
    "epochs": 2,
}


class Sampling(layers.Layer):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs: Any) -> Any:
        mean, log_variance = inputs
        return mean + ops.exp(0.5 * log_variance) * keras.random.normal(
            ops.shape(mean), seed=self.seed_generator
        )


class VAE(keras.Model):
    def __init__(self, latent: int) -> None:
        super().__init__()
        inputs = keras.Input((12,))
        hidden = layers.Dense(8, activation="relu")(inputs)
        mean, log_variance = layers.Dense(latent)(hidden), layers.Dense(latent)(hidden)
        self.encoder = keras.Model(inputs, [mean, log_variance, Sampling()([mean, log_variance])])
        self.decoder = keras.Sequential(
            [
                keras.Input((latent,)),
                layers.Dense(8, activation="relu"),
                layers.Dense(12, activation="sigmoid"),
            ]
        )
        self.total = keras.metrics.Mean(name="loss")
        self.reconstruction = keras.metrics.Mean(name="reconstruction_loss")
        self.divergence = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.total, self.reconstruction, self.divergence]

    def call(self, x: Any) -> Any:
        return self.decoder(self.encoder(x)[2])

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            mean, log_variance, z = self.encoder(data)
            rebuilt = self.decoder(z)
            reconstruction = ops.mean(
                ops.sum(keras.losses.binary_crossentropy(data[..., None], rebuilt[..., None]), 1)
            )
            divergence = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
            divergence = ops.mean(ops.sum(divergence, axis=1))
            loss = reconstruction + divergence
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total.update_state(loss)
        self.reconstruction.update_state(reconstruction)
        self.divergence.update_state(divergence)
        return {metric.name: metric.result() for metric in self.metrics}


class Shapes(KerasTrainable):
    def data(self, hp: Any) -> Any:
        random = np.random.default_rng(5)
        centre = random.uniform(0, 12, (90, 1))
        return np.exp(-((np.arange(12) - centre) ** 2) / 6).astype("float32"), None

    def model(self, hp: Any) -> keras.Model:
        vae = VAE(hp.integer("latent"))
        vae.compile(keras.optimizers.Adam(hp.number("learning_rate")))
        return vae


def fit(model: Any, data: Any, hp: Any) -> dict[str, list[float]]:
    model.compile(keras.optimizers.Adam(0.01))
    return model.fit(data[0], batch_size=16, epochs=2, shuffle=False, verbose=0).history


TRAINABLE = Shapes
