"""The generators of Python and NumPy that code of others draws from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


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
