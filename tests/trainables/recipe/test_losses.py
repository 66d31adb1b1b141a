from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.numbers.live import Live
from trainables.recipe import losses

pytestmark = pytest.mark.keras
LABELS = np.array([0, 2, 1], np.int32)
LOGITS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def net(units: int, activation: str | None = None) -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, activation=activation)])


def ending(*last: keras.layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((2,)), *last])


def nested() -> keras.Model:
    return ending(
        keras.layers.Dense(4),
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, "softmax")]),
    )


ONE_HOT = np.eye(4, dtype=np.float32)[LABELS]
SPARSE, BINARY = keras.losses.SparseCategoricalCrossentropy, keras.losses.BinaryCrossentropy


@pytest.mark.parametrize(
    ("targets", "model", "expected"),
    [
        (LABELS, net(4), SPARSE(from_logits=True)),
        (LABELS[:, None], net(4), SPARSE(from_logits=True)),
        (LABELS, net(4, "softmax"), SPARSE()),
        (LABELS, nested(), SPARSE()),
        (LABELS, ending(keras.layers.Dense(4), keras.layers.Softmax()), SPARSE()),
        (LABELS, ending(keras.layers.Dense(4), keras.layers.Activation("softmax")), SPARSE()),
        (LABELS, ending(keras.layers.Dense(4, "softmax", dtype="bfloat16")), SPARSE()),
        (LABELS > 0, net(1), BINARY(from_logits=True)),
        (LABELS > 0, net(1, "sigmoid"), BINARY()),
        (LABELS.clip(0, 1), net(1, "sigmoid"), BINARY()),
        (ONE_HOT.astype(np.int32), net(4, "sigmoid"), BINARY()),
        (ONE_HOT, net(4, "softmax"), keras.losses.CategoricalCrossentropy()),
        (LABELS.astype(np.float32), net(1), keras.losses.MeanSquaredError()),
        (LOGITS, net(4, "relu"), keras.losses.MeanSquaredError()),
    ],
)
def test_the_loss_follows_targets_and_last_activation(targets, model, expected) -> None:
    assert losses.default_loss(targets, model, None).get_config() == expected.get_config()


class Own(keras.Model):
    def call(self, x):
        return x


@pytest.mark.parametrize(
    ("targets", "model", "message"),
    [
        (
            LABELS,
            net(1),
            r"int32 targets of shape \(\) with an output of shape \(1,\) after linear fit more than one loss",
        ),
        (LABELS, net(1, "sigmoid"), "after sigmoid fit more"),  # a label of 2
        (LABELS, net(4, "tanh"), "after tanh fit more"),
        (
            LABELS,
            ending(keras.layers.Dense(4), keras.layers.Lambda(lambda x: x)),
            "fit more than one loss",
        ),
        (ONE_HOT, net(4), "after linear fit more"),
        (LABELS * 0.5, net(1, "sigmoid"), "after sigmoid fit more"),
        (
            LABELS,
            Own(),
            "Own is a subclassed model, whose last activation nothing tells; say it in one line: def loss",
        ),
        ({"a": LABELS}, net(4), "the targets are nested"),
    ],
)
def test_where_there_is_doubt_the_trainable_must_say_its_loss(targets, model, message) -> None:
    with pytest.raises(losses.Undecided, match=message):
        losses.default_loss(targets, model, None)
    assert losses.default_metrics(targets, model) == []


@pytest.mark.parametrize(
    ("targets", "model", "theirs"),
    [
        (LABELS.clip(0, 1)[:, None], net(1, "sigmoid"), BINARY(label_smoothing=0.2)),
        (ONE_HOT, net(4, "softmax"), keras.losses.CategoricalCrossentropy(label_smoothing=0.2)),
        (LABELS, net(4, "softmax"), keras.losses.CategoricalCrossentropy(label_smoothing=0.2)),
        (LABELS, nested(), keras.losses.CategoricalCrossentropy(label_smoothing=0.2)),
    ],
)
def test_smoothed_labels_of_every_kind(targets, model, theirs) -> None:
    smoothing = Live(Hyperparameters({"s": 0.2})).number("s")
    predicted = model(LOGITS[:, :2])
    whole = ONE_HOT if isinstance(theirs, keras.losses.CategoricalCrossentropy) else targets
    ours = losses.default_loss(targets, model, smoothing)(targets, predicted)
    assert float(ours) == pytest.approx(float(theirs(whole, predicted)), rel=1e-5)


@pytest.mark.parametrize("from_logits", [True, False])
def test_smoothing_is_that_of_keras(from_logits: bool) -> None:
    smoothing = Live(Hyperparameters({"s": 0.2})).number("s")
    ours = losses.SmoothedCrossentropy(smoothing, from_logits=from_logits)
    theirs = keras.losses.CategoricalCrossentropy(from_logits=from_logits, label_smoothing=0.2)
    y = LOGITS if from_logits else tf.nn.softmax(LOGITS).numpy()
    assert float(ours(LABELS, y)) == pytest.approx(float(theirs(np.eye(4)[LABELS], y)), rel=1e-5)


def test_numbers_cannot_be_smoothed() -> None:
    smoothing = Live(Hyperparameters({"s": 0.2})).number("s")
    with pytest.raises(ValueError, match="label_smoothing is set, but the targets are no labels"):
        losses.default_loss(LABELS.astype(np.float32), net(1), smoothing)


@pytest.mark.parametrize(
    ("targets", "units", "names"),
    [
        (LABELS, 4, ["accuracy"]),
        (LABELS > 0, 1, ["accuracy"]),
        (LABELS * 0.5, 1, ["mae"]),
        ({"a": LABELS}, 1, []),
    ],
)
def test_metrics_follow_the_targets(targets, units, names) -> None:
    assert [metric.name for metric in losses.default_metrics(targets, net(units))] == names
