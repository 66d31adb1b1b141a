"""Data without targets, in each of the forms in which an author may hand them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import assignment, metrics, train

from sweep.contract import Fold
from sweep.hyperparameters import Hyperparameters
from trainables.data import chunks
from trainables.data.sources import Buckets, DataError
from trainables.devices.replicas import Replicas
from trainables.keras_trainable import KerasTrainable

pytestmark = pytest.mark.keras

X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
STRATEGY = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))


class Batches(keras.utils.PyDataset):
    def __init__(self, x: Any, form: Any) -> None:
        super().__init__()
        self.x, self.form = x, form

    def __len__(self) -> int:
        return len(self.x) // 8

    def __getitem__(self, index: int) -> Any:
        return self.form(self.x[index * 8 : (index + 1) * 8])


def dataset(x: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(x)


FORMS = {
    "alone": lambda x: x,
    "a tuple of one": lambda x: (x,),
    "None": lambda x: (x, None),
    "two Nones": lambda x: (x, None, None),
    "by name": lambda x: {"x": x},
    "by name in a tuple": lambda x: ({"x": x},),
    "a tensor": lambda x: tf.constant(x),
    "a dataset": dataset,
    "a dataset of tuples of one": lambda x: tf.data.Dataset.from_tensor_slices((x,)),
    "a dataset with None": lambda x: dataset(x).map(lambda part: (part, None)),
    "a dataset by name": lambda x: dataset({"x": x}),
    "batches": lambda x: Batches(x, lambda part: part),
    "batches of tuples of one": lambda x: Batches(x, lambda part: (part,)),
    "batches with None": lambda x: Batches(x, lambda part: (part, None)),
    "buckets": lambda x: Buckets(((x[:20],), (x[20:], None))),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_examples_of_inputs_alone(form: str) -> None:
    split = chunks.make_examples(FORMS[form](X), STRATEGY, "training data")
    example = split.example()
    assert len(example) == 1
    assert split.some_targets() is None
    (leaf,) = tf.nest.flatten(example)
    np.testing.assert_array_equal(leaf, X[:1])
    assert sum(len(chunk.order) for chunk in split.chunks(8, None, 0)) == split.size
    assert all(len(chunk.tensors) == 1 for chunk in split.chunks(8, 3, 1))


class Coder(KerasTrainable):
    """An autoencoder by a training step of its own: its targets are its inputs."""

    form: Any = staticmethod(lambda x: x)

    def data(self, hp: Hyperparameters) -> Any:
        kind = type(self).form
        return kind(X[:32]), kind(X[8:]), kind(X[:16])

    def model(self, hp: Hyperparameters) -> keras.Model:
        inputs = keras.Input((4,))
        return keras.Model(
            inputs, keras.layers.Dense(4)(keras.layers.Dense(2, activation="relu")(inputs))
        )

    def train_step(self, model: keras.Model, batch: Any, hp: Hyperparameters) -> Mapping[str, Any]:
        assert batch.y is None
        x = batch.x["x"] if isinstance(batch.x, dict) else batch.x
        return {"loss": keras.ops.mean(keras.ops.square(model(x) - x), axis=-1)}

    def test_step(self, model: keras.Model, batch: Any, hp: Hyperparameters) -> Mapping[str, Any]:
        return self.train_step(model, batch, hp)


@pytest.fixture(scope="module")
def expected() -> Any:
    trainable = Coder()
    found = metrics(train(trainable, assignment(batch_size=8, shuffle=False)))
    assert trainable.test() is not None
    return found


@pytest.mark.parametrize(
    "form", ["None", "by name", "a dataset", "a dataset with None", "batches with None"]
)
def test_a_step_of_one_s_own_trains_on_them(form: str, expected: Any) -> None:
    kind = type("Form", (Coder,), {"form": staticmethod(FORMS[form])})
    trainable = kind()
    found = metrics(train(trainable, assignment(batch_size=8, shuffle=False)))
    if "batches" not in form:
        assert found == expected
    assert trainable.test() is not None


@pytest.mark.parametrize("way", ["replicas", "micro-batches", "fold", "all data", "shared"])
def test_they_go_every_way_that_others_go(way: str, expected: Any, tmp_path: Path) -> None:
    params: dict[str, Any] = {"batch_size": 8, "shuffle": False}
    given = assignment(**params)
    match way:
        case "replicas":
            given = assignment(gpus=2, **params)
        case "micro-batches":
            given = assignment(micro_batches=2, **params)
        case "fold":
            given = replace(given, fold=Fold(0, 2, 0))
        case "all data":
            given = assignment(training={"all_data": True}, **params)
        case "shared":
            given = replace(given, shared=tmp_path / "node")
            train(Coder(), given)
    found = metrics(train(Coder(), given))
    if way in ("replicas", "micro-batches", "shared"):
        for one, other in zip(found, expected, strict=True):
            assert one == pytest.approx(other, rel=1e-5)
    else:
        assert np.isfinite([epoch["loss"] for epoch in found]).all()


def test_what_cannot_be_without_targets_says_so() -> None:
    with pytest.raises(DataError, match="training data: sample weights without targets"):
        chunks.make_examples((X, None, np.ones(40)), STRATEGY, "training data")
    with pytest.raises(Exception, match="class_weights are given, but the data has no targets"):
        train(type("Weighed", (Coder,), {"class_weights": lambda *_: {0: 1.0}})(), assignment())
    with pytest.raises(
        Exception, match="mixup mixes targets with the inputs, and the data has none"
    ):
        train(Coder(), assignment(mixup=0.2))
