"""The zoo: losses, weights of examples, what layers add, state of one's own."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import zoo_data
from keras import layers
from zoo import Animal, OnCurve, entry

from trainables.keras_trainable import KerasTrainable

ops = keras.ops


# ---- what is added to a loss, and what holds weights


@entry(fast=True)
class Regularised(Animal):
    def body(self) -> list[Any]:
        return [
            layers.Dense(
                8, activation="tanh", kernel_regularizer=keras.regularizers.L1L2(1e-3, 1e-2)
            ),
            layers.Dense(
                5,
                bias_regularizer="l2",
                kernel_regularizer=keras.regularizers.OrthogonalRegularizer(0.01),
            ),
        ]


@entry(replicas="not the mean over its examples")
class ActivityRegularised(Animal):
    """Keras divides by the examples of a batch in its sum, so that its size matters."""

    def body(self) -> list[Any]:
        return [
            layers.Dense(8, activation="tanh"),
            layers.Lambda(lambda x: x, name="sum"),
            _SumLoss(),
        ]


class _SumLoss(layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(0.001 * ops.sum(ops.square(x)))
        return x


class _MeanLoss(layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * ops.mean(ops.square(x)))
        return x


@entry(fast=True)
class AddedLoss(Animal):
    def body(self) -> list[Any]:
        return [layers.Dense(8, activation="tanh"), _MeanLoss(), layers.BatchNormalization()]


class _WeightedLoss(layers.Dense):
    def call(self, x: Any, training: Any = None) -> Any:
        y = super().call(x)
        self.add_loss(0.1 * ops.mean(ops.square(y)))
        return y


@entry(fast=True, params={"gradient_checkpointing": True})
class Recomputed(Animal):
    def body(self) -> list[Any]:
        return [
            layers.Dense(8, activation="tanh"),
            _WeightedLoss(8),
            layers.Dense(4, activity_regularizer="l2"),
        ]


@entry()
class Constrained(Animal):
    def body(self) -> list[Any]:
        return [
            layers.Dense(
                8, kernel_constraint=keras.constraints.MaxNorm(0.7), bias_constraint="non_neg"
            )
        ]


# ---- state of one's own


class _Counting(layers.Layer):
    """Scales by how often it was called in training, counted in Keras's way."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.calls.assign_add(1.0)
        return x * (1.0 + 0.01 * self.calls)


@entry(fast=True)
class KerasState(Animal):
    def body(self) -> list[Any]:
        return [layers.Dense(8, activation="tanh"), _Counting()]


class _Drifting(layers.Layer):
    """The same in TensorFlow's way, from a drawn start: no weight of the model."""

    def __init__(self) -> None:
        super().__init__()
        start = np.random.uniform(0.5, 1.5, 8)
        self.scale = tf.Variable(
            start, dtype="float32", trainable=False, aggregation=tf.VariableAggregation.MEAN
        )

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.scale.assign(self.scale * 0.98)
        return x * self.scale


@entry(fast=True)
class TensorFlowState(Animal):
    def body(self) -> list[Any]:
        return [layers.Dense(8, activation="tanh"), _Drifting()]


class _Hardening(keras.losses.Loss):
    """Weighs classes by a variable of its own, which every batch changes."""

    def __init__(self) -> None:
        super().__init__(name="hardening")
        self.power = keras.Variable(1.0, trainable=False, aggregation="mean")

    def call(self, y_true: Any, y_pred: Any) -> Any:
        self.power.assign(self.power * 1.02)
        p = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        return self.power * p


@entry(fast=True)
class LossState(Animal):
    def loss(self, hp: Any, model: Any) -> Any:
        return _Hardening()


class _LargestSeen(keras.metrics.Metric):
    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_weight(shape=(), initializer="zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(ops.maximum(self.value, ops.max(y_pred)))

    def result(self) -> Any:
        return self.value + 0.0


@entry(fast=True, replicas="would report another number")
class MetricState(Animal):
    """A metric of one's own: its state is summed over replicas, which is no maximum."""

    def metrics(self, hp: Any, model: Any) -> Any:
        return [_LargestSeen(), "accuracy"]


@entry(fast=True)
class ManyMetrics(Animal):
    def data(self, hp: Any) -> Any:
        return tuple((x, np.eye(3, dtype=np.float32)[y]) for x, y in zoo_data.points())

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((6,)), *self.body(), layers.Dense(3, activation="softmax")]
        )

    def metrics(self, hp: Any, model: Any) -> Any:
        return [
            keras.metrics.F1Score(),
            keras.metrics.AUC(),
            keras.metrics.Precision(),
            keras.metrics.TopKCategoricalAccuracy(2),
        ]


class OwnCompiledLoss(keras.Model):
    """Calls a loss object of Keras by itself, which divides by the replicas."""

    def compute_loss(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return keras.losses.MeanSquaredError()(y, y_pred)


@entry(fast=True, skip_metrics=("loss",))
class CalledLoss(OnCurve):
    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        return OwnCompiledLoss(inputs, layers.Dense(2)(layers.Dense(8, activation="tanh")(inputs)))

    def metrics(self, hp: Any, model: Any) -> Any:
        return ["mae"]


@entry(replicas="would report another number")
class BatchMetric(OnCurve):
    """Of metrics that give one number for a batch, Keras takes the mean over batches."""

    def metrics(self, hp: Any, model: Any) -> Any:
        return [keras.losses.Huber(), lambda y, p: ops.sqrt(ops.mean(ops.square(y - p)))]


# ---- losses and weights


@entry(fast=True)
class SampleWeights(Animal):
    def data(self, hp: Any) -> Any:
        weight = np.random.default_rng(4).uniform(0.5, 2.0, 90).astype(np.float32)
        (x, y), (v, w) = zoo_data.points()
        return (x, y, weight[:70]), (v, w, weight[70:])


@entry()
class MeanWithSampleWeight(SampleWeights):
    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )


@entry()
class ClassWeights(Animal):
    def class_weights(self, hp: Any, labels: Any) -> Any:
        return {0: 1.0, 1: 3.0}


@entry()
class SummedLoss(Animal):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.002, momentum=0.9)

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")


class _Callable(keras.losses.Loss):
    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return (
            ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True))
            ** 2
        )

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


@entry(fast=True, replicas="overrides __call__")
class LossOverridesCall(Animal):
    def loss(self, hp: Any, model: Any) -> Any:
        return _Callable()


@entry()
class ScalarLoss(OnCurve):
    def loss(self, hp: Any, model: Any) -> Any:
        return lambda y, p: ops.mean(ops.abs(y - p))


@entry(fast=True, replicas="not the mean over its examples")
class ContrastiveLoss(OnCurve):
    """Compares examples of a batch with each other."""

    def loss(self, hp: Any, model: Any) -> Any:
        return lambda y, p: ops.mean(ops.square(ops.std(y, axis=0) - ops.std(p, axis=0)))


@entry()
class BinarySmoothed(Animal):
    def data(self, hp: Any) -> Any:
        return tuple((x, (y > 1).astype(np.int32)) for x, y in zoo_data.points())

    def model(self, hp: Any) -> keras.Model:
        inner = keras.Sequential([keras.Input((8,)), layers.Dense(1, activation="sigmoid")])
        return keras.Sequential([keras.Input((6,)), *self.body(), inner])

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.BinaryCrossentropy(label_smoothing=0.1)


class Twin(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers.Dense(3, activation="tanh"), layers.Dense(3)

    def call(self, x: Any) -> Any:
        return [self.first(x), self.second(x)]


@entry(fast=True, rated=False, skip_metrics=("mse_loss", "mse_1_loss"))
class TwinLosses(Animal):
    """Outputs without names, in a list, whose losses have one name: from Keras's own trainer tests."""

    optimizer, loss, metrics = KerasTrainable.optimizer, KerasTrainable.loss, KerasTrainable.metrics

    def data(self, hp: Any) -> Any:
        one_hot = np.eye(3, dtype=np.float32)
        (x, y), (v, w) = zoo_data.points()
        return (x, [one_hot[y], 1 - one_hot[y]]), (v, [one_hot[w], 1 - one_hot[w]])

    def model(self, hp: Any) -> keras.Model:
        model = Twin()
        model.compile(
            keras.optimizers.SGD(0.05, momentum=0.9),
            ["mse", "mse"],
            metrics=[["mae"], ["mae"]],
            loss_weights=[0.3, 2.0],
        )
        return model
