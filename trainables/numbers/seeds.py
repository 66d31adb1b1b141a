"""The generators that code of others draws from: Python's, NumPy's, Keras's and TensorFlow's."""

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
_kernels: set[int] = set()  # seeds under which TensorFlow has drawn in this process: it keeps the generators of its ops


def short(seed: int) -> int:
    """A seed in the 31 bits that TensorFlow's integers have for it."""
    return seed & 0x7FFFFFFF


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """`random` and `np.random` begin with this seed inside, and go on outside as if nothing had been drawn."""
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
    """As `seeded`, for every generator that can be drawn from without a seed of one's own.

    These are also those of `keras.random` and `tf.random`, and what `np.random.default_rng()` takes from the machine.
    """
    with seeded(seed % 2**32), numpy_entropy(seed), _keras_seeded(), _tensorflow_seeded(seed):
        yield


@contextmanager
def _keras_seeded() -> Iterator[None]:
    """Keras makes its global generator anew, from `random`."""
    kept = [global_state.get_global_attribute(name) for name in _OF_KERAS]
    global_state.set_global_attribute(_OF_KERAS[0], None)
    try:
        yield
    finally:
        for name, value in zip(_OF_KERAS, kept, strict=True):
            global_state.set_global_attribute(name, value)


@contextmanager
def _tensorflow_seeded(seed: int) -> Iterator[None]:
    """`tf.random.set_seed`, without emptying the cache of kernels unless they have drawn under this seed before."""
    number = random.Random(f"tensorflow {seed}").getrandbits(31)  # nobody else's, who may have drawn already
    eager = context.context()
    kept, generator = (eager._seed, getattr(eager, "_rng", None)), stateful_random_ops.global_generator  # none yet
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
