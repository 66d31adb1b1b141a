"""A short name for the content of a data set, so that trials on other data are never taken for the same."""

from __future__ import annotations

import hashlib
from typing import Any

import keras
import numpy as np

from trainables.data import Split

ROWS = 4096


def of(*splits: Split | None) -> str:
    """Digest of sizes, types and examples; of large arrays up to 4,096 evenly spaced rows, of streams the first."""
    total = hashlib.blake2b(digest_size=16)
    for data in splits:
        if data is None:
            total.update(b"none")
            continue
        arrays = getattr(data, "arrays", None)
        total.update(f"{type(data).__name__} {data.size}".encode())
        for leaf in _leaves(data.example() if arrays is None else arrays):
            total.update(f"{leaf.dtype} {leaf.shape}".encode())
            rows = np.linspace(0, len(leaf) - 1, min(len(leaf), ROWS)).astype(np.int64)
            total.update(np.ascontiguousarray(leaf[rows]).tobytes())
    return total.hexdigest()


def _leaves(nested: Any) -> list[Any]:
    return [leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in keras.tree.flatten(nested)]
