"""The key of a kept program holds all that its making has seen of the data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, metrics, train

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import session_of
from trainables.recipe.losses import Undecided

pytestmark = pytest.mark.keras


class Counting(keras.layers.Layer):
    """Scales by how often it was called outside of training, in a variable of which Keras does not know."""

    def build(self, shape: Any) -> None:
        self.calls = tf.Variable(0.0)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            return x
        return x * (1.0 + self.calls.assign_add(0.5))


class Sometimes(Small):
    """Validates where the trial says so."""

    def data(self, hp: Hyperparameters) -> Any:
        train_data, validation = super().data(hp)
        return train_data, validation if hp.flag("validates") else None

    def model(self, hp: Hyperparameters) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), Counting(), keras.layers.Dense(3)])


def test_a_program_that_was_made_without_validation_validates_nothing() -> None:
    used = Sometimes()
    train(used, assignment(validates=False))
    fresh = metrics(train(Sometimes(), assignment(validates=True)))
    assert "val_loss" in fresh[-1]
    for _ in range(2):
        assert metrics(train(used, assignment(validates=True))) == fresh
    assert used.facts().structures == 2


class Labelled(Small):
    """One class each, or several, by the trial's own word; the loss follows from that."""

    def data(self, hp: Hyperparameters) -> Any:
        def targets(data: Any) -> Any:
            y = np.eye(3, dtype=np.float32)[data[1]]
            if hp.flag("several"):
                y[0] = [1, 1, 0]
            return data[0], y * hp.number("scale", 1.0)

        return tuple(map(targets, super().data(hp)))

    def model(self, hp: Hyperparameters) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, activation="softmax")])


def test_what_decided_the_default_loss_is_a_part_of_the_key() -> None:
    used = Labelled()
    train(used, assignment(several=False))
    for trainable in (Labelled(), used):
        with pytest.raises(Undecided):
            train(trainable, assignment(several=True))


def test_values_that_decide_nothing_need_no_other_program() -> None:
    class Reversed(Labelled):
        def data(self, hp: Hyperparameters) -> Any:
            turn = hp.integer("turn")
            return tuple((x, np.roll(y, turn, axis=1)) for x, y in super().data(hp))

    used = Reversed()
    for turn in (0, 1, 2):
        train(used, assignment(several=False, turn=turn))
    assert used.facts().structures == 1


def test_targets_that_an_author_reads_are_a_part_of_the_key() -> None:
    class Largest(Small):
        def data(self, hp: Hyperparameters) -> Any:
            return tuple(
                (x, (y * hp.number("scale")).astype(np.float32)) for x, y in super().data(hp)
            )

        def model(self, hp: Hyperparameters) -> keras.Model:
            return keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])

        def loss(self, hp: Hyperparameters, model: keras.Model) -> Any:
            largest = float(self.some_targets.max())
            return lambda y, predicted: keras.ops.square((y - predicted) / largest)

        def metrics(self, hp: Hyperparameters, model: keras.Model) -> Any:
            return []

    used = Largest()
    for scale in (1.0, 5.0):
        found = metrics(train(used, assignment(scale=scale)))
    assert found == metrics(train(Largest(), assignment(scale=5.0)))


def test_a_notebook_s_own_layers_go_on_being_numbered() -> None:
    names = [keras.layers.Dense(1).name]
    train(Small(), assignment(epochs=1))
    names.append(keras.layers.Dense(1).name)
    trained = Small()
    train(trained, assignment(epochs=1))
    trained.trained_model()
    names.append(keras.layers.Dense(1).name)
    numbers = [int(name.rpartition("_")[2] if "_" in name else 0) for name in names]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert next(layer.name for layer in session_of(trained).trial.program.model.layers) == "dense"
