"""Models as people write them, each like `Model.fit`, warm as fresh, resumed as straight, on 1 as on 4 replicas.

Adding a model is one entry: a class with `@entry(...)`, which says what is known to differ and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
import zoo_data
from keras import layers

from sweep.contract import Value
from trainables.keras_trainable import KerasTrainable

ops = keras.ops


@dataclass(frozen=True)
class Entry:
    """One model of the zoo."""

    trainable: type[Animal]
    fast: bool
    params: Mapping[str, Value] = field(default_factory=dict)
    training: Mapping[str, Value] = field(default_factory=dict)
    fit: str = ""  # why `Model.fit` gives other numbers
    replicas: str = ""  # how several replicas are refused
    rated: bool = True  # whether trials may bring a learning rate
    tolerance: float = 1e-6
    skip_metrics: tuple[str, ...] = ()  # that Keras averages over batches instead of examples


ENTRIES: dict[str, Entry] = {}


def entry(**known: Any) -> Callable[[type[Animal]], type[Animal]]:
    def add(kind: type[Animal]) -> type[Animal]:
        ENTRIES[kind.__name__] = Entry(kind, **{"fast": False, **known})
        return kind

    return add


class Animal(KerasTrainable):
    """Points, SGD with momentum, and a way to fail in the middle of an epoch."""

    def data(self, hp: Any) -> Any:
        return zoo_data.points()

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), *self.body(), layers.Dense(3)])

    def body(self) -> list[Any]:
        return [layers.Dense(8, activation="tanh")]

    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.05, momentum=0.9)

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        at = tf.convert_to_tensor(self.live.number("explode", default=-1.0))
        check = tf.debugging.assert_none_equal(tf.cast(draws.update, tf.float32), at)
        with tf.control_dependencies([check]):
            return tf.nest.map_structure(tf.identity, x)


class OnImages(Animal):
    def data(self, hp: Any) -> Any:
        return zoo_data.images()

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((8, 8, 2)), *self.body(), layers.Flatten(), layers.Dense(3)]
        )


class OnSeries(Animal):
    def data(self, hp: Any) -> Any:
        return zoo_data.series()

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((7, 4)), *self.body(), layers.Dense(3)])


class OnTokens(Animal):
    def data(self, hp: Any) -> Any:
        return zoo_data.tokens()

    def model(self, hp: Any) -> keras.Model:
        embedding = layers.Embedding(12, 5, mask_zero=True)
        return keras.Sequential(
            [keras.Input((7,), dtype="int32"), embedding, *self.body(), layers.Dense(2)]
        )


class OnCurve(Animal):
    def data(self, hp: Any) -> Any:
        return zoo_data.curve()

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), *self.body(), layers.Dense(2)])
