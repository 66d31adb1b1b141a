"""Examples that are read sequentially, in chunks, with checks that every pass has the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.contract import NotBegun
from trainables import tensorflow_private
from trainables.data import residence, sources
from trainables.data.passes import (
    GATHER_ROWS,
    Chunk,
    ChunkPrefetcher,
    Examples,
    Order,
    Pass,
    choose_chunk_rows,
    count_updates,
    make_chunk,
    place_chunk,
    select_rows,
)
from trainables.data.share import Mask, Share
from trainables.data.sources import ALL, MOST, DataError, Extent, Stream, Visits
from trainables.devices.replicas import Replicas
from trainables.numbers import draws


def find_nondeterminism(dataset: tf.data.Dataset) -> str:
    """Return the reason why a dataset may differ from pass to pass; "" if its pipeline shows none.

    Reasons are ``deterministic=False`` of a parallel operation, and random draws in a `map` with parallel calls. Such
    draws are fixed by the seed under which `data` ran, but the elements compete for them, so that one may get another
    draw in each pass.
    """
    unordered_by_default = dataset.options().deterministic is False
    for step in _walk_datasets(dataset):
        order = tensorflow_private.order_of(step)
        if order is None:  # not a parallel operation: its order is always the same
            continue
        if order == "false" or (order == "default" and unordered_by_default):
            return "a tf.data.Dataset hands on its elements as they come: deterministic=False"
        function = tensorflow_private.map_function(step)
        if function is not None and any(
            kind in draws.RANDOM for kind, _ in draws.list_operations(function.graph)
        ):
            return "a tf.data.Dataset draws in a map with num_parallel_calls; use tf.random.stateless_*, or augment()"
    return ""


def _walk_datasets(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yield a dataset and all datasets of its pipeline, the last step first."""
    yield dataset
    for part in tensorflow_private.dataset_inputs(dataset):
        yield from _walk_datasets(part)


RANDOM = "is the dataset random?"
# limit for a fingerprint; streams are decoded and mapped while they are read
LARGEST_STREAM_BYTES = 256 * 2**20
SOME = 1024  # examples counted between two checks of the stop file
MEASURED = 16  # examples whose mean size is measured if their element_spec does not give it


class StreamSplit(Examples):
    """Examples that are read sequentially, from a `tf.data.Dataset` or from record files."""

    streamed = True

    def __init__(self, stream: Stream, replicas: Replicas, extent: Extent = ALL) -> None:
        if sources.lacks_targets(stream.read(None, 0).element_spec):
            stream = stream.map(lambda x, *_: (x,))
        self._stream = stream
        self._replicas = replicas
        sources.check_specs(stream.read(None, 0).element_spec)
        self.order = stream.order
        self.differs = find_nondeterminism(stream.read(None, 0))
        self._example_bytes = _measure_example_bytes(stream)
        self._ordered = stream  # the stream with the shuffle buffer that `visit` has set
        # number of examples that `count` has found so far; stays 0 if the stream says its size
        self._found = 0
        self.counted = stream.size is not None
        if stream.size is not None:
            self._start_pass(stream.size)
        self.count(extent)

    def count(self, extent: Extent) -> None:
        """Count the examples of the stream, but no more than ``extent`` needs, because a stream may be endless.

        Sets `size`; if the end was not reached, to 2**31 - 1, and `counted` stays False. Nothing is read if the stream
        is known to be endless, or an earlier call has counted as many. Do nothing if the size is known.
        Raises: DataError: if the stream is empty or cannot be read, or is endless and the extent asks for whole passes.
        NotBegun: if the trial's stop file appears during the count.
        """
        if self.counted:
            return
        wanted = extent.examples  # None: all examples of the stream
        if self._stream.endless and wanted is None:
            raise DataError(
                "an endless dataset, expected one pass over its examples; use take(n), or say with steps_per_epoch (of "
                "validation data validation_steps) how many batches an epoch has"
            )
        # An endless stream has enough examples. So has one of which an earlier trial has counted as many.
        has_enough = wanted is not None and (self._stream.endless or wanted <= self._found)
        if not has_enough:
            self._found = _count_stream(self._stream, extent)
            # The count has reached the end of the stream if it found fewer examples than asked for.
            self.counted = wanted is None or self._found < wanted
        # `_start_pass` sets `size`.
        if self.counted:
            self._start_pass(self._found)
        else:
            # The end is unknown. No chunk has more examples than an epoch needs.
            self._start_pass(MOST, at_once=extent.of_an_epoch)

    def _start_pass(self, size: int, at_once: int | None = None) -> None:
        """Store the number of examples of a pass, and create the prefetcher that will read passes.

        ``at_once`` is the most examples of one chunk, rounded up to whole batches; None means as many as fit. What a
        former prefetcher has read ahead is discarded. Raises DataError if ``size`` is 0.
        """
        if not size:
            raise DataError("an empty dataset, expected at least one example")
        self.size, self._at_once = size, at_once
        self._ahead = ChunkPrefetcher(
            partial(_read_pass, self._ordered, size, self._replicas, at_once, self._example_bytes)
        )

    def visit(self, visits: Visits) -> None:
        """Set whether the following passes are shuffled, and the size of their shuffle buffer (None: the stream's own).

        With another buffer than before, what was read ahead is discarded.
        Raises: DataError: if a shuffle buffer is set, but the stream has a shuffle of its own.
        """
        if visits.buffer != self.visits.buffer:
            stream = self._stream
            if visits.buffer is not None:
                if stream.buffered is None:
                    raise DataError("shuffle_buffer is set, but the stream shuffles in its own way")
                stream = stream.buffered(visits.buffer)
            self._ordered = stream
            # the present prefetcher reads the former stream
            self._start_pass(self.size, self._at_once)
        self.visits = visits

    @property
    def nbytes(self) -> int:
        """The size of all examples in bytes, estimated from the first ones if they have unknown shapes or texts.

        If the stream was not counted to its end, it counts as 2**31 - 1 examples.
        """
        return self.size * self._example_bytes

    def read_content(self) -> Iterator[np.ndarray[Any, Any] | None]:
        """Yield the arrays of all examples, block by block; only None if they are estimated at more than 256 MiB.

        A stream that was not counted to its end counts as 2**31 - 1 examples, so it gives only None. Blocks and their
        arrays are those of `blocks`.
        Raises: DataError: if the stream cannot be read.
        """
        if self.nbytes > LARGEST_STREAM_BYTES:
            yield None
            return
        for arrays in self.blocks():
            yield from map(np.ascontiguousarray, arrays)

    def blocks(self) -> Iterator[list[Any]]:
        """Yield all examples in their original order, in blocks of at most 4096.

        Each block is a flat list with one NumPy array for each input, target and weight. An endless stream is read
        without end.
        Raises: DataError: if the stream cannot be read.
        """
        with tf.device("/cpu:0"):
            batches = self._stream.read(None, 0).batch(GATHER_ROWS).as_numpy_iterator()
            while (arrays := _read_next(batches)) is not None:
                yield list(tf.nest.flatten(arrays))

    def examples(self, count: int) -> Any:
        """Return the first examples, at most ``count``, as (x,), (x, y) or (x, y, sample_weight), in original order.

        They are NumPy arrays, but texts are a tensor.
        Raises: DataError: if they cannot be read, or differ in shape.
        """
        first = self._stream.read(None, 0).take(count).batch(count)
        rows = _read_next(first.as_numpy_iterator())
        return tuple(tf.nest.map_structure(sources.convert_texts, rows))

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        """Return the chunks of a pass, which a thread reads ahead."""
        return self._ahead.chunks(which)


def _count_stream(stream: Stream, extent: Extent) -> int:
    """Return the number of examples of a stream, which is read only until there are ``extent.examples`` of them.

    If that is None, it is read to its end. As it is read in blocks, the result may be up to 1,023 above this limit.
    Raises: NotBegun: if the extent's stop file appears during the count. DataError: if the stream cannot be read.
    """
    count = 0
    with tf.device("/cpu:0"):
        # Only the number matters: `maps` are not applied, and examples of any shape become zeros, to batch them.
        examples = iter(stream.ordered(None, 0).map(lambda *_: 0).batch(SOME))
    while extent.examples is None or count < extent.examples:
        if extent.stop_file is not None and extent.stop_file.exists():
            raise NotBegun("the examples of a stream are being counted")
        block = _read_next(examples)
        if block is None:
            return count
        count += len(block)
    return count


def _read_pass(
    stream: Stream,
    size: int,
    replicas: Replicas,
    at_once: int | None,
    example_bytes: int,
    which: Pass,
) -> Iterator[Chunk]:
    """Yield the chunks of a pass over a stream of ``size`` examples, with at most ``at_once`` examples in a chunk.

    ``which`` tells the pass, its batch size, and how many of its first batches are left out. ``at_once`` is rounded up
    to whole batches; None: as many as fit. ``example_bytes`` is the size of an example. If this process needs a part of
    each batch, only this part is kept, see `_read_share`.
    Raises: DataError: if the stream cannot be read, or, at the end, if the pass has not exactly ``size`` examples. The
    chunk that goes beyond ``size`` is not yielded.
    """
    if which.share is not None and which.share.local < which.share.replicas:
        yield from _read_share(stream, size, replicas, at_once, example_bytes, which, which.share)
        return
    batch_size = which.batch_size
    seen = which.skipped * batch_size
    with tf.device("/cpu:0"):
        dataset = stream.read(which.seed, which.number, seen)
        rows = min(
            choose_chunk_rows(example_bytes, batch_size),
            count_updates(at_once or size, batch_size) * batch_size,
        )
        examples = iter(dataset.batch(rows))
    while (arrays := _read_next(examples)) is not None:
        seen += len(tf.nest.flatten(arrays)[0])
        if seen > size:  # do not train on the surplus; the error follows below
            break
        yield make_chunk(arrays, replicas, which)
    if seen != size:
        if seen > size:
            found = f"more than {size} examples"
        else:
            found = f"{seen} examples, expected {size}"
        raise DataError(f"a pass of {found} as counted; {RANDOM}")


def _read_share(
    stream: Stream,
    size: int,
    replicas: Replicas,
    at_once: int | None,
    example_bytes: int,
    which: Pass,
    share: Share,
) -> Iterator[Chunk]:
    """Yield the chunks of a pass like `_read_pass`, but keep only the examples that this process needs.

    ``share`` says which they are.
    Raises: DataError: if the stream cannot be read, or a chunk or the pass has another number of examples than
    expected. A chunk with too few is not yielded.
    """
    batch_size = which.batch_size
    with tf.device("/cpu:0"):
        wanted = share.make_filter(size, batch_size)
        dataset = stream.read(which.seed, which.number, which.skipped * batch_size, wanted)
        rows = min(
            choose_chunk_rows(example_bytes, batch_size),
            count_updates(at_once or size, batch_size) * batch_size,
        )
        # the last chunk may have fewer
        kept_per_chunk = int(share.mask_batches(rows, batch_size).sum())
        examples = iter(dataset.batch(kept_per_chunk))
    for start in range(which.skipped * batch_size, size, rows):
        count = min(rows, size - start)  # examples of the chunk in all processes
        arrays = _read_next(examples)
        if arrays is None:
            found = 0
        else:
            found = len(tf.nest.flatten(arrays)[0])
        mine = share.mask_batches(count, batch_size)
        expected = int(mine.sum())
        if found != expected:
            raise DataError(
                f"{found} examples of a part of a pass, expected {expected} as counted; {RANDOM}"
            )
        yield place_chunk(
            count,
            which,
            partial(_select_read_rows, arrays, mine, not replicas.several_here),
            replicas,
        )
    if _read_next(examples) is not None:
        raise DataError(f"a pass of more than {size} examples as counted; {RANDOM}")


def _select_read_rows(arrays: Any, mine: Mask, whole: bool, places: Order) -> Any:
    """Return the examples at the positions ``places`` of a chunk, of which this process has read only a part.

    ``mine`` marks the positions that were read, and ``arrays`` holds a row for each marked position, in order. All of
    ``places`` must be marked. If ``whole`` is True, ``places`` must be all marked positions in order, followed by any
    number of repetitions of the last one. Then ``arrays`` are returned, with the last row repeated as often, because
    the arrays of all processes must be equally long. The caller sets ``whole`` if this process has one replica.
    """
    if not whole:
        # The cumulative sum numbers the marked positions, and so gives the row of `arrays` for each of them.
        return select_rows(arrays, (np.cumsum(mine, dtype=np.int32) - 1)[places])
    missing = len(places) - int(mine.sum())
    if not missing:
        return arrays

    def fill(leaf: tf.Tensor) -> tf.Tensor:
        return tf.concat([leaf, tf.repeat(leaf[-1:], missing, 0)], 0)

    with tf.device("/cpu:0"):
        return tf.nest.map_structure(fill, arrays)


def _measure_example_bytes(stream: Stream) -> int:
    """Return the size of an example in bytes.

    If examples have unknown shapes or texts, it is the mean size of the first 16, rounded down, or 0 if the stream is
    empty. Otherwise nothing is read.
    Raises: DataError: if the first examples cannot be read.
    """
    dataset = stream.read(None, 0)
    specs = tf.nest.flatten(dataset.element_spec)
    if all(spec.shape.is_fully_defined() and spec.dtype != tf.string for spec in specs):
        return sum(spec.shape.num_elements() * spec.dtype.size for spec in specs)
    with tf.device("/cpu:0"):
        examples = dataset.take(MEASURED).as_numpy_iterator()
    sizes = []
    while (example := _read_next(examples)) is not None:
        leaves = map(np.asarray, tf.nest.flatten(example))
        sizes.append(sum(map(residence.measure_bytes, leaves)))
    return sum(sizes) // max(len(sizes), 1)


def _read_next(examples: Iterator[Any]) -> Any:
    """Return the next of ``examples``, or None at the end.

    Raises DataError where the pipeline fails while it is read, such as by examples that cannot be batched.
    """
    try:
        return next(examples, None)
    except tf.errors.InvalidArgumentError as error:
        what = error.message.splitlines()[0]
        if "assertion failed" in what:  # such as that of class weights; shapes are not to blame
            hint = ""
        else:
            hint = f"; {sources.PADDING}"
        raise DataError(f"the dataset cannot be read or batched: {what}{hint}") from error
