"""The silent mistakes of the obvious code under a strategy, in the order of ARCHITECTURE.md: none of them is made.

What the matrix of test_equivalence.py, the zoo and test_optimizer_table.py show every day as well is ``exhaustive``.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, go_on, interrupted, metrics, train, weights

from sweep.contract import Diverged
from trainables.devices import placement
from trainables.devices.placement import NewProcessNeeded
from trainables.keras_trainable import session_of
from trainables.state.program_variables import NotInScope

pytestmark = [pytest.mark.keras]

ADAM = {"optimizer": "adam", "learning_rate": 0.01}


def agree(a: Small, b: Small, tolerance: float = 1e-6) -> None:
    for one, other in zip(weights(a), weights(b), strict=True):
        np.testing.assert_allclose(other, one, atol=tolerance, rtol=0)


def replica_values(trainable: Small, variable: Any) -> list[np.ndarray[Any, Any]]:
    strategy = session_of(trainable).trial.placement.replicas
    return [np.asarray(local) for local in strategy.of_each(variable.value)]


def test_1_a_model_from_outside_is_an_error() -> None:
    elsewhere = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)], name="stray")

    class Stray(Small):
        def model(self, hp: Any) -> keras.Model:
            return elsewhere

    with pytest.raises(NotInScope, match="stray"):
        train(Stray(), assignment(2))


def test_2_an_optimizer_from_outside_is_an_error() -> None:
    elsewhere = keras.optimizers.SGD(0.1, name="outer")

    class Stray(Small):
        def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
            return elsewhere

    with pytest.raises(NotInScope, match="optimizer 'outer'"):
        train(Stray(), assignment(2))


def test_2_a_metric_from_outside_is_named_with_where_to_make_it() -> None:
    elsewhere = keras.metrics.MeanAbsoluteError(name="outer")

    class Stray(Small):
        def metrics(self, hp: Any, model: keras.Model) -> list[Any]:
            return [elsewhere]

    with pytest.raises(
        NotInScope,
        match=r"^made outside of metrics\(\): metric 'outer'. Make it inside metrics\(\)",
    ):
        train(Stray(), assignment(2))


@pytest.mark.exhaustive
def test_3_clipping_sees_the_global_gradient() -> None:
    one, two = Small(), Small()
    params = {"optimizer": "sgd", "learning_rate": 0.1, "global_clipnorm": 0.05}
    train(one, assignment(epochs=3, **params))
    train(two, assignment(2, epochs=3, **params))
    agree(one, two)


class Overflowing(Small):
    """One of two examples overflows float16 in the gradient and not in the loss: on one of two replicas only."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), _ = super().data(hp)
        x, y = x[:2].copy(), y[:2]
        x[1] = 1000.0
        return (x, y), None

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(4, kernel_initializer="ones"),
                keras.layers.Dense(3),
            ]
        )


def test_4_all_replicas_agree_that_a_gradient_overflowed() -> None:
    trainable = Overflowing()
    trainable.begin(
        assignment(
            2, epochs=1, batch_size=2, optimizer="sgd", training={"precision": "mixed_float16"}
        )
    )
    program = session_of(trainable).trial.program
    before = [np.asarray(v) for v in program.model.trainable_variables]
    scale = float(program.graph.loss_scale.scale.numpy())
    (epoch,) = go_on(trainable)
    assert np.isfinite(epoch.metrics["loss"])
    assert float(program.graph.loss_scale.scale.numpy()) == scale / 2
    for variable, old in zip(program.model.trainable_variables, before, strict=True):
        for value in replica_values(trainable, variable):
            np.testing.assert_array_equal(value, old)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_5_accumulation_and_averaging_work_under_a_strategy() -> None:
    one, two = Small(), Small()
    params = {**ADAM, "micro_batches": 2, "ema_momentum": 0.9}
    alone = train(one, assignment(epochs=2, **params))
    together = train(two, assignment(2, epochs=2, **params))
    agree(one, two)
    assert metrics(alone)[-1] == pytest.approx(metrics(together)[-1], abs=1e-6)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_6_and_7_batch_statistics_are_global_also_where_replicas_get_nothing() -> None:
    one, eight = Small(), Small()
    params = {**ADAM, "batch_size": 17}  # the last batch has two examples for eight replicas
    train(one, assignment(epochs=2, **params))
    train(eight, assignment(8, epochs=2, **params))
    agree(one, eight)
    norm = next(
        x
        for x in session_of(eight).trial.program.model.layers
        if isinstance(x, keras.layers.BatchNormalization)
    )
    values = replica_values(eight, norm.moving_mean)
    assert len(values) == 8
    assert all((value == values[0]).all() and np.isfinite(value).all() for value in values)


class Noisy(Small):
    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.GaussianNoise(0.1),
                keras.layers.Reshape((3, 2)),
                keras.layers.SpatialDropout1D(0.3),
                keras.layers.LSTM(4, dropout=0.2, recurrent_dropout=0.2),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(3),
            ]
        )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_8_random_layers_draw_per_example() -> None:
    one, two = Noisy(), Noisy()
    params = {"optimizer": "sgd", "learning_rate": 0.1, "micro_batches": 1}
    train(one, assignment(epochs=2, **params))
    train(two, assignment(2, epochs=2, **params))
    agree(one, two)
    parts = Noisy()
    train(parts, assignment(epochs=2, **{**params, "micro_batches": 2}))
    agree(one, parts)


def test_8_layers_that_draw_for_the_batch_as_a_whole_are_named() -> None:
    class Mixed(Small):
        def model(self, hp: Any) -> keras.Model:
            inputs = keras.Input((6,))
            x = keras.layers.Lambda(
                lambda t: keras.random.shuffle(t, seed=keras.random.SeedGenerator(1))
            )(inputs)
            return keras.Model(inputs, keras.layers.Dense(3)(x))

    with pytest.raises(
        Exception, match=r"keras\.random\.shuffle, which draws for the batch as a whole"
    ):
        train(Mixed(), assignment(2))


def test_9_and_10_ring_works_and_a_second_device_set_asks_for_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "placements", {})
    one, two = Small(), Small()
    ring = {"cross_device": "ring"}
    train(one, assignment(epochs=2, **ADAM))
    train(two, assignment(2, epochs=2, training=ring, **ADAM))
    agree(one, two)
    with pytest.raises(NewProcessNeeded):
        train(Small(), assignment(4, training=ring))


def test_11_the_policy_reaches_the_thread_that_trains_and_no_other() -> None:
    found: list[str] = []

    class Half(Small):
        def model(self, hp: Any) -> keras.Model:
            found.append(keras.config.dtype_policy().name)
            return super().model(hp)

    given = assignment(training={"precision": "mixed_bfloat16"}, epochs=1)
    thread = threading.Thread(target=lambda: train(Half(), given))
    thread.start()
    thread.join()
    assert found == ["mixed_bfloat16"]
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("gpus", sampled([2, 0], 1))
def test_12_and_13_a_checkpoint_holds_all_state(gpus: int, tmp_path: Path) -> None:
    given = assignment(
        gpus,
        epochs=4,
        training={"precision": "mixed_float16"},
        ema_momentum=0.9,
        micro_batches=2,
        lr_schedule="plateau",
        lr_patience=1,
        optimizer="adamw",
        weight_decay=0.1,
    )
    straight = Small()
    whole = train(straight, given)
    epochs, resumed = interrupted(given, tmp_path)
    assert metrics(epochs) == metrics(whole)
    assert [e.learning_rate for e in epochs] == [e.learning_rate for e in whole]
    for a, b in zip(weights(resumed), weights(straight), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_12_a_checkpoint_goes_on_with_another_number_of_replicas_within_rounding(
    tmp_path: Path,
) -> None:
    params = {**ADAM, "ema_momentum": 0.9, "lr_schedule": "cosine"}
    straight, two, one = Small(), Small(), Small()
    whole = train(straight, assignment(epochs=4, **params))
    two.begin(assignment(2, epochs=4, **params))
    first = go_on(two, pause_after=2)
    two.save(tmp_path)()
    one.begin(assignment(epochs=4, **params))
    assert one.restore(tmp_path) == 2
    for a, b in zip(metrics(first + go_on(one)), metrics(whole), strict=True):
        assert a == pytest.approx(b, abs=1e-6)
    agree(straight, one)


def test_14_a_nan_weight_behind_a_finite_loss_is_found() -> None:
    class Poisoned(Small):
        def data(self, hp: Any) -> tuple[Any, Any]:
            (x, y), held_out = super().data(hp)
            x = x.copy()
            x[0, 0] = np.nan
            return (x, y), held_out

    with pytest.raises(Diverged, match="epoch 1"):
        train(Poisoned(), assignment())


def test_15_a_trial_without_gpus_sees_none() -> None:
    train(Small(), assignment(epochs=1))
    assert tf.config.get_visible_devices("GPU") == []


@pytest.mark.exhaustive
@pytest.mark.slow
def test_16_the_optimizer_is_built_before_the_first_trace() -> None:
    class Free(Small):
        def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
            return keras.optimizers.ScheduleFreeAdamW(0.01)

    one, two = Free(), Free()
    train(one, assignment(epochs=2))
    train(two, assignment(2, epochs=2))
    agree(one, two)
    assert session_of(one).trial.program.train_chunk.experimental_get_tracing_count() == 1


@pytest.mark.slow
def test_17_losses_that_layers_add_stay_with_their_replica() -> None:
    class Added(Small):
        def model(self, hp: Any) -> keras.Model:
            activity = keras.regularizers.L2(0.5)
            return keras.Sequential(
                [
                    keras.Input((6,)),
                    keras.layers.Dense(8, use_bias=False, activity_regularizer=activity),
                    keras.layers.BatchNormalization(),
                    keras.layers.Dense(4, activity_regularizer=activity),
                    keras.layers.BatchNormalization(),
                    keras.layers.Dense(3),
                ]
            )

    one, two = Added(), Added()
    params = {"optimizer": "sgd", "learning_rate": 0.01}
    alone = metrics(train(one, assignment(epochs=2, **params)))
    together = metrics(train(two, assignment(2, epochs=2, **params)))
    agree(one, two)
    assert together[-1] == pytest.approx(alone[-1], abs=1e-6)
