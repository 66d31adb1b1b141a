"""Seeding of the global random generators that other code draws from: Python's, NumPy's, Keras's and TensorFlow's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from sweep.state.draws import seeding_numpy_entropy
from trainables import keras_private, tensorflow_private

_kernels: set[int] = set()  # seeds that TensorFlow has drawn with in this process; its kernels keep their generators


def short(seed: int) -> int:
    """Return the lowest 31 bits of a seed, which fit into TensorFlow's integers."""
    return seed & 0x7FFFFFFF


@contextmanager
def seed_python_and_numpy(seed: int) -> Iterator[None]:
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

    Besides those of `seed_python_and_numpy`, these are the generators of `keras.random` and `tf.random`, and the
    entropy that `np.random.default_rng()` takes from the machine.
    """
    with seed_python_and_numpy(seed % 2**32), seeding_numpy_entropy(seed), _keras_seeded(), _tensorflow_seeded(seed):
        yield


@contextmanager
def _keras_seeded() -> Iterator[None]:
    """Make Keras create its global generator again inside the block, seeded from `random`."""
    kept = [keras_private.get_global_attribute(name) for name in keras_private.GLOBAL_SEEDS]
    keras_private.set_global_attribute(keras_private.GLOBAL_SEEDS[0], None)
    try:
        yield
    finally:
        for name, value in zip(keras_private.GLOBAL_SEEDS, kept, strict=True):
            keras_private.set_global_attribute(name, value)


@contextmanager
def _tensorflow_seeded(seed: int) -> Iterator[None]:
    """Seed `tf.random` inside the block as `tf.random.set_seed` does, without emptying the cache of kernels.

    The cache is emptied only if kernels have drawn with this seed before, because they would continue their sequences.
    """
    number = random.Random(f"tensorflow {seed}").getrandbits(31)  # differs from seeds that others may have drawn with
    with tensorflow_private.seed_tensorflow(number, empty_cache=number in _kernels) as was_used:
        try:
            yield
        finally:
            if was_used():
                _kernels.add(number)
