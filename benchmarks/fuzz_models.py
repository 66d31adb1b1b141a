"""The models of `fuzz.py`, which are small and smooth and contain everything that a loop can get wrong.

They differ only by parameters, so that a recipe is a mapping of plain values.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from trainables.keras_trainable import KerasTrainable, Update

VALIDATED = 20  # examples


class Counter(layers.Layer):
    """Counts updates, and scales its inputs by a function of the count."""

    def build(self, shape: Any) -> None:
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.seen.assign_add(1.0)
        return x * ops.cast(1.0 + 0.1 * ops.sin(self.seen), x.dtype)


class MovingMean(layers.Layer):
    """Subtracts a moving mean of its own, which it updates in training."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(
            shape=(shape[-1],), initializer="zeros", trainable=False, name="mean"
        )

    def call(self, x: Any, training: bool = False) -> Any:
        before = ops.convert_to_tensor(self.mean)
        if training:
            self.mean.assign(0.8 * before + 0.2 * ops.cast(ops.mean(x, axis=0), before.dtype))
        return x - ops.cast(before, x.dtype)


class BatchMean(layers.Layer):
    """Subtracts half of the batch's mean in training."""

    def call(self, x: Any, training: bool = False) -> Any:
        return x - 0.5 * ops.mean(x, axis=0) if training else x


class Noise(layers.Layer):
    """Adds random numbers of `keras.random` in training."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(4)

    def call(self, x: Any, training: bool = False) -> Any:
        return (
            x + keras.random.normal(ops.shape(x), 0.0, 0.1, x.dtype, seed=self.seeds)
            if training
            else x
        )


class SameNoise(layers.Layer):
    """Adds the same numbers to each batch in training."""

    def call(self, x: Any, training: bool = False) -> Any:
        return (
            x + 0.1 * tf.random.stateless_normal(tf.shape(x), [1, 2], dtype=x.dtype)
            if training
            else x
        )


class Loss(layers.Layer):
    """Adds a mean or a sum to the loss, always or only in training."""

    def __init__(self, reduce: Callable[[Any], Any], *, always: bool) -> None:
        super().__init__()
        self.reduce, self.always = reduce, always

    def call(self, x: Any, training: bool = False) -> Any:
        if training or self.always:
            self.add_loss(0.01 * self.reduce(ops.square(ops.cast(x, "float32"))))
        return x


def _dense(**options: Any) -> Any:
    return layers.Dense(8, activation="tanh", **options)


LAYERS: dict[str, Callable[[], list[Any]]] = {
    "dense": lambda: [_dense()],
    "bn": lambda: [
        layers.Dense(8, use_bias=False),
        layers.BatchNormalization(),
        layers.Activation("tanh"),
    ],
    "dropout": lambda: [_dense(), layers.Dropout(0.3)],
    "norm": lambda: [_dense(), layers.LayerNormalization()],
    "gaussian": lambda: [layers.GaussianNoise(0.1)],
    "spectral": lambda: [layers.SpectralNormalization(_dense())],
    "l2": lambda: [_dense(kernel_regularizer=keras.regularizers.L2(1e-2))],
    "activity": lambda: [layers.ActivityRegularization(l2=1e-2)],
    "counter": lambda: [Counter()],
    "moving": lambda: [_dense(), MovingMean()],
    "batch_mean": lambda: [_dense(), BatchMean()],
    "noise": lambda: [Noise()],
    "same_noise": lambda: [SameNoise()],
    "add_loss": lambda: [_dense(), Loss(ops.mean, always=True)],
    "training_loss": lambda: [_dense(), Loss(ops.mean, always=False)],
    "sum_loss": lambda: [_dense(), Loss(ops.sum, always=False)],
}
"""The layers that a model may consist of; the last Dense layer is added to each model."""


def _added(model: Any) -> Any:
    """Return the sum of the losses that layers add, in float32 even if the model is in half precision."""
    return sum(ops.cast(loss, "float32") for loss in model.losses)


class Compiled(KerasTrainable):
    """A model of points or masked series that predicts classes, shares of classes or numbers."""

    def data(self, hp: Any) -> Any:
        count, target, weights = (
            hp.integer("examples"),
            hp.get("target", "labels"),
            hp.get("weights", "none"),
        )
        random, rows = np.random.default_rng(7), count + VALIDATED
        points = random.normal(size=(rows, 6)).astype(np.float32)
        x = points
        if hp.get("inputs", "points") == "series":
            x = random.normal(size=(rows, 5, 3)).astype(np.float32)
            x[np.arange(5) >= random.integers(2, 6, rows)[:, None]] = 0.0  # is masked
            points = np.concatenate([x.sum(1), x.sum(1) ** 2], axis=1)
        y: Any = points[:, :3].argmax(axis=1).astype(np.int32)
        if target == "shares":
            y = np.eye(3, dtype=np.float32)[y]
        if target == "numbers":
            y = np.stack([points[:, 0] * points[:, 1], np.tanh(points[:, 2])], axis=1).astype(
                np.float32
            )
        weight = {
            "ones": np.ones(rows, np.float32),
            "random": random.uniform(0.2, 2.0, rows).astype(np.float32),
            "some": (np.arange(rows) % 3 != 0).astype(np.float32),
        }.get(weights)
        # all alike would be another scale, and no noise
        signs = np.random.default_rng(11).choice([-1.0, 1.0], x.shape)
        x = (x * (1.0 + signs * hp.number("nudge", 0.0))).astype(np.float32)
        order = (
            np.random.permutation(rows) if hp.get("split", "fixed") == "drawn" else np.arange(rows)
        )
        parts = [a[order] for a in (x, y, weight) if a is not None]
        held_out = tuple(a[count:] for a in parts) if hp.get("validated", True) else None
        return tuple(a[:count] for a in parts), held_out

    def net(self, hp: Any) -> tuple[Any, Any]:
        x = inputs = keras.Input((5, 3) if hp.get("inputs", "points") == "series" else (6,))
        if hp.get("inputs", "points") == "series":
            x = layers.GRU(5)(layers.Masking()(x))
        for name in hp.get("layers", "dense").split("+"):
            for layer in LAYERS[name]():
                x = layer(x)
        numbers = hp.get("target", "labels") == "numbers"
        return inputs, layers.Dense(2 if numbers else 3, dtype="float32", name="head")(x)

    def model(self, hp: Any) -> keras.Model:
        return keras.Model(*self.net(hp))

    def loss(self, hp: Any, model: Any) -> Any:
        if hp.get("target", "labels") == "numbers":
            return keras.losses.MeanSquaredError(
                reduction=hp.get("reduction", "sum_over_batch_size")
            )
        if hp.get("target", "labels") == "shares":
            return keras.losses.CategoricalCrossentropy(from_logits=True)
        return super().loss(hp, model)


class Augmented(Compiled):
    """A model whose inputs get noise by `augment`."""

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        return x + self.live.number("spread", default=0.1) * draws.normal(x.shape[1:])


def _each(batch: Any, outputs: Any) -> Any:
    """Return the weighted loss of each example."""
    if outputs.shape[-1] == 2:
        found = keras.losses.mean_squared_error(batch.y, outputs)
    else:
        shares = batch.y if len(batch.y.shape) == 2 else batch.one_hot(3)
        found = keras.losses.categorical_crossentropy(shares, outputs, from_logits=True)
    return found if batch.sample_weight is None else found * batch.sample_weight


class Stepped(Compiled):
    """A model with the same losses, computed by its own `train_step`."""

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        outputs = model(batch.x, training=True)
        if outputs.shape[-1] == 3:
            batch.measure(outputs)
        return {"loss": _each(batch, outputs) + _added(model)}


class Turns(Compiled):
    """A judge and a maker (the model), whose optimizers update one after the other."""

    at_once = False

    def model(self, hp: Any) -> keras.Model:
        model = super().model(hp)
        inputs = keras.Input(model.output.shape[1:])
        self.judge = keras.Sequential(
            [inputs, *LAYERS["spectral"](), layers.Dense(1, dtype="float32")]
        )
        return model

    def updates(self, hp: Any, model: Any) -> Any:
        found = [
            Update("judged", self.judge, keras.optimizers.Adam(0.01), rate=0.5),
            Update("made", model),
        ]
        return [tuple(found)] if self.at_once else found

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        outputs = model(batch.x, training=True)
        made, true = self.judge(outputs), self.judge(batch.draws.normal(outputs.shape[1:]))
        losses = {
            "judged": ops.softplus(-true) + ops.softplus(made),
            "made": ops.softplus(-made)[:, 0] + _each(batch, outputs) + _added(model),
        }
        return losses if self.at_once else {batch.turn: losses[batch.turn]}


class AtOnce(Turns):
    """A judge and a maker that are updated from one pass."""

    at_once = True


class OwnStep(keras.Model):
    """A model with the `train_step` of Keras's guide."""

    def train_step(self, data: Any) -> Any:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted, weight)
        self.optimizer.apply(
            tape.gradient(loss, self.trainable_variables), self.trainable_variables
        )
        for metric in self.metrics:
            metric.update_state(loss) if metric.name == "loss" else metric.update_state(
                y, predicted, weight
            )
        return {metric.name: metric.result() for metric in self.metrics}


class OfTheModel(Compiled):
    """A trainable whose Keras model has its own `train_step`."""

    def model(self, hp: Any) -> keras.Model:
        return OwnStep(*self.net(hp))


AUTHORS: dict[str, type[Compiled]] = {
    "compiled": Compiled,
    "augmented": Augmented,
    "stepped": Stepped,
    "turns": Turns,
    "at_once": AtOnce,
    "of_the_model": OfTheModel,
}


def _kept() -> Any:
    """Return the module in which authors keep state, as it was last imported."""
    return importlib.import_module("fuzz_kept")


class Keeping:
    """A mix-in for these authors that reads and changes the state in `fuzz_kept.py`, and reports it as a metric."""

    def data(self, hp: Any) -> Any:
        (x, *rest), held_out = super().data(hp)  # type: ignore[misc]  # mixed into a trainable
        return (x * (1.0 + 0.1 * _kept().at("data", hp)), *rest), held_out

    def model(self, hp: Any) -> Any:
        level, model = _kept().at("model", hp), super().model(hp)  # type: ignore[misc]  # mixed into a trainable
        first = model.trainable_variables[0]
        first.assign(first * (1.0 + 0.1 * level))
        return model

    def schedule(self, hp: Any) -> Any:
        _kept().at("schedule", hp)
        return super().schedule(hp)  # type: ignore[misc]  # mixed into a trainable

    def callbacks(self, hp: Any) -> Any:
        _kept().at("callbacks", hp)
        return [_kept().CALLBACK]

    def on_epoch_begin(self, epoch: int, model: Any, hp: Any) -> None:
        _kept().at("on_epoch_begin", hp)

    def on_epoch_end(self, epoch: int, logs: Any, model: Any, hp: Any) -> None:
        logs["kept"] = _kept().at("on_epoch_end", hp)


KEEPING = {
    name: type(f"Keeping{kind.__name__}", (Keeping, kind), {}) for name, kind in AUTHORS.items()
}


def author_of(name: str, params: Any) -> Any:
    """Return a new author of this name, which keeps state between trials if the parameters have ``keeps``."""
    return (KEEPING if "keeps" in params else AUTHORS)[name]()


def of_the_model(model: Any) -> dict[str, Any]:
    """Return the floating-point variables of a model, that is, all but the states of generators and counters."""
    found = ((f"variable {n}", np.array(v)) for n, v in enumerate(model.variables))
    return {name: value for name, value in found if value.dtype.kind == "f"}
