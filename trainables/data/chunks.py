"""A trial's examples: checked, counted, and cut into chunks for the compiled loop.

A chunk is a part of a pass whose examples are on the devices. Data that fits is one chunk, placed once and visited in
another order in each pass. Larger arrays and streams are a sequence of chunks; each is read and placed during the
training on the one before. The loop treats both alike.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainables.data import residence, sources
from trainables.data.passes import (
    Chunk,
    ChunkPrefetcher,
    Examples,
    Order,
    Pass,
    choose_chunk_rows,
    count_updates,
    gather_chunk,
    unpack_example,
)
from trainables.data.sources import (
    ALL,
    Buckets,
    DataError,
    Extent,
    Stream,
    from_dataset,
    mix_seeds,
    permutation,
)
from trainables.devices.replicas import Replicas

__all__ = [
    "ArraySplit",
    "BucketSplit",
    "Chunk",
    "DataError",
    "count_updates",
    "make_examples",
]

TARGET_BYTES = 4 * 2**20


class ArraySplit(Examples):
    """A data set in arrays (x,), (x, y) or (x, y, sample_weight), where x and y may be nested dicts or tuples.

    Subsets made by `part` share its arrays and their copies on the devices.
    """

    def __init__(self, arrays: Any, replicas: Replicas, resident_bytes: int | None = None) -> None:
        self.arrays = residence.map_block_arrays(sources.convert_arrays(arrays))
        leaves = tf.nest.flatten(self.arrays)
        self.size = len(leaves[0])
        self._rows: Order | None = None  # indices of the rows that are visited; None: all
        self.placed = LazyPlacement(
            self.arrays, replicas, residence.fit_on_devices(leaves, replicas, resident_bytes)
        )
        self._ahead = ChunkPrefetcher(partial(gather_chunks, self.arrays, replicas, None))

    def part(self, rows: Order) -> ArraySplit:
        """Return a data set that visits only ``rows``, which are indices into all rows, and shares the arrays.

        Only the result's `size`, passes and `spread_examples` are limited to them. Its `examples`, `targets`,
        `some_targets`, `leaves` and `read_content` still refer to all rows.
        """
        part = copy.copy(self)
        part._rows = rows
        part.size = len(rows)
        part.changes_shape = True
        part._ahead = ChunkPrefetcher(
            partial(gather_chunks, self.arrays, self.placed.replicas, rows)
        )
        return part

    @property
    def targets(self) -> Any:
        """The targets of all rows, even of rows that are not visited; None if there are no targets."""
        return unpack_example(self.arrays)[1]

    def leaves(self) -> list[Any]:
        """Return all arrays, with all rows, as a flat list."""
        return list(tf.nest.flatten(self.arrays))

    def examples(self, count: int) -> Any:
        """Return the first ``count`` of all rows, or all if there are fewer, as (x,), (x, y) or (x, y, sample_weight).

        Texts are converted to a tensor.
        """
        return tf.nest.map_structure(
            lambda leaf: sources.convert_texts(np.asarray(leaf[:count])), self.arrays
        )

    def spread_examples(self, count: int) -> Any:
        """Return at most ``count`` examples, evenly spaced from the first to the last of the visited rows.

        They are a batch (x,), (x, y) or (x, y, sample_weight), with texts converted to a tensor.
        """
        places = np.linspace(0, self.size - 1, min(count, self.size)).astype(np.int64)
        rows = self._find_row_numbers(places)
        return tf.nest.map_structure(
            lambda leaf: sources.convert_texts(np.asarray(leaf[rows])), self.arrays
        )

    def read_content(self) -> Iterator[np.ndarray[Any, Any] | None]:
        """Yield all rows, array by array, in blocks of about 64 MiB.

        Yield only None if the arrays exceed 2 GiB together or one of them is no NumPy array.
        """
        yield from _read_array_blocks(self.leaves())

    @property
    def stays(self) -> bool:
        """Whether the whole data set stays on the devices."""
        return self.placed.fits

    def some_targets(self) -> Any:
        """Return the first targets of all rows, up to about 4 MiB but at least one; None if there are no targets."""
        targets = self.targets
        if targets is None:
            return None
        size_bytes = sum(map(residence.measure_bytes, tf.nest.flatten(targets)))
        row_bytes = size_bytes // len(
            tf.nest.flatten(self.arrays)[0]
        )  # all arrays have as many rows
        count = max(TARGET_BYTES // max(row_bytes, 1), 1)
        return tf.nest.map_structure(lambda leaf: np.asarray(leaf[:count]), targets)

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        """Return the chunks of a pass: a single one if the data stays on the devices, and else some of about 64 MiB."""
        if not self.placed.fits:
            return self._ahead.chunks(which)
        order = permutation(self.size, which.seed, which.number)
        left = order[which.skipped * which.batch_size :]
        chunk = Chunk(self.placed.tensors(), self._find_row_numbers(left))
        return iter([chunk])

    def _find_row_numbers(self, places: Any) -> Any:
        """Return the indices, in the arrays, of the rows at the positions ``places`` among the visited rows."""
        if self._rows is None:
            return places
        return self._rows[places]


@dataclass
class LazyPlacement:
    """Arrays that are copied to the devices when they are first needed."""

    arrays: Any
    replicas: Replicas
    fits: bool  # whether they may stay on the devices
    _tensors: Any = None

    def tensors(self) -> Any:
        """Return the arrays as `residence.put_on_devices` does; the first call puts them there, to stay.

        Whether they fit is not checked.
        """
        if self._tensors is None:
            self._tensors = residence.put_on_devices(
                tf.nest.map_structure(lambda leaf: leaf[:], self.arrays), self.replicas
            )
        return self._tensors


def gather_chunks(
    arrays: Any, replicas: Replicas, subset: Order | None, which: Pass
) -> Iterator[Chunk]:
    """Yield the chunks of the pass ``which`` over the rows ``subset`` of arrays (all rows if None).

    Each chunk has about 64 MiB, but at least one batch, and is read and copied to the devices when it is asked for.
    With a share in ``which``, only the rows that this process needs are.
    """
    leaves = tf.nest.flatten(arrays)
    batch_size = which.batch_size
    if subset is None:
        order = permutation(len(leaves[0]), which.seed, which.number)
    else:
        order = subset[permutation(len(subset), which.seed, which.number)]
    size_bytes = sum(map(residence.measure_bytes, leaves))
    chunk_rows = choose_chunk_rows(size_bytes // len(leaves[0]), batch_size)
    for start in range(which.skipped * batch_size, len(order), chunk_rows):
        yield gather_chunk(arrays, order[start : start + chunk_rows], which, replicas)


class BucketSplit(Examples):
    """Examples in buckets of one shape each; the loop's graphs are traced once for the lengths of all buckets.

    A pass shuffles the examples of each bucket, and then the batches of all buckets, both by (seed, pass). The last
    batch of each bucket may be smaller.
    """

    changes_shape = True
    order = "buckets"

    def __init__(
        self, buckets: Buckets, replicas: Replicas, resident_bytes: int | None = None
    ) -> None:
        self.parts = [
            ArraySplit(sources.normalize_examples(part), replicas, resident_bytes)
            for part in buckets.parts
        ]
        if not self.parts:
            raise DataError("no bucket, expected at least one")
        first = _describe_bucket(self.parts[0].arrays)
        for part in self.parts[1:]:
            other = _describe_bucket(part.arrays)
            if other != first:
                raise DataError(f"buckets of {first} and {other}, expected one kind")
        self.size = sum(part.size for part in self.parts)
        # Whether the data stays on the devices is decided for all buckets together, not for each part.
        leaves = [leaf for part in self.parts for leaf in part.leaves()]
        self._stays = residence.fit_on_devices(leaves, replicas, resident_bytes)
        for part in self.parts:
            part.placed.fits = self._stays
        self._replicas = replicas
        # the arrays alone, for what a `ChunkPrefetcher` is given must not refer to this data set
        arrays = [part.arrays for part in self.parts]
        self._ahead = ChunkPrefetcher(partial(_gather_buckets, arrays, replicas))

    def updates(self, batch_size: int) -> int:
        """Return the number of batches of a pass, in which each bucket may end with a smaller batch."""
        return sum(part.updates(batch_size) for part in self.parts)

    def count_equal_batches(self, large: int, small: int) -> tuple[int, int]:
        """Return how many batches of ``large`` and of ``small`` examples cover the same first examples.

        The count ends after one large batch of the first bucket that has more than ``small`` examples. If there is no
        such bucket, both numbers are the number of buckets.
        """
        # a bucket of at most `small` examples is one batch of either size
        for i, part in enumerate(self.parts):
            if part.size > small:
                return i + 1, i + count_updates(min(large, part.size), small)
        return len(self.parts), len(self.parts)

    def list_chunk_kinds(self) -> list[Chunk]:
        """Return one chunk of each bucket, for tracing with all shapes.

        Each has all rows of the bucket. But if the data does not stay on the devices, each has one row, and another one
        of the first bucket has two, because the chunks of a pass have different numbers of them.
        """
        if self._stays:
            return [next(part.chunks(1, None, 0)) for part in self.parts]
        kinds = []
        for part, count in [*((part, 1) for part in self.parts), (self.parts[0], 2)]:
            rows = np.zeros(count, np.int32)  # a bucket may have a single row
            kinds.append(gather_chunk(part.arrays, rows, Pass(1, None, 0), self._replicas))
        return kinds

    def examples(self, count: int) -> Any:
        """Return the first examples of the first bucket, at most ``count``, with texts converted to a tensor."""
        return self.parts[0].examples(count)

    def spread_examples(self, count: int) -> Any:
        """Return at most ``count`` examples, evenly spaced over the first bucket alone, as `ArraySplit` does."""
        return self.parts[0].spread_examples(count)

    def read_content(self) -> Iterator[np.ndarray[Any, Any] | None]:
        """Yield the rows of all buckets in blocks.

        Yield only None for a bucket that exceeds 2 GiB or has something other than NumPy arrays.
        """
        for part in self.parts:
            yield from part.read_content()

    def some_targets(self) -> Any:
        """Return the first targets of the first bucket, up to about 4 MiB but at least one; None if it has none."""
        return self.parts[0].some_targets()

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        """Return the chunks of a pass: each has consecutive batches of one bucket.

        If the data does not stay on the devices, they are cut into several chunks of about 64 MiB.
        """
        if not self._stays:
            return self._ahead.chunks(which)
        found = list_bucket_runs([part.size for part in self.parts], which)
        return (Chunk(self.parts[bucket].placed.tensors(), rows) for bucket, rows in found)


def list_bucket_runs(sizes: list[int], which: Pass) -> Iterator[tuple[int, Order]]:
    """Yield (bucket, rows) for each run of consecutive batches of one bucket, in the order of the pass ``which``.

    ``sizes`` has the number of examples of each bucket, ``bucket`` is an index into it, and the rows are row numbers
    within the bucket. A run ends after a batch with fewer rows than the batch size, so only its last batch may be
    smaller. The batches that ``which`` skips are left out.
    """
    batch_size = which.batch_size
    seed = which.seed
    number = which.number
    batches = []  # of all buckets in turn, as pairs (bucket, rows)
    for bucket, size in enumerate(sizes):
        # a seed for each bucket, or buckets of one size would be shuffled alike
        bucket_seed = None if seed is None else mix_seeds(seed, bucket)
        order = permutation(size, bucket_seed, number)
        for start in range(0, len(order), batch_size):
            batches.append((bucket, order[start : start + batch_size]))
    run: list[Order] = []  # the rows of each batch of the present run
    places = permutation(len(batches), seed, number)[which.skipped :]
    for place, following in zip(places, [*places[1:], None], strict=True):
        bucket, rows = batches[place]
        run.append(rows)
        if following is None or batches[following][0] != bucket or len(rows) < batch_size:
            yield bucket, np.concatenate(run)
            run = []


def _gather_buckets(arrays: list[Any], replicas: Replicas, which: Pass) -> Iterator[Chunk]:
    """Yield the chunks of the pass ``which`` over buckets, of which ``arrays`` has the arrays of each.

    Each chunk has about 64 MiB of one bucket, but at least one batch, and is copied to the devices when asked for.
    """
    sizes = [len(tf.nest.flatten(part)[0]) for part in arrays]
    for bucket, rows in list_bucket_runs(sizes, which):
        part = arrays[bucket]
        bucket_bytes = sum(map(residence.measure_bytes, tf.nest.flatten(part)))
        chunk_rows = choose_chunk_rows(bucket_bytes // sizes[bucket], which.batch_size)
        for start in range(0, len(rows), chunk_rows):
            yield gather_chunk(part, rows[start : start + chunk_rows], which, replicas)


def _describe_bucket(arrays: Any) -> str:
    """Return the structure, dtypes and numbers of axes of a bucket's arrays as text, to compare buckets."""
    return str(tf.nest.map_structure(lambda leaf: f"{leaf.dtype} of {leaf.ndim} axes", arrays))


def make_examples(
    data: Any,
    replicas: Replicas,
    name: str,
    resident_bytes: int | None = None,
    extent: Extent = ALL,
) -> Examples:
    """Wrap training or validation data, as `data` returned it, in the subclass of `Examples` for its kind.

    Streams without a known size are counted, all batches of a `PyDataset` are read, and each `BlockArray` is written to
    a temporary file. ``name`` starts the error messages, such as "training data". ``resident_bytes`` is how much may
    stay on each device (see `residence.fit_on_devices`); ``extent`` is how much of a stream a trial reads.
    Raises: DataError: if the data cannot be trained on. NotBegun: if the extent's stop file appears during the count.
    """
    try:
        if isinstance(data, tf.data.Dataset):
            data = from_dataset(data)
        if isinstance(data, Stream):
            from trainables.data.streams import StreamSplit

            return StreamSplit(data, replicas, extent)
        if isinstance(data, Buckets):
            return BucketSplit(data, replicas, resident_bytes)
        if isinstance(data, keras.utils.PyDataset):
            from trainables.data.batches import BatchSplit

            return BatchSplit(data, replicas)
        data = sources.normalize_examples(data)
        if isinstance(data, tuple):
            return ArraySplit(data, replicas, resident_bytes)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    raise DataError(f"{name}: {sources.explain_refusal(data)}")


LARGEST_BYTES = 2 * 2**30
BLOCK_BYTES = 64 * 2**20


def compute_fingerprint(*splits: Examples | None) -> str | None:
    """Return a hexadecimal digest of the examples, sizes and types of data sets; None if it would cost too much.

    It is None for arrays of more than 2 GiB together, streams of more than about 256 MiB or of unknown end, and rows
    that are decoded at each use. A data set that is None, such as missing validation data, also enters the digest.
    Raises: DataError: if a stream cannot be read.
    """
    content = hashlib.blake2b(digest_size=16)
    left_bytes = LARGEST_BYTES
    for data in splits:
        if data is None:
            content.update(b"none")
            continue
        content.update(f"{type(data).__name__} {data.size}".encode())
        for block in data.read_content():
            if block is None:
                return None
            for part in sources.list_content(block):
                left_bytes -= part.nbytes
                if left_bytes < 0:
                    return None
                content.update(f"{part.dtype} {part.shape}".encode())
                # A view costs no copy, but scalars and empty arrays have none.
                content.update(
                    part.view(np.uint8).data if part.ndim and part.size else part.tobytes()
                )
    return content.hexdigest()


def _read_array_blocks(leaves: Sequence[Any]) -> Iterator[np.ndarray[Any, Any] | None]:
    """Yield the rows of arrays in blocks of about 64 MiB.

    Yield only None if the arrays exceed 2 GiB together or one of them is no NumPy array.
    """
    size_bytes = 0
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            size_bytes += leaf.nbytes
        else:  # rows that are decoded at each use count as too large
            size_bytes += LARGEST_BYTES + 1
    if size_bytes > LARGEST_BYTES:
        yield None
        return
    for leaf in leaves:
        rows = max(BLOCK_BYTES // max(leaf.nbytes // len(leaf), 1), 1)
        for start in range(0, len(leaf), rows):
            yield np.ascontiguousarray(leaf[start : start + rows])
