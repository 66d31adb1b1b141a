from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, metrics, train
from zoo_losses import TwinLosses

from sweep.contract import Diverged
from trainables.loop.fit_program import FiniteLosses, NotInFit

pytestmark = pytest.mark.keras
SGD = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 10}


class Random(Small):
    """Dropout, batch statistics, an added loss and a regulariser: all that replicas can get wrong."""

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(
                    8, use_bias=False, kernel_regularizer="l2", activity_regularizer="l2"
                ),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.3),
                keras.layers.Dense(3),
            ]
        )


def test_fit_calls_the_steps_that_were_put_in_their_place() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    called = []

    def noted(step: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        return lambda data: called.append(name) or step(data)

    model.train_step, model.test_step = (
        noted(model.train_step, "train"),
        noted(model.test_step, "test"),
    )
    model.fit(
        np.ones((4, 2)),
        np.ones((4, 1)),
        validation_data=(np.ones((2, 2)), np.ones((2, 1))),
        verbose=0,
    )
    assert set(called) == {"train", "test"}


@pytest.mark.slow
@pytest.mark.parametrize("gpus", sampled([2, 0], 1))
def test_fit_trains_what_our_loop_trains(gpus: int) -> None:
    ours = metrics(train(Random(), assignment(gpus, **SGD)))
    fit = metrics(train(Random(), assignment(gpus, training={"loop": "fit"}, **SGD)))
    for a, b in zip(ours, fit, strict=True):
        assert b == pytest.approx(a, abs=2e-6)


class Broken(Small):
    """The step of its model gives the loss of its batch, which is not finite with one of the examples."""

    def model(self, hp: Any) -> keras.Model:
        most = self.data(hp)[0][0][:, 5].max()

        class Steps(keras.Model):
            def train_step(self, data: Any) -> Any:
                found = super().train_step(data)
                return {
                    "loss": tf.where(
                        tf.reduce_any(data[0][:, 5] == most), float("nan"), found["loss"]
                    )
                }

        inputs = keras.Input((6,))
        return Steps(inputs, keras.layers.Dense(3)(inputs))


@pytest.mark.parametrize("loop", ["own", "fit"])
def test_a_loss_that_is_not_finite_in_one_batch_ends_the_trial(loop: str) -> None:
    with pytest.raises(Diverged, match="in epoch 1"):
        train(Broken(), assignment(training={"loop": loop}))


def test_no_loss_that_is_not_finite_is_lost_between_the_threads_in_which_keras_tells_of_batches() -> (
    None
):
    begun, known = Event(), Event()

    class Late:
        """The loss of a batch that the device still computes."""

        def __array__(self, *given: Any, **more: Any) -> Any:
            begun.set()
            assert known.wait(60)
            return np.array(1.0)

    losses = FiniteLosses()
    other = Thread(target=losses.on_train_batch_end, args=(1, {"loss": Late()}))
    other.start()
    assert begun.wait(60)
    losses.on_train_batch_end(0, {"loss": np.nan})
    known.set()
    other.join()
    assert not losses.finite


@pytest.mark.slow
class Perceptron(keras.Model):
    """A model whose outputs are in the type of its policy."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = keras.layers.Dense(8, "relu"), keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.head(self.hidden(x))


@pytest.mark.parametrize("precision", sampled(["mixed_bfloat16", "float32"], 1))
def test_losses_have_the_bits_of_fit(precision: str) -> None:
    class Raw(Small):
        def model(self, hp: Any) -> keras.Model:
            return Perceptron()

        def loss(self, hp: Any, model: Any) -> Any:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    given = {"batch_size": 16, "validation_batch_size": 16, "optimizer": "sgd"}
    own, fit = (
        metrics(
            train(
                Raw(),
                assignment(epochs=3, training={"loop": loop, "precision": precision}, **given),
            )
        )
        for loop in ("own", "fit")
    )
    assert own == fit


def test_fit_takes_lists_and_tells_losses_of_one_name_apart_unweighted() -> None:
    def trained(gpus: int) -> dict[str, float]:
        return metrics(
            train(TwinLosses(), assignment(gpus, training={"loop": "fit"}, batch_size=10))
        )[-1]

    alone, together = trained(0), trained(2)
    assert {"mse_loss", "mse_1_loss", "val_mse_loss", "val_mse_1_loss"} <= {*alone}
    assert together == pytest.approx(alone, abs=2e-6)
    assert alone["val_loss"] == pytest.approx(
        0.3 * alone["val_mse_loss"] + 2 * alone["val_mse_1_loss"], abs=1e-5
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"clipnorm": 1.0}, "clipping"),
        ({"micro_batches": 2}, "micro_batches"),
        ({"ema_momentum": 0.9}, "ema_momentum"),
        ({"batch_size": 16, "units": 9}, "their parts of a batch of 6"),
    ],
)
def test_what_fit_cannot_do_is_refused_by_name(params: Any, message: str) -> None:
    gpus = 4 if "units" in params else 2
    with pytest.raises(NotInFit, match=message):
        train(Small(), assignment(gpus, training={"loop": "fit"}, **{**SGD, **params}))


class Noisy(keras.Model):
    """Compiled in its own way; its steps tell the number that they draw."""

    def __init__(self) -> None:
        super().__init__()
        self.head = keras.layers.Dense(3)
        self.head.build((None, 6))
        self.built = True

    def compile(self, descent: Any) -> None:
        super().compile()
        self.descent = descent

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.head(data[0])))
        self.descent.apply(
            tape.gradient(loss, self.head.trainable_variables), self.head.trainable_variables
        )
        return {"loss": loss, "drawn": tf.random.normal([1])[0]}

    def test_step(self, data: Any) -> Any:
        return {
            "loss": tf.reduce_mean(tf.square(self.head(data[0]))),
            "drawn": tf.random.normal([1])[0],
        }


class DrawsInSteps(Small):
    def model(self, hp: Any) -> keras.Model:
        model = Noisy()
        model.compile(keras.optimizers.SGD(0.05))
        return model


def test_each_batch_of_a_model_with_a_compile_of_its_own_has_the_draws_that_it_has_in_our_loop() -> (
    None
):
    found = []
    for training in ({}, {"loop": "fit"}):
        given = assignment(epochs=3, training=training)
        given.params.pop("learning_rate")
        found.append(metrics(train(DrawsInSteps(), given)))
    ours, fit = found
    assert len({values[name] for values in fit for name in ("drawn", "val_drawn")}) == 6
    for mine, theirs in zip(ours, fit, strict=True):
        assert theirs == pytest.approx(mine, abs=1e-6)


def test_half_precision_in_fit_trains_at_the_rate_that_is_reported() -> None:
    training = {"precision": "mixed_float16"}
    ours, fit = (
        train(Small(), assignment(epochs=3, training=training | more, **SGD))
        for more in ({}, {"loop": "fit"})
    )
    assert [epoch.learning_rate for epoch in fit] == [epoch.learning_rate for epoch in ours]
    for mine, theirs in zip(metrics(ours), metrics(fit), strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-2)


class Rates(keras.metrics.Metric):
    """Gives two numbers by names of their own, as `sklearn`-like reports do."""

    def __init__(self, name: str = "rates", **options: Any) -> None:
        super().__init__(name=name, **options)
        self.right = self.add_variable((), "zeros", name="right")
        self.all = self.add_variable((), "zeros", name="all")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        right = keras.ops.equal(
            keras.ops.argmax(y_pred, -1), keras.ops.cast(keras.ops.ravel(y_true), "int32")
        )
        right = keras.ops.cast(right, "float32")
        self.right.assign_add(keras.ops.sum(right))
        self.all.assign_add(keras.ops.cast(keras.ops.size(right), "float32"))

    def result(self) -> Any:
        return {"hits": self.right / self.all, "misses": 1 - self.right / self.all}


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize("loop", ["own", "fit"])
def test_a_metric_whose_result_is_a_dictionary_has_a_column_for_each_key(
    loop: str, gpus: int
) -> None:
    class Reporting(Small):
        def metrics(self, hp: Any, model: keras.Model) -> Any:
            return [Rates(), "accuracy"]

    (first, *_) = metrics(
        train(Reporting(), assignment(gpus, training={"loop": loop}, batch_size=14))
    )
    for prefix in ("", "val_"):
        assert first[f"{prefix}hits"] == pytest.approx(first[f"{prefix}accuracy"])
        assert first[f"{prefix}misses"] == pytest.approx(1 - first[f"{prefix}accuracy"])
    assert "rates" not in first


def test_validation_data_is_not_augmented_to_trace_its_step() -> None:
    class Weighted(Small):
        """Only its training data have sample weights, which are augmented."""

        def data(self, hp: Any) -> Any:
            (x, y), validation = super().data(hp)
            return (x, y, np.ones(len(x), np.float32)), validation

        def augment(self, x: Any, y: Any, sample_weight: Any, hp: Any, draws: Any) -> Any:
            return x, y, sample_weight * 2.0

    own, fit = (
        metrics(train(Weighted(), assignment(training={"loop": loop}))) for loop in ("own", "fit")
    )
    for mine, theirs in zip(own, fit, strict=True):
        assert theirs == pytest.approx(mine, abs=2e-6)
