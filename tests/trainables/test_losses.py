from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables import losses
from trainables.live import Live

pytestmark = pytest.mark.keras
LABELS = np.array([0, 2, 1], np.int32)
LOGITS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def net(units: int, activation: str | None = None) -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, activation=activation)])


@pytest.mark.parametrize(
    ("targets", "model", "expected"),
    [
        (LABELS, net(4), keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
        (LABELS, net(4, "softmax"), keras.losses.SparseCategoricalCrossentropy()),
        (LABELS > 0, net(1), keras.losses.BinaryCrossentropy(from_logits=True)),
        (LABELS > 0, net(1, "sigmoid"), keras.losses.BinaryCrossentropy()),
        (LABELS.astype(np.float32), net(1), keras.losses.MeanSquaredError()),
    ],
)
def test_the_loss_follows_targets_and_last_activation(targets, model, expected) -> None:
    assert losses.default_loss(targets, model, None).get_config() == expected.get_config()


@pytest.mark.parametrize("from_logits", [True, False])
def test_smoothing_is_that_of_keras(from_logits: bool) -> None:
    smoothing = Live(Hyperparameters({"s": 0.2})).number("s")
    ours = losses.SmoothedCrossentropy(smoothing, from_logits=from_logits)
    theirs = keras.losses.CategoricalCrossentropy(from_logits=from_logits, label_smoothing=0.2)
    y = LOGITS if from_logits else tf.nn.softmax(LOGITS).numpy()
    assert float(ours(LABELS, y)) == pytest.approx(float(theirs(np.eye(4)[LABELS], y)), rel=1e-5)


def test_what_cannot_be_derived_must_be_said() -> None:
    smoothing = Live(Hyperparameters({"s": 0.2})).number("s")
    with pytest.raises(ValueError, match="expected a loss\\(\\) method"):
        losses.default_loss({"a": LABELS}, net(4), None)
    with pytest.raises(ValueError, match="label_smoothing is set, but the targets are no integer labels"):
        losses.default_loss(LABELS.astype(np.float32), net(1), smoothing)


@pytest.mark.parametrize(
    ("targets", "units", "names"),
    [(LABELS, 4, ["accuracy"]), (LABELS > 0, 1, ["accuracy"]), (LABELS * 0.5, 1, ["mae"]), ({"a": LABELS}, 1, [])],
)
def test_metrics_follow_the_targets(targets, units, names) -> None:
    assert [metric.name for metric in losses.default_metrics(targets, net(units))] == names
