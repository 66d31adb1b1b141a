"""Chunks of a pass, each made while the one before trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from trainables.data import residence
from trainables.data.share import Share
from trainables.devices.replicas import Replicas

CHUNK_BYTES = 64 * 2**20
GATHER_ROWS = 4096
THREADED_BYTES, MANY_ROWS = 4 * 2**20, 256  # threads gain nothing by less, nor by smaller rows

Order: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int32]]"


@dataclass(frozen=True)
class Chunk:
    """Examples on the devices and the order to visit them in."""

    tensors: Any  # per replica under a mirrored strategy
    order: Order

    def places(self) -> tf.Tensor:
        """The order as a graph's argument: int64, for arguments of int32 lie in the host's memory."""
        return tf.constant(self.order.astype(np.int64))


@dataclass(frozen=True)
class Pass:
    """One way through the examples of a data set."""

    batch_size: int
    seed: int | None  # None: as they lie
    number: int  # from 1
    skipped: int = 0  # batches, left out at its beginning
    share: Share | None = None  # what this process needs of each batch; None: all of it


class Ahead:
    """Has the next chunk made while the present one is used, and a shuffled pass's first after the last before it.

    ``make`` may not hold the split: a circle would keep its data in memory.
    """

    def __init__(self, make: Callable[[Pass], Iterator[Chunk]]) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(1, "data")
        self._begun: tuple[Pass, Iterator[Chunk], Future[Chunk | None]] | None = None

    def chunks(self, which: Pass) -> Iterator[Chunk]:
        _, chunks, coming = self._begin(which)
        self._begun = None
        while (chunk := coming.result()) is not None:
            coming = self._pool.submit(next, chunks, None)
            yield chunk
            del chunk
        if which.seed is not None:
            self._begun = self._begin(replace(which, number=which.number + 1, skipped=0))

    def _begin(self, which: Pass) -> tuple[Pass, Iterator[Chunk], Future[Chunk | None]]:
        if self._begun is not None and self._begun[0] == which:
            return self._begun
        self._begun = None
        chunks = self._make(which)
        return which, chunks, self._pool.submit(next, chunks, None)


def alike(chunks: Iterator[Chunk], batch_size: int) -> Iterator[Chunk]:
    """The same batches, cut so that all of a chunk have one size: between processes, a call sums up one shape alone."""
    for chunk in chunks:
        whole = len(chunk.order) // batch_size * batch_size
        for order in (chunk.order[:whole], chunk.order[whole:]):
            if len(order):
                yield Chunk(chunk.tensors, order)


def updates(size: int, batch_size: int) -> int:
    """Optimizer updates of one pass, the last partial batch included."""
    return -(-size // batch_size)


def chunk_rows(row_bytes: int, batch_size: int) -> int:
    """Rows of one chunk: whole batches."""
    return max(CHUNK_BYTES // max(row_bytes, 1) // batch_size, 1) * batch_size


def take(leaf: Any, rows: Order, threads: int | None = None) -> np.ndarray[Any, Any]:
    """Rows of an array in this order, read in ascending order, which is kind to memory maps and disks.

    Arrays of large rows are read by as many ``threads`` as the trial has CPUs; what only looks like an array may not
    like that, and small rows gain nothing.
    """
    target = residence.empty((len(rows), *leaf.shape[1:]), np.dtype(leaf.dtype))
    places = np.argsort(rows, kind="stable")

    def read(start: int, step: int = GATHER_ROWS) -> None:
        some = places[start : start + step]
        target[some] = leaf[rows[some]]

    if threads is None:
        threads = tf.config.threading.get_inter_op_parallelism_threads()
    large = target.nbytes >= THREADED_BYTES * max(1, len(rows) // MANY_ROWS)
    if threads > 1 and isinstance(leaf, np.ndarray) and large:
        step = min(-(-len(rows) // threads), GATHER_ROWS)
        with ThreadPoolExecutor(threads, "rows") as readers:
            list(readers.map(partial(read, step=step), range(0, len(rows), step)))  # raises what the first one raised
    else:
        list(map(read, range(0, len(rows), GATHER_ROWS)))
    return target


def placed(size: int, which: Pass, read: Callable[[Order], Any], replicas: Replicas) -> Chunk:
    """A chunk of so many examples, of which ``read`` gives those at some places, as arrays that nobody else holds.

    Where this process needs a share of each batch, these are places of its own examples alone, and each of its devices
    gets those that it computes, once.
    """
    everything, share = np.arange(size, dtype=np.int32), which.share
    if share is None:
        return Chunk(residence.put(read(everything), replicas, given_away=True), everything)
    if not replicas.several_here:
        places, order = share.places(size, which.batch_size)
        return Chunk(residence.put(read(places), replicas, given_away=True), order)
    each, order = share.layout(size, which.batch_size)
    return Chunk(residence.put_each([read(places) for places in each], replicas), order)


def taken(arrays: Any, rows: Order, which: Pass, replicas: Replicas) -> Chunk:
    """A chunk of these rows of arrays, which begin with a batch."""

    def read(places: Order) -> Any:
        return tf.nest.map_structure(lambda leaf: take(leaf, rows[places]), arrays)

    return placed(len(rows), which, read, replicas)


def in_order(arrays: Any, replicas: Replicas, which: Pass | None = None) -> Chunk:
    """A chunk of arrays that nobody else holds, visited as they are; parted among devices as ``which`` says."""
    count = len(tf.nest.flatten(arrays)[0])
    if which is None or which.share is None or not replicas.several_here:
        return Chunk(residence.put(arrays, replicas, given_away=True), np.arange(count, dtype=np.int32))
    return placed(count, which, lambda places: rows_of(arrays, places), replicas)


def rows_of(arrays: Any, places: Order) -> Any:
    """These rows of arrays, or of tensors that lie in the host's memory."""

    def some(leaf: Any) -> Any:
        if isinstance(leaf, tf.Tensor):
            with tf.device("/cpu:0"):
                return tf.gather(leaf, places)
        return take(leaf, places)

    return tf.nest.map_structure(some, arrays)
