"""Sharpness-aware minimization is what its paper says, over the global batch."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, metrics, train
from test_own_step import Plain
from zoo import ENTRIES, Animal
from zoo_checks import given

from trainables.devices.replicas import Replicas
from trainables.keras_trainable import session_of
from trainables.loop import update
from trainables.numbers.live import LiveNumber

pytestmark = pytest.mark.keras


def plainly(kind: type[Animal], trial: Any, rho: float) -> keras.Model:
    """Foret et al., algorithm 1, by hand; moving statistics see each batch once."""
    plain = Plain(kind, trial)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    weights, others = plain.model.trainable_variables, plain.model.non_trainable_variables

    def gradients(x: Any, y: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            value = loss(y, plain.model(x, training=True))
        return list(tape.gradient(value, weights))

    for x, y, _ in plain.batches():
        found = gradients(x, y)
        before, counted = [w.numpy() for w in weights], [v.numpy() for v in others]
        length = np.sqrt(sum(float(tf.reduce_sum(g**2)) for g in found))
        for weight, gradient in zip(weights, found, strict=True):
            weight.assign_add(rho * gradient / length)
        found = gradients(x, y)
        for variable, value in zip([*weights, *others], before + counted, strict=True):
            variable.assign(value)
        optimizer.apply_gradients(zip(found, weights, strict=True))
    return plain.model


def test_twenty_updates_are_those_of_the_paper() -> None:
    found = ENTRIES["Sharp"]
    trial, ours = given(found), found.trainable()
    train(ours, trial)
    expected = plainly(found.trainable, trial, 0.1)
    for a, b in zip(
        session_of(ours).trial.program.model.variables, expected.variables, strict=True
    ):
        if a.dtype.startswith("float"):
            np.testing.assert_allclose(
                np.asarray(a), np.asarray(b), atol=1e-6, rtol=0, err_msg=a.path
            )


def test_the_radius_is_live_and_zero_is_none() -> None:
    found = ENTRIES["Sharp"]
    warm, plain = found.trainable(), found.trainable()
    train(warm, given(found))
    program = session_of(warm).trial.program
    none = metrics(train(warm, given(found, sam_rho=0.0)))
    assert session_of(warm).trial.program is program
    without = assignment(epochs=4)
    object.__setattr__(without, "params", {"batch_size": 16})
    assert none == metrics(train(plain, without))


def test_weights_are_put_back_bit_for_bit_also_after_what_is_not_finite() -> None:
    weight, other = keras.Variable([1.0, 1e-8]), keras.Variable([3.0])
    replicas, rho = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0")), LiveNumber("sam_rho", 0.1)
    with update.climbing(replicas, [weight], [tf.constant([3.0, 4.0])], rho, [other]):
        np.testing.assert_allclose(weight.numpy(), [1.06, 0.08], rtol=1e-6)
        other.assign([7.0])
    assert (weight.numpy().tolist(), other.numpy().tolist()) == (
        np.float32([1.0, 1e-8]).tolist(),
        [3.0],
    )
    with update.climbing(replicas, [weight], [tf.constant([np.nan, 4.0])], rho, []):
        assert np.isnan(weight.numpy()).all()
    assert weight.numpy().tolist() == np.float32([1.0, 1e-8]).tolist()


class Tracking(keras.Model):
    """Counts the examples whose loss it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = keras.layers.Masking(), keras.layers.Dense(2)
        self.seen = keras.metrics.Sum(name="seen")

    def call(self, x: Any) -> Any:
        return self.last(self.first(x))

    def compute_loss(self, *given: Any, **named: Any) -> Any:
        self.seen.update_state(keras.ops.ones_like(given[1][:, 0]))
        return super().compute_loss(*given, **named)


class Tracked(Small):
    """Words, some of which are masked: a divisor of the loss that micro-batches have to count beforehand."""

    def data(self, hp: Any) -> Any:
        random = np.random.default_rng(0)
        x, y = (
            random.normal(size=(90, 5, 4)).astype(np.float32),
            random.integers(0, 2, (90, 5)).astype(np.int32),
        )
        x[::3, 3:] = 0.0
        return (x[:70], y[:70]), (x[70:], y[70:])

    def model(self, hp: Any) -> keras.Model:
        return Tracking()

    def loss(self, hp: Any, model: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self, hp: Any, model: Any) -> Any:
        return []


@pytest.mark.parametrize(
    "params", sampled([{"sam_rho": 0.1, "gpus": 2}, {"sam_rho": 0.1}, {"micro_batches": 2}], 1)
)
def test_trackers_count_one_pass(params: Any) -> None:
    for epoch in metrics(train(Tracked(), assignment(**params))):
        assert (epoch["seen"], epoch["val_seen"]) == (70, 20)
