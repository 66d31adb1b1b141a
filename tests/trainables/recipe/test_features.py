from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import zoo_data
from keras import layers
from small import assignment, metrics, train
from zoo_sources import OnFeatures

from sweep.hyperparameters import Hyperparameters
from trainables.data.sources import DataError
from trainables.keras_trainable import session_of
from trainables.recipe import features
from trainables.recipe.author import Author
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


class Plain(OnFeatures):
    """The default of an author who augments nothing: features are kept."""

    augment = Author.augment


def test_what_is_kept_trains_as_what_is_computed_in_each_update() -> None:
    kept, computed = Plain(), Plain()
    one = metrics(train(kept, assignment(epochs=3)))
    other = metrics(train(computed, assignment(epochs=3, cache_features=False)))
    for a, b in zip(one, other, strict=True):
        assert a == pytest.approx(b, abs=1e-6)
    assert len(session_of(kept).trial.program.model.variables) == 4
    assert len(session_of(computed).trial.program.model.variables) > 8
    assert kept.first_example[0].shape == (1, 4)


def test_they_are_what_keras_predicts() -> None:
    author = Plain()
    front = features.make_front_model(author, None)
    assert front is not None
    data, _ = zoo_data.images()
    (found, y) = features.replace_inputs(front, data, "cpu:0")
    np.testing.assert_allclose(found, front.predict(data[0], verbose=0), atol=1e-6)
    assert y is data[1]


def test_inputs_that_are_augmented_are_not_cached() -> None:
    found = OnFeatures()
    train(found, assignment(epochs=1))
    assert found.first_example[0].shape == (1, 8, 8, 2)


def test_they_are_computed_once_for_all_trials_of_a_worker() -> None:
    calls: list[int] = []

    class Counted(Plain):
        def features(self, hp: Any) -> keras.Model:
            calls.append(1)
            return super().features(hp)

    found = Counted()
    for seed in (0, 1):
        train(found, assignment(epochs=1, seed=seed))
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["mixup", "cutmix", "random_erasing"])
def test_inputs_that_are_mixed_or_erased_have_no_features_to_keep(name: str) -> None:
    assert features.are_cached(Plain(), Hyperparameters({}))
    assert not features.are_cached(Plain(), Hyperparameters({name: 0.2}))
    assert features.are_cached(Plain(), Hyperparameters({name: 0.2, "cache_features": True}))


@pytest.mark.parametrize("cached", [True, False])
def test_random_layers_in_them_are_refused(cached: bool) -> None:
    class Flipped(Plain):
        def features(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((8, 8, 2)), layers.RandomFlip(), layers.Flatten()])

    with pytest.raises(Refused, match=r"RandomFlip .*augment"):
        Flipped().begin(assignment(cache_features=cached))


def test_features_that_differ_each_time_are_refused() -> None:
    class Noise(layers.Layer):
        def call(self, x: Any) -> Any:
            return x + tf.random.normal(tf.shape(x))

    class Noisy(Plain):
        def features(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((8, 8, 2)), Noise(), layers.Flatten()])

    with pytest.raises(Refused, match=r"features\(\) are random"):
        Noisy().begin(assignment())


def test_streams_have_no_features_to_keep() -> None:
    class Streamed(Plain):
        def data(self, hp: Any) -> Any:
            return tuple(map(tf.data.Dataset.from_tensor_slices, super().data(hp)))

    with pytest.raises(DataError, match="cache_features: false"):
        Streamed().begin(assignment())
    assert train(Streamed(), assignment(epochs=1, cache_features=False))


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], "a float within it"),
        (None, "a NoneType within it"),
        (np.zeros((0, 2)), "arrays of \\[0\\] examples"),
    ],
)
def test_inputs_that_are_no_arrays_are_refused_by_name(inputs: Any, told: str) -> None:
    front = keras.Sequential([keras.Input((2,)), layers.Dense(3)])
    with pytest.raises(DataError, match=told):
        features.replace_inputs(front, (inputs, np.zeros(2)), "cpu:0")


def test_a_table_with_columns_of_numbers_and_booleans_has_features() -> None:
    front = keras.Sequential([keras.Input((2,)), layers.Dense(3)])
    numbers = np.array([[1.5, 0.0], [2.5, 1.0]], np.float32)
    table = pd.DataFrame({"size": numbers[:, 0], "old": [False, True]})
    found, _ = features.replace_inputs(front, (table, np.zeros(2)), "cpu:0")
    expected, _ = features.replace_inputs(front, (numbers, np.zeros(2)), "cpu:0")
    np.testing.assert_array_equal(found, expected)


def test_what_is_no_model_is_refused() -> None:
    class Wrong(Plain):
        def features(self, hp: Any) -> Any:
            return 3

    with pytest.raises(TypeError, match=r"features\(\) returned int"):
        Wrong().begin(assignment())


def test_a_model_compiled_behind_them_is_refused_in_the_graph() -> None:
    class Compiled(Plain):
        def model(self, hp: Any) -> keras.Model:
            model = super().model(hp)
            model.compile("sgd", "mse")
            return model

        optimizer = Author.optimizer

    with pytest.raises(Refused, match="compiled in model"):
        Compiled().begin(assignment(cache_features=False))


def test_none_stands_for_no_features() -> None:
    class Without(Plain):
        def features(self, hp: Any) -> Any:
            return None

        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((8, 8, 2)), layers.Flatten(), layers.Dense(3)])

    assert train(Without(), assignment(epochs=1))
