from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.numbers.live import Live, settling

pytestmark = pytest.mark.keras


def test_a_graph_sees_the_value_of_each_trial() -> None:
    live = Live(Hyperparameters({"decay": 0.5}))
    number = live.number("decay")
    double = tf.function(lambda: tf.convert_to_tensor(number) * 2)
    values = [float(double())]
    live.set(Hyperparameters({"decay": 0.25}))
    values.append(float(double()))
    assert values == [1.0, 0.5]
    assert double.experimental_get_tracing_count() == 1
    assert float(number) == 0.25
    assert float(1 - number) == 0.75
    assert live.number("decay") is number


def test_it_passes_for_a_rate_that_keras_checks() -> None:
    rate = Live(Hyperparameters({})).number("rate", default=0.0)
    assert 0 <= rate <= 1
    assert rate > 0  # a layer must do its work at every value
    with pytest.raises(ValueError, match="between 0 and 1"):
        tf.keras.layers.Dropout(Live(Hyperparameters({"rate": 1.5})).number("rate"))


def test_texts_have_meanings() -> None:
    strength = {"low": 0.1, "high": 0.9}
    live = Live(Hyperparameters({"augmentation": "low"}))
    assert float(live.number("augmentation", strength)) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="augmentation is 'huge', expected one of low, high"):
        live.set(Hyperparameters({"augmentation": "huge"}))


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({}, KeyError, "no parameter 'x'"),
        ({"x": "a"}, TypeError, "x is 'a', expected a number"),
        ({"x": True}, TypeError, "expected a number"),
        ({"x": 2.0}, ValueError, "x is 2.0, expected a number from 0 to 1"),
    ],
)
def test_mistakes(params, error, message) -> None:
    with pytest.raises(error, match=message):
        Live(Hyperparameters(params)).number("x", bounds=(0, 1))


def test_accepts_trials_that_have_all_its_parameters() -> None:
    live = Live(Hyperparameters({"a": 1.0}))
    live.number("a")
    live.number("b", default=0.0)
    assert live.accepts(Hyperparameters({"a": 2.0}))
    assert not live.accepts(Hyperparameters({"b": 2.0}))


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # Keras's own, in saving
def test_a_model_with_live_numbers_says_how_it_is_saved(tmp_path: Path) -> None:
    rate = Live(Hyperparameters({"dropout": 0.25})).number("dropout")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2), keras.layers.Dropout(rate)])
    with pytest.raises(TypeError, match=r"let a keras\.callbacks\.ModelCheckpoint save it"):
        model.save(tmp_path / "model.keras")
    with settling(model.layers):
        model.save(tmp_path / "model.keras")
    assert model.layers[-1].rate is rate
    assert keras.models.load_model(tmp_path / "model.keras").layers[-1].rate == 0.25


def test_numbers_that_are_turned_on_are_back_afterwards() -> None:
    live = Live(Hyperparameters({"a": 0.0, "b": 0.4}))
    a, b = live.number("a"), live.number("b")
    with live.all_turned_on():
        assert (float(a), float(b)) == (0.5, pytest.approx(0.3))
    assert (float(a), float(b)) == (0.0, 0.4)


@pytest.mark.parametrize(
    "use", [lambda rate: keras.layers.LSTM(4, dropout=rate), lambda rate: rate < 0.5, int]
)
def test_where_only_a_plain_number_goes_the_way_to_it_is_named(use: Any) -> None:
    rate = Live(Hyperparameters({"dropout": 0.1})).number("dropout")
    with pytest.raises(
        TypeError, match=r'the live number "dropout" cannot be .* hp.number\("dropout"\) there'
    ):
        use(rate)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: 1 / x,
        lambda x: x / 2,
        lambda x: 2.0**x,
        lambda x: x**2,
        lambda x: abs(-x),
        lambda x: x // 0.5,
        lambda x: 3 // x,
        lambda x: x % 0.5,
        lambda x: 3 % x,
    ],
)
def test_it_computes_as_a_float_does(compute: Any) -> None:
    number = Live(Hyperparameters({"x": 0.75})).number("x")
    assert float(compute(number)) == pytest.approx(compute(0.75))
    of_graph = tf.function(lambda: compute(tf.constant(1.0) * number))
    assert float(of_graph()) == pytest.approx(compute(0.75))
