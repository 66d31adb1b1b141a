"""Keras's random layers and TensorFlow's random functions, drawing per example of the global batch.

Keras draws for the part of the batch that a replica has, from seeds that are the same on all replicas: dropout
masks would repeat on each of them and depend on how the batch was cut. Inside `slices.entered` its draws are
those that the rows of the slice have in the global batch; every layer and `keras.random` follow. So does what
`tf.random` draws, which otherwise would follow no seed of ours: there, and while a model is made, its kernels with a
state of their own are replaced by stateless ones.
"""

from __future__ import annotations

import functools
import inspect
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random
from tensorflow.python.ops import gen_random_ops

from trainables.numbers.draws import Draws, Kind
from trainables.numbers.live import LiveNumber
from trainables.replicas import slices
from trainables.replicas.slices import Slice

BY_ROWS: dict[str, Kind] = {"uniform": "uniform", "normal": "normal"}
SHAPED = ("truncated_normal", "randint")
WHOLE = ("categorical", "shuffle", "gamma", "beta", "binomial")


class NotPerExample(Exception):
    """A layer draws random numbers for a batch as a whole, which replicas cannot do alike."""


_making = threading.local()


def install() -> None:
    """Take part in all draws; once per process, without effect outside of a slice and of `following_the_trial`."""
    for name, kind in BY_ROWS.items():
        _wrap(name, functools.partial(_by_rows, kind))
    for name in SHAPED:
        _wrap(name, _shaped)
    for name in WHOLE:
        _wrap(name, _whole)
    _wrap("dropout", _dropout)
    for name, stateless in STATELESS.items():
        _wrap_kernel(name, stateless, shaped=name in SHAPED_KERNELS)


@contextmanager
def following_the_trial() -> Iterator[None]:
    """Let `tf.random`, and `keras.random` without a seed, follow Python's `random` while a trial's model is made.

    The trial has seeded it; Keras would go on with a generator that lives as long as the process.
    """
    install()
    _making.on = True
    try:
        yield
    finally:
        _making.on = False


def _wrap(name: str, inside: Callable[[Slice, Draws, Callable[..., Any], dict[str, Any]], Any]) -> None:
    original = getattr(keras_random, name)
    if hasattr(original, "__wrapped__"):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        cut = slices.current()
        within = cut is not None and cut.draws is not None
        if not within and not getattr(_making, "on", False):
            return original(*args, **kwargs)
        given = dict(signature.bind(*args, **kwargs).arguments)
        if cut is None or cut.draws is None:
            return original(**given if given.get("seed") is not None else {**given, "seed": random.getrandbits(31)})
        return inside(cut, cut.draws, original, given)

    setattr(keras_random, name, function)


def _wrap_kernel(name: str, stateless: Callable[..., Any], *, shaped: bool) -> None:
    """Replace a kernel with a state of its own, which no seed sets once it runs."""
    original = getattr(gen_random_ops, name)
    if hasattr(original, "__wrapped__"):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        cut = slices.current()
        within = cut is not None and cut.draws is not None
        if not within and not getattr(_making, "on", False):
            return original(*args, **kwargs)
        given = {
            k: v for k, v in signature.bind(*args, **kwargs).arguments.items() if k not in ("seed", "seed2", "name")
        }
        if cut is None or cut.draws is None:
            return stateless(tf.constant([random.getrandbits(31), random.getrandbits(31)]), **given)
        if name in BY_ROWS_KERNELS:
            return _by_rows(BY_ROWS_KERNELS[name], cut, cut.draws, functools.partial(_with_key, stateless), given)
        if shaped:
            return _shaped(cut, cut.draws, functools.partial(_with_key, stateless), given)
        if cut.parts > 1:
            raise NotPerExample(_MESSAGE.format(f"tf.random ({name})", cut.parts))
        return stateless(cut.draws.key(), **given)

    setattr(gen_random_ops, name, function)


def _with_key(stateless: Callable[..., Any], seed: keras.random.SeedGenerator, **given: Any) -> Any:
    return stateless(seed.next(), **given)


def _normal(key: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_normal(shape, key, dtype=dtype)


def _truncated(key: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_truncated_normal(shape, key, dtype=dtype)


def _uniform_float(key: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_uniform(shape, key, dtype=dtype)


def _uniform_int(key: Any, shape: Any, minval: Any, maxval: Any) -> Any:
    return tf.random.stateless_uniform(shape, key, minval, maxval, dtype=tf.convert_to_tensor(minval).dtype)


def _shuffle(key: Any, value: Any) -> Any:
    return tf.random.experimental.stateless_shuffle(value, key)


def _categorical(key: Any, logits: Any, num_samples: Any, output_dtype: Any = tf.int64) -> Any:
    return tf.random.stateless_categorical(logits, num_samples, key, dtype=output_dtype)


def _gamma(key: Any, shape: Any, alpha: Any) -> Any:
    alpha = tf.convert_to_tensor(alpha)
    return tf.random.stateless_gamma(tf.concat([shape, tf.shape(alpha)], 0), key, alpha, dtype=alpha.dtype)


def _poisson(key: Any, shape: Any, rate: Any, dtype: Any = tf.int64) -> Any:
    rate = tf.convert_to_tensor(rate)
    return tf.random.stateless_poisson(tf.concat([shape, tf.shape(rate)], 0), key, rate, dtype=dtype)


STATELESS: dict[str, Callable[..., Any]] = {
    "random_uniform": _uniform_float,
    "random_uniform_int": _uniform_int,
    "random_standard_normal": _normal,
    "truncated_normal": _truncated,
    "random_shuffle": _shuffle,
    "multinomial": _categorical,
    "random_gamma": _gamma,
    "random_poisson_v2": _poisson,
}
BY_ROWS_KERNELS: dict[str, Kind] = {"random_uniform": "uniform", "random_standard_normal": "normal"}
SHAPED_KERNELS = ("random_uniform_int", "truncated_normal")
_MESSAGE = (
    "a layer of the model calls {}, which draws for the batch as a whole: in {} parts it would train another model; "
    "draw per example in augment() instead, or set the parameters mixup and cutmix"
)


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


def _by_rows(kind: Kind, cut: Slice, draws: Draws, original: Callable[..., Any], given: dict[str, Any]) -> tf.Tensor:
    """Draws of a slice's rows alone."""
    static = _static(given["shape"])
    if not static or static[0] is not None or isinstance(given.get("seed"), int):
        return _shaped(cut, draws, original, given)
    dtype = tf.as_dtype(given.get("dtype") or keras.config.floatx())
    shape = tf.convert_to_tensor(given["shape"])
    sizes = [shape[i + 1] if n is None else n for i, n in enumerate(static[1:])]
    drawn = draws.rows(kind, sizes, dtype, _times(cut, draws, shape))
    if kind == "uniform":
        low, high = (tf.cast(given.get(name, usual), dtype) for name, usual in (("minval", 0.0), ("maxval", 1.0)))
        drawn = drawn * (high - low) + low if {"minval", "maxval"} & set(given) else drawn
    elif {"mean", "stddev"} & set(given):
        drawn = drawn * tf.cast(given.get("stddev", 1.0), dtype) + tf.cast(given.get("mean", 0.0), dtype)
    return tf.ensure_shape(drawn, static)


def _times(cut: Slice, draws: Draws, shape: tf.Tensor) -> tf.Tensor:
    """A reshaped batch (of time steps, of heads) has a multiple of its rows, example by example."""
    count = cut.stop - cut.start if draws.places is None else tf.size(draws.places)
    return shape[0] // tf.maximum(count, 1)


def _shaped(cut: Slice, draws: Draws, original: Callable[..., Any], given: dict[str, Any]) -> Any:
    static = _static(given["shape"])
    given = _keyed(draws, given)
    if not static or static[0] is not None:
        return original(**given)  # no batch in it: the same on all replicas
    shape = tf.convert_to_tensor(given["shape"])
    times = _times(cut, draws, shape)
    given["shape"] = tf.concat([[cut.size * times], shape[1:]], 0)
    full = original(**given)
    if draws.places is None:
        rows = full[cut.start * times : cut.stop * times]
    else:
        apart = tf.reshape(full, tf.concat([[cut.size, times], shape[1:]], 0))
        rows = tf.reshape(tf.gather(apart, draws.places), shape)
    return tf.ensure_shape(rows, static)


def _dropout(cut: Slice, draws: Draws, original: Callable[..., Any], given: dict[str, Any]) -> Any:
    inputs, rate = given["inputs"], given["rate"]
    if not isinstance(rate, LiveNumber) and rate in (0, 1):
        return original(**given)
    noise = given.get("noise_shape") or [None] * inputs.shape.rank
    actual, static = tf.shape(inputs), _static(inputs.shape)
    shape = [(actual[i] if static[i] is None else static[i]) if n is None else n for i, n in enumerate(noise)]
    uniform = _by_rows("uniform", cut, draws, _uniform, {"shape": shape, "seed": given.get("seed")})
    share = tf.convert_to_tensor(rate, tf.float32)
    return inputs * tf.cast(tf.where(uniform >= share, 1 / (1 - share), 0.0), inputs.dtype)


def _uniform(shape: tf.Tensor, seed: keras.random.SeedGenerator) -> tf.Tensor:
    key = tf.constant([seed, 0]) if isinstance(seed, int) else seed.next()
    return tf.random.stateless_uniform(shape, key)


def _whole(cut: Slice, draws: Draws, original: Callable[..., Any], given: dict[str, Any]) -> Any:
    if cut.parts > 1:
        raise NotPerExample(_MESSAGE.format(f"keras.random.{original.__name__}", cut.parts))
    return original(**_keyed(draws, given))


def _static(shape: Any) -> list[int | None]:
    """The sizes that are known while tracing."""
    if tf.is_tensor(shape):
        shape = tf.fill(shape, 0).shape  # as far as TensorFlow can infer it
    return [None if n is None or tf.is_tensor(n) else int(n) for n in shape]
