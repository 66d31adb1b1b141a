"""What an author sets for the whole process is honoured, or refused by a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.backend import clear_session
from keras.src.backend.common import global_state
from small import Small, assignment, metrics, train

from trainables.keras_trainable import session_of
from trainables.recipe.refusals import Refused

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
        return keras.Sequential(
            [keras.Input((6,)), wide, keras.layers.Dropout(0.3), keras.layers.Dense(3)]
        )

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
    assert session_of(trainable).trial.program.model.layers[0].name == "dense"
    second = train(trainable, assignment(gpus, training=training, seed=1, more=1, **ADAM))
    return metrics(first) + metrics(second)


@pytest.fixture(scope="module")
def undisturbed() -> list[dict[str, float]]:
    """What two trials come to that clear nothing."""
    return two(Drawing())


@pytest.mark.parametrize("method", ["data", "model", "loss", "metrics", "optimizer"])
def test_clear_session_in_any_method_changes_no_number(
    method: str, undisturbed: list[dict[str, float]]
) -> None:
    clearing = type("Clearing", (Drawing,), {"clears": method})
    assert two(clearing()) == undisturbed


def test_clear_session_changes_no_number_on_two_replicas() -> None:
    assert two(Clearing(), gpus=2) == two(Drawing(), gpus=2)


def test_clear_session_is_keras_s_own_again_after_the_trial() -> None:
    reset, trackers = tf.compat.v1.reset_default_graph, global_state.GLOBAL_STATE_TRACKER
    train(Clearing(), assignment(epochs=1, **ADAM))
    assert tf.compat.v1.reset_default_graph is reset
    assert global_state.GLOBAL_STATE_TRACKER is trackers
    clear_session()
    assert global_state.GLOBAL_STATE_TRACKER is not trackers


@contextmanager
def imported(setting: Callable[[], object]) -> Iterator[None]:
    """As after the import of a module with this line."""
    setting()
    try:
        yield
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
        tf.config.run_functions_eagerly(False)


SETTINGS = [
    (
        lambda: keras.mixed_precision.set_global_policy("mixed_bfloat16"),
        r"dtype policy to mixed_bfloat16 .*the trial has float32.*training: \{precision: mixed_bfloat16\}",
    ),
    (
        lambda: keras.config.set_dtype_policy("float64"),
        r"dtype policy to float64 .*float64 is unsupported",
    ),
    (
        lambda: keras.backend.set_floatx("float64"),
        r"floatx to float64 .*float64 is unsupported.*float32, mixed_bf",
    ),
    (
        lambda: keras.backend.set_floatx("float16"),
        r"floatx to float16 .*training: \{precision: mixed_float16\}",
    ),
]


@pytest.mark.parametrize(("setting", "said"), SETTINGS)
def test_a_precision_of_the_author_s_is_refused_with_what_to_write(
    setting: Callable[[], object], said: str
) -> None:
    with imported(setting), pytest.raises(Refused, match=said):
        Small().begin(assignment())
    for method in ("data", "model", "loss"):

        def own(self: Small, hp: Any, *more: Any, method: str = method) -> Any:
            setting()
            return getattr(Small, method)(self, hp, *more)

        trainable = type("Own", (Small,), {method: own})()
        with pytest.raises(Refused, match=said):
            trainable.begin(assignment())
        assert (keras.config.floatx(), keras.config.dtype_policy().name) == ("float32", "float32")
    assert train(Small(), assignment(epochs=1))  # the worker goes on


def test_the_precision_of_the_trial_may_be_set_again() -> None:
    half: dict[str, Any] = {"precision": "mixed_bfloat16"}

    class Again(Small):
        def model(self, hp: Any) -> keras.Model:
            keras.mixed_precision.set_global_policy("mixed_bfloat16")
            return super().model(hp)

    expected = metrics(train(Small(), assignment(training=half)))
    with imported(lambda: keras.mixed_precision.set_global_policy("mixed_bfloat16")):
        trainable = Again()
        assert metrics(train(trainable, assignment(training=half))) == expected
        assert metrics(train(trainable, assignment(training=half, seed=1))) != expected
        with pytest.raises(Refused, match="the trial has float32"):
            trainable.begin(assignment())


def test_functions_that_run_eagerly_are_refused_with_what_to_write() -> None:
    class Eagerly(Small):
        def model(self, hp: Any) -> keras.Model:
            tf.config.run_functions_eagerly(True)
            return super().model(hp)

    said = r"run_functions_eagerly\(True\).*`training: \{run_eagerly: true\}`.* --eager"
    with (
        imported(lambda: tf.config.run_functions_eagerly(True)),
        pytest.raises(Refused, match=said),
    ):
        Small().begin(assignment())
    with pytest.raises(Refused, match=said):
        Eagerly().begin(assignment())
    assert not tf.config.functions_run_eagerly()
    assert train(Small(), assignment(epochs=1, training={"run_eagerly": True}))


@pytest.mark.parametrize(
    "setting",
    [*(setting for setting, _ in SETTINGS), lambda: tf.config.run_functions_eagerly(True)],
)
def test_a_trial_is_looked_at_in_a_process_of_other_settings(
    setting: Callable[[], object], tmp_path: Path
) -> None:
    trainable = Small()
    train(trainable, assignment(epochs=1))
    trainable.save(tmp_path)()
    x = trainable.data(None)[1][0]
    expected = trainable.trained_model()(x).numpy()

    def now() -> tuple[str, str, bool]:
        return (
            keras.config.floatx(),
            keras.config.dtype_policy().name,
            tf.config.functions_run_eagerly(),
        )

    with imported(setting):
        before, other = now(), Small()
        other.begin(replace(assignment(epochs=1), trains=False))
        other.restore(tmp_path)
        model = other.trained_model()
        assert now() == before != ("float32", "float32", False)
    assert {weight.dtype for weight in model.weights} == {"float32"}
    np.testing.assert_array_equal(model(x).numpy(), expected)
