"""A trial of a Keras model; what the zoo shows of each of its models every day is ``exhaustive`` here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from sampling import sampled
from small import Small, assignment, go_on, interrupted, metrics, train, weights

from sweep.contract import Diverged
from trainables.keras_trainable import session_of
from trainables.recipe import schedules
from trainables.state import checkpoint

pytestmark = pytest.mark.keras

LIVE = {"optimizer": "adamw", "weight_decay": 0.01, "lr_schedule": "cosine", "warmup_epochs": 1}


def test_reports_each_epoch_with_the_rate_of_its_last_update() -> None:
    epochs = train(Small(), assignment(epochs=3, lr_schedule="cosine"))
    assert [e.epoch for e in epochs] == [1, 2, 3]
    assert set(epochs[0].metrics) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    rates = [e.learning_rate for e in epochs if e.learning_rate is not None]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] < 0.05
    assert epochs[-1].metrics["loss"] < epochs[0].metrics["loss"]


@pytest.mark.exhaustive
def test_used_worker_gives_the_numbers_of_a_fresh_one() -> None:
    used = Small()
    train(used, assignment(seed=5, **{**LIVE, "weight_decay": 0.3}))
    train(used, assignment(units=4))
    with pytest.raises(Diverged):
        train(used, assignment(learning_rate=1e30, optimizer="sgd"))
    again = train(used, assignment(**LIVE))
    fresh = Small()
    first = train(fresh, assignment(**LIVE))
    assert metrics(again) == metrics(first)
    for a, b in zip(weights(used), weights(fresh), strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_program_serves_all_values_of_live_numbers() -> None:
    trainable = Small()
    programs = []
    for decay, rate, batch in ((0.1, 0.01, 16), (0.2, 0.02, 32), (0.3, 0.03, 16)):
        train(
            trainable,
            assignment(
                **{**LIVE, "weight_decay": decay, "learning_rate": rate, "batch_size": batch}
            ),
        )
        programs.append(session_of(trainable).trial.program)
    assert programs[0] is programs[1] is programs[2]
    assert programs[0].train_chunk.experimental_get_tracing_count() == 1
    train(trainable, assignment(units=5, **LIVE))
    assert session_of(trainable).trial.program is not programs[0]


@pytest.mark.parametrize("gpus", sampled([2, 0], 1))
def test_resumes_bit_for_bit(gpus: int, tmp_path: Path) -> None:
    given = assignment(gpus, epochs=4, momentum=0.9, optimizer="sgd", lr_schedule="cosine")
    straight = Small()
    whole = train(straight, given)
    epochs, resumed = interrupted(given, tmp_path)
    assert metrics(epochs) == metrics(whole)
    for a, b in zip(weights(resumed), weights(straight), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    trainable = Small()
    train(trainable, assignment(epochs=1))
    trainable.save(tmp_path)()
    (tmp_path / "state.npz").write_bytes(b"PK damaged")
    with pytest.raises(checkpoint.CheckpointError, match="unreadable"):
        trainable.restore(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "params", sampled([{"optimizer": "sgd", "global_clipnorm": 0.1}, {**LIVE, "clipnorm": 0.05}], 1)
)
@pytest.mark.parametrize("gpus", sampled([2, 4], 1))
def test_replicas_change_nothing(gpus: int, params: Any) -> None:
    one, several = Small(), Small()
    alone = train(one, assignment(epochs=3, **params))
    together = train(several, assignment(gpus, epochs=3, **params))
    facts = several.facts()
    assert (facts.strategy, facts.num_replicas) == ("mirrored", gpus)
    for a, b in zip(metrics(alone), metrics(together), strict=True):
        assert a == pytest.approx(b, abs=2e-6)


@pytest.mark.exhaustive
def test_micro_batches_change_nothing_without_batch_statistics() -> None:
    class Plain(Small):
        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])

    whole = train(Plain(), assignment())
    parts = train(Plain(), assignment(micro_batches=3))
    for a, b in zip(metrics(whole), metrics(parts), strict=True):
        assert a == pytest.approx(b, abs=1e-6)


@pytest.mark.exhaustive
def test_fit_trains_what_our_loop_trains() -> None:
    ours = train(Small(), assignment(**LIVE))
    fit = train(Small(), assignment(training={"loop": "fit"}, **LIVE))
    for a, b in zip(metrics(ours), metrics(fit), strict=True):
        assert a == pytest.approx(b, abs=1e-5)


def test_a_model_with_its_own_train_step_is_trained_as_by_fit() -> None:
    class Own(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return super().train_step(data)

    class Trainable(Small):
        def model(self, hp: Any) -> keras.Model:
            return Own([keras.Input((6,)), keras.layers.Dense(3)])

    recognised, asked = Trainable(), Trainable()
    assert metrics(train(recognised, assignment())) == metrics(
        train(asked, assignment(training={"loop": "fit"}))
    )
    assert recognised.facts().numerics["loop"].startswith("model: ")


@pytest.mark.slow
@pytest.mark.parametrize("precision", sampled(["mixed_float16", "mixed_bfloat16"], 1))
def test_mixed_precision_learns(precision: str) -> None:
    trainable = Small()
    epochs = train(trainable, assignment(training={"precision": precision}, epochs=4))
    assert epochs[-1].metrics["loss"] < epochs[0].metrics["loss"]
    assert trainable.facts().precision == precision
    assert keras.config.dtype_policy().name == "float32"


SHORT, LONG = 2, 4
PLATEAU = {"lr_schedule": "plateau", "lr_patience": 1}
AVERAGED = {"optimizer": "adamw", "weight_decay": 0.01, "warmup_epochs": 1, "ema_momentum": 0.9}


PIECEWISE = {"lr_schedule": "piecewise", "lr_drop_epochs": [1, 3]}


@pytest.mark.parametrize("params", sampled([PLATEAU, AVERAGED, PIECEWISE], 1))
def test_a_trial_that_extends_is_the_beginning_of_a_longer_one(params: Any, tmp_path: Path) -> None:
    whole, begun, longer = Small(), Small(), Small()
    told = train(whole, assignment(epochs=LONG, **params))
    first = train(begun, assignment(epochs=SHORT, **params))
    assert begun.facts().extends
    begun.save(tmp_path)()
    longer.begin(assignment(epochs=LONG, **params))
    assert not longer.facts().extends  # it has not come to its end
    longer.restore(tmp_path)
    assert metrics(first + go_on(longer)) == metrics(told)
    for a, b in zip(weights(longer), weights(whole), strict=True):
        np.testing.assert_array_equal(a, b)


class Foresighted(Small):
    """With a schedule of its own, which knows the number of epochs."""

    def schedule(self, hp: Any) -> schedules.Schedule:
        total = hp.integer("epochs", 100)
        return lambda now: 1 - now.epoch / total


class Averages(keras.callbacks.Callback):
    """Gives the model the mean of its weights as the training ends, as strangers' averages do."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.seen: list[Any] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(self.model.get_weights())

    def on_train_end(self, logs: Any = None) -> None:
        self.model.set_weights([sum(each) / len(each) for each in zip(*self.seen, strict=True)])


class Called(Small):
    """With Keras's callbacks."""

    def callbacks(self, hp: Any) -> Any:
        choices = {
            "keras": keras.callbacks.ReduceLROnPlateau("val_loss", patience=1),
            "lambda": keras.callbacks.LambdaCallback(on_train_end=lambda logs: None),
            "schedule": keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / hp.epochs),
            "own": Averages(),
        }
        return [choices[hp["kind"]]]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of a callback
@pytest.mark.parametrize(
    ("trainable", "cases"),
    [
        (
            Small(),
            [
                ({"lr_schedule": "cosine"}, False),
                ({"lr_schedule": "step"}, False),
                ({"lr_schedule": "cosine", "warmup_epochs": 2}, True),
                ({"epochs": 2}, True),
            ],
        ),
        # without a parameter it is the length of the trial
        (
            Foresighted(),
            [({"epochs": 2}, False), ({}, False)],
        ),
        (
            Called(),
            [({"kind": kind}, kind == "keras") for kind in ("own", "lambda", "schedule", "keras")],
        ),
    ],
)
def test_what_depends_on_the_number_of_epochs_is_told(trainable: Small, cases: Any) -> None:
    given = assignment(epochs=2)
    for params, extends in cases:
        train(trainable, replace(given, params={**given.params, **params}))
        assert trainable.facts().extends is extends, params
