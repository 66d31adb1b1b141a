"""What an author sets for the whole process is honoured, or refused by a name."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
from keras.backend import clear_session
from keras.src.backend.common import global_state
from small import Small, assignment, metrics, train

pytestmark = pytest.mark.keras

ADAM: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.01}


class Drawing(Small):
    """With what `clear_session` might reset: seeds, dropout, names that Keras counts."""

    clears = ""

    def _begin(self, method: str) -> None:
        if self.clears in (method, "all"):
            clear_session()

    def data(self, hp: Any) -> Any:
        drawn = keras.random.normal((6,))
        self._begin("data")
        (x, y), (x_val, y_val) = super().data(hp)
        return (x + drawn + keras.random.normal((6,)), y), (x_val, y_val)

    def model(self, hp: Any) -> keras.Model:
        self._begin("model")
        wide = keras.layers.Dense(8, "relu")
        return keras.Sequential([keras.Input((6,)), wide, keras.layers.Dropout(0.3), keras.layers.Dense(3)])

    def loss(self, hp: Any, model: keras.Model) -> Any:
        self._begin("loss")
        return super().loss(hp, model)

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        self._begin("metrics")
        return ["accuracy"]

    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        self._begin("optimizer")
        return keras.optimizers.Adam(hp.number("learning_rate"))


class Clearing(Drawing):
    clears = "all"


def two(trainable: Small, gpus: int = 0, **more: Any) -> list[dict[str, float]]:
    """The metrics of two trials of a worker, the second with a program of its own."""
    training = {"precision": "mixed_bfloat16"} if gpus < 2 else {}
    first = train(trainable, assignment(gpus, training=training, **ADAM, **more))
    assert trainable._session.trial.program.model.layers[0].name == "dense"
    second = train(trainable, assignment(gpus, training=training, seed=1, more=1, **ADAM))
    return metrics(first) + metrics(second)


@pytest.mark.parametrize("method", ["data", "model", "loss", "metrics", "optimizer"])
def test_clear_session_in_any_method_changes_no_number(method: str) -> None:
    clearing = type("Clearing", (Drawing,), {"clears": method})
    assert two(clearing()) == two(Drawing())


def test_clear_session_changes_no_number_on_two_replicas() -> None:
    assert two(Clearing(), gpus=2) == two(Drawing(), gpus=2)


def test_clear_session_is_keras_s_own_again_after_the_trial() -> None:
    reset, trackers = tf.compat.v1.reset_default_graph, global_state.GLOBAL_STATE_TRACKER
    train(Clearing(), assignment(epochs=1, **ADAM))
    assert tf.compat.v1.reset_default_graph is reset
    assert global_state.GLOBAL_STATE_TRACKER is trackers
    clear_session()
    assert global_state.GLOBAL_STATE_TRACKER is not trackers
