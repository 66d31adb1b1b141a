from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.numbers.live import Live
from trainables.recipe import optimizers

pytestmark = pytest.mark.keras

PLAIN = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.8, weight_decay=0.02),
    "adam": lambda: keras.optimizers.Adam(0.1, beta_1=0.8, weight_decay=0.02),
    "adamw": lambda: keras.optimizers.AdamW(0.1, beta_1=0.8, weight_decay=0.02),
    "lamb": lambda: keras.optimizers.Lamb(0.1, beta_1=0.8, weight_decay=0.02),
    "lion": lambda: keras.optimizers.Lion(0.1, beta_1=0.8, weight_decay=0.02),
}


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_live_numbers_update_as_plain_ones(name: str) -> None:
    params = {"optimizer": name, "weight_decay": 0.5, "momentum": 0.1, "beta_1": 0.3}
    live = Live(Hyperparameters(params))
    ours = optimizers.build(Hyperparameters(params), live)
    ours.learning_rate = 0.1
    plain = PLAIN[name]()
    a, b = (keras.Variable(np.array([[1.0, -2.0], [3.0, 0.5]], np.float32)) for _ in range(2))
    ours.build([a])
    plain.build([b])
    step = tf.function(lambda gradient: ours.apply([gradient], [a]))
    step(tf.zeros((2, 2)))  # traced with the first values, which the next trial's replace
    for variable in ours.variables:
        if "learning_rate" not in variable.path:
            variable.assign(tf.zeros_like(variable.value))
    a.assign(b)
    live.set(Hyperparameters({**params, "weight_decay": 0.02, "momentum": 0.8, "beta_1": 0.8}))
    for i in range(3):
        gradient = tf.constant([[0.1, 0.2], [-0.3, float(i)]])
        step(gradient)
        plain.apply([gradient], [b])
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_an_optimizer_keeps_the_rate_or_the_schedule_that_it_was_made_with() -> None:
    assert optimizers.own_rate(keras.optimizers.SGD(0.5)) == 0.5
    falling = keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(1.0, 10, end_learning_rate=0.0))
    assert optimizers.own_rate(falling) is None
    assert [optimizers.scheduled_rate(falling, update) for update in (0, 5)] == [1.0, 0.5]
    assert optimizers.scheduled_rate(keras.optimizers.SGD(lambda: 0.25), 3) == 0.25


def test_biases_do_not_decay() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, bias_initializer="ones")])
    hp = Hyperparameters({"optimizer": "sgd", "weight_decay": 0.5})
    optimizer = optimizers.build(hp, Live(hp))
    optimizers.exclude_from_decay(optimizer, model)
    kernel = model.trainable_variables[0].numpy()
    optimizer.build(model.trainable_variables)
    optimizer.apply([tf.zeros((2, 2)), tf.zeros((2,))], model.trainable_variables)
    np.testing.assert_allclose(model.trainable_variables[0].numpy(), kernel * 0.5)
    np.testing.assert_allclose(model.trainable_variables[1].numpy(), 1.0)


def test_wrong_names() -> None:
    hp = Hyperparameters({"optimizer": "adamm"})
    with pytest.raises(ValueError, match="expected one of sgd, adam, adamw, lamb, lion"):
        optimizers.build(hp, Live(hp))
    with pytest.raises(ValueError, match="at most one kind"):
        optimizers.clipping(Hyperparameters({"clipnorm": 1, "clipvalue": 1}))
