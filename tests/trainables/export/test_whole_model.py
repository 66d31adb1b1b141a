"""A trial that was trained on kept features is handed out with what computes them."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, train
from zoo_sources import OfTexts, OnFeatures

from sweep.contract import Fold, NotExportable
from trainables.recipe.author import Author

pytestmark = pytest.mark.keras


class Kept(OnFeatures):
    """The default of an author who augments nothing: features are kept."""

    augment = Author.augment


class CompiledByItsAuthor(Small):
    """Its author compiles it."""

    def model(self, hp: Any) -> keras.Model:
        model = super().model(hp)
        model.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    loss = Author.loss


class NeverTheSame(Kept):
    """Its data() draws other examples at each call."""

    def data(self, hp: Any) -> Any:
        (x, y), validation = super().data(hp)
        others = np.random.default_rng(secrets.randbits(32)).random(validation[0].shape)
        return (x, y), (others.astype(np.float32), validation[1])


@pytest.mark.parametrize("how", sampled(["parts", "fold", "whole", "in_the_graph"], 2))
def test_it_predicts_from_raw_inputs_what_was_validated(how: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"parts": {}, "in_the_graph": {"cache_features": False}}.get(how, {})
    about = assignment(epochs=1, **given)
    if how == "fold":
        about = about.__class__(**{**_fields(about), "fold": Fold(1, 3, 0)})
    if how == "whole":
        about = about.__class__(**{**_fields(about), "training": {"all_data": True}})
    trainable = Kept()
    last = train(trainable, about)[-1]
    model = trainable.trained_model()
    assert model.input_shape == (None, 8, 8, 2)
    assert all(type(layer).__module__.startswith("keras.") for layer in model._flatten_layers())
    if how in ("parts", "in_the_graph"):
        x, y = trainable.data(None)[1]
        right = np.argmax(model.predict(x, verbose=0), -1) == np.reshape(y, -1)
        assert right.mean() == pytest.approx(last.metrics["val_accuracy"])
    exported = trainable.export(tmp_path, ["keras"])
    assert exported.needs == ()
    assert exported.differences["keras"] <= 1e-5
    assert "(8, 8, 2)" in exported.data["training"]
    assert any("features()" in note for note in exported.notes) == (how != "in_the_graph")


class InThreeParts(Kept):
    """It has test data as well."""

    def data(self, hp: Any) -> Any:
        training, validation = super().data(hp)
        return training, validation, validation


def test_kept_features_are_those_of_the_trials_precision(tmp_path: Path) -> None:
    trainable = InThreeParts()
    last = train(trainable, assignment(epochs=1, training={"precision": "mixed_bfloat16"}))[-1]
    tested = trainable.test()
    assert tested is not None
    assert tested["loss"] == pytest.approx(last.metrics["val_loss"])
    assert trainable.export(tmp_path, ["keras"]).differences["keras"] <= 1e-5


def test_raw_inputs_that_are_others_at_each_call_are_noticed(tmp_path: Path) -> None:
    trainable = NeverTheSame()
    train(trainable, assignment(epochs=1))
    with pytest.raises(NotExportable, match="predicts something else"):
        trainable.export(tmp_path, ["keras"])


@pytest.mark.exhaustive
def test_the_file_loads_without_this_package(tmp_path: Path) -> None:
    trainable = Kept()
    train(trainable, assignment(epochs=1))
    expected = trainable.trained_model().predict(trainable.data(None)[0][0], verbose=0)
    trainable.export(tmp_path, ["keras"])
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        loaded.predict(trainable.data(None)[0][0], verbose=0), expected, atol=1e-6
    )


def test_a_compiled_model_is_saved_without_an_optimizer(tmp_path: Path) -> None:
    trainable = CompiledByItsAuthor()
    train(trainable, assignment(epochs=1))
    trainable.export(tmp_path, ["keras"])
    assert not keras.saving.load_model(tmp_path / "model.keras").compiled


class ByName(Small):
    """Its model takes a list of inputs, or one of them; Keras finds them by their names in the data's dictionary."""

    takes: tuple[str, ...] = ("user", "item")

    def data(self, hp: Any) -> Any:
        parts = super().data(hp)
        return tuple(({"user": x, "item": x[::-1], "added": x}, y) for x, y in parts)

    def model(self, hp: Any) -> keras.Model:
        inputs = [keras.Input((6,), name=name) for name in self.takes]
        units = [keras.layers.Dense(n)(x) for n, x in enumerate(inputs, 3)]
        merged = units[0] if len(units) == 1 else keras.layers.Concatenate()(units)
        return keras.Model(inputs if len(inputs) > 1 else inputs[0], keras.layers.Dense(3)(merged))


@pytest.mark.filterwarnings("ignore:The structure of `inputs`")  # Keras's, of one input in a list
@pytest.mark.parametrize("takes", [("user", "item"), ("user",)])
def test_inputs_that_keras_finds_by_name_are_compared_by_name(
    takes: tuple[str, ...], tmp_path: Path
) -> None:
    trainable = ByName()
    trainable.takes = takes
    train(trainable, assignment(epochs=1))
    exported = trainable.export(tmp_path, ["keras"])
    assert exported.differences["keras"] <= 1e-5
    assert exported.compared == "20 validation examples"


class Endless(Small):
    def data(self, hp: Any) -> Any:
        training, _ = super().data(hp)
        return tf.data.Dataset.from_tensor_slices(training).repeat(), None


def test_examples_of_a_stream_without_an_end_have_no_number(tmp_path: Path) -> None:
    trainable = Endless()
    train(trainable, replace(assignment(epochs=1, steps_per_epoch=3), objective="loss"))
    exported = trainable.export(tmp_path, ["keras"])
    assert exported.data["training"] == "a stream of examples: float32 (6,), int32 ()"
    assert exported.compared == "the first 10,000 training examples"


@pytest.mark.parametrize("given", sampled([list, np.array], 1))
def test_the_lines_that_predict_take_texts(
    given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainable = OfTexts()
    train(trainable, assignment(epochs=1))
    usage = trainable.export(tmp_path, ["keras"]).usage["keras"]
    monkeypatch.chdir(tmp_path)
    (x, _), _ = trainable.data(None)
    names: dict[str, Any] = {"x": given([str(text) for text in x[:3]])}
    exec(usage, names)
    assert len(names["predictions"]) == 3


def _fields(given: Any) -> dict[str, Any]:
    return {name: getattr(given, name) for name in given.__slots__}
