"""Seeding of the global random generators that other code draws from: Python's, NumPy's, Keras's and TensorFlow's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from sweep.state.draws import seeding_numpy_entropy
from trainables import keras_private, tensorflow_private

# seeds that TensorFlow has drawn with in this process; its kernels keep their generators
_drawn_seeds: set[int] = set()


def truncate_seed(seed: int) -> int:
    """Return the lowest 31 bits of a seed, a number that is not negative and fits into TensorFlow's int32."""
    return seed & 0x7FFFFFFF


@contextmanager
def seeding_python_and_numpy(seed: int) -> Iterator[None]:
    """Seed `random` and `np.random` inside the block, and restore their states afterwards.

    Raises: ValueError: if ``seed`` is not from 0 to 2**32 - 1.
    """
    before = random.getstate(), np.random.get_state()
    np.random.seed(seed)  # first, because it raises ValueError before anything is seeded
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


@contextmanager
def seeding_all_generators(seed: int) -> Iterator[None]:
    """Seed every random generator that code can use without a seed of its own, and restore all states after the block.

    These are `random`, `np.random`, the generators of `keras.random` and `tf.random`, and the entropy that
    `np.random.default_rng()` takes from the machine.
    """
    with (
        seeding_python_and_numpy(seed % 2**32),
        seeding_numpy_entropy(seed),
        _seeding_keras(),
        _seeding_tensorflow(seed),
    ):
        yield


@contextmanager
def _seeding_keras() -> Iterator[None]:
    """Make Keras create its global generator again inside the block, seeded from `random`; restore it afterwards."""
    # Keras keeps the generator and what belongs to it under several names.
    before = []
    for name in keras_private.GLOBAL_SEEDS:
        before.append(keras_private.get_global_attribute(name))
    # Without the first one, the generator, Keras creates another at the next draw.
    keras_private.set_global_attribute(keras_private.GLOBAL_SEEDS[0], None)
    try:
        yield
    finally:
        for name, value in zip(keras_private.GLOBAL_SEEDS, before, strict=True):
            keras_private.set_global_attribute(name, value)


@contextmanager
def _seeding_tensorflow(seed: int) -> Iterator[None]:
    """Seed `tf.random` inside the block by a number derived from ``seed``, and restore its state afterwards.

    Unlike `tf.random.set_seed`, this empties the cache of kernels only if they have drawn with this number before,
    because they would continue their sequences.
    """
    number = random.Random(f"tensorflow {seed}").getrandbits(31)  # differs from seeds of other code
    has_drawn_before = number in _drawn_seeds
    with tensorflow_private.seed_tensorflow(number, empty_cache=has_drawn_before) as was_used:
        try:
            yield
        finally:
            if was_used():  # otherwise no kernel can have drawn with it
                _drawn_seeds.add(number)
