"""Epochs of so many updates: the same training as passes over the data, reported elsewhere."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, go_on, interrupted, metrics, train, weights

from sweep.hyperparameters import Hyperparameters
from trainables.data import residence
from trainables.data.sources import mix_seeds, permutation
from trainables.keras_trainable import session_of
from trainables.loop import building
from trainables.numbers.live import Live

pytestmark = pytest.mark.keras


class Points(Small):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.05, momentum=0.9)

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Streamed(Points):
    def data(self, hp: Any) -> tuple[Any, Any]:
        train_data, held_out = super().data(hp)
        return tf.data.Dataset.from_tensor_slices(train_data), held_out


def given(**params: Any) -> Any:
    result = assignment(**params)
    rest = {name: value for name, value in result.params.items() if name != "learning_rate"}
    return dataclasses.replace(result, params=rest)


def by_keras(kind: type[Points], count: int) -> list[np.ndarray[Any, Any]]:
    """The weights after so many updates of a plain loop over the same batches."""
    author, hp = kind(), Hyperparameters({"batch_size": 16})
    author.live = Live(hp)
    author.first_example = ()
    model = building.build_model(author, hp, 0)
    model.compile(author.optimizer(hp), author.loss(hp, model))
    for x, y in itertools.islice(batches(kind), count):
        model.train_on_batch(x, y)
    return [np.asarray(v) for v in model.trainable_variables]


def batches(kind: type[Points]) -> Iterator[tuple[Any, Any]]:
    tf.random.set_seed(None)  # another test's, which `shuffle` would mix with its own
    (x, y), _ = Points().data(Hyperparameters({}))
    for number in itertools.count(1):
        if kind is Streamed:
            order = (
                tf.data.Dataset.range(70)
                .shuffle(70, seed=mix_seeds(0, number))
                .batch(16)
                .as_numpy_iterator()
            )
            yield from ((x[rows], y[rows]) for rows in order)
        else:
            order = permutation(70, 0, number)
            yield from ((x[order[at : at + 16]], y[order[at : at + 16]]) for at in range(0, 70, 16))


@pytest.mark.parametrize("kind", [pytest.param(Points, marks=pytest.mark.exhaustive), Streamed])
def test_one_long_epoch_is_four_short_ones_and_a_plain_loop(kind: type[Points]) -> None:
    trainable = kind()
    train(trainable, given(epochs=1, steps_per_epoch=12))
    once = weights(trainable)
    short = train(trainable, given(epochs=4, steps_per_epoch=3))  # the same program
    assert all(map(np.array_equal, once, weights(trainable)))
    assert [epoch.measures["passes"] for epoch in short] == [0.6, 1.2, 1.8, 2.4]
    ours = [np.asarray(v) for v in session_of(trainable).trial.program.model.trainable_variables]
    for a, b in zip(ours, by_keras(kind, 12), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6, rtol=0)


def test_an_epoch_of_one_pass_is_the_default_and_measures_nothing_more() -> None:
    by_pass, by_steps = Points(), Points()
    expected = train(by_pass, given(epochs=3))
    assert metrics(train(by_steps, given(epochs=3, steps_per_epoch=5))) == metrics(expected)
    assert all(map(np.array_equal, weights(by_pass), weights(by_steps)))
    assert "passes" not in expected[0].measures


class Watched(Points):
    """Its loss is that of the first batch's labels alone, so that means can be counted by hand."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        x, y = np.ones((70, 2), np.float32), np.arange(70, dtype=np.float32)[:, None]
        return (x, y), (x[:40], y[:40])

    def model(self, hp: Any) -> keras.Model:
        frozen = keras.layers.Dense(1, kernel_initializer="zeros")
        return keras.Sequential([keras.Input((2,)), frozen, keras.layers.Rescaling(0.0)])

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return "mae"

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return ["mae"]


@pytest.mark.parametrize("loop", ["own", pytest.param("fit", marks=pytest.mark.exhaustive)])
def test_losses_are_means_of_the_examples_that_an_epoch_has_seen(loop: str) -> None:
    epochs = train(
        Watched(),
        given(
            epochs=3,
            steps_per_epoch=3,
            shuffle=False,
            validation_steps=2,
            validation_batch_size=10,
            training={"loop": loop},
        ),
    )
    rows = np.arange(70)
    seen = [rows[:48], np.concatenate([rows[48:], rows[:16]]), rows[16:64]]
    assert [epoch.metrics["mae"] for epoch in epochs] == pytest.approx(
        [part.mean() for part in seen]
    )
    assert [epoch.metrics["loss"] for epoch in epochs] == pytest.approx(
        [part.mean() for part in seen]
    )
    assert [epoch.metrics["val_loss"] for epoch in epochs] == pytest.approx([9.5] * 3)
    for epoch, part in zip(epochs, seen, strict=True):
        train_s = epoch.time_s - epoch.measures["validation_s"]
        assert epoch.examples_per_s * train_s == pytest.approx(len(part))


def test_schedules_count_epochs_of_that_length() -> None:
    trainable = Small()
    trainable.begin(
        assignment(epochs=4, steps_per_epoch=2, warmup_epochs=1.5, lr_schedule="linear")
    )
    rates = []
    for epoch in range(4):
        session_of(trainable).trial.epoch = epoch
        rates += session_of(trainable).trial.rates().tolist()
    rise, fall = [1 / 3, 2 / 3, 1], [1, 0.8, 0.6, 0.4, 0.2]
    assert rates == pytest.approx([0.05 * factor for factor in [*rise, *fall]])
    reported = train(
        trainable,
        assignment(epochs=2, steps_per_epoch=2, lr_schedule="piecewise", lr_drop_epochs=[1]),
    )
    assert [epoch.learning_rate for epoch in reported] == pytest.approx([0.05, 0.005])
    assert trainable.facts().extends


def test_any_epoch_of_a_trial_can_be_resumed(tmp_path: Path) -> None:
    more = {"swa_from": 2, "lr_schedule": "plateau", "lr_patience": 1}
    expected = train(straight := Small(), assignment(epochs=6, steps_per_epoch=3, **more))
    found, resumed = interrupted(assignment(epochs=6, steps_per_epoch=3, **more), tmp_path)
    assert metrics(found) == metrics(expected)
    assert all(map(np.array_equal, weights(straight), weights(resumed)))


def test_patience_and_hooks_count_epochs_of_that_length() -> None:
    class Hooked(Small):
        def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
            if epoch == 3:
                self.stop("enough")

    trainable = Hooked()
    trainable.begin(assignment(epochs=9, steps_per_epoch=1))
    with pytest.raises(Exception, match="enough"):
        go_on(trainable)
    assert session_of(trainable).trial.epoch == 3


@pytest.mark.exhaustive
def test_fit_sees_the_same_batches_in_parts_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residence, "COPIED_ON_CPU", 0)
    monkeypatch.setattr("trainables.data.passes.CHUNK_BYTES", 1000)
    own, fit = Points(), Points()
    a = train(own, given(epochs=4, steps_per_epoch=3))
    b = train(fit, given(epochs=4, steps_per_epoch=3, training={"loop": "fit"}))
    for one, other in zip(a, b, strict=True):
        assert other.metrics == pytest.approx(one.metrics, abs=1e-5)


def test_validation_in_parts_is_over_the_same_examples() -> None:
    whole = given(epochs=1, validation_steps=1, validation_batch_size=16)
    expected = train(Points(), whole)[0].metrics
    parts = train(Points(), dataclasses.replace(whole, accumulate=3))[0].metrics
    assert parts["val_accuracy"] == pytest.approx(expected["val_accuracy"], abs=0.07)
    with pytest.raises(
        ValueError, match="validation_steps is 3, but the validation data are 2 batches of 16"
    ):
        train(Points(), given(validation_steps=3, validation_batch_size=16))
