"""An update that overflows float16 changes nothing but the loss scale and what is drawn next, whatever clips."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from small import Small, assignment, go_on

from trainables.keras_trainable import session_of

pytestmark = pytest.mark.keras

HALF = {"precision": "mixed_float16"}
NOT_THEIRS = ("loss_scale", "good_updates", "learning_rate", "seed_generator")


class Counting(layers.Layer):
    """Counts its calls in training."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.calls.assign_add(1.0)
        return x


class Overflowing(Small):
    """A batch whose gradients overflow float16, and the loss does not."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), _ = super().data(hp)
        x, y = x[:8].copy(), y[:8]
        x[1] = 1000.0
        return (x, y), None

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        overflowing = Counting()(layers.Dense(4, kernel_initializer="ones")(inputs))
        normal = layers.Dropout(0.1)(layers.Dense(4)(layers.BatchNormalization()(inputs)))
        return keras.Model(
            inputs,
            layers.Dense(3, kernel_initializer=diagonals)(
                layers.Concatenate()([overflowing, normal])
            ),
        )


def diagonals(shape: tuple[int, int], dtype: Any = None) -> Any:
    """Each half of the features reaches the logits, and an overflowing one all of them alike."""
    return np.eye(*shape) + np.eye(*shape, k=-4)


class OwnStep(Overflowing):
    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        predicted = model(batch.x, training=True)
        return {
            "loss": keras.losses.sparse_categorical_crossentropy(
                batch.y, predicted, from_logits=True
            )
        }


class OwnDraws(Overflowing):
    """Keeps a generator of its own, which no layer holds."""

    def model(self, hp: Any) -> keras.Model:
        self.draws = keras.random.SeedGenerator(5)
        return super().model(hp)

    def loss(self, hp: Any, model: keras.Model) -> Any:
        def noisy(y: Any, predicted: Any) -> Any:
            noise = 1e-3 * keras.random.normal(keras.ops.shape(predicted), seed=self.draws)
            return keras.losses.sparse_categorical_crossentropy(
                y, predicted + noise, from_logits=True
            )

        return noisy


CASES = {
    "draws of the author's": (OwnDraws, {"clipvalue": 0.1}, {}),
    "clipvalue": (Overflowing, {"clipvalue": 0.1}, {}),
    "clipnorm on two": (Overflowing, {"clipnorm": 0.1, "gpus": 2}, {}),
    "all, sharpness": (Overflowing, {"global_clipnorm": 0.1, "sam_rho": 0.05}, {}),
    "own step": (OwnStep, {"clipvalue": 0.1}, {}),
    "xla": (Overflowing, {"clipvalue": 0.1}, {"jit_compile": True}),
}


RARE = ("clipvalue", "own step", "xla")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.exhaustive if name in RARE else ()) for name in CASES],
)
def test_nothing_moves_in_a_skipped_update(name: str) -> None:
    kind, params, training = CASES[name]
    trainable = kind()
    given = {"batch_size": 8, "optimizer": "adamw", "ema_momentum": 0.9, **params}
    trainable.begin(assignment(epochs=1, training={**HALF, **training}, **given))
    program = session_of(trainable).trial.program
    counters = {v.path for v in program.model.metrics_variables}
    before, scale = program.state.copy_all(), float(program.graph.loss_scale.scale.numpy())
    go_on(trainable)
    assert float(program.graph.loss_scale.scale.numpy()) == scale / 2
    moved = [
        path
        for path, values in program.state.copy_all().items()
        if path not in counters and not any(part in path for part in NOT_THEIRS)
        if any((a != b).any() for a, b in zip(values, before[path], strict=True))
    ]
    assert not moved
    seeds = [path for path in before if "seed_generator" in path]
    assert len(seeds) == (2 if kind is OwnDraws else 1)
    for path in seeds:
        after = program.state.copy_all()[path][0]
        assert after[1] > before[path][0][1], "as with fit, the next batch has draws of its own"
    assert any("moving_mean" in path for path in before)
    assert any("calls" in path for path in before)


def test_a_schedule_stays_where_it_is_in_a_skipped_update() -> None:
    falling = keras.optimizers.schedules.PolynomialDecay(0.1, 4, 0.0)

    class Scheduled(Overflowing):
        def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
            return keras.optimizers.SGD(falling)

    given = assignment(epochs=2, training=HALF, batch_size=8)
    given.params.pop("learning_rate")
    trainable = Scheduled()
    trainable.begin(given)
    assert [epoch.learning_rate for epoch in go_on(trainable)] == pytest.approx([0.1, 0.1])


class Finite(Overflowing):
    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), _ = super().data(hp)
        return (np.minimum(x, 1.0), y), None


def test_all_moves_in_one_that_is_not() -> None:
    trainable = Finite()
    trainable.begin(
        assignment(
            epochs=1, training=HALF, batch_size=8, optimizer="adamw", ema_momentum=0.9, clipvalue=1
        )
    )
    state = session_of(trainable).trial.program.state
    before = state.copy_all()
    go_on(trainable)
    after = state.copy_all()
    for part in ("moving_mean", "calls", "average_0", "iteration", "kernel"):
        assert any((after[path][0] != before[path][0]).any() for path in before if part in path), (
            part
        )
