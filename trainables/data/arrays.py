"""Examples in arrays: one chunk where they fit on the devices, else gathered chunk by chunk."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from trainables.data import checks, node_cache, residence, text
from trainables.data.ahead import Ahead, Chunk, Order, Pass, chunk_rows, taken
from trainables.data.examples import Examples, unpacked
from trainables.data.sources import permutation
from trainables.devices.replicas import Replicas

TARGET_BYTES = 4 * 2**20


class ArraySplit(Examples):
    """Examples in arrays: (x,), (x, y) or (x, y, sample_weight), x and y nested dicts or tuples if need be.

    `part` gives some of them, which then share the arrays and what lies on the devices.
    """

    def __init__(self, arrays: Any, replicas: Replicas, resident_bytes: int | None = None) -> None:
        self.arrays = node_cache.written(checks.arrays_of(arrays))
        leaves = tf.nest.flatten(self.arrays)
        self.size = len(leaves[0])
        self._rows: Order | None = None  # those that are visited; None: all
        self._placed = Placed(self.arrays, replicas, residence.fits(leaves, replicas, resident_bytes))
        self._ahead = Ahead(partial(gathered, self.arrays, replicas, None))

    def part(self, rows: Order) -> ArraySplit:
        """These rows alone; shapes, example and targets stay those of the whole."""
        part = copy.copy(self)
        part._rows, part.size, part.changes_shape = rows, len(rows), True
        part._ahead = Ahead(partial(gathered, self.arrays, self._placed.replicas, rows))
        return part

    @property
    def targets(self) -> Any:
        """All targets, also those of rows that are not visited; None without targets."""
        return unpacked(self.arrays)[1]

    def leaves(self) -> list[Any]:
        """All arrays, flat."""
        return list(tf.nest.flatten(self.arrays))

    def examples(self, count: int) -> Any:
        """The first examples; texts as a tensor."""
        return tf.nest.map_structure(lambda leaf: text.as_tensor(np.asarray(leaf[:count])), self.arrays)

    def spread(self, count: int) -> Any:
        """Examples from all over the data; texts as a tensor."""
        places = np.linspace(0, self.size - 1, min(count, self.size)).astype(np.int64)
        rows = places if self._rows is None else self._rows[places]
        return tf.nest.map_structure(lambda leaf: text.as_tensor(np.asarray(leaf[rows])), self.arrays)

    @property
    def stays(self) -> bool:
        """Whether all of it lies on the devices, in whatever order it is visited."""
        return self._placed.fits

    def some_targets(self) -> Any:
        """The targets of the first examples, some megabytes of them; None without targets."""
        targets = self.targets
        if targets is None:
            return None
        row = sum(map(residence.nbytes, tf.nest.flatten(targets))) // len(tf.nest.flatten(self.arrays)[0])
        count = max(TARGET_BYTES // max(row, 1), 1)
        return tf.nest.map_structure(lambda leaf: np.asarray(leaf[:count]), targets)

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        if not self._placed.fits:
            return self._ahead.chunks(which)
        order = permutation(self.size, which.seed, which.number)[which.skipped * which.batch_size :]
        return iter([Chunk(self._placed.tensors(), order if self._rows is None else self._rows[order])])


@dataclass
class Placed:
    """Arrays on the devices, put there when they are first needed."""

    arrays: Any
    replicas: Replicas
    fits: bool
    _tensors: Any = None

    def tensors(self) -> Any:
        """On every device."""
        if self._tensors is None:
            self._tensors = residence.put(tf.nest.map_structure(lambda leaf: leaf[:], self.arrays), self.replicas)
        return self._tensors


def gathered(arrays: Any, replicas: Replicas, those: Order | None, which: Pass) -> Iterator[Chunk]:
    leaves, batch_size = tf.nest.flatten(arrays), which.batch_size
    order = permutation(len(leaves[0]) if those is None else len(those), which.seed, which.number)
    if those is not None:
        order = those[order]
    rows = chunk_rows(sum(map(residence.nbytes, leaves)) // len(leaves[0]), batch_size)
    for start in range(which.skipped * batch_size, len(order), rows):
        yield taken(arrays, order[start : start + rows], which, replicas)
