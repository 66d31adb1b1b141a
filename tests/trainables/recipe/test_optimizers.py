from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from optimizer_numbers import NUMBERS, OFF

from sweep.hyperparameters import Hyperparameters
from trainables.numbers.live import Live
from trainables.recipe import optimizers
from trainables.recipe.rates import (
    compute_scheduled_rate,
    get_own_rate,
    get_rate_or_schedule,
    get_rate_variable,
)

pytestmark = pytest.mark.keras


def plain(name: str, rate: float, **given: Any) -> keras.optimizers.Optimizer:
    return optimizers.OPTIMIZER_CLASSES[name](learning_rate=rate, **given)


def test_the_table_has_every_argument_of_every_optimizer() -> None:
    assert set(NUMBERS) == set(optimizers.OPTIMIZERS)
    for name, numbers in NUMBERS.items():
        assert set(numbers) | (set(OFF) if name == "adafactor" else set()) == set(
            optimizers.list_arguments(optimizers.OPTIMIZER_CLASSES[name])
        )


def test_the_names_that_are_read_are_those_of_kerass_optimizers() -> None:
    theirs = {name for numbers in NUMBERS.values() for name in numbers} | set(OFF)
    assert set(optimizers.READS) == theirs | {"weight_decay"}


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_live_numbers_update_as_plain_ones(name: str) -> None:
    numbers = {"weight_decay": 0.02, **NUMBERS[name], **(OFF if name == "adafactor" else {})}
    first = {arg: value / 2 if arg in optimizers.LIVE else value for arg, value in numbers.items()}
    live = Live(Hyperparameters({"optimizer": name, **first}))
    ours = optimizers.build(Hyperparameters({"optimizer": name, **first}), live)
    ours.learning_rate = 0.1
    theirs = plain(name, 0.1, **numbers)
    a, b = (
        [_variable((3, 2), "kernel"), _variable((3,), "bias"), _variable((2, 2), "head")]
        for _ in range(2)
    )
    for optimizer, variables in ((ours, a), (theirs, b)):
        optimizer.build(variables)
    made = [*ours.variables, *([ours._u_product] if name == "nadam" else [])]
    before = [v.numpy() for v in (*made, *a)]
    step = tf.function(lambda gradients: ours.apply(gradients, a))
    # traced with the first values, which the next trial's replace
    step([tf.ones_like(v.value) for v in a])
    for variable, value in zip([*made, *a], before, strict=True):
        variable.assign(value)
    live.set(Hyperparameters({"optimizer": name, **numbers}))
    for i in range(20):
        gradients = [
            tf.sin(tf.range(float(v.shape[0]))[:, None] + i + v.value * 0.1 + j)
            for j, v in enumerate(b)
        ]
        gradients = [
            tf.reshape(tf.reduce_sum(g, 1), v.shape) if len(v.shape) == 1 else g
            for g, v in zip(gradients, b, strict=True)
        ]
        step(gradients)
        theirs.apply(gradients, b)
    assert step.experimental_get_tracing_count() == 1
    for mine, other in zip(a, b, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-6, atol=1e-6)


def _variable(shape: tuple[int, ...], name: str) -> keras.Variable:
    count = int(np.prod(shape))
    return keras.Variable(np.linspace(-1, 2, count, dtype=np.float32).reshape(shape), name=name)


def test_an_optimizer_keeps_the_rate_or_the_schedule_that_it_was_made_with() -> None:
    assert get_own_rate(keras.optimizers.SGD(0.5)) == 0.5
    falling = keras.optimizers.SGD(
        keras.optimizers.schedules.PolynomialDecay(1.0, 10, end_learning_rate=0.0)
    )
    assert get_own_rate(falling) is None
    assert [compute_scheduled_rate(falling, update) for update in (0, 5)] == [1.0, 0.5]
    assert compute_scheduled_rate(keras.optimizers.SGD(lambda: 0.25), 3) == 0.25


def test_a_rate_is_that_of_the_optimizer_inside_a_scaled_one() -> None:
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
    assert get_own_rate(scaled) == get_rate_or_schedule(scaled) == 0.5
    assert get_rate_variable(scaled) is scaled.inner_optimizer._learning_rate


def test_biases_do_not_decay() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, bias_initializer="ones")])
    hp = Hyperparameters({"optimizer": "sgd", "weight_decay": 0.5})
    optimizer = optimizers.build(hp, Live(hp))
    optimizers.exclude_from_decay(optimizer, model.trainable_variables)
    kernel = model.trainable_variables[0].numpy()
    optimizer.build(model.trainable_variables)
    optimizer.apply([tf.zeros((2, 2)), tf.zeros((2,))], model.trainable_variables)
    np.testing.assert_allclose(model.trainable_variables[0].numpy(), kernel * 0.5)
    np.testing.assert_allclose(model.trainable_variables[1].numpy(), 1.0)


def test_names_as_people_write_them() -> None:
    for name in ("ScheduleFreeAdamW", "schedule_free_adamw", "schedulefreeadamw"):
        hp = Hyperparameters({"optimizer": name})
        assert type(optimizers.build(hp, Live(hp))) is keras.optimizers.ScheduleFreeAdamW


def test_wrong_names() -> None:
    hp = Hyperparameters({"optimizer": "adamm"})
    with pytest.raises(
        ValueError, match=r"expected one of adadelta, adafactor, .*, sgd, or module:Name"
    ):
        optimizers.build(hp, Live(hp))


class Own(keras.optimizers.SGD):
    """An optimizer of an author's."""

    def __init__(
        self, learning_rate: float = 0.1, steps: int = 1, sharp: bool = False, kind: str = "a"
    ) -> None:
        super().__init__(learning_rate)
        self.given = steps, sharp, kind


def test_one_of_your_own_by_its_place() -> None:
    hp = Hyperparameters(
        {
            "optimizer": f"{__name__}:Own",
            "steps": 3,
            "sharp": True,
            "kind": "b",
            "weight_decay": 0.1,
        }
    )
    optimizer = optimizers.build(hp, Live(hp))
    assert isinstance(optimizer, Own)
    assert optimizer.given == (3, True, "b")
    assert float(optimizer.weight_decay) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"optimizer": "nowhere:Mine"}, "cannot be imported: No module named 'nowhere'"),
        ({"optimizer": "math:pi"}, "expected a class or function that makes"),
        ({"optimizer": "builtins:dict"}, "expected a class or function that makes"),
        ({"optimizer": f"{__name__}:Own", "steps": 1.5}, "expected a whole number"),
        ({"optimizer": "adam", "amsgrad": "yes"}, "expected true or false"),
        ({"optimizer": "sgd", "momentum": 1.5}, "momentum is 1.5, expected a number from 0 to 1"),
        ({"optimizer": "lamb", "epsilon": -1.0}, "epsilon is -1.0, expected a number from 0"),
        ({"optimizer": "adagrad", "initial_accumulator_value": "much"}, "expected a number"),
        ({"optimizer": "lossscaleoptimizer"}, "expected one of adadelta"),
    ],
)
def test_what_cannot_be_made(params: Any, message: str) -> None:
    hp = Hyperparameters(params)
    with pytest.raises((ValueError, TypeError), match=message):
        optimizers.build(hp, Live(hp))
