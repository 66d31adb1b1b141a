"""Updates through XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainables.data.packing import gather


def whole(update: Callable[..., Any]) -> Callable[..., Any]:
    def of_batch(batch: Any, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor) -> Any:
        rows = tf.range(tf.shape(tf.nest.flatten(batch)[0])[0])
        return update(batch, rows, rate, seed, number)

    function = tf.function(of_batch, autograph=False, jit_compile=True)

    def step(tensors: Any, rows: tf.Tensor, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor) -> Any:
        return function(tf.nest.map_structure(lambda leaf: gather(leaf, rows), tensors), rate, seed, number)

    return step


def own(own_gradients: Callable[..., Any]) -> Callable[..., Any]:
    def of_batch(batch: Any, seed: tf.Tensor, number: tf.Tensor, *, again: bool) -> Any:
        rows = tf.range(tf.shape(tf.nest.flatten(batch)[0])[0])
        return own_gradients(batch, rows, seed, number, again=again)

    function = tf.function(of_batch, autograph=False, jit_compile=True)

    def step(tensors: Any, rows: tf.Tensor, seed: tf.Tensor, number: tf.Tensor, *, again: bool = False) -> Any:
        return function(tf.nest.map_structure(lambda leaf: gather(leaf, rows), tensors), seed, number, again=again)

    return step
