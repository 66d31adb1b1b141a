"""Validation in large batches where that gives the same numbers, and in those of the training where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import chosen
from small import Small, assignment, train

from trainables.data.chunks import make_examples
from trainables.data.passes import HeldOut
from trainables.data.sources import Buckets
from trainables.devices.replicas import Replicas
from trainables.keras_trainable import session_of
from trainables.loop.program import Evaluated

pytestmark = pytest.mark.keras
ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))


class Towers(Small):
    """Each example's partner among those of its batch."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        x = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)
        return (x[:70], x[:70, ::-1].copy()), (x[70:], x[70:, ::-1].copy())

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])

    def loss(self, hp: Any, model: keras.Model) -> Any:
        def in_batch(y_true: Any, y_pred: Any) -> Any:
            scores = keras.ops.matmul(y_pred, keras.ops.transpose(y_true))
            own = keras.ops.arange(keras.ops.shape(scores)[0])
            return keras.losses.sparse_categorical_crossentropy(own, scores, from_logits=True)

        return in_batch

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return []


class Masked(Small):
    """Keras divides a masked loss by what is left of each batch."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        random = np.random.default_rng(0)
        x = random.integers(1, 9, size=(90, 5)) * (
            np.arange(5) < random.integers(1, 6, size=(90, 1))
        )
        return (x[:70], x[:70] % 3), (x[70:], x[70:] % 3)

    def model(self, hp: Any) -> keras.Model:
        layers = keras.layers
        return keras.Sequential(
            [keras.Input((5,)), layers.Embedding(9, 4, mask_zero=True), layers.Dense(3)]
        )

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def in_batches_of(trainable: Small, size: int) -> float:
    """What Keras gives for the validation data."""
    trial = session_of(trainable).trial
    plain, loss = trainable.trained_model(), trainable.loss(trial.hp, trial.program.model)
    plain.compile(loss=loss)
    x, y = trainable.data(trial.hp)[-1]
    return float(plain.evaluate(x, y, size, verbose=0))


@pytest.mark.parametrize("kind", [pytest.param(Towers, marks=pytest.mark.exhaustive), Masked])
def test_a_loss_that_depends_on_the_batch_is_validated_in_those_of_the_training_as_by_fit(
    kind: type[Small],
) -> None:
    trainable = kind()
    (epoch,) = train(trainable, assignment(epochs=1, batch_size=7))
    assert epoch.metrics["val_loss"] == pytest.approx(in_batches_of(trainable, 7), rel=1e-5)
    assert epoch.metrics["val_loss"] != pytest.approx(in_batches_of(trainable, 256), rel=1e-5)
    (asked,) = train(trainable, assignment(epochs=1, batch_size=7, validation_batch_size=256))
    assert asked.metrics["val_loss"] == pytest.approx(in_batches_of(trainable, 256), rel=1e-5)
    assert asked.metrics["loss"] == epoch.metrics["loss"]  # whatever was tried has left no trace


class HasTestData(Towers):
    """The same with test data, and validation data or none."""

    validates = True

    def data(self, hp: Any) -> Any:
        train, held_out = super().data(hp)
        return train, held_out if self.validates else None, held_out


def test_test_data_comes_in_the_same_batches_whether_or_not_there_is_validation_data() -> None:
    found = []
    for validates in (True, False):
        trainable = HasTestData()
        trainable.validates = validates
        train(trainable, assignment(epochs=1, batch_size=7))
        found.append(trainable.test())
        assert found[-1] is not None
        assert found[-1]["loss"] == pytest.approx(in_batches_of(trainable, 7), rel=1e-5)
        assert found[-1]["loss"] != pytest.approx(in_batches_of(trainable, 256), rel=1e-5)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_another_loss_is_validated_in_large_batches() -> None:
    trainable = Small()
    train(trainable, assignment(epochs=1))
    held_out = session_of(trainable).trial.held_out
    assert held_out is not None
    assert held_out.batch_size == 256


class Many(Small):
    """More validation examples than a large batch has."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        x = np.random.default_rng(0).normal(size=(700, 6)).astype(np.float32)
        y = x[:, :3].argmax(axis=1).astype(np.int32)
        return (x[:100], y[:100]), (x[100:], y[100:])


@pytest.mark.parametrize("size", chosen([100, 96, 7], 7))
def test_so_it_is_whether_or_not_a_large_batch_is_one_of_whole_ones(size: int) -> None:
    """A batch of 256 was compared with 300 examples in batches of 100, and with 259 in batches of 7."""
    trainable = Many()
    trainable.begin(assignment(epochs=1, batch_size=size))
    assert session_of(trainable).trial.held_out is not None
    assert session_of(trainable).trial.held_out.batch_size == 256


class Listed(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return np.arange(130, dtype=np.float32)[:, None] + 130 * index, np.zeros(130)


def _rows(count: int) -> Any:
    return np.arange(count, dtype=np.float32)[:, None], np.zeros(count)


@pytest.mark.parametrize(
    "data",
    [_rows(700), _rows(120), Buckets((_rows(40), _rows(130), _rows(900))), Listed()],
    ids=["arrays", "few", "buckets", "batches"],
)
def test_two_sizes_of_batches_are_compared_by_the_same_examples(data: Any) -> None:
    found = make_examples(data, ONE, "validation data")
    few, many = found.count_equal_batches(300, 100)
    assert few < many
    one, other = (
        np.concatenate(
            [
                tf.gather(chunk.tensors[0], chunk.order)
                for chunk in HeldOut(found, size, steps).chunks()
            ]
        )
        for size, steps in ((300, few), (100, many))
    )
    assert one.tolist() == other.tolist()
    assert make_examples(_rows(90), ONE, "").count_equal_batches(300, 100) == (1, 1)


@pytest.fixture(scope="module")
def many() -> Many:
    """A trial that has begun."""
    found = Many()
    found.begin(assignment())
    return found


@pytest.mark.parametrize(
    ("on_gpu", "tf32", "depends"), [(False, True, True), (True, True, False), (True, False, True)]
)
def test_what_factors_of_10_bits_make_of_a_loss_does_not_count(
    on_gpu: bool, tf32: bool, depends: bool, many: Many, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deterministic trial on a GPU, which has no TF32, was judged as one that has."""
    program, held_out = session_of(many).trial.program, session_of(many).trial.held_out
    losses = iter((1.0, 1.0002))
    monkeypatch.setattr(program, "evaluate", lambda *_, **__: Evaluated({"loss": next(losses)}))
    monkeypatch.setattr(Replicas, "on_gpu", on_gpu)
    monkeypatch.setattr(tf.config.experimental, "tensor_float_32_execution_enabled", lambda: tf32)
    assert program.depends_on_batch_size(held_out, seed=0) == depends


def test_between_processes_a_call_evaluates_batches_of_one_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that a batch is cut into where it did not fit into memory."""
    trainable = Many()
    trainable.begin(replace(assignment(validation_batch_size=50), accumulate=3))
    program, held_out = session_of(trainable).trial.program, session_of(trainable).trial.held_out
    compiled, calls = program.evaluate_chunk, []

    def noted(given: Any, sums: Any) -> Any:
        calls.append((int(given.size), len(given.order)))
        return compiled(given, sums)

    before = program.evaluate(held_out, seed=0, epoch=0)
    monkeypatch.setattr(Replicas, "span_processes", True)
    monkeypatch.setattr(program, "evaluate_chunk", noted)
    assert program.evaluate(held_out, seed=0, epoch=0) == before
    assert sum(count for _, count in calls) == 600
    assert {size for size, _ in calls} == {held_out.part_size} == {16}
    assert all(count % size == 0 or count < size for size, count in calls)


def test_loop_fit_validates_as_fit_does() -> None:
    trainable = Masked()
    (epoch,) = train(trainable, assignment(epochs=1, batch_size=7, training={"loop": "fit"}))
    assert epoch.metrics["val_loss"] == pytest.approx(in_batches_of(trainable, 7), rel=1e-5)


class Measured(Small):
    """Its loss is a mean over examples, and its metric one number for a batch."""

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        def spread(y_true: Any, y_pred: Any) -> Any:
            return keras.ops.std(y_pred)

        return [spread]


def test_a_metric_of_a_batch_is_validated_in_those_of_the_training_as_by_fit() -> None:
    trainable = Measured()
    (epoch,) = train(trainable, assignment(epochs=1, batch_size=7))
    trial = session_of(trainable).trial
    plain, hp = trainable.trained_model(), trial.hp
    plain.compile(loss=trainable.loss(hp, plain), metrics=trainable.metrics(hp, plain))
    x, y = trainable.data(hp)[1]
    by_size = {
        size: plain.evaluate(x, y, size, verbose=0, return_dict=True)["spread"] for size in (7, 256)
    }
    assert epoch.metrics["val_spread"] == pytest.approx(by_size[7], rel=1e-5)
    assert by_size[7] != pytest.approx(by_size[256], rel=1e-5)
