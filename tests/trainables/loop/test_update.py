from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainables.devices.replicas import Replicas
from trainables.numbers.finite import all_finite
from trainables.recipe import optimizers
from trainables.state import program_variables

pytestmark = pytest.mark.keras


class Counting(keras.optimizers.Optimizer):
    """An author's own, that holds a variable which Keras knows nothing of."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.seen = tf.Variable(0.0)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.seen.assign_add(tf.reduce_sum(gradient))
        variable.assign(variable - gradient * tf.cast(learning_rate, variable.dtype) * self.seen)


KINDS = {**optimizers.OPTIMIZER_CLASSES, "own": Counting}
FAST = ("own", "adamw", "muon")
ROWS = [pytest.param(name, marks=() if name in FAST else pytest.mark.exhaustive) for name in KINDS]


def mirrored() -> Replicas:
    ops = tf.distribute.HierarchicalCopyAllReduce()
    return Replicas(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=ops))


def _value(variable: Any) -> np.ndarray[Any, Any]:
    return (variable.value if isinstance(variable, keras.Variable) else variable).numpy()


def by_branch(good: tf.Tensor, apply: Callable[[], None], _: Any) -> None:
    tf.cond(good, apply, lambda: None)


@pytest.mark.parametrize("name", ROWS)
def test_an_update_is_made_or_undone_as_a_branch_would(name: str) -> None:
    replicas = mirrored() if name in FAST else Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))

    def by_selection(good: tf.Tensor, apply: Callable[[], None], told: Any) -> None:
        optimizer, weights = told
        before = program_variables.SavedVariables(
            replicas, [*program_variables.list_optimizer_variables(optimizer), *weights]
        )
        apply()
        before.restore(unless=good)

    def all_of(way: Callable[..., None]) -> list[list[bytes]]:
        with replicas.scope():
            weights = [
                keras.Variable(np.linspace(-1, 1, n).reshape(-1, 2).astype(np.float32))
                for n in (8, 6)
            ]
            optimizer = KINDS[name](learning_rate=0.05)
            optimizer.weight_decay = 0.01
            optimizer.build(weights)
            optimizer._all_reduce_sum_gradients = list

            @tf.function(autograph=False)
            def step(scale: tf.Tensor) -> None:
                gradients = replicas.run(lambda: [tf.sin(w.value) * scale for w in weights])
                ones = replicas.first(gradients)

                def apply() -> None:
                    replicas.run(lambda g: optimizer.apply(g, weights), gradients)

                way(all_finite(ones), apply, (optimizer, weights))

            held = [*weights, *optimizer.variables, *([optimizer.seen] if name == "own" else [])]
            found = []
            for scale in (1.0, float("nan"), 0.5, float("inf"), 2.0):
                step(tf.constant(scale))
                found.append([_value(v).tobytes() for v in held])
        return found

    ours = all_of(by_selection)
    assert ours == all_of(by_branch)
    assert ours[0] == ours[1] != ours[2] == ours[3] != ours[4]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_one_number_that_is_not_finite_is_found(dtype: str) -> None:
    big = np.full((300, 4), 60000.0, np.float32)  # whose sum float16 has not
    others = [tf.constant([[1, 2]]), tf.zeros((0, 3)), tf.constant(2.0)]
    assert bool(all_finite([tf.cast(big, dtype), *others]))
    for wrong in (np.nan, np.inf, -np.inf):
        bad = big.copy()
        bad[17, 2], bad[18, 0] = wrong, -wrong
        assert not bool(all_finite([*others, tf.cast(bad, dtype)]))
        rows = [
            tf.cast(np.stack([big, bad]), dtype),
            tf.zeros(2),
            tf.zeros((2, 0)),
            tf.constant([1, 2]),
        ]
        assert all_finite(rows, by_row=True).numpy().tolist() == [True, False]
    assert bool(all_finite([]))
