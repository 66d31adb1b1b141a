"""Access to the learning rate or schedule of a Keras optimizer."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trainables import keras_private
from trainables.recipe.refusals import Refused


def _get_learning_rate(optimizer: Any) -> Any:
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer  # the outer optimizer's own rate is never read
    return keras_private.given_learning_rate(optimizer)


def get_rate_variable(optimizer: Any) -> keras.Variable | None:
    """Return the variable that holds an optimizer's learning rate; None if it has a schedule or a callable instead.

    Of a `LossScaleOptimizer`, it is that of the inner optimizer.
    """
    rate = _get_learning_rate(optimizer)
    if isinstance(rate, keras.Variable):
        return rate
    return None


def get_own_rate(optimizer: Any) -> float | None:
    """Return an optimizer's present learning rate as a float; None if it has a schedule or a callable instead.

    Of a `LossScaleOptimizer`, it is that of the inner optimizer.
    """
    variable = get_rate_variable(optimizer)
    if variable is None:
        return None
    return float(variable.numpy())


def check_follows(optimizer: Any, whose: str) -> None:
    """Raise Refused if an optimizer that must follow the trial's learning rate has a schedule or a callable instead.

    ``whose`` begins the message and names what the optimizer belongs to.
    """
    if get_rate_variable(optimizer) is None:
        raise Refused(
            f"{whose} has a rate, and its optimizer ({type(optimizer).__name__}) a schedule of its own, which follows "
            "no other; leave out one"
        )


def get_rate_or_schedule(optimizer: Any) -> Any:
    """Return the present learning rate of an optimizer as a float; if it has a schedule or a callable, return that."""
    rate = get_own_rate(optimizer)
    if rate is None:
        return _get_learning_rate(optimizer)
    return rate


def compute_scheduled_rate(optimizer: Any, update: int) -> float:
    """Return the learning rate of update number ``update`` (from 0) by the optimizer's own schedule or callable.

    A callable is called without the number, and gives its present rate. An optimizer with neither of them, see
    `get_rate_variable`, raises TypeError.
    """
    rate = _get_learning_rate(optimizer)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        value = rate(update)
    else:
        value = rate()
    return float(tf.convert_to_tensor(value).numpy())
