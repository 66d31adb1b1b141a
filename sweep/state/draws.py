"""Random draws of the author's code without a seed: NumPy's generators get one from sweep, all others are detected."""

from __future__ import annotations

import os
import random
import secrets
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sweep.author_code import is_author_file

_FILES_THAT_PASS_ON = frozenset({random.__file__, secrets.__file__, uuid.__file__, __file__})
"""Files that only pass on what another one asks for."""


@dataclass
class Entropy:
    """A record of what code has drawn from the machine's entropy."""

    seeds: int = 0  # NumPy generators created without a seed, which follow the given seed instead
    # author's line that took entropy in another way, which gives other numbers each time
    line: str = ""


@contextmanager
def seeding_entropy(seed: int) -> Iterator[Entropy]:
    """Seed NumPy generators that are created without a seed inside the block; record draws that cannot be seeded.

    Yields the record, an `Entropy`, which is filled inside the block and also counts these generators. Draws of
    Python's `random`, `secrets`, `uuid` and `os.urandom` from the machine cannot be seeded in this way; of these, the
    record has only the first line of the author's code that drew. Functions of `os`, `random` and NumPy are replaced
    until the block ends, which affects all threads of the process.
    """
    entropy = Entropy()
    random_module: Any = random
    random_class: Any = random.Random
    urandom = os.urandom
    urandom_of_random = (
        random_module._urandom
    )  # `random` imports `os.urandom` under a name of its own
    original_seed = random_class.seed
    seed_of_module = random.seed  # a method that is bound already

    def count_numpy_generator() -> None:
        entropy.seeds += 1

    # This and the next function stand in for `os.urandom` and `Random.seed`, and record the line that called.
    def recording_urandom(size: int) -> bytes:
        entropy.line = entropy.line or find_author_line()
        return urandom(size)

    def recording_seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None:  # `seed` then takes entropy in C, without `os.urandom`
            entropy.line = entropy.line or find_author_line()
        original_seed(self, a, version)

    with seeding_numpy_entropy(seed, count_numpy_generator):
        os.urandom = random_module._urandom = recording_urandom
        random_class.seed = recording_seed
        random_module.seed = partial(recording_seed, random_module._inst)
        try:
            yield entropy
        finally:
            os.urandom = urandom
            random_module._urandom = urandom_of_random
            random_class.seed = original_seed
            random_module.seed = seed_of_module


@contextmanager
def seeding_numpy_entropy(seed: int, on_draw: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Seed NumPy generators that are created without a seed inside the block, in all threads of the process.

    Each gets other numbers, which follow from ``seed`` and the order in which they are created. ``on_draw`` is called
    each time such a generator takes its seed.
    """
    bit_generator: Any = (
        np.random.bit_generator
    )  # the module of NumPy that takes entropy, by its `randbits`
    source_of_seeds = random.Random(f"numpy {seed}")

    def seeded_randbits(count: int) -> int:
        on_draw()
        return source_of_seeds.getrandbits(count)

    original_randbits = bit_generator.randbits
    bit_generator.randbits = seeded_randbits
    try:
        yield
    finally:
        bit_generator.randbits = original_randbits


def find_author_line() -> str:
    """Return the author's line that asked for entropy, as ``file.py:line``; "" if a library asked.

    It is called by the functions that stand in for those that take entropy, and looks for their caller. If the author's
    code asked through Python's `random`, `secrets` or `uuid`, return the line that called the module.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in _FILES_THAT_PASS_ON:
        frame = frame.f_back
    file = frame.f_code.co_filename
    if not is_author_file(file):
        return ""
    return f"{Path(file).name}:{frame.f_lineno}"
