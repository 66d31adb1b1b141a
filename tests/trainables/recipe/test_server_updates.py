"""What servers compute against what Keras's optimizers do."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainables.loop import served_program
from trainables.loop.served_program import UpdateRule, Weight
from trainables.recipe.refusals import Refused
from trainables.replicas import sharded_embedding
from trainables.replicas.sharded_embedding import ShardedEmbedding

pytestmark = pytest.mark.keras

ROWS, WIDTH = 7, 3
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.1, beta_1=0.8, epsilon=1e-3),
    "adamw": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.3),
}


def begin() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)


def updated(name: str, gradients: list[Any], *, lazy: bool = False) -> np.ndarray[Any, Any]:
    variable = tf.Variable(begin())
    weight = Weight(variable, "/cpu:0", UpdateRule.of(OPTIMIZERS[name]()), lazy=lazy, decays=True)
    for number, gradient in enumerate(gradients):
        weight.update(gradient, tf.constant(0.1), tf.constant(number))
    return variable.numpy()


def of_keras(name: str, gradients: list[Any]) -> np.ndarray[Any, Any]:
    variable, optimizer = keras.Variable(begin()), OPTIMIZERS[name]()
    for gradient in gradients:
        optimizer.apply([tf.convert_to_tensor(gradient)], [variable])
    return np.asarray(variable)


def rows(places: list[int], seed: int = 0) -> tf.IndexedSlices:
    values = np.random.default_rng(seed).normal(size=(len(places), WIDTH)).astype(np.float32)
    return tf.IndexedSlices(tf.constant(values), tf.constant(places), tf.constant([ROWS, WIDTH]))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whole_gradients_and_those_of_rows_change_what_keras_changes(name: str) -> None:
    whole = [tf.constant(begin() * factor) for factor in (1.0, -0.3, 0.2)]
    np.testing.assert_allclose(updated(name, whole), of_keras(name, whole), atol=1e-6)
    some = [
        served_program.sum_by_row(rows(places, i))
        for i, places in enumerate(([0, 2, 0], [2, 6], [1, 1, 1]))
    ]
    np.testing.assert_allclose(updated(name, some), of_keras(name, some), atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lazy_updates_leave_all_other_rows_and_move_these_as_keras_would(name: str) -> None:
    places = [1, 4]
    found = updated(name, [rows(places, 1), rows(places, 2)], lazy=True)
    others = [row for row in range(ROWS) if row not in places]
    np.testing.assert_array_equal(found[others], begin()[others])
    np.testing.assert_allclose(
        found[places], of_keras(name, [rows(places, 1), rows(places, 2)])[places], atol=1e-6
    )


@pytest.mark.parametrize("names", [[], ["bias"], ["embeddings"], ["^emb", "kernel"]])
def test_servers_let_decay_what_the_optimizer_does(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*, servers: bool) -> tuple[Any, Any]:
        monkeypatch.setattr(sharded_embedding, "in_scope_of_servers", lambda: servers)
        monkeypatch.setattr(
            sharded_embedding.parameter_server, "list_server_devices", lambda: ("/cpu:0", "/cpu:0")
        )
        table = ShardedEmbedding(ROWS, WIDTH)
        model = keras.Sequential([keras.Input((2,), dtype="int32"), table, keras.layers.Dense(1)])
        optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.3)
        optimizer.exclude_from_weight_decay(var_names=names)
        return model, optimizer

    model, optimizer = made(servers=False)
    table, kernel, bias = (optimizer._use_weight_decay(v) for v in model.trainable_variables)
    whole, tables = served_program.list_weights(*made(servers=True))
    assert [weight.decays for weight in whole] == [kernel, bias]
    ((first, second),) = tables.values()
    assert (first.decays, second.decays) == (table, table)


def test_an_optimizer_without_a_rule_is_refused() -> None:
    for optimizer, name in (
        (keras.optimizers.Lamb(), "Lamb"),
        (keras.optimizers.Adam(amsgrad=True), "Adam with amsgrad"),
    ):
        with pytest.raises(Refused, match=f"sgd, adam, adamw, and the optimizer is {name}"):
            UpdateRule.of(optimizer)
