"""Training steps of one's own train as the same loops do in plain Keras; what makes no sense is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import zoo_steps
from keras import layers
from sampling import sampled
from small import assignment, train
from zoo import ENTRIES
from zoo_checks import given

from sweep.hyperparameters import Hyperparameters
from trainables.data.sources import permutation
from trainables.keras_trainable import KerasTrainable, session_of
from trainables.loop import building
from trainables.loop.own_step import CALLS
from trainables.numbers.draws import Draws
from trainables.numbers.live import Live

pytestmark = pytest.mark.keras

crossentropy = keras.losses.BinaryCrossentropy(from_logits=True)


class Distilled(zoo_steps.Distilled):
    """Without dropout, whose draws plain Keras takes elsewhere."""

    def body(self) -> list[Any]:
        return [layers.Dense(8, activation="tanh"), layers.BatchNormalization()]


class Plain:
    """The same networks with the same weights, and the batches that a trial of four epochs sees."""

    def __init__(self, kind: type[KerasTrainable], trial: Any) -> None:
        self.author, hp, self.trial = kind(), Hyperparameters(trial.params), trial
        self.author.live = Live(hp)
        self.data, _ = self.author.data(hp)
        self.author.first_example = keras.tree.map_structure(lambda a: a[:1], self.data)
        self.model = building.build_model(self.author, hp, trial.seed)

    def batches(self) -> Iterator[tuple[Any, Any, Callable[[int], Draws]]]:
        update, size = 0, self.trial.params["batch_size"]
        for epoch in range(1, self.trial.epochs + 1):
            order = permutation(len(self.data[0]), self.trial.seed, epoch)
            for start in range(0, len(order), size):
                x, y = (tf.constant(a[order[start : start + size]]) for a in self.data)
                yield x, y, self._draws(update, len(x))
                update += 1

    def _draws(self, update: int, size: int) -> Callable[[int], Draws]:
        numbers = [tf.constant(n) for n in (self.trial.seed, update, size, 0, size)]
        return lambda turn: Draws(*numbers, calls=turn * CALLS)


def learn(optimizer: Any, tape: Any, loss: Any, model: keras.Model) -> None:
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))


def distilled(plain: Plain) -> list[keras.Model]:
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    hard, distance = (
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        keras.losses.KLDivergence(),
    )
    for x, y, _ in plain.batches():
        soft = tf.nn.softmax(plain.author.teacher(x) / 2.0)
        with tf.GradientTape() as tape:
            logits = plain.model(x, training=True)
            loss = hard(y, logits) + 0.5 * distance(soft, tf.nn.softmax(logits / 2.0))
        learn(optimizer, tape, loss, plain.model)
    return [plain.model, plain.author.teacher]


def alternating(plain: Plain) -> list[keras.Model]:
    """As Keras's example `dcgan_overriding_train_step`."""
    judge, judging, making = (
        plain.author.judge,
        keras.optimizers.Adam(0.01),
        keras.optimizers.Adam(0.02),
    )
    for x, _, draws in plain.batches():
        truth, false = tf.ones((len(x), 1)), tf.zeros((len(x), 1))
        with tf.GradientTape() as tape:
            fake = plain.model(draws(0).normal((3,)))
            loss = crossentropy(truth, judge(x)) + crossentropy(false, judge(fake))
        learn(judging, tape, loss, judge)
        with tf.GradientTape() as tape:
            loss = crossentropy(truth, judge(plain.model(draws(1).normal((3,)))))
        learn(making, tape, loss, plain.model)
    return [plain.model, judge]


def at_once(plain: Plain) -> list[keras.Model]:
    """As TensorFlow's DCGAN tutorial: both gradients of one pass."""
    judge, judging, making = (
        plain.author.judge,
        keras.optimizers.Adam(0.01),
        keras.optimizers.Adam(0.02),
    )
    for x, _, draws in plain.batches():
        truth, false = tf.ones((len(x), 1)), tf.zeros((len(x), 1))
        with tf.GradientTape() as of_judge, tf.GradientTape() as of_maker:
            judged = judge(fake := plain.model(draws(0).normal((3,))))
            loss = crossentropy(truth, judge(x)) + crossentropy(false, judged)
            made = crossentropy(truth, judge(fake))
        slopes = of_maker.gradient(made, plain.model.trainable_variables)
        learn(judging, of_judge, loss, judge)
        making.apply_gradients(zip(slopes, plain.model.trainable_variables, strict=True))
    return [plain.model, judge]


def wasserstein(plain: Plain) -> list[keras.Model]:
    """As Keras's example `wgan_gp`, with three updates of the critic."""
    judge = plain.author.judge
    judging, making = (
        keras.optimizers.Adam(0.025, beta_1=0.5),
        keras.optimizers.SGD(0.05, momentum=0.9),
    )
    for x, _, draws in plain.batches():
        for turn in range(3):
            drawn = draws(turn)
            fake = plain.model(drawn.normal((3,)))
            between = x + (1 - drawn.uniform((1,))) * (fake - x)
            with tf.GradientTape() as tape:
                with tf.GradientTape() as inner:
                    inner.watch(between)
                    score = judge(between)
                norm = tf.sqrt(
                    tf.reduce_sum(tf.square(inner.gradient(score, between)), axis=1) + 1e-12
                )
                penalty = 10.0 * tf.reduce_mean((norm - 1.0) ** 2)
                loss = tf.reduce_mean(judge(fake)) - tf.reduce_mean(judge(x)) + penalty
            learn(judging, tape, loss, judge)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(judge(plain.model(draws(3).normal((3,)))))
        learn(making, tape, loss, plain.model)
    return [plain.model, judge]


def physics(plain: Plain) -> list[keras.Model]:
    """The derivatives of tanh written out: u = w . tanh(a), u'' = w . tanh''(a) k^2 for the first input's weights k."""
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    hidden, out = plain.model.layers
    for x, y, _ in plain.batches():
        with tf.GradientTape() as tape:
            t = tf.tanh(x @ hidden.kernel.value + hidden.bias.value)
            u = t @ out.kernel.value + out.bias.value
            bend = (-2.0 * t * (1 - t**2) * hidden.kernel.value[0] ** 2) @ out.kernel.value
            loss = tf.reduce_mean((bend + u) ** 2) + tf.reduce_mean((u - y[:, :1]) ** 2)
        learn(optimizer, tape, loss, plain.model)
    return [plain.model]


def contrastive(plain: Plain) -> list[keras.Model]:
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    for x, _, draws in plain.batches():
        drawn = draws(0)
        noise = [drawn.normal((6,), 0.1) for _ in range(2)]
        with tf.GradientTape() as tape:
            a, b = (tf.math.l2_normalize(plain.model(x + n), axis=-1) for n in noise)
            similar = 5.0 * tf.matmul(a, b, transpose_b=True)
            loss = tf.reduce_mean(
                tf.reduce_logsumexp(similar, axis=1) - tf.linalg.diag_part(similar)
            )
        learn(optimizer, tape, loss, plain.model)
    return [plain.model]


@pytest.mark.parametrize(
    ("kind", "loop"),
    sampled(
        [
            (Distilled, distilled),
            (zoo_steps.Alternating, alternating),
            (zoo_steps.AtOnce, at_once),
            (zoo_steps.Wasserstein, wasserstein),
            (zoo_steps.Physics, physics),
            (zoo_steps.Contrastive, contrastive),
        ],
        1,
        several=True,
    ),
    ids=lambda given: given.__name__,
)
def test_twenty_updates_are_those_of_a_plain_loop(kind: type[KerasTrainable], loop: Any) -> None:
    trial = given(ENTRIES["Distilled"])
    ours = kind()
    assert len(train(ours, trial)) * 5 == 20
    expected = loop(Plain(kind, trial))
    found = [
        session_of(ours).trial.program.model,
        *(getattr(ours, name) for name in ("judge", "teacher") if hasattr(ours, name)),
    ]
    # three updates of the critic a batch: 60 of Adam
    tolerance = 3e-6 if loop is wasserstein else 1e-6
    for mine, theirs in zip(found, expected, strict=True):
        for a, b in zip(mine.variables, theirs.variables, strict=True):
            if a.dtype.startswith("float"):
                np.testing.assert_allclose(
                    np.asarray(a), np.asarray(b), atol=tolerance, rtol=0, err_msg=a.path
                )


class Unlike(KerasTrainable):
    """Validation has no weights if training has some, and targets if training has none."""

    labelled = True

    def data(self, hp: Any) -> Any:
        x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
        y = (x[:, 0] > 0.5).astype(np.int32)
        return ((x, y) if self.labelled else (x,)), (x[:32], y[:32])

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((4,)), layers.Dense(1)])

    def train_step(self, model: Any, batch: Any, hp: Any) -> dict[str, Any]:
        logits = model(batch.x, training=True)
        if not self.labelled:
            return {"loss": tf.reduce_sum((logits - 1) ** 2, -1)}
        losses = keras.losses.binary_crossentropy(batch.y[:, None], logits, from_logits=True)
        return {"loss": losses * batch.sample_weight}

    def test_step(self, model: Any, batch: Any, hp: Any) -> dict[str, Any]:
        logits = model(batch.x)
        return {
            "of_labels": keras.losses.binary_crossentropy(
                batch.y[:, None], logits, from_logits=True
            )
        }


class Unlabelled(Unlike):
    labelled = False


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (Unlike, {"class_weights": "balanced"}),
        (Unlike, {"class_weights": "balanced", "micro_batches": 2}),
        (Unlabelled, {}),
        (Unlabelled, {"micro_batches": 2}),
    ],
)
def test_evaluation_takes_the_validation_data_as_they_are(kind: Any, more: Any) -> None:
    trainable = kind()
    epochs = train(trainable, assignment(epochs=1, **more))
    x, y = trainable.data(None)[1]
    logits = session_of(trainable).trial.program.model(x)
    expected = keras.losses.binary_crossentropy(y[:, None], logits, from_logits=True)
    assert epochs[0].metrics["val_of_labels"] == pytest.approx(np.mean(expected), rel=1e-5)
