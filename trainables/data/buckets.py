"""Examples of different lengths: batches of one bucket each, whose lengths are the bucket's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from trainables.data import checks, residence
from trainables.data.ahead import Ahead, Chunk, Order, Pass, chunk_rows, taken
from trainables.data.arrays import ArraySplit, Placed
from trainables.data.examples import Examples
from trainables.data.sources import Buckets, DataError, permutation
from trainables.devices.replicas import Replicas


class BucketSplit(Examples):
    """Buckets of examples; the loop's graphs are traced once, for all of their lengths.

    A pass shuffles the examples of each bucket and then the batches of all, both from (seed, epoch). The last
    batch of each bucket may be a partial one.
    """

    changes_shape = True

    def __init__(self, buckets: Buckets, replicas: Replicas, resident_bytes: int | None = None) -> None:
        self.parts = [ArraySplit(checks.examples(part), replicas, resident_bytes) for part in buckets.parts]
        if not self.parts:
            raise DataError("no bucket, expected at least one")
        for part in self.parts[1:]:
            if _kind(part.arrays) != _kind(self.parts[0].arrays):
                raise DataError(f"buckets of {_kind(self.parts[0].arrays)} and {_kind(part.arrays)}, expected one kind")
        self.size = sum(part.size for part in self.parts)
        leaves = [leaf for part in self.parts for leaf in part.leaves()]
        arrays = [part.arrays for part in self.parts]
        self._placed = [Placed(each, replicas, residence.fits(leaves, replicas, resident_bytes)) for each in arrays]
        self._ahead = Ahead(partial(_gathered, arrays, replicas))

    def updates(self, batch_size: int) -> int:
        """Batches of a pass."""
        return sum(part.updates(batch_size) for part in self.parts)

    def kinds(self) -> list[Chunk]:
        """A chunk of each kind of shapes, as the loop will meet them."""
        return [next(part.chunks(1, None, 0)) for part in self.parts]

    def examples(self, count: int) -> Any:
        """The first examples of the first bucket."""
        return self.parts[0].examples(count)

    def spread(self, count: int) -> Any:
        """Examples from all over the first bucket."""
        return self.parts[0].spread(count)

    def some_targets(self) -> Any:
        """The targets of the first examples of the first bucket."""
        return self.parts[0].some_targets()

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        """Batches that follow each other in one bucket are a chunk."""
        if not self._placed[0].fits:
            return self._ahead.chunks(which)
        found = runs([part.size for part in self.parts], which)
        return (Chunk(self._placed[bucket].tensors(), rows) for bucket, rows in found)


def runs(sizes: list[int], which: Pass) -> Iterator[tuple[int, Order]]:
    """The buckets and rows of whole batches in the order of a pass; each but a run's last is of ``batch_size``."""
    batch_size, seed, number = which.batch_size, which.seed, which.number
    orders = [permutation(size, None if seed is None else seed + i, number) for i, size in enumerate(sizes)]
    batches = [
        (bucket, order[start : start + batch_size])
        for bucket, order in enumerate(orders)
        for start in range(0, len(order), batch_size)
    ]
    run: list[Order] = []
    places = permutation(len(batches), seed, number)[which.skipped :]
    for place, following in zip(places, [*places[1:], None], strict=True):
        bucket, rows = batches[place]
        run.append(rows)
        if following is None or batches[following][0] != bucket or len(rows) < batch_size:
            yield bucket, np.concatenate(run)
            run = []


def _gathered(arrays: list[Any], replicas: Replicas, which: Pass) -> Iterator[Chunk]:
    sizes = [len(tf.nest.flatten(part)[0]) for part in arrays]
    for bucket, rows in runs(sizes, which):
        row_bytes = sum(map(residence.nbytes, tf.nest.flatten(arrays[bucket]))) // sizes[bucket]
        step = chunk_rows(row_bytes, which.batch_size)
        for start in range(0, len(rows), step):
            yield taken(arrays[bucket], rows[start : start + step], which, replicas)


def _kind(arrays: Any) -> str:
    """What must be alike in all buckets, in words."""
    return str(tf.nest.map_structure(lambda leaf: f"{leaf.dtype} of {leaf.ndim} axes", arrays))
