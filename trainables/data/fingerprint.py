"""A short name for the content of a data set, so that trials on other data are never taken for the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from trainables.data import text
from trainables.data.batches import BatchSplit
from trainables.data.buckets import BucketSplit
from trainables.data.chunks import ArraySplit, Split, StreamSplit

LARGEST_BYTES = 2 * 2**30
LARGEST_STREAM_BYTES = 256 * 2**20  # these are decoded and mapped while they are read
BLOCK_BYTES = 64 * 2**20


def of(*splits: Split | None) -> str | None:
    """Digest of all examples with their sizes and types; None where there is none that could be trusted.

    That is where arrays are larger than 2 GiB, a stream than 256 MiB, or rows are decoded anew at each use: a digest
    of a part would be the same for other data.
    """
    total = hashlib.blake2b(digest_size=16)
    left = LARGEST_BYTES
    for data in splits:
        if data is None:
            total.update(b"none")
            continue
        total.update(f"{type(data).__name__} {data.size}".encode())
        for block in _blocks(data):
            if block is None:
                return None
            for part in text.content(block):
                left -= part.nbytes
                if left < 0:
                    return None
                total.update(f"{part.dtype} {part.shape}".encode())
                total.update(part.view(np.uint8).data if part.ndim and part.size else part.tobytes())
    return total.hexdigest()


def _blocks(data: Split) -> Iterator[np.ndarray[Any, Any] | None]:
    """All examples, a block at a time; None for what cannot be read cheaply."""
    match data:
        case ArraySplit():
            leaves = data.leaves()
            if (
                sum(leaf.nbytes if isinstance(leaf, np.ndarray) else LARGEST_BYTES + 1 for leaf in leaves)
                > LARGEST_BYTES
            ):
                yield None
                return
            for leaf in leaves:
                rows = max(BLOCK_BYTES // max(leaf.nbytes // len(leaf), 1), 1)
                for start in range(0, len(leaf), rows):
                    yield np.ascontiguousarray(leaf[start : start + rows])
        case BucketSplit():
            for part in data.parts:
                yield from _blocks(part)
        case BatchSplit():
            yield np.frombuffer(data.digest, np.uint8)
        case StreamSplit() if data.nbytes > LARGEST_STREAM_BYTES:
            yield None
        case StreamSplit():
            for arrays in data.blocks():
                yield from map(np.ascontiguousarray, arrays)
