"""The zoo: optimizers, transfer, draws, precision, `Model.fit`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import zoo_data
from keras import layers
from zoo import Animal, OnImages, entry
from zoo_models import BatchNorm

ops = keras.ops


# ---- optimizers of one's own


@entry(fast=True, rated=False)
class OwnSchedule(Animal):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(
            keras.optimizers.schedules.CosineDecay(0.1, 15, warmup_target=0.2, warmup_steps=4)
        )


@entry(fast=True, fit="fit ends with the averages in the weights")
class OwnAverages(BatchNorm):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.8)


@entry(fast=True, params={"ema_momentum": 0.8}, fit="fit does not validate with averages")
class Averaged(BatchNorm):
    pass


@entry(fast=True)
class OwnDecay(Animal):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.3)
        optimizer.exclude_from_weight_decay(var_names=["kernel"])
        return optimizer


@entry(fast=True)
class ScheduleFree(Animal):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.ScheduleFreeAdamW(0.01)


@entry()
class OwnClipping(Animal):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.RMSprop(0.003, global_clipnorm=0.1)


@entry(fast=True)
class DrawnConstant(Animal):
    """A drawn number that is no variable: another seed needs another graph."""

    def body(self) -> list[Any]:
        mask = ops.convert_to_tensor((np.random.random(6) < 0.5).astype("float32"))
        return [layers.Lambda(lambda x: x * mask), layers.Dense(8, activation="tanh")]


class _Tables(layers.Layer):
    """Keeps numbers that one of Keras's initializers draws, where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = {"mix": [keras.initializers.GlorotUniform()((6, 6))]}

    def call(self, x: Any) -> Any:
        return ops.matmul(x, self.tables["mix"][0])


@entry(fast=True)
class DrawnTable(Animal):
    def body(self) -> list[Any]:
        return [_Tables(), layers.Dense(8, activation="tanh")]


# ---- transfer


@entry(fast=True)
class FrozenBase(Animal):
    def model(self, hp: Any) -> keras.Model:
        base = keras.Sequential(
            [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.BatchNormalization()]
        )
        base.trainable = False
        inputs = keras.Input((6,))
        return keras.Model(inputs, layers.Dense(3)(base(inputs, training=False)))


@entry(fast=True)
class CachedPretrained(Animal):
    """Keeps a base with loaded weights on itself, and trains it."""

    base: keras.Model | None = None

    def model(self, hp: Any) -> keras.Model:
        if self.base is None:
            self.base = keras.Sequential(
                [keras.Input((6,)), layers.Dense(8, activation="tanh", name="loaded")]
            )
            self.base.set_weights([np.linspace(-1, 1, 48).reshape(6, 8), np.zeros(8)])
        inputs = keras.Input((6,))
        return keras.Model(inputs, layers.Dense(3, name="head")(self.base(inputs)))


@entry(fast=True)
class CachedDrawn(Animal):
    """The same with a base whose weights the first trial has drawn."""

    base: keras.Model | None = None

    def model(self, hp: Any) -> keras.Model:
        if self.base is None:
            self.base = keras.Sequential(
                [keras.Input((6,)), layers.Dense(8, activation="tanh", name="drawn")]
            )
        inputs = keras.Input((6,))
        return keras.Model(inputs, layers.Dense(3, name="head")(self.base(inputs)))


# ---- draws


@entry(fast=True)
class Dropouts(Animal):
    def body(self) -> list[Any]:
        return [
            layers.Dense(8, activation="tanh"),
            layers.Dropout(0.3),
            layers.GaussianNoise(0.1),
            layers.BatchNormalization(),
        ]


class _TensorFlowNoise(layers.Layer):
    """Noise from `tf.random`, in training and in evaluation."""

    def build(self, shape: Any) -> None:
        self.start = tf.Variable(tf.random.normal((1, shape[-1])), trainable=False)

    def call(self, x: Any) -> Any:
        return (
            x
            + 0.1 * tf.random.normal(tf.shape(x)) * self.start
            + 0.1 * tf.random.uniform([tf.shape(x)[0], 1])
        )


@entry(fast=True, fit="tf.random follows the seed of the trial")
class TensorFlowNoise(Animal):
    def body(self) -> list[Any]:
        return [layers.Dense(8, activation="tanh"), _TensorFlowNoise()]


class _AlwaysNoisy(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(7)

    def call(self, x: Any) -> Any:
        return x + keras.random.normal(ops.shape(x), stddev=0.3, seed=self.seeds)


@entry(fast=True)
class NoisyEvaluation(Animal):
    def body(self) -> list[Any]:
        return [layers.Dense(8, activation="tanh"), _AlwaysNoisy()]


@entry()
class RandomImages(OnImages):
    def body(self) -> list[Any]:
        return [
            layers.RandomFlip(),
            layers.RandomTranslation(0.1, 0.1),
            layers.SpatialDropout2D(0.2),
            layers.Conv2D(3, 3),
        ]


# ---- precision


@entry(
    training={"precision": "mixed_bfloat16"},
    fit="fit would leave the outputs in bfloat16",
    tolerance=5e-3,
)
class Half(BatchNorm):
    pass


# ---- batches of one


@entry(fast=True, params={"batch_size": 23})
class LastBatchOfOne(OnImages):
    """70 examples in batches of 23 leave a batch of one, which is less than the replicas."""

    def body(self) -> list[Any]:
        return [
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.BatchNormalization(),
        ]


# ---- steps of a model's own


class Adversary(keras.Model):
    """Two networks, two optimizers, a `compile` and a step of its own, as Keras's GAN examples have."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = keras.Sequential(
            [keras.Input((6,)), layers.Dense(6, activation="relu"), layers.Dense(1)]
        )
        self.maker = keras.Sequential(
            [keras.Input((3,)), layers.Dense(6, activation="relu"), layers.Dense(6)]
        )
        self.seeds = keras.random.SeedGenerator(3)
        self.judged, self.made = keras.metrics.Mean(name="judged"), keras.metrics.Mean(name="made")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.judged, self.made]

    def compile(self, judging: Any, making: Any) -> None:
        super().compile()
        self.judging, self.making = judging, making
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)

    def train_step(self, data: Any) -> Any:
        x = data[0]
        drawn = keras.random.normal((tf.shape(x)[0], 3), seed=self.seeds)
        truth, false = tf.ones((tf.shape(x)[0], 1)), tf.zeros((tf.shape(x)[0], 1))
        with tf.GradientTape(persistent=True) as tape:
            fake = self.maker(drawn)
            loss = self.loss_fn(truth, self.judge(x)) + self.loss_fn(false, self.judge(fake))
            made = self.loss_fn(truth, self.judge(fake))
        for optimizer, net, value in (
            (self.judging, self.judge, loss),
            (self.making, self.maker, made),
        ):
            optimizer.apply_gradients(
                zip(tape.gradient(value, net.trainable_weights), net.trainable_weights, strict=True)
            )
        self.judged.update_state(loss)
        self.made.update_state(made)
        return {metric.name: metric.result() for metric in self.metrics}


@entry(
    fast=True, fit="without validation", replicas="has its own train_step and compile", rated=False
)
class Adversaries(Animal):
    def data(self, hp: Any) -> Any:
        return zoo_data.points()[0], None

    def model(self, hp: Any) -> keras.Model:
        model = Adversary()
        model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.02))
        return model


class SelfTaught(keras.Model):
    """Both steps as Keras's guide on custom training writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential(
            [
                layers.Dense(8, "tanh"),
                layers.BatchNormalization(),
                layers.Dropout(0.3),
                layers.Dense(3),
            ]
        )

    def call(self, x: Any, training: bool = False) -> Any:
        return self.inner(x, training=training)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        self.optimizer.apply(
            tape.gradient(loss, self.trainable_variables), self.trainable_variables
        )
        return self.counted(y, predicted, loss)

    def test_step(self, data: Any) -> Any:
        x, y = data
        predicted = self(x, training=False)
        return self.counted(y, predicted, self.compute_loss(y=y, y_pred=predicted))

    def counted(self, y: Any, predicted: Any, loss: Any) -> Any:
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


@entry(fast=True, replicas="has its own train_step and test_step")
class TeachesItself(Animal):
    def model(self, hp: Any) -> keras.Model:
        return SelfTaught()

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return ["accuracy"]


@entry(training={"loop": "fit"}, fit="it is fit", replicas="has its own train_step and test_step")
class TaughtByFit(TeachesItself):
    pass
