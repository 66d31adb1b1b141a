"""Averages over epochs are means of the weights at their ends, with statistics that belong to them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from small import Small, assignment, go_on, metrics, train

from trainables.keras_trainable import Update, session_of
from trainables.loop.fit_program import NotInFit
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


def averaged(first: int, epochs: int = 4) -> tuple[Small, list[dict[str, float]]]:
    trainable = Small()
    return trainable, metrics(train(trainable, assignment(epochs=epochs, swa_from=first)))


def by_path(trainable: Small) -> dict[str, Any]:
    return {v.path: v.numpy() for v in session_of(trainable).trial.program.model.variables}


def test_it_is_the_mean_over_epochs_and_validated_so() -> None:
    trainable, epochs = averaged(3)
    plain = Small()
    plain.begin(assignment(epochs=4))
    ends = []
    while len(ends) < 4:
        found = go_on(plain, pause_after=len(ends) + 1)
        ends.append((by_path(plain), metrics(found)[-1]))
    assert epochs[:2] == [values for _, values in ends[:2]]  # nothing is averaged yet
    assert epochs[3]["loss"] == ends[3][1]["loss"]  # training does not see the average
    assert epochs[3]["val_loss"] != ends[3][1]["val_loss"]
    program = session_of(trainable).trial.program
    with program.by_epoch.swapping():
        model, held = program.model, by_path(trainable)
        for variable in model.trainable_variables:
            mean = (ends[2][0][variable.path] + ends[3][0][variable.path]) / 2
            np.testing.assert_allclose(held[variable.path], mean, atol=1e-6)
        (x, _), (x_val, y_val) = trainable.data(None)
        first = x @ held[model.layers[0].kernel.path]
        order, moving = _order(trainable, 4), model.layers[1]
        batches = [first[order[i : i + 16]] for i in range(0, len(x), 16)]
        np.testing.assert_allclose(
            moving.moving_mean.numpy(), np.mean([b.mean(0) for b in batches], 0), atol=1e-5
        )
        np.testing.assert_allclose(
            moving.moving_variance.numpy(), np.mean([b.var(0) for b in batches], 0), rtol=1e-4
        )
        logits = np.asarray(model(x_val, training=False))
        assert (logits.argmax(1) == y_val).mean() == pytest.approx(epochs[3]["val_accuracy"])


def _order(trainable: Small, epoch: int) -> Any:
    from trainables.data.sources import permutation

    return permutation(70, session_of(trainable).trial.assignment.seed, epoch)


def test_the_epoch_from_which_on_needs_no_new_program() -> None:
    fresh = averaged(2)[1]
    trainable, _ = averaged(4)
    program = session_of(trainable).trial.program
    assert metrics(train(trainable, assignment(epochs=4, swa_from=2))) == fresh
    assert session_of(trainable).trial.program is program


class Stateful(Small):
    """A layer that counts its batches and one that normalises its weights, both only in training."""

    def model(self, hp: Any) -> keras.Model:
        class Counting(keras.layers.Layer):
            def build(self, shape: Any) -> None:
                self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)
                self.mean = keras.metrics.Mean("scale")

            def call(self, x: Any, training: bool = False) -> Any:
                if training:
                    self.seen.assign_add(1.0)
                    self.mean.update_state(self.seen)
                return x * (1 + 0.01 * self.seen)

        return keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.SpectralNormalization(keras.layers.Dense(8, use_bias=False)),
                keras.layers.BatchNormalization(),
                Counting(),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(3),
            ]
        )


@pytest.mark.parametrize("more", [{}, {"training": {"run_eagerly": True}}])
def test_the_pass_for_statistics_changes_nothing_else(more: Any) -> None:
    found = []
    for first in (1, 9):  # 9: never
        trainable = Stateful()
        epochs = metrics(train(trainable, assignment(epochs=3, swa_from=first, **more)))
        training = []
        for epoch in epochs:
            training.append({name: v for name, v in epoch.items() if not name.startswith("val_")})
        found.append((training, by_path(trainable)))
    (averaging, its), (plain, other) = found
    assert averaging == plain
    assert "scale" in plain[0]
    for value, expected in zip(its.values(), other.values(), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_the_pass_for_statistics_leaves_the_mean_itself_alone() -> None:
    trainable = Stateful()
    train(trainable, assignment(epochs=1, swa_from=1))
    program = session_of(trainable).trial.program
    weights = [weight.numpy() for weight in program.model.trainable_variables]
    with program.by_epoch.swapping():
        for weight, expected in zip(program.model.trainable_variables, weights, strict=True):
            np.testing.assert_allclose(weight, expected, atol=1e-6)


class Shifted(Small):
    """Its step subtracts from the examples what `data` has added to them."""

    def data(self, hp: Any) -> Any:
        shifted = hp.number("shift")
        return tuple((x + np.float32(shifted), y) for x, y in super().data(hp))

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        return self.test_step(model, batch, hp, training=True)

    def test_step(self, model: Any, batch: Any, hp: Any, training: bool = False) -> Any:
        logits = model(batch.x - hp.number("shift"), training=training)
        loss = keras.losses.sparse_categorical_crossentropy
        return {"loss": loss(batch.y, logits, from_logits=True)}


def test_the_pass_for_statistics_calls_the_model_as_the_step_of_the_trainable_does() -> None:
    plain, shifted = (
        metrics(train(Shifted(), assignment(epochs=4, swa_from=2, shift=shift)))
        for shift in (0.0, 4.0)
    )
    for mine, theirs in zip(plain, shifted, strict=True):
        assert theirs == pytest.approx(mine, abs=1e-4)


class Viewing(Small):
    """Its step calls the model on two views of the examples, and on a third one in inference mode."""

    views: tuple[float, ...] = (1.0, 3.0)

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        model(batch.x * 9.0, training=False)  # changes no statistics
        losses = 0.0
        for view in self.views:
            logits = model(batch.x * view, training=True)
            losses += keras.losses.sparse_categorical_crossentropy(batch.y, logits, True)
        return {"loss": losses}


@pytest.mark.parametrize("gpus", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_all_calls_of_a_layer_have_the_same_weight_in_its_statistics(gpus: int) -> None:
    trainable = Viewing()
    train(trainable, assignment(gpus=gpus, epochs=2, swa_from=2))
    program = session_of(trainable).trial.program
    with program.by_epoch.swapping():
        model, held = program.model, by_path(trainable)
        (x, _), _ = trainable.data(None)
        first = x @ held[model.layers[0].kernel.path]
        order, moving = _order(trainable, 2), model.layers[1]
        means = []
        for i in range(0, len(x), 16):
            means += [(first[order[i : i + 16]] * view).mean(0) for view in trainable.views]
        np.testing.assert_allclose(moving.moving_mean.numpy(), np.mean(means, 0), atol=1e-5)


class Generating(Small):
    """Its model takes noise of another shape than the examples."""

    def data(self, hp: Any) -> Any:
        return super().data(hp)[0][0], None

    def model(self, hp: Any) -> keras.Model:
        layers = keras.layers
        self.judge = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
        body = [layers.Dense(8), layers.BatchNormalization(), layers.Dense(6)]
        return keras.Sequential([keras.Input((3,)), *body])

    def updates(self, hp: Any, model: Any) -> Any:
        return [Update("judged", self.judge, keras.optimizers.Adam()), Update("made", model)]

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        made = self.judge(model(batch.draws.normal((3,)), training=True))
        if batch.turn == "made":
            return {"made": -made}
        return {"judged": made - self.judge(batch.x)}


def test_a_model_that_takes_other_inputs_than_the_examples_is_averaged() -> None:
    trainable = Generating()
    train(trainable, assignment(epochs=3, swa_from=2))
    program = session_of(trainable).trial.program
    with program.by_epoch.swapping():
        fake = np.asarray(program.model(np.random.default_rng(1).normal(size=(99, 3))))
    assert np.isfinite(fake).all()


class Freezing(Small):
    """Its hook freezes the only batch normalisation."""

    def on_epoch_begin(self, epoch: int, model: Any, hp: Any) -> None:
        if epoch == hp.integer("freeze"):
            model.layers[1].trainable = False


@pytest.mark.parametrize("freeze", [2, 3])  # before the first pass, and after it
def test_a_layer_that_a_hook_freezes_keeps_its_statistics(freeze: int, tmp_path: Any) -> None:
    given = assignment(epochs=4, swa_from=2, freeze=freeze)
    whole, broken, resumed = Freezing(), Freezing(), Freezing()
    epochs = metrics(train(whole, given))
    program = session_of(whole).trial.program
    moving = [v.numpy() for v in program.model.layers[1].variables[2:]]
    with program.by_epoch.swapping():
        for variable, own in zip(program.model.layers[1].variables[2:], moving, strict=True):
            np.testing.assert_array_equal(variable, own)
    broken.begin(given)
    go_on(broken, pause_after=3)
    broken.save(tmp_path)()
    resumed.begin(given)
    assert resumed.restore(tmp_path) == 3
    assert metrics(go_on(resumed)) == epochs[3:]


def test_two_kinds_of_averages_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="swa_from and ema_momentum are both set"):
        train(Small(), assignment(swa_from=1, ema_momentum=0.9))


class AveragingOptimizer(Small):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.Adam(hp.number("learning_rate"), use_ema=True)


def test_the_average_of_an_optimizer_is_one_too_many_also() -> None:
    for more in ({}, {"layer_decay": 0.9}):
        with pytest.raises(Refused, match="swa_from is set, and the optimizer has use_ema"):
            train(AveragingOptimizer(), assignment(swa_from=1, **more))


@pytest.mark.parametrize("more", [{}, {"layer_decay": 0.9}])
def test_fit_takes_no_optimizer_that_averages_not_even_in_groups(more: Any) -> None:
    with pytest.raises(NotInFit, match="an averaging optimizer"):
        train(AveragingOptimizer(), assignment(training={"loop": "fit"}, **more))


def test_fit_has_neither_this_nor_sharpness() -> None:
    for name in ("swa_from", "sam_rho"):
        with pytest.raises(Exception, match=name):
            train(Small(), assignment(training={"loop": "fit"}, **{name: 1}))
