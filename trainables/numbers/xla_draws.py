"""TensorFlow's stateless draws inside of what XLA compiles: the same numbers as outside.

XLA's own kernels draw the same random bits (Philox), but make other real numbers of them. Inside of `compiling`, bits
are drawn and made into numbers as TensorFlow's kernels do; outside, nothing changes.
"""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_stateless_random_ops, gen_stateless_random_ops_v2, random_ops_util

PHILOX = 1
"""TensorFlow's number of the algorithm: the same bits on every device, with XLA and without."""
SMALLEST = 1.0e-7  # of a uniform number whose logarithm is taken, as in TensorFlow's kernel


class CannotCompile(Exception):
    """Something of an update cannot go through XLA, or would give other numbers there."""


_present = threading.local()


@contextmanager
def compiling() -> Iterator[None]:
    """Trace for XLA inside the block; in this thread."""
    install()
    before, _present.on = is_compiling(), True
    try:
        yield
    finally:
        _present.on = before


def is_compiling() -> bool:
    """Whether what is traced now goes through XLA."""
    return getattr(_present, "on", False)


def install() -> None:
    """Take part in TensorFlow's stateless draws; once per process, without effect outside of `compiling`."""
    _replace(random_ops_util, "get_key_counter_alg", _pinned)
    _replace(gen_stateless_random_ops_v2, "stateless_random_uniform_v2", _uniform)
    _replace(gen_stateless_random_ops_v2, "stateless_random_normal_v2", _normal)
    for name in ("stateless_truncated_normal_v2", "stateless_random_gamma_v3", "stateless_shuffle"):
        _replace(gen_stateless_random_ops_v2, name, _refused)
    for name in (
        "stateless_multinomial",
        "stateless_random_binomial",
        "stateless_random_poisson",
        "stateless_parameterized_truncated_normal",
    ):
        _replace(gen_stateless_random_ops, name, _refused)


def _replace(module: Any, name: str, inside: Callable[..., Any]) -> None:
    original = getattr(module, name)
    if hasattr(original, "__wrapped__"):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            return original(*args, **kwargs)
        return inside(original, signature.bind(*args, **kwargs).arguments)

    setattr(module, name, function)


def _pinned(original: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Left to choose, XLA takes another algorithm on some devices."""
    return original(**{**given, "alg": "philox"})


def _refused(original: Callable[..., Any], given: dict[str, Any]) -> Any:
    raise CannotCompile(f"XLA would not draw the numbers of {original.__name__}")


def _bits(given: dict[str, Any], count: tf.Tensor) -> tf.Tensor:
    return gen_stateless_random_ops_v2.stateless_random_uniform_full_int_v2(
        tf.reshape(count, [1]), key=given["key"], counter=given["counter"], dtype=tf.uint32, alg=PHILOX
    )


def _uniform(original: Callable[..., Any], given: dict[str, Any]) -> tf.Tensor:
    """The low bits of each word are the mantissa of a number in [1, 2)."""
    dtype = tf.as_dtype(given.get("dtype", tf.float32))
    shape = tf.convert_to_tensor(given["shape"])
    words = _bits(given, tf.reduce_prod(shape))
    return tf.reshape(_fraction(words, dtype, original.__name__), shape)


def _fraction(words: tf.Tensor, dtype: tf.DType, name: str) -> tf.Tensor:
    if dtype not in _MANTISSA:
        raise CannotCompile(f"XLA would not draw the numbers of {name} in {dtype.name}")
    bits, exponent, unsigned = _MANTISSA[dtype]
    mantissa = tf.cast(words & tf.constant((1 << bits) - 1, tf.uint32), unsigned)
    return tf.bitcast(mantissa | tf.constant(exponent << bits, unsigned), dtype) - tf.constant(1, dtype)


_MANTISSA = {tf.float32: (23, 127, tf.uint32), tf.float16: (10, 15, tf.uint16), tf.bfloat16: (7, 127, tf.uint16)}


def _normal(original: Callable[..., Any], given: dict[str, Any]) -> tf.Tensor:
    """Two for every two words (Box and Muller)."""
    dtype = tf.as_dtype(given.get("dtype", tf.float32))
    if dtype not in _MANTISSA:
        raise CannotCompile(f"XLA would not draw the numbers of {original.__name__} in {dtype.name}")
    shape = tf.convert_to_tensor(given["shape"])
    count = tf.reduce_prod(shape)
    pairs = tf.reshape(_bits(given, (count + 1) // 2 * 2), [-1, 2])
    uniform = _fraction(pairs, tf.float32, original.__name__)
    angle = 2 * math.pi * uniform[:, 1]
    radius = tf.sqrt(-2.0 * tf.math.log(tf.maximum(uniform[:, 0], SMALLEST)))
    both = tf.stack([tf.sin(angle) * radius, tf.cos(angle) * radius], axis=1)
    return tf.cast(tf.reshape(tf.reshape(both, [-1])[:count], shape), dtype)
