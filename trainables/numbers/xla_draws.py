"""TensorFlow's stateless draws, for the rows of a part of a batch, and inside of what XLA compiles the same as outside.

All of `keras.random` and of `tf.random.stateless_*` reaches these kernels. XLA's own draw the same random bits
(Philox), but make other real numbers of them: inside of `compiling`, bits are drawn and made into numbers as
TensorFlow's kernels do. For a whole batch outside of XLA, nothing changes.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import tensorflow as tf
from tensorflow.python.ops import gen_stateless_random_ops, gen_stateless_random_ops_v2, random_ops_util

from trainables.numbers.drawn_rows import current, for_xla, have_a_batch, is_compiling, of_the_whole

PHILOX = 1
"""TensorFlow's number of the algorithm: the same bits on every device, with XLA and without."""
SMALLEST = 1.0e-7  # of a uniform number whose logarithm is taken, as in TensorFlow's kernel


class CannotCompile(Exception):
    """Something of an update cannot go through XLA, or would give other numbers there."""


@contextmanager
def compiling() -> Iterator[None]:
    """Trace for XLA inside the block; in this thread."""
    install()
    with for_xla():
        yield


def install() -> None:
    """Take part in TensorFlow's stateless draws; once per process, without effect on a whole batch outside of XLA."""
    v2 = gen_stateless_random_ops_v2
    _replace(random_ops_util, "get_key_counter_alg", _pinned)
    _replace(v2, "stateless_random_uniform_v2", _uniform, rows="counted")
    _replace(v2, "stateless_random_normal_v2", _normal, rows="counted")
    _replace(v2, "stateless_random_uniform_int_v2", _as_outside, rows="counted")
    _replace(v2, "stateless_random_uniform_full_int_v2", _as_outside, rows="counted")
    _replace(v2, "stateless_truncated_normal_v2", _refused, rows="cut")
    for name in ("stateless_random_gamma_v3", "stateless_shuffle"):
        _replace(v2, name, _refused)
    for name in (
        "stateless_multinomial",
        "stateless_random_binomial",
        "stateless_random_poisson",
        "stateless_parameterized_truncated_normal",
    ):
        _replace(gen_stateless_random_ops, name, _refused)


def _replace(module: Any, name: str, inside: Callable[..., Any], *, rows: Literal["", "counted", "cut"] = "") -> None:
    """``inside``: what takes its place within XLA; ``rows``: how those of a part of a batch are drawn."""
    original = getattr(module, name)
    if hasattr(original, "__wrapped__"):
        return
    signature = inspect.signature(original)

    def draw(**given: Any) -> Any:
        return inside(original, given) if is_compiling() else original(**given)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        part = current() if rows else None
        if part is None and not is_compiling():
            return original(*args, **kwargs)
        given = dict(signature.bind(*args, **kwargs).arguments)
        if part is None or not have_a_batch(tf.convert_to_tensor(given["shape"])):
            return draw(**given)
        return of_the_whole(part, draw, given, group=_group(given) if rows == "counted" else None)

    setattr(module, name, function)


def _group(given: Mapping[str, Any]) -> int:
    """How many numbers TensorFlow's kernels make of one step of the counter, 16 bytes."""
    kind = tf.convert_to_tensor(given["minval"]).dtype if "minval" in given else given.get("dtype", tf.float32)
    return 4 if tf.as_dtype(kind).size <= 4 else 2


def _as_outside(original: Callable[..., Any], given: dict[str, Any]) -> Any:
    return original(**given)


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
