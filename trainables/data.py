"""A trial's examples: checked, counted, and cut into chunks that a compiled loop runs through.

A chunk is a part of an epoch that lies on the devices. Data that fits is one chunk, placed once and
visited in a fresh order each epoch; larger arrays and `tf.data` come as a sequence of chunks, each
gathered while the one before trains. The loop does not know the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

Arrays: TypeAlias = tuple[Any, ...]
"""(x, y) or (x, y, sample_weight); x and y may be nested dicts or tuples of arrays."""

RESIDENT_BYTES = 2 * 2**30
CHUNK_BYTES = 64 * 2**20


class DataError(Exception):
    """What a trainable's ``data`` returned cannot be trained on."""


@dataclass(frozen=True)
class Chunk:
    """Examples on the devices and the order to visit them in."""

    tensors: Any  # per replica under a mirrored strategy
    order: np.ndarray[tuple[int], np.dtype[np.int32]]


class ArraySplit:
    """Examples in arrays (NumPy, or anything that indexes and slices like it)."""

    def __init__(self, arrays: Arrays, strategy: tf.distribute.Strategy, name: str) -> None:
        leaves = tf.nest.flatten(arrays)
        sizes = {len(leaf) for leaf in leaves}
        if len(sizes) != 1 or not min(sizes):
            raise DataError(f"{name}: arrays of {sorted(sizes)} examples, expected one common number above 0")
        self.size = sizes.pop()
        self.arrays = arrays
        self._strategy = strategy
        self._row_bytes = max(sum(np.asarray(leaf[:1]).nbytes for leaf in leaves), 1)
        self._placed: Any = None

    def example(self) -> Any:
        """The first example, as a batch of one."""
        return _map(lambda leaf: np.asarray(leaf[:1]), self.arrays)

    def chunks(self, batch_size: int, seed: int | None, epoch: int) -> Iterator[Chunk]:
        """One epoch; the order is a permutation drawn from (seed, epoch), or as it is without a seed."""
        order = _order(self.size, seed, epoch)
        if self.size * self._row_bytes <= RESIDENT_BYTES:
            if self._placed is None:
                self._placed = place(self.arrays, self._strategy)
            yield Chunk(self._placed, order)
            return
        rows = max(CHUNK_BYTES // self._row_bytes // batch_size, 1) * batch_size
        parts = [order[i : i + rows] for i in range(0, self.size, rows)]
        with ThreadPoolExecutor(1, "gather") as pool:
            ahead = pool.submit(self._gather, parts[0])
            for i, part in enumerate(parts):
                arrays = ahead.result()
                if i + 1 < len(parts):
                    ahead = pool.submit(self._gather, parts[i + 1])
                yield Chunk(place(arrays, self._strategy), np.arange(len(part), dtype=np.int32))

    def _gather(self, rows: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Any:
        # Ascending reads are kind to memory maps; the order within the chunk is put back afterwards.
        ascending = np.sort(rows)
        back = np.searchsorted(ascending, rows)
        return _map(lambda leaf: np.asarray(leaf[ascending])[back], self.arrays)


class DatasetSplit:
    """Examples in a `tf.data.Dataset` of single examples (not batched)."""

    def __init__(self, dataset: tf.data.Dataset, strategy: tf.distribute.Strategy, name: str) -> None:
        self._dataset = dataset
        self._strategy = strategy
        size = int(dataset.cardinality())
        if size == tf.data.INFINITE_CARDINALITY:
            raise DataError(f"{name}: an endless dataset, expected one epoch of it; use take(n)")
        if size == tf.data.UNKNOWN_CARDINALITY:
            size = int(dataset.reduce(np.int64(0), lambda count, *_: count + 1))
        if not size:
            raise DataError(f"{name}: an empty dataset, expected at least one example")
        self.size = size
        specs = tf.nest.flatten(dataset.element_spec)
        self._row_bytes = max(sum((s.shape.num_elements() or 1024) * s.dtype.size for s in specs), 1)

    def example(self) -> Arrays:
        """The first example, as a batch of one."""
        return tuple(next(iter(self._dataset.batch(1).as_numpy_iterator())))

    def chunks(self, batch_size: int, seed: int | None, epoch: int) -> Iterator[Chunk]:
        """One epoch; shuffled in a buffer of 10,000 examples from (seed, epoch), or as it is without a seed."""
        dataset = self._dataset
        if seed is not None:
            dataset = dataset.shuffle(min(self.size, 10_000), seed=_mix(seed, epoch))
        rows = max(min(CHUNK_BYTES // self._row_bytes, self.size) // batch_size, 1) * batch_size
        for arrays in dataset.batch(rows).prefetch(1).as_numpy_iterator():
            count = len(tf.nest.flatten(arrays)[0])
            yield Chunk(place(arrays, self._strategy), np.arange(count, dtype=np.int32))


Split: TypeAlias = ArraySplit | DatasetSplit


def split(data: Any, strategy: tf.distribute.Strategy, name: str) -> Split:
    """Wrap what a trainable's ``data`` returned for training or validation; raises DataError."""
    if isinstance(data, tf.data.Dataset):
        return DatasetSplit(data, strategy, name)
    if isinstance(data, tuple) and 2 <= len(data) <= 3:
        return ArraySplit(data, strategy, name)
    raise DataError(
        f"{name}: {type(data).__name__}, expected (x, y), (x, y, sample_weight) or a tf.data.Dataset of examples"
    )


def place(arrays: Any, strategy: tf.distribute.Strategy) -> Any:
    """Copy arrays to every device of the strategy."""
    if strategy.num_replicas_in_sync == 1:
        with strategy.scope(), tf.device(strategy.extended.worker_devices[0]):
            return _map(tf.convert_to_tensor, arrays)

    def on_replica(leaf: Any) -> Any:
        def value(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            with tf.device(strategy.extended.worker_devices[context.replica_id_in_sync_group]):
                return tf.identity(tf.convert_to_tensor(leaf))

        return strategy.experimental_distribute_values_from_function(value)

    return _map(on_replica, arrays)


def updates(size: int, batch_size: int) -> int:
    """Optimizer updates of one epoch, the last partial batch included."""
    return -(-size // batch_size)


def _map(function: Any, arrays: Any) -> Any:
    return tf.nest.map_structure(function, arrays)


def _mix(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])


def _order(size: int, seed: int | None, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    if seed is None:
        return np.arange(size, dtype=np.int32)
    return np.random.Generator(np.random.Philox(_mix(seed, epoch))).permutation(size).astype(np.int32)
