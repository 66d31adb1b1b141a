"""The zoo: training steps of one's own, hooks, sharpness, averages of epochs."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
import zoo_data
from keras import layers
from zoo import Animal, OnCurve, entry
from zoo_models import BatchNorm

from trainables.keras_trainable import Update

ops = keras.ops
OWN = "a training step of its own"
crossentropy = keras.losses.sparse_categorical_crossentropy


def net(inputs: int, outputs: int, activation: str = "relu", **options: Any) -> keras.Model:
    hidden = layers.Dense(8, activation=activation)
    return keras.Sequential([keras.Input((inputs,)), hidden, layers.Dense(outputs)], **options)


@entry(fast=True, fit=OWN)
class Distilled(Animal):
    """A frozen teacher with batch normalisation and dropout in the student, weights of examples, own metrics."""

    def model(self, hp: Any) -> keras.Model:
        self.teacher = keras.Sequential(
            [keras.Input((6,)), layers.Dense(16), layers.BatchNormalization(), layers.Dense(3)]
        )
        self.teacher.trainable = False
        return super().model(hp)

    def body(self) -> list[Any]:
        return [
            layers.Dense(8, activation="tanh"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
        ]

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        predicted = model(batch.x, training=True)
        batch.measure(predicted)
        soft = ops.softmax(self.teacher(batch.x, training=False) / 2.0)
        hard = crossentropy(batch.y, predicted, from_logits=True)
        distance = keras.losses.kl_divergence(soft, ops.softmax(predicted / 2.0))
        return {"loss": hard + hp.live("alpha", 0.5) * distance, "hard": hard}


class Adversarial(Animal):
    """What Keras's `dcgan_overriding_train_step` does: the judge first, then the maker, on draws of their own."""

    def data(self, hp: Any) -> Any:
        return zoo_data.points()[0], None

    def model(self, hp: Any) -> keras.Model:
        self.judge = net(6, 1, name="judge")
        return net(3, 6, name="maker")

    def updates(self, hp: Any, model: keras.Model) -> Any:
        return [
            Update("judged", self.judge, keras.optimizers.Adam(0.01)),
            Update("made", model, keras.optimizers.Adam(0.02)),
        ]

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        fake = model(batch.draws.normal((3,)), training=True)
        if batch.turn == "made":
            return {"made": ops.softplus(-self.judge(fake))}
        return {"judged": ops.softplus(-self.judge(batch.x)) + ops.softplus(self.judge(fake))}


@entry(fit=OWN, rated=False)
class Alternating(Adversarial):
    pass


@entry(fit=OWN, rated=False)
class AtOnce(Adversarial):
    """Both from one pass, as TensorFlow's DCGAN tutorial does."""

    def updates(self, hp: Any, model: keras.Model) -> Any:
        return [tuple(super().updates(hp, model))]

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        fake = model(batch.draws.normal((3,)), training=True)
        judged = self.judge(fake)
        return {
            "judged": ops.softplus(-self.judge(batch.x)) + ops.softplus(judged),
            "made": ops.softplus(-judged),
        }


@entry(fit=OWN)
class Wasserstein(Adversarial):
    """A gradient penalty, three updates of the critic for one of the maker, rates that follow the trial's."""

    def updates(self, hp: Any, model: keras.Model) -> Any:
        critic = keras.optimizers.Adam(0.01, beta_1=0.5)
        return [
            Update("critic", self.judge, critic, times=3, rate=hp.live("ratio", 0.5)),
            Update("made", model),
        ]

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        fake = model(batch.draws.normal((3,)), training=True)
        if batch.turn == "made":
            return {"made": -self.judge(fake)}
        mix = batch.draws.uniform((1,))
        between = mix * batch.x + (1 - mix) * fake
        with tf.GradientTape() as tape:
            tape.watch(between)
            score = self.judge(between)
        slope = ops.sqrt(ops.sum(tape.gradient(score, between) ** 2, axis=1, keepdims=True) + 1e-12)
        penalty = (slope - 1.0) ** 2
        return {
            "critic": self.judge(fake) - self.judge(batch.x) + 10.0 * penalty,
            "penalty": penalty,
        }


@entry(fit=OWN)
class Physics(OnCurve):
    """A network that solves u'' = -u along its first input, with u given at the examples; validated by itself."""

    def model(self, hp: Any) -> keras.Model:
        return net(6, 1, "tanh")

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        with tf.GradientTape() as second:
            second.watch(batch.x)
            with tf.GradientTape() as first:
                first.watch(batch.x)
                u = model(batch.x, training=True)
            slope = first.gradient(u, batch.x)[:, :1]
        bend = second.gradient(slope, batch.x)[:, :1]
        residual = ops.square(bend + u)
        return {"loss": residual + ops.square(u - batch.y[:, :1]), "residual": residual}

    def test_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        return {"loss": ops.square(model(batch.x, training=False) - batch.y[:, :1])}


class Pairs(Animal):
    """SimCLR's loss: two noisy views of an example, told from those of all others of the batch."""

    whole = True

    def data(self, hp: Any) -> Any:
        return zoo_data.points()[0], None

    def model(self, hp: Any) -> keras.Model:
        return net(6, 4)

    def train_step(self, model: keras.Model, batch: Any, hp: Any) -> Any:
        views = [batch.x + batch.draws.normal((6,), 0.1) for _ in range(2)]
        a, b = (ops.normalize(model(view, training=True)) for view in views)
        all_b = batch.gather(b) if self.whole else b
        first = batch.first if self.whole else 0
        labels = ops.arange(ops.shape(a)[0]) + first
        return {
            "loss": crossentropy(
                labels, 5.0 * ops.matmul(a, ops.transpose(all_b)), from_logits=True
            )
        }


@entry(fit=OWN)
class Contrastive(Pairs):
    pass


@entry(fit=OWN, replicas="batch.gather")
class ContrastiveInParts(Pairs):
    whole = False


# ---- what callbacks are for


@entry(fast=True, params={"sam_rho": 0.1, "swa_from": 2}, fit="it changes weights between epochs")
class Hooked(BatchNorm):
    """Counts in a variable, remembers, halves the rate, changes a weight, logs more; sharpness and averages as well."""

    def model(self, hp: Any) -> keras.Model:
        self.steps, self.seen = (
            tf.Variable(0.0, trainable=False, name=name) for name in ("steps", "seen")
        )
        return super().model(hp)

    def on_train_batch_end(
        self, update: Any, logs: Any, gradients: Any, model: Any, hp: Any
    ) -> Any:
        self.steps.assign_add(1.0)
        norm = tf.linalg.global_norm([gradient for gradient, _ in gradients])
        return {
            "norm": norm,
            "steps": self.steps + 0.0 * logs["loss"] * tf.cast(update, tf.float32),
        }

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        self.seen.assign_add(logs["loss"])
        self.memory["best"] = min(self.memory.get("best", 1e9), logs["loss"])
        logs["best"], logs["sum"] = self.memory["best"], self.seen.numpy()
        model.layers[0].kernel.assign(model.layers[0].kernel * 0.99)
        if "learning_rate" in hp:
            self.scale_rate(0.5)


@entry(params={"sam_rho": 0.1}, fit="fit has no second pass")
class Sharp(BatchNorm):
    pass


@entry(params={"sam_rho": 0.1, "clipnorm": 0.05}, fit=OWN)
class SharpStep(Wasserstein):
    pass


@entry(params={"swa_from": 2}, fit="fit does not validate with averages")
class EpochsAveraged(BatchNorm):
    pass
