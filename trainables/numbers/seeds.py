"""Seeding of the global random generators that other code draws from: Python's, NumPy's, Keras's and TensorFlow's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context
from tensorflow.python.ops import stateful_random_ops

from sweep.state.draws import numpy_entropy

_OF_KERAS = ("global_seed_generator", "global_random_seed")
_kernels: set[int] = set()  # seeds that TensorFlow has drawn with in this process; its kernels keep their generators


def short(seed: int) -> int:
    """Return the lowest 31 bits of a seed, which fit into TensorFlow's integers."""
    return seed & 0x7FFFFFFF


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed `random` and `np.random` inside the block, and restore their states afterwards."""
    kept = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


@contextmanager
def seeded_throughout(seed: int) -> Iterator[None]:
    """Seed every generator that code can use without a seed of its own, and restore them afterwards.

    Besides those of `seeded`, these are the generators of `keras.random` and `tf.random`, and the entropy that
    `np.random.default_rng()` takes from the machine.
    """
    with seeded(seed % 2**32), numpy_entropy(seed), _keras_seeded(), _tensorflow_seeded(seed):
        yield


@contextmanager
def _keras_seeded() -> Iterator[None]:
    """Make Keras create its global generator again inside the block, seeded from `random`."""
    kept = [global_state.get_global_attribute(name) for name in _OF_KERAS]
    global_state.set_global_attribute(_OF_KERAS[0], None)
    try:
        yield
    finally:
        for name, value in zip(_OF_KERAS, kept, strict=True):
            global_state.set_global_attribute(name, value)


@contextmanager
def _tensorflow_seeded(seed: int) -> Iterator[None]:
    """Seed `tf.random` inside the block as `tf.random.set_seed` does, without emptying the cache of kernels.

    The cache is emptied only if kernels have drawn with this seed before, because they would continue their sequences.
    """
    number = random.Random(f"tensorflow {seed}").getrandbits(31)  # differs from seeds that others may have drawn with
    eager = context.context()
    kept, generator = (eager._seed, getattr(eager, "_rng", None)), stateful_random_ops.global_generator
    eager._seed, eager._rng = number, random.Random(number)
    if number in _kernels:
        eager.ensure_initialized()
        pywrap_tfe.TFE_ContextClearCaches(eager._context_handle)
    with tf.device("/cpu:0"):
        stateful_random_ops.global_generator = tf.random.Generator.from_seed(number)
    try:
        yield
    finally:
        if eager._seed != number or eager._rng.getstate() != random.Random(number).getstate():
            _kernels.add(number)
        eager._seed, eager._rng = kept
        stateful_random_ops.global_generator = generator
