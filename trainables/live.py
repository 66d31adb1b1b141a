"""Numbers that live in variables, so that another trial's value needs no new graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sweep.hyperparameters import Hyperparameters, Mark


class LiveNumber:
    """A hyperparameter in a float32 variable, usable where Keras expects a Python float.

    Keras keeps such floats as attributes and reads them while a step is traced; a plain float would be
    frozen into the graph.
    """

    def __init__(self, name: str, value: float) -> None:
        self.variable = tf.Variable(value, trainable=False, dtype=tf.float32, name=f"hp_{name}")

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        value = tf.convert_to_tensor(self.variable)
        return value if dtype is None else tf.cast(value, dtype)

    def __float__(self) -> float:
        return float(self.variable.numpy())

    def __rsub__(self, other: Any) -> tf.Tensor:
        return other - tf.convert_to_tensor(self.variable)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


class Live:
    """The live numbers of one compiled structure, and how each trial sets them."""

    def __init__(self, hp: Hyperparameters) -> None:
        self._hp = hp
        self._numbers: dict[str, tuple[LiveNumber, Mapping[str, float] | None]] = {}

    def number(self, name: str, meaning: Mapping[str, float] | None = None) -> LiveNumber:
        """The number of a parameter; ``meaning`` maps the choices of a text parameter to numbers.

        Raises KeyError for an absent parameter, TypeError or ValueError for a value that is no number.
        """
        if name not in self._numbers:
            value = _number(self._hp, name, meaning)
            with tf.init_scope():
                self._numbers[name] = (LiveNumber(name, value), meaning)
        return self._numbers[name][0]

    def set(self, hp: Hyperparameters) -> None:
        """Take the values of another trial."""
        self._hp = hp
        for name, (number, meaning) in self._numbers.items():
            number.variable.assign(_number(hp, name, meaning))

    def accepts(self, hp: Hyperparameters) -> bool:
        """Whether a trial has all of these parameters."""
        return all(hp.peek(name) is not Mark.ABSENT for name in self._numbers)


def _number(hp: Hyperparameters, name: str, meaning: Mapping[str, float] | None) -> float:
    value = hp.peek(name)  # not a plain read: the structure does not depend on it
    if value is Mark.ABSENT:
        raise KeyError(f"the trial has no parameter {name!r}")
    if meaning is not None:
        if not isinstance(value, str) or value not in meaning:
            raise ValueError(f"{name} is {value!r}, expected one of {', '.join(meaning)}")
        return meaning[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, expected a number")
    return float(value)
