"""A trained model by itself: the trial's weights, nothing of the loop, and the trial none the worse for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from small import Small, assignment, go_on, metrics, train

from sweep.contract import NotExportable
from trainables.keras_trainable import session_of
from trainables.numbers.live import LiveNumber

pytestmark = pytest.mark.keras


class Rich(Small):
    """With a live number, an average, augmentation, and a functional model of a class of its own."""

    class Mine(keras.Model):
        pass

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        x = layers.Dropout(self.dropout(hp))(layers.BatchNormalization()(layers.Dense(8)(inputs)))
        return self.Mine(inputs, layers.Dense(3)(x))


def objects(model: keras.Model) -> list[Any]:
    return [value for layer in model._flatten_layers() for value in vars(layer).values()]


@pytest.mark.parametrize("gpus", [0, 2])
def test_it_is_kerass_own_and_gives_what_was_validated(gpus: int) -> None:
    trainable = Rich()
    (*_, last) = train(trainable, assignment(gpus, dropout=0.2, ema_momentum=0.9))
    model = trainable.trained_model()
    assert type(model).__module__.startswith("keras.")
    assert not [value for value in objects(model) if isinstance(value, LiveNumber)]
    assert [layer.rate for layer in model.layers if isinstance(layer, layers.Dropout)] == [0.2]
    assert not model.compiled
    (_, (x, y)) = trainable.data(None)
    right = np.argmax(model.predict(x, verbose=0), -1) == y
    assert right.mean() == pytest.approx(last.metrics["val_accuracy"])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert model.evaluate(x, y, verbose=0) == pytest.approx(last.metrics["val_loss"], abs=1e-5)


def test_the_trial_goes_on_as_if_nobody_had_asked() -> None:
    given = assignment(epochs=3, dropout=0.2, ema_momentum=0.9)
    straight = metrics(train(Rich(), given))
    asked = Rich()
    asked.begin(given)
    first = go_on(asked, pause_after=1)
    random.seed(3)
    np.random.seed(3)
    expected = random.Random(3).random(), np.random.RandomState(3).random()
    weights = [np.copy(weight) for weight in asked.trained_model().get_weights()]
    assert (random.random(), np.random.random()) == expected
    model = asked.trained_model()
    assert metrics([*first, *go_on(asked)]) == straight
    assert all(np.array_equal(a, b) for a, b in zip(weights, model.get_weights(), strict=True))
    assert metrics(train(asked, given)) == straight


def test_mixed_precision_stays_and_outputs_are_float32(tmp_path: Path) -> None:
    class Bare(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    class Narrow(Small):
        def model(self, hp: Any) -> keras.Model:
            return Bare()

        def loss(self, hp: Any, model: Any) -> Any:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def metrics(self, hp: Any, model: Any) -> Any:
            return ["accuracy"]

    trainable = Narrow()
    train(trainable, assignment(training={"precision": "mixed_bfloat16"}))
    model = trainable.trained_model()
    assert {str(output.dtype) for output in model.outputs} == {"float32"}
    assert {layer.compute_dtype for layer in model._flatten_layers()} >= {"bfloat16"}


def test_a_model_that_is_made_otherwise_the_next_time(tmp_path: Path) -> None:
    made = tmp_path / "made"  # a file: the values of variables are restored

    class Growing(Small):
        def model(self, hp: Any) -> keras.Model:
            with made.open("a") as file:
                file.write("a model\n")
            count = len(made.read_text().splitlines())
            return keras.Sequential([keras.Input((6,)), *[layers.Dense(3) for _ in range(count)]])

    trainable = Growing()
    train(trainable, assignment(epochs=1))
    with pytest.raises(NotExportable, match=r"model\(\) makes 4 variables now, and made 2 when"):
        trainable.trained_model()


def test_layers_that_an_author_keeps_are_copied() -> None:
    kept: list[keras.Model] = []  # as by functools.cache: what the first trial made

    class Keeping(Small):
        def model(self, hp: Any) -> keras.Model:
            parts = [
                keras.Input((6,)),
                layers.Dense(5, activation="tanh"),
                layers.BatchNormalization(),
            ]
            kept.extend([] if kept else [keras.Sequential(parts)])
            inputs = keras.Input((6,))
            return keras.Model(inputs, layers.Dense(3)(kept[0](inputs)))

    trainable = Keeping()
    (*_, last) = train(trainable, assignment(ema_momentum=0.5))
    model = trainable.trained_model()
    assert not {id(v) for v in model.variables} & {id(v) for v in kept[0].variables}
    (_, (x, y)) = trainable.data(None)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert model.evaluate(x, y, verbose=0) == pytest.approx(last.metrics["val_loss"], abs=1e-5)


def test_formats_that_there_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainable = Small()
    trainable.begin(assignment())
    with pytest.raises(
        NotExportable, match="the format 'h5' is unknown, expected keras, saved_model, onnx"
    ):
        trainable.export(tmp_path, ["h5"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        NotExportable, match="needs tf2onnx, onnx, onnxruntime, which is not installed: pip"
    ):
        trainable.export(tmp_path, ["onnx"])


@keras.saving.register_keras_serializable("dropping")
class Dropping(keras.Model):
    """A subclassed model with dropout in a layer and in attention, which live rates give generators of their own."""

    def __init__(self, rate: Any, **options: Any) -> None:
        super().__init__(**options)
        self.attend = layers.MultiHeadAttention(2, 3, dropout=rate)
        self.drop, self.head = layers.Dropout(rate), layers.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        rows = keras.ops.reshape(x, (-1, 2, 3))
        rows = self.drop(rows + self.attend(rows, rows, training=training), training=training)
        return self.head(keras.ops.mean(rows, 1))


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_rate_of_0_that_was_live_is_exported(rate: float) -> None:
    class Own(Small):
        def model(self, hp: Any) -> keras.Model:
            return Dropping(self.dropout(hp))

        def loss(self, hp: Any, model: keras.Model) -> Any:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    trainable = Own()
    train(trainable, assignment(epochs=1, dropout=rate))
    x = trainable.data(None)[1][0]
    trained = session_of(trainable).trial.program.model
    np.testing.assert_allclose(trainable.trained_model()(x), trained(x, training=False), rtol=1e-6)


class Named(Small):
    """Its model declares a list of inputs, and its `call` takes them from a dictionary by name."""

    class Reading(keras.Model):
        def call(self, inputs: Any, training: bool = False) -> Any:
            return super().call([inputs["x"], inputs["scale"]], training=training)

    def data(self, hp: Any) -> Any:
        parts = []
        for x, y in super().data(hp):
            parts.append(({"x": x, "scale": np.full_like(x, 2)}, y))
        return tuple(parts)

    def model(self, hp: Any) -> keras.Model:
        inputs = [keras.Input((6,), name="x"), keras.Input((6,), name="scale")]
        return self.Reading(inputs, layers.Dense(3)(layers.Multiply()(inputs)))


def test_inputs_of_a_model_that_overrides_call_are_unchanged() -> None:
    trainable = Named()
    train(trainable, assignment(epochs=1))
    x = trainable.data(None)[1][0]
    trained = session_of(trainable).trial.program.model
    np.testing.assert_allclose(trainable.trained_model()(x), trained(x, training=False), rtol=1e-6)
