"""Batches that are read by index from a `keras.utils.PyDataset`, with threads or processes as it asks."""

from __future__ import annotations

import copy
import hashlib
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainables.data import residence, sources
from trainables.data.passes import (
    Chunk,
    Examples,
    Pass,
    count_updates,
    gather_chunk,
    make_chunk,
    unpack_example,
)
from trainables.data.share import Share
from trainables.data.sources import DataError, mix_seeds, permutation
from trainables.devices.replicas import Replicas
from trainables.numbers.seeds import seeding_python_and_numpy

BEGIN = 1
"""Mixed into the seed of a pass where ``on_epoch_begin`` is called, so that it draws other numbers than the end."""


class BatchSplit(Examples):
    """A data set made of the batches of a `PyDataset`; the order of each pass is drawn from (seed, pass).

    All batches are read once when it is created, to count the examples. If ``on_epoch_begin`` or ``on_epoch_end``
    changes the data set, each pass reads a copy of the original one, on which they were called as in `Model.fit` with
    `random` and `np.random` seeded from (seed, pass). So a pass does not depend on the passes that were read before it.
    Raises: DataError: if there are no batches, infinitely many, or batch 0 differs when it is read again.
    """

    changes_shape = True
    cut_by_author = True
    shuffled = "the batches of a PyDataset are visited in an order of their own; leave it out"

    def __init__(self, dataset: keras.utils.PyDataset, replicas: Replicas) -> None:
        self._replicas = replicas
        self._reader = BatchReader(dataset)
        count = dataset.num_batches
        if not count:
            raise DataError(
                f"a PyDataset of {'endless' if count is None else 'no'} batches, expected a number above 0"
            )
        # All batches are read: for their numbers of examples, the first one of each kind, and a digest of all.
        self._sizes: list[int] = []
        kinds: dict[str, Any] = {}
        content = hashlib.blake2b(digest_size=16)
        with seeding_python_and_numpy(0):  # so that the digest is the same in another process
            for batch in self._reader.batches(range(count)):
                leaves = tf.nest.flatten(batch)
                self._sizes.append(len(leaves[0]))
                kinds.setdefault(str([(leaf.shape, leaf.dtype) for leaf in leaves]), batch)
                for leaf in leaves:
                    content.update(f"{leaf.dtype} {leaf.shape}".encode())
                    for part in sources.list_content(leaf):
                        content.update(np.ascontiguousarray(part).tobytes())
        self._kinds = list(kinds.values())
        # another seed: a batch that draws differs from the first reading
        with seeding_python_and_numpy(1):
            again = _convert_batch(dataset[0])
        if not all(map(np.array_equal, tf.nest.flatten(self._kinds[0]), tf.nest.flatten(again))):
            raise DataError(
                "batch 0 of the PyDataset is another one when it is asked again; draw in augment() instead"
            )
        self.digest = content.digest()
        self.size = sum(self._sizes)

    def check_batch_size(self, batch_size: int) -> None:
        """Raise DataError if the largest batch does not have ``batch_size`` examples; smaller ones may have any number.

        A data set of a single batch may have fewer.
        """
        largest = max(self._sizes)
        if (largest != batch_size and len(self._sizes) > 1) or largest > batch_size:
            raise DataError(
                f"training data: a PyDataset with batches of {largest}, the batch size is {batch_size}; make them of "
                'hp.integer("batch_size", 32) examples'
            )

    def read_content(self) -> Iterator[np.ndarray[Any, Any] | None]:
        """Yield one array: the digest of all batches, computed when the data set was created. Reads no batch again."""
        yield np.frombuffer(self.digest, np.uint8)

    def updates(self, batch_size: int) -> int:
        """Return the number of optimizer updates of a pass.

        A batch of more than ``batch_size`` examples is cut, and counts as several updates.
        """
        return sum(count_updates(size, batch_size) for size in self._sizes)

    def count_equal_batches(self, large: int, small: int) -> tuple[int, int]:
        """Return into how many parts the first batch of the data set is cut by each of two batch sizes.

        The first number is for parts of ``large`` examples, the second for parts of ``small`` examples instead. The
        last part may be smaller than the others, and counts as one. If the numbers are equal, both sizes cut alike.
        """
        return count_updates(self._sizes[0], large), count_updates(self._sizes[0], small)

    def list_chunk_kinds(self) -> list[Chunk]:
        """Return one chunk for each combination of shapes and types of a batch that the data set had when created.

        If replicas span processes, a chunk of a single row is added, because chunks are then split further. Graphs are
        traced with these chunks.
        """
        kinds = [*self._kinds]
        if self._replicas.span_processes:
            kinds.append(
                tf.nest.map_structure(lambda leaf: _copy_aligned(leaf[:1]), self._kinds[0])
            )
        return [make_chunk(batch, self._replicas) for batch in kinds]

    def examples(self, count: int) -> Any:
        """Return the first ``count`` examples as (x,), (x, y) or (x, y, sample_weight), at most those of batch 0.

        Texts are converted to a tensor.
        """
        return tf.nest.map_structure(
            lambda leaf: sources.convert_texts(leaf[:count]), self._kinds[0]
        )

    def some_targets(self) -> Any:
        """Return all targets of batch 0; None if there are no targets."""
        return unpack_example(self._kinds[0])[1]

    def chunks(
        self,
        batch_size: int,
        seed: int | None,
        number: int,
        skipped: int = 0,
        share: Share | None = None,
    ) -> Iterator[Chunk]:
        """Yield the batches of pass ``number`` (from 1) without the first ``skipped`` ones, each as one chunk.

        Without ``seed``, batches have their original order, and neither `on_epoch_begin` nor `on_epoch_end` is called.
        With a seed and shuffling off, the order is the original one as well, but they are called. ``batch_size`` does
        not cut batches. Every process reads whole batches. With a ``share``, only this part of each batch is put on the
        devices.
        Raises: DataError: if a batch cannot be trained on.
        """
        which = Pass(batch_size, seed if self.visits.shuffle else None, number, skipped, share)
        order = permutation(len(self._sizes), which.seed, number)[skipped:]
        for batch in self._reader.batches(order, seed, number):
            if share is None:
                yield make_chunk(batch, self._replicas)
                continue
            size = len(tf.nest.flatten(batch)[0])
            rows = np.arange(size, dtype=np.int32)  # all, of which `which` takes the share
            yield gather_chunk(batch, rows, which, self._replicas)


class RepeatableDataset:
    """A `PyDataset` that can be brought into the state of any pass.

    To do so, ``on_epoch_begin`` and ``on_epoch_end`` are called again on a copy of it.
    """

    def __init__(self, dataset: keras.utils.PyDataset) -> None:
        plain = keras.utils.PyDataset
        self.changes_itself = any(
            getattr(type(dataset), name) is not getattr(plain, name)
            for name in ("on_epoch_begin", "on_epoch_end")
        )
        self.given = dataset
        # a copy, on which the methods were called for so many passes with this seed; None: there is no copy
        self._copy: Any = None
        self._copy_seed: int | None = None
        self._passes_begun = 0

    def advance_to(self, seed: int | None, number: int) -> keras.utils.PyDataset:
        """Return the data set in the state that it has at the beginning of pass ``number`` (from 1).

        As in `Model.fit`, ``on_epoch_begin`` is called as each pass begins, and ``on_epoch_end`` as each one before it
        ends. These calls draw from `random` and `np.random` seeded by (seed, pass). The result is a copy, which the
        next call advances if it asks for the same seed and no earlier pass; otherwise that begins with a new copy. If
        ``seed`` is None or the author defines neither method, return the original data set.
        """
        if seed is None or not self.changes_itself:
            return self.given
        dataset, begun = self._copy, self._passes_begun
        if self._copy_seed != seed or begun > number:  # it cannot go back
            dataset = copy.deepcopy(self.given)
            begun = 0
        # if a call raises an error, the copy is in no state that is known
        self._copy, self._copy_seed = None, None
        for present in range(begun + 1, number + 1):
            if present > 1:
                with seeding_python_and_numpy(mix_seeds(seed, present - 1)):
                    dataset.on_epoch_end()
            # another seed than at its end, or both would draw the same
            with seeding_python_and_numpy(mix_seeds(mix_seeds(seed, present), BEGIN)):
                dataset.on_epoch_begin()
        self._copy, self._copy_seed, self._passes_begun = dataset, seed, number
        return dataset


class BatchReader:
    """Reads the batches of a `PyDataset` in the state that it has in any pass.

    If the data set has several `workers` or uses multiprocessing, a pool of threads or processes reads batches ahead.
    """

    def __init__(self, dataset: keras.utils.PyDataset) -> None:
        self._dataset = RepeatableDataset(dataset)
        self._pool: Executor | None = None

    def batches(self, numbers: Any, seed: int | None = None, number: int = 0) -> Iterator[Any]:
        """Yield the batches with the indices ``numbers`` in pass ``number`` (from 1), in this order.

        A batch is a tuple (x,), (x, y) or (x, y, sample_weight) of copied arrays. If ``seed`` is None, they are the
        batches of the original data set, whatever ``number`` is. Several workers read some batches ahead; their pool is
        made at the first need and kept.
        Raises: DataError: if a batch has another form, or arrays that cannot be trained on.
        """
        given = self._dataset.given
        if given.use_multiprocessing:  # each process advances its own copy
            read: Callable[[int], Any] = partial(_read_stored_batch, seed, number)
        else:
            read = self._dataset.advance_to(seed, number).__getitem__
        if given.workers <= 1 and not given.use_multiprocessing:
            yield from (_convert_batch(read(int(index))) for index in numbers)
            return
        self._pool = self._pool or _create_pool(given)
        coming: deque[Future[Any]] = deque()  # batches that are being read, in order
        for index in numbers:
            coming.append(self._pool.submit(read, int(index)))
            if len(coming) > max(given.max_queue_size, given.workers):
                yield _convert_batch(coming.popleft().result())
        yield from (_convert_batch(future.result()) for future in coming)


def _create_pool(dataset: keras.utils.PyDataset) -> Executor:
    """Return a new pool of threads or, if the data set uses multiprocessing, of processes that each have a copy of it.

    It has as many as the data set's ``workers``, and at least one process.
    """
    if not dataset.use_multiprocessing:
        return ThreadPoolExecutor(dataset.workers, "batches")
    # a fork of a process that runs TensorFlow may hang
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max(dataset.workers, 1), context, _store_dataset, (dataset,))


# the data set of a pool's process, set by `_store_dataset`
_stored_datasets: list[RepeatableDataset] = []


def _store_dataset(dataset: keras.utils.PyDataset) -> None:
    """Store the data set in this process of a pool, in place of any other one, for `_read_stored_batch`."""
    _stored_datasets[:] = [RepeatableDataset(dataset)]


def _read_stored_batch(seed: int | None, pass_number: int, place: int) -> Any:
    """Return the batch with the index ``place`` in pass ``pass_number``, from the data set stored in this process.

    Its state is that of `RepeatableDataset.advance_to`, with the same ``seed``.
    """
    return _stored_datasets[0].advance_to(seed, pass_number)[place]


def _convert_batch(batch: Any) -> Any:
    """Return a batch of a `PyDataset` as a tuple (x,), (x, y) or (x, y, sample_weight) of copied arrays.

    A list counts as a tuple. Raises DataError for any other form, and for arrays that cannot be trained on.
    """
    examples = sources.normalize_examples(tuple(batch) if isinstance(batch, list) else batch)
    if type(examples) is not tuple:
        raise DataError(
            f"a PyDataset of {type(batch).__name__}, expected batches (x,), (x, y) or (x, y, sample_weight)"
        )
    return tf.nest.map_structure(_copy_aligned, sources.convert_arrays(examples))


def _copy_aligned(leaf: Any) -> Any:
    """Return a copy of an array in memory aligned for devices, because the data set may reuse the memory of a batch."""
    own = residence.allocate_aligned(leaf.shape, leaf.dtype)
    own[...] = leaf
    return own
