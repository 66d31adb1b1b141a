from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainables.numbers import draws
from trainables.numbers.draws import Draws

pytestmark = pytest.mark.keras

KEY = tf.constant([5, 77])
HALVES = (tf.float16, tf.bfloat16)
SAME: dict[str, Callable[..., Any]] = {
    **{
        f"uniform {t.name}": lambda alg, t=t: tf.random.stateless_uniform(
            [7, 3], KEY, dtype=t, alg=alg
        )
        for t in HALVES
    },
    **{
        f"normal {t.name}": lambda alg, t=t: tf.random.stateless_normal(
            [7, 3], KEY, dtype=t, alg=alg
        )
        for t in HALVES
    },
    "uniform": lambda alg: tf.random.stateless_uniform([77, 13], KEY, -1, 3, alg=alg),
    "normal": lambda alg: tf.random.stateless_normal([1001], KEY, 1, 3, alg=alg),
    "whole numbers": lambda alg: tf.random.stateless_uniform([1001], KEY, 0, 17, tf.int32, alg=alg),
    "bits": lambda alg: tf.random.stateless_uniform([1001], KEY, None, None, tf.int32, alg=alg),
    "folded": lambda alg: tf.random.fold_in(KEY, 3, alg=alg),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "double": lambda: tf.random.stateless_uniform([3], KEY, dtype=tf.float64),
    "truncated": lambda: tf.random.stateless_truncated_normal([3], KEY),
    "categorical": lambda: tf.random.stateless_categorical(tf.zeros([2, 3]), 4, KEY),
    "gamma": lambda: tf.random.stateless_gamma([3], KEY, 2.0),
    "shuffle": lambda: tf.random.experimental.stateless_shuffle(tf.range(3), KEY),
}


def through_xla(draw: Callable[[], Any]) -> Any:
    def traced() -> Any:
        with draws.tracing_for_xla():
            return draw()

    return tf.function(traced, jit_compile=True, autograph=False)()


@pytest.mark.parametrize("name", SAME)
def test_xla_draws_the_same(name: str) -> None:
    outside = SAME[name]("auto_select")
    np.testing.assert_array_equal(outside, SAME[name]("philox"))  # what auto_select is, outside
    inside = through_xla(lambda: SAME[name]("auto_select"))
    np.testing.assert_allclose(
        tf.cast(inside, tf.float64), tf.cast(outside, tf.float64), rtol=0, atol=1e-5
    )
    if "normal" not in name:  # whose sines are rounded in another way
        np.testing.assert_array_equal(inside, outside)


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_would_draw_otherwise_is_refused(name: str) -> None:
    draws.install_draws()
    REFUSED[name]()  # as ever
    with pytest.raises(draws.CannotCompile, match="XLA would not draw the numbers of stateless_"):
        through_xla(REFUSED[name])


def test_draws_of_a_slice_are_those_without() -> None:
    def drawn() -> Any:
        numbers = [tf.constant(n) for n in (3, 4, 16, 4, 9)]
        draws = Draws(*numbers)
        return draws.uniform((2,)), draws.normal(), draws.partners()

    for inside, outside in zip(through_xla(drawn), drawn(), strict=True):
        np.testing.assert_allclose(inside, outside, atol=2e-6)


def test_outside_a_graph_is_as_without() -> None:
    draws.install_draws()
    graph = tf.function(lambda: tf.random.stateless_normal([3], KEY)).get_concrete_function().graph
    kinds = {op.type for op in graph.get_operations()}
    assert {"StatelessRandomNormalV2", "StatelessRandomGetKeyCounter"} <= kinds
    assert not draws.is_compiling()
