"""What the first trace of a model's own step leaves behind: variables, and nothing else."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from small import Small, assignment, train

from trainables.keras_trainable import session_of
from trainables.loop import first_trace
from trainables.loop.steps import InputRecorder

pytestmark = [
    pytest.mark.keras,
    # of a model that no call has built
    pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer"),
]


class Halves(keras.Model):
    """Its step feeds it the first half of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.head(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x[:, :3]))
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


class Halved(Small):
    def data(self, hp: Any) -> Any:
        return super().data(hp)[0], None

    def model(self, hp: Any) -> keras.Model:
        return Halves()

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def test_an_optimizer_changes_nothing_inside_of_the_trace_and_applies_again_after_it() -> None:
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.1)
    before, weights = model.get_weights(), model.trainable_variables
    with first_trace.recording_trained(optimizer, model) as trained:
        optimizer.apply_gradients([(tf.ones((2, 1)), weights[0])])
        optimizer.apply([tf.ones((1,))], weights[1:])
    assert (trained, optimizer.built) == (weights, False)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    optimizer.apply([tf.ones((2, 1)), tf.ones((1,))], weights)
    assert not np.array_equal(before[0], model.get_weights()[0])


def test_a_step_is_called_with_its_own_inputs_of_which_an_export_takes_the_shapes() -> None:
    called_with = InputRecorder()
    model = Halves()
    with called_with.recording(model, training=True):
        model(tf.ones((5, 3)))
    assert called_with.example.shape == (1, 3)
    assert "call" not in vars(model)


def test_a_model_is_compiled_for_the_trace_and_then_as_it_is_to_be() -> None:
    trainable = Halved()
    train(trainable, assignment(epochs=1))
    plain = trainable.trained_model()
    assert not plain.compiled
    assert plain(np.ones((2, 3), np.float32)).shape == (2, 3)
    model = session_of(trainable).trial.program.model
    assert model.optimizer.built
    assert len(model.optimizer.variables) == 2 + 2 * len(model.trainable_variables)


def test_layers_are_frozen_that_the_step_has_built() -> None:
    class Deep(Halves):
        def __init__(self) -> None:
            super().__init__()
            self.head = keras.Sequential([layers.Dense(4), layers.Dense(3)])
            self.after = layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.after(self.head(x))

    class Frozen(Halved):
        def model(self, hp: Any) -> keras.Model:
            return Deep()

    trainable = Frozen()
    trainable.begin(assignment(epochs=1, frozen_layers=1))
    model = session_of(trainable).trial.program.model
    assert [len(layer.trainable_variables) for layer in (model.head, model.after)] == [0, 2]
    assert len(model.optimizer.variables) == 2 + 2 * 2
