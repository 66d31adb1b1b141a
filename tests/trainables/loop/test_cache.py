from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, metrics, train

from trainables.loop.cache import CAPACITY
from trainables.replicas import keras_corrections

pytestmark = pytest.mark.keras


@pytest.mark.slow
def test_the_program_used_longest_ago_makes_room() -> None:
    class Tiny(Small):
        def data(self, hp: Any) -> tuple[Any, Any]:
            training, _ = super().data(hp)
            return training, None

    trainable = Tiny()
    first = assignment(epochs=1, units=1)
    train(trainable, first)
    oldest = trainable._begun().program
    for units in range(2, CAPACITY + 1):
        train(trainable, assignment(epochs=1, units=units))
    train(trainable, first)
    assert trainable._begun().program is oldest
    train(trainable, assignment(epochs=1, units=CAPACITY + 1))  # evicts units=2
    train(trainable, first)
    assert trainable._begun().program is oldest
    assert len(trainable._programs._held) == CAPACITY
    assert {dict(structure.reads)["units"] for structure, _ in trainable._programs._held} == {1, *range(3, 10)}


class Live(Small):
    """All numbers that may be live, a metric with state, and dropout."""

    def model(self, hp: Any) -> keras.Model:
        hidden = keras.layers.Dense(8, activation="tanh")
        return keras.Sequential(
            [keras.Input((6,)), hidden, keras.layers.Dropout(self.dropout(hp)), keras.layers.Dense(3)]
        )


@pytest.mark.parametrize("kind", [Small, Live])
def test_another_seed_needs_no_other_program(kind: type[Small]) -> None:
    trainable, programs = kind(), []
    for seed in (0, 1, 0, 2):
        given = assignment(
            seed=seed, epochs=1, weight_decay=0.1 + seed, dropout=0.1 * seed, ema_momentum=0.9, label_smoothing=0.1
        )
        assert metrics(train(trainable, given)) == metrics(train(kind(), given))
        programs.append(trainable._begun().program)
    assert len(set(map(id, programs))) == 1


DRAWS: dict[str, Callable[[], float]] = {
    "random": random.random,
    "randint": lambda: random.randint(*keras_corrections.SEEDS) / 1e9,  # as Keras draws its seeds
    "numpy": np.random.rand,
    "tensorflow": lambda: float(tf.random.uniform([])),
    "keras": lambda: float(keras.random.uniform([])),
}


@pytest.mark.parametrize("way", DRAWS)
def test_a_number_that_is_drawn_while_the_model_is_made_is_that_of_its_seed(way: str) -> None:
    class Drawn(Small):
        def model(self, hp: Any) -> keras.Model:
            first = keras.layers.Dense(4)
            rescaled = keras.layers.Rescaling(0.1 + DRAWS[way]())
            return keras.Sequential([keras.Input((6,)), first, rescaled, keras.layers.Dense(3)])

    used = Drawn()
    for seed in (0, 1):
        given = assignment(epochs=1, seed=seed)
        assert metrics(train(used, given)) == metrics(train(Drawn(), given))


class Folds(Small):
    """What `data` reads decides what the model has built in."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), held_out = super().data(hp)
        fold = hp.integer("fold")
        kept = np.arange(len(x)) % 3 != fold
        x, y = x[kept] * (1 + fold), y[kept]
        self.x, self.weights = x, np.bincount(y, minlength=3) / len(y)
        return (x, y), held_out

    def model(self, hp: Any) -> keras.Model:
        raise NotImplementedError

    def begun(self, first: keras.layers.Layer) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), first, keras.layers.Dense(3)])


class Adapted(Folds):
    def model(self, hp: Any) -> keras.Model:
        normalise = keras.layers.Normalization()
        normalise.adapt(self.x)
        return self.begun(normalise)


class Rescaled(Folds):
    def model(self, hp: Any) -> keras.Model:
        return self.begun(keras.layers.Rescaling(1 / float(self.x.std())))


class WeighedLoss(Folds):
    def model(self, hp: Any) -> keras.Model:
        return self.begun(keras.layers.Dense(4))

    def loss(self, hp: Any, model: Any) -> Any:
        weights = tf.constant(self.weights, tf.float32)

        def loss(y: Any, p: Any) -> Any:
            each = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
            return each * tf.gather(weights, tf.cast(y, tf.int32))

        return loss


class Augmented(Folds):
    def model(self, hp: Any) -> keras.Model:
        return self.begun(keras.layers.Dense(4))

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        return x - self.x.mean()


class Example(Folds):
    """Looks at the first example, which is another one in each fold."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        data = super().data(hp)
        del self.x, self.weights
        return data

    def model(self, hp: Any) -> keras.Model:
        return self.begun(keras.layers.Rescaling(float(abs(self.example[0]).max())))


class Classes(Small):
    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), (v, w) = super().data(hp)
        self.classes = hp.integer("fold") + 3
        return (x, y % self.classes), (v, w % self.classes)

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), keras.layers.Dense(self.classes)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Adapted, Rescaled, WeighedLoss, Augmented, Example, Classes])
def test_a_program_is_keyed_by_what_its_making_saw_of_the_data(kind: type[Small]) -> None:
    used = kind()
    fresh = {fold: metrics(train(kind(), assignment(fold=fold))) for fold in (0, 1)}
    assert fresh[0] != fresh[1]
    for fold in (0, 1, 0):
        assert metrics(train(used, assignment(fold=fold))) == fresh[fold]


def test_what_no_making_saw_needs_no_other_program() -> None:
    class Halved(Small):
        def data(self, hp: Any) -> tuple[Any, Any]:
            (x, y), held_out = super().data(hp)
            return (x * hp.number("scale"), y), held_out

    trainable, programs = Halved(), []
    for scale in (1.0, 0.5):
        train(trainable, assignment(scale=scale))
        programs.append(trainable._begun().program)
    assert programs[0] is programs[1]
