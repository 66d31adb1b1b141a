"""A trial's examples: checked, counted, and cut into chunks that a compiled loop runs through.

A chunk is a part of an epoch that lies on the devices. Data that fits is one chunk, placed once and
visited in a fresh order each epoch; larger arrays and streams come as a sequence of chunks, each read
and placed while the one before trains. The loop does not know the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from trainables.data import node_cache, residence
from trainables.data.sources import DataError, Rows, Stream, from_dataset, permutation

__all__ = ["ArraySplit", "Chunk", "DataError", "Split", "StreamSplit", "split", "updates"]

CHUNK_BYTES = 64 * 2**20
GATHER_ROWS = 4096
TARGET_BYTES = 4 * 2**20
PADDING = (
    "where examples differ in length, pad them: keras.utils.pad_sequences(rows, padding='post'), or in a dataset "
    "map(lambda x, y: (tf.pad(x, [[0, longest - tf.shape(x)[0]]]), y)), and mask with Embedding(mask_zero=True) or "
    "Masking()"
)

_Epoch: TypeAlias = tuple[int, int | None, int]  # batch size, seed, number
Order: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int32]]"


@dataclass(frozen=True)
class Chunk:
    """Examples on the devices and the order to visit them in."""

    tensors: Any  # per replica under a mirrored strategy
    order: Order


class ArraySplit:
    """Examples in arrays: (x, y) or (x, y, sample_weight), x and y nested dicts or tuples if need be."""

    def __init__(self, arrays: Any, strategy: tf.distribute.Strategy, resident_bytes: int | None = None) -> None:
        self.arrays = node_cache.written(_checked(arrays))
        leaves = tf.nest.flatten(self.arrays)
        self.size = len(leaves[0])
        self._strategy = strategy
        self._fits = residence.fits(leaves, strategy, resident_bytes)
        self._placed: Any = None
        self._ahead = _Ahead(partial(_gathered, self.arrays, strategy))

    def example(self) -> Any:
        """The first example, as a batch of one."""
        return self.examples(1)

    def leaves(self) -> list[Any]:
        """All arrays, flat."""
        return list(tf.nest.flatten(self.arrays))

    def examples(self, count: int) -> Any:
        """The first examples."""
        return _map(lambda leaf: np.asarray(leaf[:count]), self.arrays)

    def some_targets(self) -> Any:
        """The targets of the first examples, some megabytes of them."""
        row = sum(map(residence.nbytes, tf.nest.flatten(self.arrays[1]))) // self.size
        count = max(TARGET_BYTES // max(row, 1), 1)
        return _map(lambda leaf: np.asarray(leaf[:count]), self.arrays[1])

    def chunks(self, batch_size: int, seed: int | None, epoch: int) -> Iterator[Chunk]:
        """One epoch; the order is a permutation drawn from (seed, epoch), or as it is without a seed."""
        if self._fits:
            if self._placed is None:
                self._placed = residence.put(_map(lambda leaf: leaf[:], self.arrays), self._strategy)
            return iter([Chunk(self._placed, permutation(self.size, seed, epoch))])
        return self._ahead.chunks(batch_size, seed, epoch)


class StreamSplit:
    """Examples that come one after the other: a `tf.data.Dataset`, or record files."""

    def __init__(self, stream: Stream, strategy: tf.distribute.Strategy) -> None:
        self._stream = stream
        first = stream.ordered(None, 0)
        _check_specs(first.element_spec)
        size = stream.size
        if size is None:
            size = int(first.reduce(np.int64(0), lambda count, *_: count + 1))
        if not size:
            raise DataError("an empty dataset, expected at least one example")
        self.size = size
        self._ahead = _Ahead(partial(_read, stream, self.size, strategy))

    def example(self) -> Any:
        """The first example, as a batch of one."""
        return self.examples(1)

    @property
    def nbytes(self) -> int:
        """Bytes of all examples, as far as their shapes are known."""
        return self.size * _row_bytes(self._stream.ordered(None, 0))

    def blocks(self) -> Iterator[list[Any]]:
        """All examples as they lie, some at a time, their arrays flat."""
        with tf.device("/cpu:0"):
            batches = self._stream.ordered(None, 0).batch(GATHER_ROWS).as_numpy_iterator()
            while (arrays := _next(batches)) is not None:
                yield list(tf.nest.flatten(arrays))

    def examples(self, count: int) -> Any:
        """The first examples, at most this many."""
        return tuple(next(iter(self._stream.ordered(None, 0).take(count).batch(count).as_numpy_iterator())))

    def some_targets(self) -> Any:
        """The targets of the first example."""
        return self.example()[1]

    def chunks(self, batch_size: int, seed: int | None, epoch: int) -> Iterator[Chunk]:
        """One epoch; shuffled as far as the source allows from (seed, epoch), or as it is without a seed."""
        return self._ahead.chunks(batch_size, seed, epoch)


Split: TypeAlias = ArraySplit | StreamSplit


def split(data: Any, strategy: tf.distribute.Strategy, name: str, resident_bytes: int | None = None) -> Split:
    """Wrap what a trainable's ``data`` returned for training or validation; raises DataError.

    ``resident_bytes``: how much may lie on each device at once, see `placing.fits`.
    """
    try:
        if isinstance(data, tf.data.Dataset):
            return StreamSplit(from_dataset(data), strategy)
        if isinstance(data, Stream):
            return StreamSplit(data, strategy)
        if isinstance(data, tuple) and 2 <= len(data) <= 3:
            return ArraySplit(data, strategy, resident_bytes)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    raise DataError(
        f"{name}: {type(data).__name__}, expected (x, y), (x, y, sample_weight) or a tf.data.Dataset of examples"
    )


def updates(size: int, batch_size: int) -> int:
    """Optimizer updates of one epoch, the last partial batch included."""
    return -(-size // batch_size)


def _checked(arrays: Any) -> Any:
    arrays = _map(_as_array, arrays)
    leaves = tf.nest.flatten(arrays)
    sizes = {len(leaf) for leaf in leaves}
    if len(sizes) != 1 or not min(sizes):
        raise DataError(f"arrays of {sorted(sizes)} examples, expected one common number above 0")
    return arrays


def _as_array(leaf: Any) -> Any:
    """NumPy's arrays and what slices like them as they are; tensors and data frames by their own conversion."""
    if hasattr(leaf, "numpy") or hasattr(leaf, "to_numpy"):
        leaf = leaf.numpy() if hasattr(leaf, "numpy") else leaf.to_numpy()
    sliceable = all(hasattr(leaf, part) for part in ("shape", "dtype", "__getitem__"))
    if not (sliceable or isinstance(leaf, Rows)) or hasattr(leaf, "toarray"):  # that of a sparse matrix
        raise DataError(f"a {type(leaf).__name__} within it, expected arrays, or dicts and tuples of arrays")
    if not leaf.shape:
        raise DataError("an array without axes, expected one row an example")
    if leaf.dtype.kind in "SUT" or (leaf.dtype.hasobject and _of_text(leaf)):
        raise DataError(
            "an array of texts, expected numbers; map them to numbers in data(): x = "
            "keras.layers.StringLookup(vocabulary=...)(x) or keras.layers.TextVectorization, labels with np.unique("
            "y, return_inverse=True)"
        )
    if leaf.dtype.hasobject:
        shape = tuple(leaf.shape)
        raise DataError(f"Python objects of shape {shape}, expected numbers; do the rows differ in shape? {PADDING}")
    return leaf


def _of_text(leaf: Any) -> bool:
    flat = np.asarray(leaf[:1]).reshape(-1)
    return bool(flat.size) and isinstance(flat[0], str | bytes)


def _check_specs(element: Any) -> None:
    if not isinstance(element, tuple) or not 2 <= len(element) <= 3:
        raise DataError(
            f"a dataset of {type(element).__name__} elements, expected tuples (x, y) or (x, y, sample_weight)"
        )
    specs = tf.nest.flatten(element)
    shapes = [s.shape for s in specs if isinstance(s, tf.TensorSpec)]
    if len(shapes) < len(specs):
        raise DataError(f"sparse or ragged tensors, expected dense ones of one shape; {PADDING}")
    if any(spec.dtype == tf.string for spec in specs):
        raise DataError(
            "a dataset of texts, expected numbers; map them in data(): dataset.map(lambda x, y: (vectorise(x), y)) "
            "with keras.layers.TextVectorization or StringLookup"
        )
    if all(shape.rank and shape[0] is None for shape in shapes):
        raise DataError("a dataset of batches, expected single examples; leave out batch(), batch_size cuts them")


def _gathered(
    arrays: Any, strategy: tf.distribute.Strategy, batch_size: int, seed: int | None, epoch: int
) -> Iterator[Chunk]:
    leaves = tf.nest.flatten(arrays)
    size = len(leaves[0])
    order = permutation(size, seed, epoch)
    rows = _chunk_rows(sum(map(residence.nbytes, leaves)) // size, batch_size)
    for start in range(0, size, rows):
        part = order[start : start + rows]
        yield _in_order(_map(lambda leaf: _take(leaf, part), arrays), strategy)  # noqa: B023 - used at once


def _read(
    stream: Stream, size: int, strategy: tf.distribute.Strategy, batch_size: int, seed: int | None, epoch: int
) -> Iterator[Chunk]:
    with tf.device("/cpu:0"):
        dataset = stream.ordered(seed, epoch)
        rows = min(_chunk_rows(_row_bytes(dataset), batch_size), updates(size, batch_size) * batch_size)
        examples = iter(dataset.batch(rows))
    seen = 0
    while (arrays := _next(examples)) is not None:
        chunk = _in_order(arrays, strategy)
        seen += len(chunk.order)
        yield chunk
    if seen != size:
        raise DataError(f"an epoch of {seen} examples, expected {size} as counted; is the dataset random?")


def _row_bytes(dataset: tf.data.Dataset) -> int:
    specs = tf.nest.flatten(dataset.element_spec)
    return sum((spec.shape.num_elements() or 1024) * spec.dtype.size for spec in specs)


def _chunk_rows(row_bytes: int, batch_size: int) -> int:
    """Rows of one chunk: whole batches."""
    return max(CHUNK_BYTES // max(row_bytes, 1) // batch_size, 1) * batch_size


def _take(leaf: Any, rows: Order) -> np.ndarray[Any, Any]:
    """Rows of an array in this order, read in ascending order, which is kind to memory maps and disks."""
    target = residence.empty((len(rows), *leaf.shape[1:]), np.dtype(leaf.dtype))
    places = np.argsort(rows, kind="stable")
    for start in range(0, len(rows), GATHER_ROWS):
        some = places[start : start + GATHER_ROWS]
        target[some] = leaf[rows[some]]
    return target


def _in_order(arrays: Any, strategy: tf.distribute.Strategy) -> Chunk:
    count = len(tf.nest.flatten(arrays)[0])
    return Chunk(residence.put(arrays, strategy, given_away=True), np.arange(count, dtype=np.int32))


def _next(examples: Iterator[Any]) -> Any:
    try:
        return next(examples, None)
    except tf.errors.InvalidArgumentError as error:
        raise DataError(f"the dataset cannot be read or batched: {error.message.splitlines()[0]}; {PADDING}") from error


class _Ahead:
    """Has the next chunk made while the present one is used, and a shuffled epoch's first after the last before it.

    ``make(batch_size, seed, epoch)`` may not hold the split: a circle would keep its data in memory.
    """

    def __init__(self, make: Callable[[int, int | None, int], Iterator[Chunk]]) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(1, "data")
        self._begun: tuple[_Epoch, Iterator[Chunk], Future[Chunk | None]] | None = None

    def chunks(self, batch_size: int, seed: int | None, epoch: int) -> Iterator[Chunk]:
        _, chunks, coming = self._begin((batch_size, seed, epoch))
        self._begun = None
        while (chunk := coming.result()) is not None:
            coming = self._pool.submit(next, chunks, None)
            yield chunk
            del chunk
        if seed is not None:
            self._begun = self._begin((batch_size, seed, epoch + 1))

    def _begin(self, epoch: _Epoch) -> tuple[_Epoch, Iterator[Chunk], Future[Chunk | None]]:
        if self._begun is not None and self._begun[0] == epoch:
            return self._begun
        self._begun = None
        chunks = self._make(*epoch)
        return epoch, chunks, self._pool.submit(next, chunks, None)


def _map(function: Any, arrays: Any) -> Any:
    return tf.nest.map_structure(function, arrays)
