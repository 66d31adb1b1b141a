"""Examples that are read one after the other, chunk by chunk, and whether they are the same ones each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sweep.contract import Assignment, NotBegun
from sweep.hyperparameters import Hyperparameters
from trainables.data import sources
from trainables.data.passes import (
    GATHER_ROWS,
    Ahead,
    Chunk,
    Examples,
    Order,
    Pass,
    batch_size_of,
    chunk_rows,
    held_out_size,
    in_order,
    placed,
    rows_of,
    updates,
)
from trainables.data.share import Mask, Share
from trainables.data.sources import MOST, DataError, Stream, Visits
from trainables.devices.replicas import Replicas
from trainables.numbers import draws


def uncertainty(dataset: tf.data.Dataset) -> str:
    """Why it may differ from pass to pass; nothing where it does not, as far as its parts tell.

    Draws of a map follow the seed under which `data` has run, but in parallel whichever element comes first takes them.
    """
    loose = dataset.options().deterministic is False
    for part in _parts(dataset):
        order = getattr(part, "_deterministic", None)
        if order is None:
            continue
        if order == "false" or (order == "default" and loose):
            return "a tf.data.Dataset hands on its elements as they come: deterministic=False"
        function = getattr(getattr(part, "_map_func", None), "function", None)
        if function is not None and any(kind in draws.RANDOM for kind, _ in draws.operations(function.graph)):
            return "a tf.data.Dataset draws in a map with num_parallel_calls; use tf.random.stateless_*, or augment()"
    return ""


def _parts(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    yield dataset
    for part in dataset._inputs():
        yield from _parts(part)


RANDOM = "is the dataset random?"
SOME = 1024  # examples that are counted between two looks at whether the trial is to end


@dataclass(frozen=True)
class Extent:
    """How much of a stream a trial reads."""

    examples: int | None = None  # at most, in all its epochs; None: passes, whose length must be known
    of_an_epoch: int | None = None
    stop_file: Path | None = None  # see `Assignment.stop_file`


def extent(hp: Hyperparameters, assignment: Assignment, replicas: int, *, training: bool) -> Extent:
    """Return how much of a trial's stream it reads: by ``steps_per_epoch``, or of validation ``validation_steps``."""
    if training and "steps_per_epoch" in hp:
        count = hp.integer("steps_per_epoch", standard=True) * batch_size_of(hp, replicas)
        return Extent(count * assignment.epochs, count, assignment.stop_file)
    if not training and "validation_steps" in hp:
        count = hp.integer("validation_steps", standard=True) * held_out_size(hp, batch_size_of(hp, replicas))
        return Extent(count, count, assignment.stop_file)
    return Extent(stop_file=assignment.stop_file)


ALL = Extent()


class StreamSplit(Examples):
    """Examples that come one after the other: a `tf.data.Dataset`, or record files."""

    def __init__(self, stream: Stream, replicas: Replicas, extent: Extent = ALL) -> None:
        if sources.lack_targets(stream.read(None, 0).element_spec):
            stream = stream.map(lambda x, *_: (x,))
        self._stream, self._replicas = stream, replicas
        sources.check_specs(stream.read(None, 0).element_spec)
        self.order, self.differs = stream.order, uncertainty(stream.read(None, 0))
        self._ordered = stream  # as `visit` has it
        self._seen = 0  # examples that are known to be there, where the stream was not counted to its end
        self.counted = stream.size is not None
        if stream.size is not None:
            self._take(stream.size)
        self.count(extent)

    def count(self, extent: Extent) -> None:
        """Count the examples, but no more of them than a trial reads: a stream may be endless.

        Raises DataError for none, and NotBegun where the trial is to end meanwhile.
        """
        if self.counted:
            return
        if self._stream.endless and extent.examples is None:
            raise DataError(
                "an endless dataset, expected one pass over its examples; use take(n), or say with steps_per_epoch (of "
                "validation data validation_steps) how many batches an epoch has"
            )
        if extent.examples is None or not (self._stream.endless or extent.examples <= self._seen):
            self._seen = _count(self._stream, extent)
            self.counted = extent.examples is None or self._seen < extent.examples
        if self.counted:
            self._take(self._seen)
        else:
            self._take(MOST, extent.of_an_epoch)

    def _take(self, size: int, at_once: int | None = None) -> None:
        """Be a stream of so many examples, of which at most ``at_once`` are read at once."""
        if not size:
            raise DataError("an empty dataset, expected at least one example")
        self.size, self._at_once = size, at_once
        self._ahead = Ahead(partial(_read, self._ordered, size, self._replicas, at_once))

    def visit(self, visits: Visits) -> None:
        """Go on in this order; raises DataError for a buffer where the stream has none that could be set."""
        if visits.buffer != self.visits.buffer:
            stream = self._stream
            if visits.buffer is not None:
                if stream.buffered is None:
                    raise DataError("shuffle_buffer is set, but the stream shuffles in its own way")
                stream = stream.buffered(visits.buffer)
            self._ordered = stream
            self._take(self.size, self._at_once)
        self.visits = visits

    @property
    def nbytes(self) -> int:
        """Bytes of all examples, as far as their shapes are known."""
        return self.size * _row_bytes(self._stream.read(None, 0))

    def blocks(self) -> Iterator[list[Any]]:
        """All examples as they lie, some at a time, their arrays flat."""
        with tf.device("/cpu:0"):
            batches = self._stream.read(None, 0).batch(GATHER_ROWS).as_numpy_iterator()
            while (arrays := _next(batches)) is not None:
                yield list(tf.nest.flatten(arrays))

    def examples(self, count: int) -> Any:
        """The first examples, at most this many; texts as a tensor."""
        found = next(iter(self._stream.read(None, 0).take(count).batch(count).as_numpy_iterator()))
        return tuple(tf.nest.map_structure(sources.as_tensor, found))

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        return self._ahead.chunks(which)


def _count(stream: Stream, extent: Extent) -> int:
    """Return the number of examples, or that of the extent where there are no fewer."""
    found = 0
    with tf.device("/cpu:0"):
        examples = iter(stream.ordered(None, 0).map(lambda *_: 0).batch(SOME))
    while extent.examples is None or found < extent.examples:
        if extent.stop_file is not None and extent.stop_file.exists():
            raise NotBegun("the examples of a stream are being counted")
        some = _next(examples)
        if some is None:
            return found
        found += len(some)
    return found


def _read(stream: Stream, size: int, replicas: Replicas, at_once: int | None, which: Pass) -> Iterator[Chunk]:
    if which.share is not None and which.share.local < which.share.replicas:
        yield from _read_share(stream, size, replicas, at_once, which, which.share)
        return
    batch_size = which.batch_size
    seen = which.skipped * batch_size
    with tf.device("/cpu:0"):
        dataset = stream.read(which.seed, which.number, seen)
        rows = min(chunk_rows(_row_bytes(dataset), batch_size), updates(at_once or size, batch_size) * batch_size)
        examples = iter(dataset.batch(rows))
    while (arrays := _next(examples)) is not None:
        seen += len(tf.nest.flatten(arrays)[0])
        if seen > size:
            break
        yield in_order(arrays, replicas, which)
    if seen != size:
        found = f"more than {size} examples" if seen > size else f"{seen} examples, expected {size}"
        raise DataError(f"a pass of {found} as counted; {RANDOM}")


def _read_share(
    stream: Stream, size: int, replicas: Replicas, at_once: int | None, which: Pass, share: Share
) -> Iterator[Chunk]:
    """As `_read`, of what this process needs."""
    batch_size = which.batch_size
    with tf.device("/cpu:0"):
        wanted = share.wanted(size, batch_size)
        dataset = stream.read(which.seed, which.number, which.skipped * batch_size, wanted)
        rows = min(chunk_rows(_row_bytes(dataset), batch_size), updates(at_once or size, batch_size) * batch_size)
        each = int(share.of_batches(rows, batch_size).sum())
        examples = iter(dataset.batch(each))
    for start in range(which.skipped * batch_size, size, rows):
        count = min(rows, size - start)
        arrays = _next(examples)
        found = 0 if arrays is None else len(tf.nest.flatten(arrays)[0])
        mine = share.of_batches(count, batch_size)
        expected = int(mine.sum())
        if found != expected:
            raise DataError(f"{found} examples of a part of a pass, expected {expected} as counted; {RANDOM}")
        yield placed(count, which, partial(_of_read, arrays, mine, not replicas.several_here), replicas)
    if _next(examples) is not None:
        raise DataError(f"a pass of more than {size} examples as counted; {RANDOM}")


def _of_read(arrays: Any, mine: Mask, whole: bool, places: Order) -> Any:
    """Examples at these places, of which those that are ``mine`` were read; ``whole``: it is all of them."""
    if not whole:
        return rows_of(arrays, (np.cumsum(mine, dtype=np.int32) - 1)[places])
    missing = len(places) - int(mine.sum())  # to be as long as on all processes
    if not missing:
        return arrays
    with tf.device("/cpu:0"):
        return tf.nest.map_structure(lambda leaf: tf.concat([leaf, tf.repeat(leaf[-1:], missing, 0)], 0), arrays)


def _row_bytes(dataset: tf.data.Dataset) -> int:
    specs = tf.nest.flatten(dataset.element_spec)
    return sum((spec.shape.num_elements() or 1024) * spec.dtype.size for spec in specs)


def _next(examples: Iterator[Any]) -> Any:
    try:
        return next(examples, None)
    except tf.errors.InvalidArgumentError as error:
        what = error.message.splitlines()[0]
        hint = "" if "assertion failed" in what else f"; {sources.PADDING}"
        raise DataError(f"the dataset cannot be read or batched: {what}{hint}") from error
