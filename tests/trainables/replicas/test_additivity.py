"""What does not follow from the parts of a batch is refused by name before the first update, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from sampling import sampled
from small import Small, assignment, metrics, train

from trainables.data.sources import Buckets
from trainables.keras_trainable import KerasTrainable
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras

crossentropy = keras.losses.sparse_categorical_crossentropy


class Own(layers.Layer):
    """What a layer does with its inputs in training, and the one variable that it may keep."""

    def __init__(self, does: Callable[[Any, Any], Any]) -> None:
        super().__init__(name="own")
        self._does = does

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(
            shape=(shape[-1],), initializer="zeros", trainable=False, name="mean"
        )
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x: Any, training: bool = False) -> Any:
        return self._does(self, x) if training else x


def adds(layer: Any, x: Any) -> Any:
    layer.add_loss(1e-2 * ops.sum(ops.square(x)))
    return x


def adds_little(layer: Any, x: Any) -> Any:
    layer.add_loss(1e-5 * ops.max(x))
    return x


def shuffled(layer: Any, x: Any) -> Any:
    return x + 0.1 * tf.stop_gradient(tf.random.experimental.stateless_shuffle(x, [1, 2]))


def noise(layer: Any, x: Any) -> Any:
    return x + tf.random.stateless_normal(tf.shape(x), [1, 2])


def moving_mean(layer: Any, x: Any) -> Any:
    layer.mean.assign(0.9 * layer.mean + 0.1 * ops.mean(x, axis=0))
    return x


def batch_norm(layer: Any, x: Any) -> Any:
    mean, variance = ops.moments(x, axes=[0])
    layer.mean.assign(0.9 * layer.mean + 0.1 * mean)
    return (x - mean) * ops.rsqrt(variance + 1e-3)


def codebook(layer: Any, x: Any) -> Any:
    chosen = ops.one_hot(ops.argmax(x, axis=-1), x.shape[-1])
    layer.mean.assign(0.9 * layer.mean + 0.1 * ops.sum(chosen, axis=0))
    return x


def balance(layer: Any, x: Any) -> Any:
    """As of a mixture of experts: the share of the examples of each, times its mean probability."""
    gates = ops.softmax(x)
    chosen = ops.mean(ops.one_hot(ops.argmax(gates, axis=-1), x.shape[-1]), axis=0)
    layer.add_loss(0.1 * ops.sum(chosen * ops.mean(gates, axis=0)))
    return x


def counted(layer: Any, x: Any) -> Any:
    layer.calls.assign_add(1.0)
    return x * (1 + 0.01 * layer.calls)


def summed_up(layer: Any, x: Any) -> Any:
    """A moving mean over the whole batch."""
    context = tf.distribute.get_replica_context()
    sums = [ops.sum(x, axis=0), tf.cast(tf.shape(x)[0], tf.float32)]
    total, count = context.all_reduce(tf.distribute.ReduceOp.SUM, sums)
    layer.mean.assign(0.9 * layer.mean + 0.1 * total / count)
    return x


class With(Small):
    """`Small` with a layer of one's own."""

    does: Callable[[Any, Any], Any]

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((6,)), layers.Dense(8), Own(type(self).does), layers.Dense(3)]
        )


def with_layer(does: Any) -> KerasTrainable:
    return type("With", (With,), {"does": staticmethod(does)})()


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (
            adds,
            r"what layer 'own' \(Own, .*own\) adds to the loss is not the mean over its examples: .* in training",
        ),
        pytest.param(
            adds_little,
            "what layer 'own' .* adds to the loss is not the mean",
            marks=pytest.mark.exhaustive,
        ),
        (
            shuffled,
            r"layer 'own' \(Own, .*\) gives the same examples other outputs in training .* follows the examples",
        ),
        (
            moving_mean,
            r"variable '.*own/mean' of layer 'own' \(Own, .*\) becomes .* in training with 31 examples at",
        ),
        pytest.param(
            batch_norm,
            "layer 'own' .* gives the same examples other outputs in training",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            codebook,
            "variable '.*own/mean' of layer 'own' .* becomes",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            balance,
            "what layer 'own' .* adds to the loss is not the mean",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_layers_that_train_another_model_on_two_replicas(does: Any, told: str) -> None:
    with pytest.raises(Refused, match=told):
        with_layer(does).begin(assignment(gpus=2))


def slightly(layer: Any, x: Any) -> Any:
    return x - 0.01 * ops.mean(x, axis=0, keepdims=True)


def test_a_message_names_the_layer_of_a_variable_of_tensorflow() -> None:
    class Counting(layers.Layer):
        def build(self, shape: Any) -> None:
            self.held = tf.Variable(tf.zeros(shape[-1]), trainable=False)

        def call(self, x: Any, training: bool = False) -> Any:
            if training:
                self.held.assign(ops.mean(x, axis=0))
            return x

    class Holding(Small):
        def model(self, hp: Any) -> keras.Model:
            body = [layers.Dense(8), Counting(name="counting"), layers.Dense(3)]
            return keras.Sequential([keras.Input((6,)), *body])

    with pytest.raises(Refused, match=r"variable .* of layer 'counting' \(Counting, .*\) becomes"):
        Holding().begin(assignment(micro_batches=2))


@pytest.mark.parametrize("precision", sampled(["mixed_bfloat16", "mixed_float16", "float32"], 1))
def test_rounding_of_half_precision_hides_nothing(precision: str) -> None:
    """The fuzz found it: 0.7 % of a layer's output, 12 % of an optimizer's state after four updates."""
    given = assignment(micro_batches=2, training={"precision": precision})
    with pytest.raises(Refused, match=r"'own'.* gives the same examples other outputs"):
        with_layer(slightly).begin(given)
    assert train(Small(), given)


class Casting(layers.Layer):
    """Computes in a type of its own."""

    def call(self, x: Any) -> Any:
        half = tf.cast(x, tf.float16) * tf.constant(2.0, tf.float16)
        return tf.cast(half, self.compute_dtype) if self.compute_dtype != "float32" else half


def test_a_layer_that_computes_in_one_type_alone_is_tried_in_that() -> None:
    class Half(Small):
        def model(self, hp: Any) -> keras.Model:
            body = [layers.Dense(8, "tanh"), Casting(), layers.Dense(3, dtype="float32")]
            return keras.Sequential([keras.Input((6,)), *body])

    assert train(Half(), assignment(2, training={"precision": "mixed_float16"}))


@pytest.mark.parametrize("does", sampled([moving_mean, adds], 1))
def test_layers_that_train_another_model_in_micro_batches(does: Any) -> None:
    with pytest.raises(Refused, match="layer 'own'"):
        with_layer(does).begin(assignment(micro_batches=2))


def right(layer: Any, x: Any) -> Any:
    layer.add_loss(0.1 * ops.mean(ops.square(x)))
    return counted(layer, summed_up(layer, noise(layer, x)))


class Usual(Small):
    """What of Keras has state or draws."""

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((6,)),
                layers.GaussianNoise(0.1),
                layers.SpectralNormalization(layers.Dense(8, use_bias=False)),
                layers.BatchNormalization(),
                Own(right),
                layers.Dropout(0.3),
                layers.Dense(3, activity_regularizer="l2"),
            ]
        )

    def metrics(self, hp: Any, model: Any) -> Any:
        return ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)]


def test_what_is_right_on_several_replicas_trains_as_on_one() -> None:
    one, two = (metrics(train(Usual(), assignment(gpus=gpus))) for gpus in (0, 2))
    for a, b in zip(one, two, strict=True):
        assert b == pytest.approx(a, abs=2e-6)


class Turned(Small):
    """A loss whose weight a later trial may raise from 0."""

    def loss(self, hp: Any, model: Any) -> Any:
        weight = self.live.number("spread")
        return lambda y, p: crossentropy(y, p, from_logits=True) + weight * ops.std(p)


def test_a_live_number_of_0_hides_nothing() -> None:
    with pytest.raises(Refused, match="the loss of a batch is not the mean over its examples"):
        Turned().begin(assignment(gpus=2, spread=0.0))


class Annealed(Small):
    """A loss whose weight a hook raises from 0."""

    def loss(self, hp: Any, model: Any) -> Any:
        weight = keras.Variable(0.0, trainable=False)
        return lambda y, p: crossentropy(y, p, from_logits=True) + weight * ops.std(p)


def test_a_variable_of_0_hides_nothing() -> None:
    with pytest.raises(Refused, match="the loss of a batch is not the mean over its examples"):
        Annealed().begin(assignment(gpus=2))


class Sorted(Small):
    """Examples of one class follow each other; the loss compares those of different ones."""

    def data(self, hp: Any) -> Any:
        (x, y), held_out = super().data(hp)
        order = np.argsort(np.tile(y, 3), kind="stable")
        return (np.tile(x, (3, 1))[order], np.tile(y, 3)[order]), held_out

    def loss(self, hp: Any, model: Any) -> Any:
        def hardest(y: Any, p: Any) -> Any:
            apart = ops.sum(ops.square(p[:, None] - p[None]), -1)
            same = ops.cast(ops.reshape(y, (-1, 1)) == ops.reshape(y, (1, -1)), "float32")
            # nobody is near who is alone
            return ops.maximum(0.0, 1.0 - ops.min(apart + 1e3 * same, 1))

        return hardest


def test_examples_come_from_all_over_the_data() -> None:
    with pytest.raises(Refused, match="the loss of a batch is not the mean over its examples"):
        Sorted().begin(assignment(gpus=2))


class Normalised(Small):
    """A step of one's own with a layer that moves its state in each call."""

    def model(self, hp: Any) -> keras.Model:
        hidden = layers.SpectralNormalization(layers.Dense(8, activation="tanh"))
        return keras.Sequential([keras.Input((6,)), hidden, layers.Dense(3)])

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        loss = crossentropy(batch.y, model(batch.x, training=True), from_logits=True)
        return {
            "loss": loss,
            "made": loss + (tf.math.reduce_std(batch.x) if hp.get("wrong", False) else 0.0),
        }


def test_a_step_that_moves_its_state_is_tried_from_the_same_state() -> None:
    one, two = (metrics(train(Normalised(), assignment(gpus=gpus))) for gpus in (0, 2))
    for a, b in zip(one, two, strict=True):
        assert b == pytest.approx(a, abs=2e-6)


def test_each_value_of_a_step_is_tried() -> None:
    with pytest.raises(
        Refused,
        match=r"train_step\(\) gives 'made' of [\d.]+ for 31 examples and [\d.]+ as the mean",
    ):
        Normalised().begin(assignment(gpus=2, wrong=True))


@pytest.mark.parametrize("masked", sampled([True, False], 1))
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
def test_losses_of_keras_are_means_over_their_parts(reduction: str, *, masked: bool) -> None:
    class Weighed(Small):
        def data(self, hp: Any) -> Any:
            random = np.random.default_rng(0)
            x = random.normal(size=(40, 5, 4)).astype(np.float32)
            x[1, 2:] = x[4, 1:] = x[30:, 3:] = 0.0  # what the mask leaves out
            y = random.normal(size=(40, 5, 2)).astype(np.float32)
            return (x, y, random.uniform(0.5, 2.0, size=(40, 5)).astype(np.float32)), None

        def model(self, hp: Any) -> keras.Model:
            first = [layers.Masking()] if masked else []
            return keras.Sequential(
                [keras.Input((5, 4)), *first, layers.Dense(2, activity_regularizer="l2")]
            )

        def loss(self, hp: Any, model: Any) -> Any:
            return keras.losses.MeanSquaredError(reduction=reduction)

    for params in ({"gpus": 2}, {"micro_batches": 2}):
        Weighed().begin(assignment(learning_rate=1e-4, **params))


@pytest.mark.parametrize(
    "loss",
    sampled(
        [
            lambda y, p: ops.std(p),
            lambda y, p: ops.sum(ops.square(p)),
            lambda y, p: ops.max(ops.abs(p)),
        ],
        1,
    ),
)
def test_sums_and_comparisons_are_no_means(loss: Any) -> None:
    class Wrong(Small):
        def loss(self, hp: Any, model: Any) -> Any:
            return loss

    with pytest.raises(
        Refused, match=r"not the mean over its examples: [\d.]+ for 31 of them, [\d.]+ as"
    ):
        Wrong().begin(assignment(micro_batches=2))


class Three(Small):
    """So few examples that one of four parts has none."""

    def data(self, hp: Any) -> Any:
        (x, y), _ = super().data(hp)
        return (x[:3], y[:3]), (x[3:6], y[3:6])

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), layers.Dense(3)])


def test_metrics_of_fewer_examples_than_parts_are_means_over_them() -> None:
    whole = metrics(train(Three(), assignment()))
    for one, other in zip(
        whole, metrics(train(Three(), assignment(gpus=2, micro_batches=2))), strict=True
    ):
        assert other == pytest.approx(one, rel=1e-5)


def test_fewer_examples_than_parts_can_be_mixed() -> None:
    """An empty part has a row that stands in, and no row beyond the last one."""

    class Few(Small):
        def data(self, hp: Any) -> Any:
            (x, y), held_out = super().data(hp)
            return (x[:4], np.eye(3, dtype=np.float32)[y[:4]]), (
                held_out[0],
                np.eye(3, dtype=np.float32)[held_out[1]],
            )

        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((6,)), layers.Dense(3, dtype="float32")])

        def loss(self, hp: Any, model: Any) -> Any:
            return keras.losses.CategoricalCrossentropy(from_logits=True)

    several, alone = (
        metrics(train(Few(), assignment(gpus, mixup=0.2, batch_size=2, optimizer="sgd")))
        for gpus in (8, 0)
    )
    for a, b in zip(alone, several, strict=True):
        assert b == pytest.approx(a, abs=1e-6, rel=1e-6)


class Positions(layers.Layer):
    """Adds a table of positions, which has as many rows as there are time steps, to a projection of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.table = layers.Dense(4), layers.Embedding(40, 4)

    def call(self, x: Any) -> Any:
        return self.project(x[..., None]) + self.table(ops.arange(ops.shape(x)[1]))


class NotPadding(keras.losses.Loss):
    """Divides by what is no padding, which differs from part to part."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        each = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
        mask = ops.cast(y_true > 0, "float32")
        return ops.sum(each * mask) / ops.sum(mask)


@pytest.mark.parametrize("length", [15, 16, 31])
def test_a_loss_is_named_though_a_table_has_as_many_rows_as_a_part_has_examples(
    length: int,
) -> None:
    class Tagger(Small):
        def data(self, hp: Any) -> Any:
            x = np.random.default_rng(0).normal(size=(60, length)).astype(np.float32)
            y = np.where(
                np.arange(length) < np.arange(60)[:, None] % length + 1, 1 + (x > 0), 0
            ).astype(np.int32)
            return Buckets(((x, y), (x[:, :-1], y[:, :-1]))), None

        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((None,)), Positions(), layers.Dense(3)])

        def loss(self, hp: Any, model: keras.Model) -> Any:
            return NotPadding(name="tags")

    with pytest.raises(
        Refused,
        match=r"the loss 'tags' \(NotPadding\) of a batch is not the mean over its examples",
    ):
        Tagger().begin(assignment(gpus=2))
