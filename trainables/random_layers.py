"""Keras's random layers, drawing per example of the global batch.

Keras draws for the part of the batch that a replica has, from seeds that are the same on all replicas: dropout
masks would repeat on each of them and depend on how the batch was cut. Inside `slices.entered` its draws are
made for the global batch and the rows of the slice are kept; every layer and `keras.random` follow.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random

from trainables import slices
from trainables.draws import Draws
from trainables.live import LiveNumber
from trainables.slices import Slice

SHAPED = ("uniform", "normal", "truncated_normal", "randint")
WHOLE = ("categorical", "shuffle", "gamma", "beta", "binomial")


class NotPerExample(Exception):
    """A layer draws random numbers for a batch as a whole, which replicas cannot do alike."""


def install() -> None:
    """Take part in Keras's draws; once per process, without effect outside of `slices.entered`."""
    for name in SHAPED:
        _wrap(name, _shaped)
    for name in WHOLE:
        _wrap(name, _whole)
    _wrap("dropout", _dropout)


def _wrap(name: str, inside: Callable[[Slice, Draws, Callable[..., Any], dict[str, Any]], Any]) -> None:
    original = getattr(keras_random, name)
    if hasattr(original, "__wrapped__"):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        cut = slices.current()
        if cut is None or cut.draws is None:
            return original(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        return inside(cut, cut.draws, original, dict(given.arguments))

    setattr(keras_random, name, function)


class _Key(keras.random.SeedGenerator):
    """A seed generator that gives one key and has no state."""

    def __init__(self, key: tf.Tensor) -> None:
        self._key = key

    def next(self, ordered: bool = True) -> tf.Tensor:
        return self._key


def _keyed(draws: Draws, given: dict[str, Any]) -> dict[str, Any]:
    if isinstance(given.get("seed"), int):
        return given  # the author wants the same numbers at each call
    return {**given, "seed": _Key(draws.key())}


def _shaped(cut: Slice, draws: Draws, original: Callable[..., Any], given: dict[str, Any]) -> Any:
    static = _static(given["shape"])
    given = _keyed(draws, given)
    if not static or static[0] is not None:
        return original(**given)  # no batch in it: the same on all replicas
    shape = tf.convert_to_tensor(given["shape"])
    # A reshaped batch (of time steps, of heads) has a multiple of its rows, example by example.
    times = shape[0] // tf.maximum(cut.count, 1)
    given["shape"] = tf.concat([[cut.size * times], shape[1:]], 0)
    rows = original(**given)[cut.start * times : cut.stop * times]
    return tf.ensure_shape(rows, static)


def _dropout(cut: Slice, draws: Draws, original: Callable[..., Any], given: dict[str, Any]) -> Any:
    inputs, rate = given["inputs"], given["rate"]
    if not isinstance(rate, LiveNumber) and rate in (0, 1):
        return original(**given)
    noise = given.get("noise_shape") or [None] * inputs.shape.rank
    actual, static = tf.shape(inputs), _static(inputs.shape)
    shape = [(actual[i] if static[i] is None else static[i]) if n is None else n for i, n in enumerate(noise)]
    uniform = _shaped(cut, draws, _uniform, {"shape": shape, "seed": given.get("seed")})
    share = tf.convert_to_tensor(rate, tf.float32)
    return inputs * tf.cast(tf.where(uniform >= share, 1 / (1 - share), 0.0), inputs.dtype)


def _uniform(shape: tf.Tensor, seed: keras.random.SeedGenerator) -> tf.Tensor:
    key = tf.constant([seed, 0]) if isinstance(seed, int) else seed.next()
    return tf.random.stateless_uniform(shape, key)


def _whole(cut: Slice, draws: Draws, original: Callable[..., Any], given: dict[str, Any]) -> Any:
    if cut.parts > 1:
        raise NotPerExample(
            f"a layer of the model calls keras.random.{original.__name__}, which draws for the batch as a whole: "
            f"in {cut.parts} parts it would train another model; draw per example in augment() instead"
        )
    return original(**_keyed(draws, given))


def _static(shape: Any) -> list[int | None]:
    """The sizes that are known while tracing."""
    if tf.is_tensor(shape):
        shape = tf.get_static_value(shape, partial=True)
    return [None if n is None or tf.is_tensor(n) else int(n) for n in shape]
