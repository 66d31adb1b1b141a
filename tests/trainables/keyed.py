"""Small trainables of each kind, and what a standard hyperparameter does to the numbers of one epoch of each."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from small import assignment, train, weights

from sweep.contract import Incompatible
from trainables.keras_trainable import KerasTrainable


def _stream(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tf.data.Dataset:
    """Return a dataset of single examples whose arrays cannot be seen."""
    spec = (tf.TensorSpec(x.shape[1:], x.dtype), tf.TensorSpec((), y.dtype))
    return tf.data.Dataset.from_generator(lambda: zip(x, y, strict=True), output_signature=spec)


class Compiled(KerasTrainable):
    """Images of three classes, and a model with a normalization and a dropout, trained by its loss."""

    def data(self, hp: Any) -> Any:
        random = np.random.default_rng(0)
        x = random.normal(size=(60, 4, 4, 1)).astype(np.float32)
        y = x[:, :3, 0, 0].argmax(axis=1).astype(np.int32)
        y[:30] = 0  # classes of different sizes
        train, validation = (x[:44], y[:44]), (x[44:], y[44:])
        if "shuffle_buffer" not in hp:
            return train, validation
        return _stream(*train), _stream(*validation)  # arrays refuse it

    def features(self, hp: Any) -> keras.Model | None:
        if "cache_features" not in hp:
            return None
        return keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Rescaling(2.0)])

    def model(self, hp: Any) -> keras.Model:
        return self.made(keras.Model, hp)

    def made(self, kind: type[keras.Model], hp: Any) -> keras.Model:
        inputs = keras.Input((4, 4, 1))
        hidden = keras.layers.Flatten()(inputs)
        hidden = keras.layers.Dense(8, activation="tanh", name="hidden")(hidden)
        hidden = keras.layers.BatchNormalization()(hidden)
        hidden = keras.layers.Dropout(self.dropout(hp))(hidden) if "dropout" in hp else hidden
        outputs = keras.layers.Dense(3, name="head")(hidden)
        return kind(inputs, outputs)


class TrainStep(Compiled):
    """The same, trained by a step of the trainable's own with a loss of its own."""

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        logits = model(batch.x, training=True)
        loss = keras.losses.sparse_categorical_crossentropy(batch.y, logits, from_logits=True)
        weight = batch.sample_weight
        return {"loss": loss if weight is None else loss * weight}


class OwnStep(keras.Model):
    """A model that trains itself with the trial's optimizer and a loss of its own."""

    @property
    def trains_with(self) -> Any:
        return self.optimizer

    def train_step(self, data: Any) -> Any:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(
                y, self(x, training=True), from_logits=True
            )
            loss = tf.reduce_mean(losses if weight is None else losses * weight)
        weights = self.trainable_weights
        self.trains_with.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


class OwnOptimizer(OwnStep):
    """A model that trains itself with an optimizer of its own."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.mine = keras.optimizers.Adam(0.05)

    @property
    def trains_with(self) -> Any:
        return self.mine


class ModelStep(Compiled):
    def model(self, hp: Any) -> keras.Model:
        return self.made(OwnStep, hp)


class OwnOptimizers(Compiled):
    def model(self, hp: Any) -> keras.Model:
        return self.made(OwnOptimizer, hp)


KINDS: Mapping[str, tuple[type[KerasTrainable], Mapping[str, Any]]] = {
    "compiled": (Compiled, {}),
    "train_step": (TrainStep, {}),
    "model_step": (ModelStep, {}),
    "own_optimizers": (OwnOptimizers, {}),
    "fit": (Compiled, {"loop": "fit"}),
}
"""By kind: a trainable, and its block `training`."""


@functools.cache
def _numbers_before(kind: str, params: tuple[tuple[str, Any], ...]) -> list[Any]:
    return numbers(kind, dict(params))


def numbers(kind: str, params: Mapping[str, Any]) -> list[Any]:
    """Return what an epoch or two of a trial of this kind report, and the weights after them."""
    make, training = KINDS[kind]
    trainable = make()
    trial = replace(assignment(epochs=2, training=training), params=dict(params))
    reported = [(dict(epoch.metrics), epoch.learning_rate) for epoch in train(trainable, trial)]
    # not what counts batches
    trained = [weight.tolist() for weight in weights(trainable) if weight.dtype.kind == "f"]
    return [reported, trained]


def effect(kind: str, without: Mapping[str, Any], given: Mapping[str, Any], names: str) -> str:
    """Return what a hyperparameter does.

    "works": it changes what is trained or reported; "rounding": only by rounding; "silent": not at all; "refused": the
    trial is refused with its name.
    """
    try:
        changed = numbers(kind, given)
    except Incompatible as error:
        stem = names.partition(".")[0]
        return "refused" if stem in str(error) else f"refused without its name: {error}"
    before = _numbers_before(kind, tuple(without.items()))
    if changed == before:
        return "silent"
    return "rounding" if _differ_by_rounding(before, changed) else "works"


def _differ_by_rounding(one: list[Any], other: list[Any]) -> bool:
    """Return whether numbers, in lists and mappings of one form, agree within the rounding of float32 sums."""
    flat, others = (
        [value for value in tf.nest.flatten(part) if value is not None] for part in (one, other)
    )
    return len(flat) == len(others) and np.allclose(flat, others, rtol=1e-5, atol=1e-6)
