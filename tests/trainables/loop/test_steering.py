"""What hooks and callbacks set on Keras's objects holds from the next epoch on, and for no other trial."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import chosen, sampled
from small import Small, assignment, go_on, metrics, train, weights

from sweep.contract import Stopped
from trainables.keras_trainable import Update, session_of
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras

Does = Callable[[int, Any], None]


def rate(value: float, at: int = 2) -> Does:
    def does(epoch: int, model: Any) -> None:
        if epoch == at:
            model.optimizer.learning_rate = value

    return does


def freeze(epoch: int, model: Any) -> None:
    if epoch == 2:
        model.layers[0].trainable = False


def stop(epoch: int, model: Any) -> None:
    model.stop_training = epoch == 2


class Steering(Small):
    """Does as its trial says, at the end of an epoch."""

    does: Does | None = None

    def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
        if hp.flag("steers", default=True) and self.does:
            type(self).does(epoch, model)


class _Callback(keras.callbacks.Callback):
    def __init__(self, does: Does, when: str) -> None:
        super().__init__()
        self.does, self.when, self.epoch = does, when, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch + 1
        if self.when == "begin":
            self.does(self.epoch, self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.when == "batch" and batch == 4:  # the last one
            self.does(self.epoch, self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.when == "end":
            self.does(epoch + 1, self.model)


class Fitting(Small):
    does: Does
    when = "end"

    def callbacks(self, hp: Any) -> Any:
        return [_Callback(type(self).does, self.when)] if hp.flag("steers", default=True) else []


def steering(does: Does, *, fit: bool = False, kind: str = "end") -> type[Small]:
    return type("Some", (Fitting if fit else Steering,), {"does": staticmethod(does), "when": kind})


def trial(*, fit: bool = False, gpus: int = 0, **params: Any) -> Any:
    return assignment(
        gpus,
        epochs=4,
        training={"loop": "fit"} if fit else {},
        optimizer="sgd",
        batch_size=14,
        **params,
    )


def dense(trainable: Small) -> Any:
    return session_of(trainable).trial.program.model.layers[0].kernel.numpy()


@pytest.mark.parametrize(
    ("fit", "kind"), sampled([(False, "end"), (True, "batch"), (True, "end")], 1, several=True)
)
def test_a_rate_that_is_set_holds_from_the_next_epoch_on(fit: bool, kind: str) -> None:
    epochs = train(steering(rate(0.01), fit=fit, kind=kind)(), trial(fit=fit))
    assert [e.learning_rate for e in epochs] == pytest.approx(
        [0.05, 0.01 if kind == "batch" else 0.05, 0.01, 0.01]
    )
    stays = metrics(train(Small(), trial(fit=fit)))
    assert metrics(epochs)[:2] == stays[:2]
    assert metrics(epochs)[2] != stays[2]


def test_a_rate_that_is_set_as_an_epoch_begins_is_that_of_the_epoch() -> None:
    # it hears batches, too
    epochs = train(steering(rate(0.01), fit=True, kind="begin")(), trial(fit=True))
    assert [e.learning_rate for e in epochs] == pytest.approx([0.05, 0.01, 0.01, 0.01])


@pytest.mark.parametrize("fit", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_rate_of_nothing_trains_nothing(fit: bool) -> None:
    trainable, kernels = steering(rate(0.0, at=1), fit=fit)(), []
    trainable.begin(trial(fit=fit))
    trainable.train(lambda epoch: bool(kernels.append(dense(trainable))) or True)
    for kernel in kernels[1:]:
        np.testing.assert_array_equal(kernel, kernels[0])


class ByItself(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def test_a_rate_that_is_set_holds_where_keras_scales_the_loss_of_a_models_own_step() -> None:
    class Some(steering(rate(0.0, at=1))):  # type: ignore[misc]  # a class that is made
        def model(self, hp: Any) -> keras.Model:
            return ByItself(super().model(hp).layers)

    trainable, kernels = Some(), []
    trainable.begin(assignment(epochs=3, optimizer="sgd", training={"precision": "mixed_float16"}))
    assert isinstance(
        session_of(trainable).trial.program.model.optimizer, keras.optimizers.LossScaleOptimizer
    )
    told = []
    trainable.train(
        lambda epoch: (
            bool(kernels.append(dense(trainable)) or told.append(epoch.learning_rate)) or True
        )
    )
    assert told == pytest.approx([0.05, 0.0, 0.0])
    np.testing.assert_array_equal(kernels[1], kernels[0])


class TwoOptimizers(keras.Model):
    """Compiled in its own way, with two optimizers of which Keras knows the second."""

    def __init__(self) -> None:
        super().__init__()
        self.judge, self.maker = keras.layers.Dense(3), keras.layers.Dense(3)
        for layer in (self.judge, self.maker):
            layer.build((None, 6))
        self.built = True

    def compile(self, judging: Any, making: Any) -> None:
        self.judging = judging
        super().compile(making)

    def train_step(self, data: Any) -> Any:
        for layer, optimizer in ((self.judge, self.judging), (self.maker, self.optimizer)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(layer(data[0]) - 1.0))
            optimizer.apply(
                tape.gradient(loss, layer.trainable_variables), layer.trainable_variables
            )
        return {"loss": loss}

    def test_step(self, data: Any) -> Any:
        return {"loss": tf.reduce_mean(tf.square(self.maker(data[0]) - 1.0))}


class OwnCompile(Small):
    def model(self, hp: Any) -> keras.Model:
        model = TwoOptimizers()
        model.compile(keras.optimizers.SGD(1e-4), keras.optimizers.SGD(0.02))
        return model


@pytest.mark.parametrize("kind", chosen(["fit", "begin", "own"], "own"))
def test_the_rates_of_a_models_own_compile_stay_as_they_are(kind: str) -> None:
    more = {"on_epoch_begin": lambda self, epoch, model, hp: None} if kind == "begin" else {}
    trainable = type("Some", (OwnCompile,), more)()
    given = assignment(training={"loop": "fit"} if kind == "fit" else {})
    given.params.pop("learning_rate")
    train(trainable, given)
    model = session_of(trainable).trial.program.model
    assert [float(one.learning_rate) for one in (model.judging, model.optimizer)] == pytest.approx(
        [1e-4, 0.02]
    )


def test_a_rate_that_a_hook_sets_on_a_models_own_compile_is_refused() -> None:
    class Some(OwnCompile):
        def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
            model.optimizer.learning_rate = 0.5

    given = assignment()
    given.params.pop("learning_rate")
    with pytest.raises(Refused, match=r"the model's own compile\(\) brings its optimizers"):
        train(Some(), given)


def test_a_trial_ends_where_a_hook_says_so_and_the_next_one_does_not() -> None:
    trainable = steering(stop)()
    with pytest.raises(Stopped, match=r"has set model\.stop_training"):
        train(trainable, trial())
    assert session_of(trainable).trial.epoch == 2
    assert len(train(trainable, trial(steers=False))) == 4


@pytest.mark.parametrize(
    ("fit", "gpus"), sampled([(False, 0), (False, 2), (True, 0)], 1, several=True)
)
def test_what_is_frozen_stays_as_it_is_in_later_epochs_and_moves_in_the_next_trial(
    fit: bool, gpus: int
) -> None:
    trainable, kernels = steering(freeze, fit=fit)(), []
    trainable.begin(trial(fit=fit, gpus=gpus))
    trainable.train(lambda epoch: bool(kernels.append(dense(trainable))) or True)
    assert (kernels[0] != kernels[1]).any()
    np.testing.assert_array_equal(kernels[1], kernels[2])
    np.testing.assert_array_equal(kernels[1], kernels[3])
    fresh = metrics(train(Small(), trial(fit=fit, gpus=gpus)))
    assert metrics(train(trainable, trial(fit=fit, gpus=gpus, steers=False))) == fresh


@pytest.mark.parametrize("does", [freeze, pytest.param(rate(0.01), marks=pytest.mark.exhaustive)])
def test_what_was_set_is_resumed(does: Does, tmp_path: Path) -> None:
    kind = steering(does)
    straight, broken, resumed = kind(), kind(), kind()
    expected = train(straight, trial())
    broken.begin(trial())
    go_on(broken, pause_after=2)
    broken.save(tmp_path)()
    resumed.begin(trial())
    resumed.restore(tmp_path)
    rest = go_on(resumed)
    assert metrics(rest) == metrics(expected[2:])
    assert [e.learning_rate for e in rest] == [e.learning_rate for e in expected[2:]]
    for mine, theirs in zip(weights(resumed), weights(straight), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def thaw(epoch: int, model: Any) -> None:
    model.layers[0].trainable = True


def one_weight(epoch: int, model: Any) -> None:
    model.layers[0].kernel.trainable = False


def schedule(epoch: int, model: Any) -> None:
    model.optimizer.learning_rate = keras.optimizers.schedules.CosineDecay(0.1, 10)


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (thaw, "kernel was made trainable, for which the optimizer has no moments"),
        (one_weight, "of single weights was set; set it on their layer"),
        (schedule, "a learning-rate schedule was set on the optimizer"),
    ],
)
def test_what_cannot_be_honoured_is_refused_and_gone_in_the_next_trial(
    does: Does, told: str
) -> None:
    class Frozen(steering(does)):
        def model(self, hp: Any) -> keras.Model:
            model = super().model(hp)
            model.layers[0].trainable = does is not thaw
            return model

    trainable = Frozen()
    with pytest.raises(Refused, match=told):
        train(trainable, trial())
    assert metrics(train(trainable, trial(steers=False))) == metrics(
        train(Frozen(), trial(steers=False))
    )


def test_a_plateau_and_a_hook_cannot_both_set_the_rate() -> None:
    with pytest.raises(Refused, match="which lr_schedule plateau sets too"):
        train(steering(rate(0.01))(), trial(lr_schedule="plateau", plateau_patience=1))


def test_the_rate_of_an_update_that_follows_the_trials_is_refused() -> None:
    class Two(Small):
        def model(self, hp: Any) -> keras.Model:
            model = super().model(hp)
            self.other = keras.optimizers.SGD(0.1)
            return model

        def updates(self, hp: Any, model: Any) -> Any:
            head, body = model.layers[-1], model.layers[0]
            return [(Update("loss", head), Update("same", body, self.other, rate=0.5))]

        def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
            logits = model(batch.x, training=True)
            loss = keras.losses.sparse_categorical_crossentropy(batch.y, logits, from_logits=True)
            return {"loss": loss, "same": loss}

        def on_epoch_end(self, epoch: Any, logs: Any, model: Any, hp: Any) -> None:
            self.other.learning_rate = 0.3

    with pytest.raises(Refused, match=r"follows the trial's by Update\(rate=...\)"):
        train(Two(), trial())


def test_callbacks_that_fit_would_call_elsewhere_are_refused() -> None:
    class Tested(keras.callbacks.Callback):
        def on_test_end(self, logs: Any = None) -> None: ...

    class Again(keras.callbacks.BackupAndRestore):
        def __init__(self) -> None:
            super().__init__("backup")

    def calling(kind: Any) -> Any:
        return type("Calling", (Small,), {"callbacks": lambda self, hp: [kind()]})()

    for kind, told in (
        (Tested, r"whose on_test_end\(\) would not be called"),
        (Again, "python -m sweep resume"),
    ):
        with pytest.raises(Refused, match=told):
            train(calling(kind), trial(fit=True))
