"""A layer that `data` has fitted and kept on the trainable is a part of the model, of each program its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from sampling import sampled
from small import Small, assignment, go_on, metrics, train

from trainables.keras_trainable import KerasTrainable
from trainables.recipe import author_data

pytestmark = pytest.mark.keras


class Normalized(Small):
    """Scaled by what `data` has seen of the inputs, which a parameter changes."""

    def data(self, hp: Any) -> Any:
        (x, y), held_out = super().data(hp)
        self.kept = {"scale": layers.Normalization()}
        self.kept["scale"].adapt(x * hp.number("factor", 1.0) + 2.0)
        return (x, y), held_out

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [keras.Input((6,)), self.kept["scale"], layers.Dense(8, "tanh"), layers.Dense(3)]
        )


class Numbers(Normalized):
    """The same with numbers in place of the layer."""

    def model(self, hp: Any) -> keras.Model:
        scale = self.kept["scale"]
        scale = layers.Normalization(mean=np.ravel(scale.mean), variance=np.ravel(scale.variance))
        return keras.Sequential(
            [keras.Input((6,)), scale, layers.Dense(8, "tanh"), layers.Dense(3)]
        )


class Table(KerasTrainable):
    """Columns of all kinds through a `FeatureSpace` inside of the model."""

    def data(self, hp: Any) -> Any:
        random = np.random.default_rng(5)
        kind, pulse = random.integers(0, 3, 60), random.normal(size=60).astype("float32")
        x = {"kind": kind.astype("int64"), "pulse": pulse}
        y = (pulse * (kind - 1) > 0).astype("float32")[:, None]
        features = {
            "kind": keras.utils.FeatureSpace.integer_categorical(),
            "pulse": "float_normalized",
        }
        self.space = keras.utils.FeatureSpace(features, output_mode="concat")
        self.space.adapt(tf.data.Dataset.from_tensor_slices(x))
        x = {name: column[:, None] for name, column in x.items()}
        return (x, y), ({name: column[:20] for name, column in x.items()}, y[:20])

    def model(self, hp: Any) -> keras.Model:
        output = layers.Dense(1, activation="sigmoid")(self.space.get_encoded_features())
        return keras.Model(dict(self.space.get_inputs()), output)

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return "binary_crossentropy"


@pytest.mark.parametrize("gpus", sampled([0, 2], 1))
def test_a_fitted_layer_trains_as_its_numbers_do(gpus: int) -> None:
    trainable = Normalized()
    for factor in (1.0, 4.0, 1.0):  # the program of the first serves the last
        found = metrics(train(trainable, assignment(gpus, factor=factor)))
        told = metrics(train(Numbers(), assignment(gpus, factor=factor)))
        for mine, theirs in zip(found, told, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-6)


def test_a_used_one_is_a_fresh_one_with_another_seed_and_a_resumed_one_a_straight_one(
    tmp_path: Path,
) -> None:
    used = Normalized()
    train(used, assignment(seed=1))
    again, fresh = metrics(train(used, assignment(seed=2, epochs=4))), Normalized()
    assert used.facts().structures == 1
    assert metrics(train(fresh, assignment(seed=2, epochs=4))) == again
    begun, resumed = Normalized(), Normalized()
    begun.begin(assignment(seed=2, epochs=4))
    first = go_on(begun, pause_after=2)
    begun.save(tmp_path)()
    resumed.begin(assignment(seed=2, epochs=4))
    resumed.restore(tmp_path)
    assert metrics([*first, *go_on(resumed)]) == again


def test_a_feature_space_is_a_part_of_the_model() -> None:
    trainable = Table()
    first, *_, last = metrics(
        train(trainable, assignment(epochs=6, batch_size=10, learning_rate=0.5))
    )
    assert last["val_loss"] < first["val_loss"]


def test_what_holds_no_layer_is_left_as_it_is() -> None:
    kept = {"mean": np.ones(3), "words": ["a"], "pair": (1, {"b": 2})}
    assert author_data.copy_fitted_layers(kept) == {}
