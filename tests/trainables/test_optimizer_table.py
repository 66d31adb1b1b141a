"""Every optimizer of Keras, with its own numbers and with others, trains in our loop as in `Model.fit`."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from optimizer_numbers import NUMBERS, OFF
from sampling import sampled
from small import Small, assignment, metrics, train, weights

from trainables.data.sources import permutation
from trainables.keras_trainable import session_of
from trainables.recipe import optimizers

pytestmark = [pytest.mark.keras, pytest.mark.slow]

RATE = {"adadelta": 0.5, "ftrl": 0.2, "sgd": 0.1, "lion": 0.003, "muon": 0.01}
ROWS = [(name, kind) for name in optimizers.OPTIMIZERS for kind in ("default", "other")]
FAST = {("nadam", "other"), ("muon", "other"), ("ftrl", "other"), ("rmsprop", "default")}
TABLE = [pytest.param(*row, marks=() if row in FAST else pytest.mark.exhaustive) for row in ROWS]


class Plain(Small):
    def model(self, hp: Any) -> keras.Model:
        hidden = keras.layers.Dense(8, activation="tanh", name="hidden", kernel_initializer=_spread)
        return keras.Sequential([keras.Input((6,)), hidden, keras.layers.Dense(3, name="head")])


def _spread(shape: tuple[int, ...], dtype: Any = None) -> tf.Tensor:
    return tf.reshape(tf.sin(tf.range(float(np.prod(shape)))), shape)


def numbers(name: str, kind: str) -> dict[str, Any]:
    if kind == "default":
        return {}
    return {"weight_decay": 0.02, **NUMBERS[name], **(OFF if name == "adafactor" else {})}


def given(name: str, kind: str, gpus: int = 0) -> Any:
    found = assignment(gpus, epochs=4, optimizer=name, **numbers(name, kind))
    return dataclasses.replace(
        found, params={**found.params, "learning_rate": RATE.get(name, 0.01)}
    )


@pytest.mark.parametrize(("name", "kind"), TABLE)
def test_it_trains_as_in_fit(name: str, kind: str) -> None:
    trainable, trial = Plain(), given(name, kind)
    train(trainable, trial)
    ours = session_of(trainable).trial.program.model
    model = Plain().model(None)
    model.layers[1].set_weights([np.asarray(w) for w in _initial(trainable)])
    told = numbers(name, kind)
    make = optimizers.OPTIMIZER_CLASSES[name]
    none = {decay: None for decay in optimizers.DECAYS if decay in optimizers.list_arguments(make)}
    optimizer = make(learning_rate=trial.params["learning_rate"], **{**none, **told})
    if not told and hasattr(optimizer, "weight_decay"):
        optimizer.weight_decay = None
    flat = [v for v in model.trainable_variables if len(v.shape) < 2]
    optimizer.exclude_from_weight_decay(var_list=flat)
    model.compile(
        optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False
    )
    # fit would while it traces, where ScheduleFreeAdamW goes wrong
    optimizer.build(model.trainable_variables)
    (x, y), _ = trainable.data(None)
    for epoch in range(1, 5):
        order = permutation(len(x), trial.seed, epoch)
        model.fit(x[order], y[order], 16, shuffle=False, verbose=0)
    for mine, theirs in zip(ours.variables, model.variables, strict=True):
        np.testing.assert_allclose(
            mine.numpy(), theirs.numpy(), atol=1e-6, rtol=1e-6, err_msg=mine.path
        )


def _initial(trainable: Plain) -> list[Any]:
    state = session_of(trainable).trial.program.state
    head = session_of(trainable).trial.program.model.layers[1]
    return [np.array(state[v.path].initial[0]) for v in head.variables]


@pytest.mark.parametrize(("name", "kind"), sampled(TABLE, 1))
def test_two_replicas_are_one(name: str, kind: str) -> None:
    one, two = Plain(), Plain()
    alone, together = (
        metrics(train(one, given(name, kind))),
        metrics(train(two, given(name, kind, 2))),
    )
    for a, b in zip(alone, together, strict=True):
        assert b == pytest.approx(a, abs=1e-5, rel=1e-5)
    for a, b in zip(weights(one), weights(two), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_other_numbers_take_no_other_graph() -> None:
    trainable = Plain()
    train(trainable, given("rmsprop", "other"))
    first = session_of(trainable).trial.program
    again = given("rmsprop", "other")
    train(
        trainable,
        dataclasses.replace(
            again, params={**again.params, "rho": 0.5, "momentum": 0.1, "epsilon": 1e-2}
        ),
    )
    assert session_of(trainable).trial.program is first
    assert first.train_chunk.experimental_get_tracing_count() == 1
