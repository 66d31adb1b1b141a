"""Models that train themselves by a step of their own, in the kinds that Keras's examples have; see `KINDS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from sweep.contract import Value
from trainables.keras_trainable import KerasTrainable

ROWS, HELD_OUT = 70, 20  # in batches of 16, the last one is a partial one


@dataclass(frozen=True)
class Kind:
    """One kind of step."""

    trainable: type[KerasTrainable]
    export: str = ""  # what an export needs, where there is none
    params: Mapping[str, Value] = field(default_factory=dict)


KINDS: dict[str, Kind] = {}


def kind(**known: Any) -> Callable[[type[KerasTrainable]], type[KerasTrainable]]:
    def add(trainable: type[KerasTrainable]) -> type[KerasTrainable]:
        KINDS[trainable.__name__] = Kind(trainable, **known)
        return trainable

    return add


NO_CALL = r"defines no call\(\)"


def points(rows: int, width: int = 6, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(rows, width)).astype("float32")


class OfPoints(KerasTrainable):
    """Points without targets."""

    def data(self, hp: Any) -> Any:
        x = points(ROWS + HELD_OUT)
        return x[:ROWS], None

    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.Adam(0.01)


class Labelled(OfPoints):
    """Points with labels, all for training."""

    def data(self, hp: Any) -> Any:
        x = points(ROWS)
        return (x, (x[:, 0] > 0).astype("int32")), None

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Applies:
    """A step that minimises what `lose` gives; no model, for Keras changes the bases of one that is functional."""

    def train_step(self: Any, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.lose(data)
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"mine": loss}


# ---- the compiled loss is called by its attribute


class SelfLossNet(Applies, keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.net = keras.Sequential([layers.Dense(4, "relu"), layers.Dense(6)])
        self.tracker = keras.metrics.Mean(name="mine")

    @property
    def metrics(self) -> Any:
        return [self.tracker]

    def call(self, x: Any) -> Any:
        return self.net(x)

    def lose(self, x: Any) -> Any:
        loss = self.loss(x, self.net(x))
        self.tracker.update_state(loss)
        return loss


@kind()
class SelfLoss(OfPoints):
    def model(self, hp: Any) -> keras.Model:
        return SelfLossNet()

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.MeanAbsoluteError()


# ---- no call(), though there are a compiled loss and targets


class NoCallNet(Applies, keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.body = keras.Sequential([layers.Dense(5, "relu"), layers.BatchNormalization()])
        self.head = layers.Dense(2)

    def lose(self, data: Any) -> Any:
        x, y = data
        return self.compute_loss(y=y, y_pred=self.head(self.body(x, training=True)))


@kind(export=NO_CALL)
class NoCall(Labelled):
    def model(self, hp: Any) -> keras.Model:
        return NoCallNet()


# ---- a functional model that is fed parts of the examples


class Pairs(OfPoints):
    def data(self, hp: Any) -> Any:
        return points(ROWS, 12).reshape(ROWS, 2, 6), None


class MetricNet(Applies, keras.Model):
    def lose(self, data: Any) -> Any:
        similar = ops.matmul(self(data[:, 0]), ops.transpose(self(data[:, 1])))
        return self.compute_loss(y=ops.arange(ops.shape(similar)[0]), y_pred=similar)


@kind()
class MetricLearning(Pairs):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        return MetricNet(inputs, layers.Dense(4)(inputs))

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class ModellingNet(Applies, keras.Model):
    def lose(self, data: Any) -> Any:
        return self.compute_loss(y=data[:, 0, :3], y_pred=self(data[:, 1], training=True))


@kind()
class MaskedModelling(Pairs):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        return ModellingNet(inputs, layers.Dense(3)(layers.Dropout(0.2)(inputs)))

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.MeanSquaredError()


# ---- call() on other inputs than the data, layers that only the step builds


class OnPartsNet(Applies, keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.projection = layers.Dense(4, "tanh"), layers.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.encoder(x)

    def lose(self, data: Any) -> Any:
        one, other = (self.projection(self(data[:, place, :4], training=True)) for place in (0, 1))
        return ops.mean(ops.square(one - 1.0)) + ops.mean(ops.square(other))


@kind()
class CalledOnParts(Pairs):
    def model(self, hp: Any) -> keras.Model:
        return OnPartsNet()


# ---- diffusion: self.loss, noise, a moving average of a network, a test_step, no call()


class DiffusionNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.network = keras.Sequential(
            [keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(6)]
        )
        self.ema_network = keras.models.clone_model(self.network)
        self.seeds = keras.random.SeedGenerator(5)
        self.tracker = keras.metrics.Mean(name="n_loss")

    @property
    def metrics(self) -> Any:
        return [self.tracker]

    def lose(self, x: Any, network: keras.Model, training: bool) -> Any:
        noises = keras.random.normal(ops.shape(x), seed=self.seeds)
        times = keras.random.uniform((ops.shape(x)[0], 1), seed=self.seeds)
        return self.loss(noises, network((1 - times) * x + times * noises, training=training))

    def train_step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.lose(x, self.network, training=True)
        weights = self.network.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        for weight, average in zip(self.network.weights, self.ema_network.weights, strict=True):
            average.assign(0.9 * average + 0.1 * weight)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, x: Any) -> Any:
        self.tracker.update_state(self.lose(x, self.ema_network, training=False))
        return {metric.name: metric.result() for metric in self.metrics}


@kind(export=NO_CALL)
class Diffusion(OfPoints):
    def data(self, hp: Any) -> Any:
        x = points(ROWS + HELD_OUT)
        return x[:ROWS], x[ROWS:]

    def model(self, hp: Any) -> keras.Model:
        return DiffusionNet()

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.mean_absolute_error


# ---- masked autoencoder: patches, an encoder and a decoder that the step builds, compute_loss on what it cuts out


class MaskedAutoencoderNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(8, "relu"), layers.LayerNormalization()])
        self.attend = layers.MultiHeadAttention(2, 4)
        self.decoder = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(3)])
        self.seeds = keras.random.SeedGenerator(11)

    def lose(self, x: Any) -> Any:
        patches = ops.reshape(x, (-1, 4, 3))
        kept = keras.random.uniform((ops.shape(x)[0], 4, 1), seed=self.seeds) > 0.5
        hidden = self.encoder(ops.where(kept, patches, 0.0))
        return patches, self.decoder(self.attend(hidden, hidden))

    def train_step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            patches, decoded = self.lose(x)
            loss = self.compute_loss(y=patches, y_pred=decoded)
        parts = [
            self.encoder.trainable_variables,
            self.attend.trainable_variables,
            self.decoder.trainable_variables,
        ]
        weights = [variable for part in parts for variable in part]
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.compute_metrics(x=None, y=patches, y_pred=decoded)
        return {**self.get_metrics_result(), "mine": loss}


@kind(export=NO_CALL)
class MaskedAutoencoder(OfPoints):
    def data(self, hp: Any) -> Any:
        return points(ROWS, 12), None

    def model(self, hp: Any) -> keras.Model:
        return MaskedAutoencoderNet()

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.MeanSquaredError()

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return [keras.metrics.MeanAbsoluteError(name="apart")]


# ---- domain adaptation: labelled and unlabelled parts of an example, validation with targets by Keras's test_step


class AdaptsNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.model = keras.Sequential(
            [layers.Dense(6, "relu"), layers.BatchNormalization(), layers.Dense(2)]
        )

    def call(self, x: Any, training: bool = False) -> Any:
        return self.model(x, training=training)

    def train_step(self, data: Any) -> Any:
        both = ops.concatenate([data["source"], data["target"]], 0)
        with tf.GradientTape() as tape:
            logits = self.model(both, training=True)
            known = ops.shape(data["label"])[0]
            loss = self.compute_loss(y=data["label"], y_pred=logits[:known])
            loss += 0.1 * ops.mean(ops.square(logits[known:]))
        weights = self.model.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"mine": loss}


@kind()
class DomainAdaptation(Labelled):
    def data(self, hp: Any) -> Any:
        (x, y), _ = super().data(hp)
        held_out = points(HELD_OUT, seed=3)
        train = {"source": x, "label": y, "target": x[::-1] + 0.5}
        return train, (held_out, (held_out[:, 0] > 0).astype("int32"))

    def model(self, hp: Any) -> keras.Model:
        return AdaptsNet()


# ---- contrastive learning with a queue and two optimizers of its own compile()


class ContrastiveNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(6, "relu"), layers.Dense(4)])
        self.probe = keras.Sequential([layers.Dense(2)])
        start = keras.random.normal((32, 4), seed=2)
        self.queue = self.add_weight(
            shape=(32, 4), trainable=False, initializer=lambda *_, **__: start
        )

    def compile(self, contrastive: Any, probing: Any, **options: Any) -> None:
        super().compile(**options)
        self.contrastive, self.probing = contrastive, probing
        self.tracker = keras.metrics.Mean(name="c_loss")

    @property
    def metrics(self) -> Any:
        return [self.tracker]

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            found = ops.normalize(self.encoder(x))
            nearest = ops.take(
                self.queue, ops.argmax(ops.matmul(found, ops.transpose(self.queue)), 1), axis=0
            )
            similar = ops.matmul(
                found + ops.stop_gradient(nearest - found),
                ops.transpose(ops.normalize(self.encoder(0.9 * x))),
            )
            own = ops.arange(ops.shape(x)[0])
            loss = ops.mean(
                keras.losses.sparse_categorical_crossentropy(own, similar, from_logits=True)
            )
        weights = self.encoder.trainable_weights
        self.contrastive.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.queue.assign(ops.concatenate([found, self.queue], 0)[:32])
        with tf.GradientTape() as tape:
            logits = self.probe(self.encoder(x))
            probed = ops.mean(
                keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
            )
        weights = self.probe.trainable_weights
        self.probing.apply_gradients(zip(tape.gradient(probed, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"c_loss": self.tracker.result()}


@kind(export=NO_CALL)
class Contrastive(Labelled):
    def model(self, hp: Any) -> keras.Model:
        model = ContrastiveNet()
        model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02))
        return model

    loss = KerasTrainable.loss


# ---- forward-forward: each layer has an optimizer and is trained by itself


class LocalNet(layers.Layer):
    def __init__(self, units: int) -> None:
        super().__init__()
        self.dense, self.optimizer = layers.Dense(units, "relu"), keras.optimizers.Adam(0.03)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def learn(self, good: Any, bad: Any) -> Any:
        with tf.GradientTape() as tape:
            levels = [ops.mean(ops.square(self(x)), 1) for x in (good, bad)]
            loss = ops.mean(ops.softplus(1.0 - levels[0])) + ops.mean(ops.softplus(levels[1] - 1.0))
        weights = self.dense.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return self(good), self(bad), loss


class ForwardForwardNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.stages = [LocalNet(6), LocalNet(5)]

    def call(self, x: Any) -> Any:
        for stage in self.stages:
            x = stage(x)
        return x

    def train_step(self, data: Any) -> Any:
        x, y = data
        good, bad = x + ops.cast(y, "float32")[:, None], x - ops.cast(y, "float32")[:, None]
        losses = []
        for stage in self.stages:
            good, bad, loss = stage.learn(good, bad)
            losses.append(loss)
        return {"mine": losses[0] + losses[1]}


@kind()
class ForwardForward(Labelled):
    def model(self, hp: Any) -> keras.Model:
        return ForwardForwardNet()

    loss = KerasTrainable.loss


# ---- VQ-VAE: losses that a layer adds, a layer with a tf.Variable


class QuantizerNet(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        start = np.random.default_rng(4).uniform(-0.05, 0.05, (3, 7)).astype("float32")
        self.codes = tf.Variable(start, trainable=True, name="codes")

    def call(self, x: Any) -> Any:
        distances = (
            tf.reduce_sum(x**2, 1, keepdims=True)
            + tf.reduce_sum(self.codes**2, 0)
            - 2 * x @ self.codes
        )
        quantized = tf.matmul(tf.one_hot(tf.argmin(distances, 1), 7), self.codes, transpose_b=True)
        self.add_loss(0.25 * tf.reduce_mean((tf.stop_gradient(quantized) - x) ** 2))
        self.add_loss(tf.reduce_mean((quantized - tf.stop_gradient(x)) ** 2))
        return x + tf.stop_gradient(quantized - x)


class VqvaeNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        inputs = keras.Input((6,))
        coded = QuantizerNet()(layers.Dense(3, "tanh")(layers.Dense(5, "relu")(inputs)))
        self.vqvae = keras.Model(inputs, layers.Dense(6)(layers.Dense(5, "relu")(coded)))
        self.total, self.added = keras.metrics.Mean(name="loss"), keras.metrics.Mean(name="vq_loss")

    @property
    def metrics(self) -> Any:
        return [self.total, self.added]

    def train_step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x - self.vqvae(x)) ** 2) / 0.7 + sum(self.vqvae.losses)
        weights = self.vqvae.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.total.update_state(loss)
        self.added.update_state(sum(self.vqvae.losses))
        return {metric.name: metric.result() for metric in self.metrics}


@kind(export=NO_CALL)
class Vqvae(OfPoints):
    def model(self, hp: Any) -> keras.Model:
        return VqvaeNet()


# ---- two views, two networks of one optimizer


class SimSiamNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential(
            [layers.Dense(6, "relu", kernel_regularizer="l2"), layers.BatchNormalization()]
        )
        self.predictor = keras.Sequential([layers.Dense(4, "relu"), layers.Dense(6)])

    def train_step(self, data: Any) -> Any:
        one, other = data["one"], data["other"]
        with tf.GradientTape() as tape:
            codes = [self.encoder(x, training=True) for x in (one, other)]
            found = [self.predictor(code, training=True) for code in codes]
            loss = sum(
                -ops.mean(ops.stop_gradient(a) * b)
                for a, b in zip(codes, reversed(found), strict=True)
            )
            loss += sum(self.losses)
        weights = self.encoder.trainable_variables + self.predictor.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"mine": loss}


@kind(export=NO_CALL)
class SimSiam(OfPoints):
    def data(self, hp: Any) -> Any:
        x = points(ROWS)
        return {"one": x, "other": x + 0.1 * points(ROWS, seed=1)}, None

    def model(self, hp: Any) -> keras.Model:
        return SimSiamNet()


# ---- siamese: a distance between parts, call() on a dictionary as the data


class SiameseNet(Applies, keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embed = keras.Sequential([layers.Dense(5, "relu"), layers.Dense(3)])
        self.tracker = keras.metrics.Mean(name="triplet")

    def call(self, x: Any) -> Any:
        anchor, near, far = (self.embed(x[name]) for name in ("anchor", "near", "far"))
        return ops.stack(
            [ops.sum(ops.square(anchor - near), -1), ops.sum(ops.square(anchor - far), -1)], -1
        )

    def lose(self, x: Any) -> Any:
        distances = self(x)
        loss = ops.mean(ops.maximum(distances[:, 0] - distances[:, 1] + 0.5, 0.0))
        self.tracker.update_state(loss)
        return loss

    def test_step(self, x: Any) -> Any:
        self.lose(x)
        return {"triplet": self.tracker.result()}


@kind()
class Siamese(OfPoints):
    def data(self, hp: Any) -> Any:
        parts = {
            name: points(ROWS + HELD_OUT, seed=seed)
            for seed, name in enumerate(("anchor", "near", "far"))
        }
        return tuple(
            {name: x[some] for name, x in parts.items()}
            for some in (slice(ROWS), slice(ROWS, None))
        )

    def model(self, hp: Any) -> keras.Model:
        return SiameseNet()


# ---- gradients by hand: accumulated over halves of the batch, clipped, applied with `apply`, weighed


class ByHandNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = layers.Dense(5, "tanh"), layers.Dense(2)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.head(self.body(x))

    def train_step(self, data: Any) -> Any:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        half = ops.shape(x)[0] // 2
        totals = None
        for some in (slice(None, half), slice(half, None)):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(
                    y=y[some], y_pred=self(x[some]), sample_weight=weight[some]
                )
            found = tape.gradient(loss, self.trainable_variables)
            totals = (
                found if totals is None else [a + b for a, b in zip(totals, found, strict=True)]
            )
        totals, _ = tf.clip_by_global_norm(totals, 0.5)
        self.optimizer.apply(totals, self.trainable_variables)
        return {"mine": loss, **self.compute_metrics(x, y, self(x), weight)}


@kind(params={"class_weights": "balanced"})
class ByHand(Labelled):
    def model(self, hp: Any) -> keras.Model:
        return ByHandNet()

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return ["accuracy"]
