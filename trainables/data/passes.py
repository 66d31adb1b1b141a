"""A trial's passes over its examples, in chunks that are prepared ahead, divided into epochs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.data import residence
from trainables.data.share import Share
from trainables.data.sources import DataError, Extent, Visits
from trainables.devices.replicas import Replicas
from trainables.numbers import seeds

CHUNK_BYTES = 64 * 2**20
GATHER_ROWS = 4096
THREADED_BYTES, MANY_ROWS = 4 * 2**20, 256  # threads gain nothing with fewer bytes or smaller rows

Order: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int32]]"


@dataclass(frozen=True)
class Chunk:
    """Examples on the devices, and the order in which to visit them."""

    tensors: Any  # one value per replica under a mirrored strategy
    order: Order

    def places(self) -> tf.Tensor:
        """Return the order as a tensor for a graph, of type int64 because int32 arguments stay in the host's memory."""
        return tf.constant(self.order.astype(np.int64))


MOST_BATCHES = 2**30
"""Numbers of validation batches begin below it, so that they and those that follow have 32 bits."""


class Batches(NamedTuple):
    """Consecutive batches of a chunk, as arguments of a graph."""

    tensors: Any
    order: tf.Tensor  # rows of the chunk, in the order of visits
    count: tf.Tensor  # number of batches
    size: tf.Tensor  # number of examples of all batches but the last
    seed: tf.Tensor  # the trial's seed
    first: tf.Tensor  # number of the first batch, counted from the trial's beginning

    @classmethod
    def of(cls, chunk: Chunk, count: int, *, size: int, seed: int, first: int) -> Self:
        """Return the first ``count`` batches of a chunk as tensors.

        ``size`` is the batch size, ``seed`` the trial's seed, of which 31 bits are kept, and ``first`` the number of
        the first of the batches, counted from the trial's beginning. The result's ``order`` is that of the whole chunk.
        """
        return cls(
            chunk.tensors,
            chunk.places(),
            *map(tf.constant, (count, size, seeds.truncate_seed(seed), first)),
        )

    def rows(self, i: tf.Tensor) -> tf.Tensor:
        """Return the row numbers, within the chunk, of batch ``i`` (from 0 at the chunk's first batch).

        The last batch may have fewer. For use in a graph.
        """
        return self.order[i * self.size : (i + 1) * self.size]


@dataclass(frozen=True)
class Pass:
    """One pass over the examples of a data set, described by its seed, its number and its batch size."""

    batch_size: int
    seed: int | None  # None: the examples keep their original order
    number: int  # from 1
    skipped: int = 0  # number of batches left out at the beginning of the pass
    share: Share | None = None  # what this process needs of each batch; None: all of it


class ChunkPrefetcher:
    """Prepares the next chunk in a thread while the present one is used.

    At the end of a shuffled pass, it prepares the first chunk of the following pass. ``make`` returns the chunks of a
    pass. It must not refer to the data set that owns the prefetcher, because the reference cycle would keep the data in
    memory.
    """

    def __init__(self, make: Callable[[Pass], Iterator[Chunk]]) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(1, "data")
        # the following pass, if it was begun: see `_begin`
        self._begun: tuple[Pass, Iterator[Chunk], Future[Chunk | None]] | None = None

    def chunks(self, which: Pass) -> Iterator[Chunk]:
        """Yield the chunks of a pass, each prepared in a thread while the one before it is used.

        Waits for a chunk that is not ready. When a caller has read a shuffled pass to its end, the first chunk of the
        following pass is begun, and used if that pass is asked for next. An error of making a chunk is raised here.
        """
        _, chunks, coming = self._begin(which)
        self._begun = None
        while (chunk := coming.result()) is not None:  # None: there are no more
            coming = self._pool.submit(next, chunks, None)
            yield chunk
            del chunk  # large; do not keep it while waiting for the next one
        if which.seed is not None:
            self._begun = self._begin(replace(which, number=which.number + 1, skipped=0))

    def _begin(self, which: Pass) -> tuple[Pass, Iterator[Chunk], Future[Chunk | None]]:
        """Return a pass, its chunks and the future of the first one, which gives None if there is no chunk.

        It is the pass that was begun before, if that is this one; otherwise a thread begins with its first chunk.
        """
        if self._begun is not None and self._begun[0] == which:
            return self._begun
        self._begun = None  # the beginning of another pass, which will not be used
        chunks = self._make(which)
        return which, chunks, self._pool.submit(next, chunks, None)


def split_by_batch_size(chunks: Iterator[Chunk], batch_size: int) -> Iterator[Chunk]:
    """Split chunks so that all batches of a chunk have one size; a smaller batch at the end becomes a chunk of its own.

    Chunks without examples are dropped. Training in several processes needs this, because one collective sum supports
    only one shape.
    """
    for chunk in chunks:
        whole = len(chunk.order) // batch_size * batch_size
        for order in (chunk.order[:whole], chunk.order[whole:]):
            if len(order):
                yield Chunk(chunk.tensors, order)


def count_updates(size: int, batch_size: int) -> int:
    """Return the number of optimizer updates of one pass over ``size`` examples, including a last, smaller batch."""
    return -(-size // batch_size)


def choose_chunk_rows(row_bytes: int, batch_size: int) -> int:
    """Return the number of rows of a chunk of at most 64 MiB: a multiple of the batch size, but at least one batch."""
    return max(CHUNK_BYTES // max(row_bytes, 1) // batch_size, 1) * batch_size


def gather_array_rows(leaf: Any, rows: Order, threads: int | None = None) -> np.ndarray[Any, Any]:
    """Return an aligned copy of rows of an array, in the order of ``rows``.

    The array is read in ascending order, which suits memory maps and disks. At least 4 MiB of a NumPy array, and beyond
    256 rows at least about 16 KiB a row, are read by several ``threads`` (by default as many as the trial has CPUs);
    fewer bytes, smaller rows and other objects by one.
    """
    target = residence.allocate_aligned((len(rows), *leaf.shape[1:]), np.dtype(leaf.dtype))
    places = np.argsort(rows, kind="stable")  # positions in `target`, by ascending row of the array

    # Copies the rows of `step` positions, from `places[start]` on.
    def read(start: int, step: int = GATHER_ROWS) -> None:
        some = places[start : start + step]
        target[some] = leaf[rows[some]]

    if threads is None:
        threads = tf.config.threading.get_inter_op_parallelism_threads()
    large = target.nbytes >= THREADED_BYTES * max(1, len(rows) // MANY_ROWS)
    if threads > 1 and isinstance(leaf, np.ndarray) and large:
        step = min(-(-len(rows) // threads), GATHER_ROWS)
        with ThreadPoolExecutor(threads, "rows") as readers:
            # raises the first error
            list(readers.map(partial(read, step=step), range(0, len(rows), step)))
    else:
        list(map(read, range(0, len(rows), GATHER_ROWS)))
    return target


def place_chunk(size: int, which: Pass, read: Callable[[Order], Any], replicas: Replicas) -> Chunk:
    """Return a chunk of ``size`` examples on the devices, whose order of visits is the order in which they are read.

    ``read`` returns the examples at given positions (from 0), as newly made arrays that no other code uses. If
    ``which`` has a share, because this process needs only a part of each batch, only this part is read, and each device
    gets the examples that it computes. The order still has an entry for each of the ``size`` examples.
    """
    everything = np.arange(size, dtype=np.int32)
    share = which.share
    if share is None:
        tensors = residence.put_on_devices(read(everything), replicas, given_away=True)
        return Chunk(tensors, everything)
    if not replicas.several_here:  # one device: it gets what this process needs
        places, order = share.places(size, which.batch_size)
        tensors = residence.put_on_devices(read(places), replicas, given_away=True)
        return Chunk(tensors, order)
    places_by_replica, order = share.arrange_by_replica(size, which.batch_size)
    parts = [read(places) for places in places_by_replica]
    return Chunk(residence.put_per_device(parts, replicas), order)


def gather_chunk(arrays: Any, rows: Order, which: Pass, replicas: Replicas) -> Chunk:
    """Return a chunk with ``rows`` of arrays, copied to the devices; with a share in ``which``, only the share's rows.

    The first row must be the first of a batch.
    """

    def read(places: Order) -> Any:
        return tf.nest.map_structure(lambda leaf: gather_array_rows(leaf, rows[places]), arrays)

    return place_chunk(len(rows), which, read, replicas)


def make_chunk(arrays: Any, replicas: Replicas, which: Pass | None = None) -> Chunk:
    """Return a chunk with all rows of arrays on the devices, in their order.

    The tensors may share the memory of ``arrays``, which must not be changed afterwards. If this process has several
    replicas and ``which`` has a share, each replica gets only the rows that it computes; otherwise a share is ignored.
    """
    count = len(tf.nest.flatten(arrays)[0])
    if which is None or which.share is None or not replicas.several_here:
        return Chunk(
            residence.put_on_devices(arrays, replicas, given_away=True),
            np.arange(count, dtype=np.int32),
        )
    return place_chunk(count, which, lambda places: select_rows(arrays, places), replicas)


def select_rows(arrays: Any, places: Order) -> Any:
    """Return copies of the rows of arrays, or of tensors in the host's memory, at the positions ``places``.

    ``arrays`` may be nested; those of tensors are tensors, all others NumPy arrays.
    """

    def some(leaf: Any) -> Any:
        if isinstance(leaf, tf.Tensor):
            with tf.device("/cpu:0"):
                return tf.gather(leaf, places)
        return gather_array_rows(leaf, places)

    return tf.nest.map_structure(some, arrays)


def get_batch_specs(example: Any) -> Any:
    """Return the tensor specs of batches like the batch ``example``, but with any number of rows.

    They have its structure, and the types and other axes of its arrays.
    """

    def of(leaf: Any) -> tf.TensorSpec:
        return tf.TensorSpec([None, *leaf.shape[1:]], tf.as_dtype(leaf.dtype))

    return tf.nest.map_structure(of, example)


def unpack_example(example: Any) -> tuple[Any, Any, Any]:
    """Return (x, y, sample_weight) of a tuple of one to three entries, with None in place of missing ones."""
    x, y, sample_weight = (*example, None, None)[:3]
    return x, y, sample_weight


def gather_examples(tensors: Any, rows: tf.Tensor) -> tuple[Any, Any, Any]:
    """Return ``rows`` of the tensors (x,), (x, y) or (x, y, sample_weight) as (x, y, sample_weight), None if missing.

    For use in a graph.
    """
    return unpack_example(tf.nest.map_structure(lambda leaf: residence.gather(leaf, rows), tensors))


class Examples(ABC):
    """A training or validation data set, which each pass cuts into chunks; subclasses define how in `_pass`."""

    size: int  # number of examples
    changes_shape = False
    """True if the chunks of another data set with the same program may have other shapes."""
    shuffled = "the data are arrays, which are shuffled as a whole; leave it out"  # why it takes no shuffle buffer
    differs = ""  # why the data's elements may change from pass to pass
    order = ""
    """Name of the order of its passes, if that has changed: a checkpoint with another order cannot be continued."""
    streamed = False
    """True if its examples can only be read one after the other."""
    cut_by_author = False
    """True if it comes in batches that are not cut further."""
    counted = True
    """True if ``size`` is the number of examples; False if it is only an upper bound of what a trial visits."""
    visits = Visits()
    """The order of its passes, set by `visit`."""

    def visit(self, visits: Visits) -> None:
        """Set the order in which the following passes visit the examples: shuffled or not, and with which buffer.

        Raises: DataError: if a shuffle buffer is set and this kind of data has none.
        """
        if visits.buffer is not None:
            raise DataError(f"shuffle_buffer is set, but {self.shuffled}")
        self.visits = visits

    def check_batch_size(self, batch_size: int) -> None:  # noqa: B027  # others may have any size
        """Raise DataError if the author has cut the data into batches of another size than the trial's.

        Do nothing for data that the author has not cut into batches.
        """

    def count(self, extent: Extent) -> None:  # noqa: B027  # others know their size
        """Count the examples of a stream of unknown size, as far as a trial with this ``extent`` reads it.

        The stream is read for this, and the result stored in `size`. Do nothing for data of known size.
        """

    @abstractmethod
    def read_content(self) -> Iterator[np.ndarray[Any, Any] | None]:
        """Yield arrays that identify the data, such as its examples in blocks, for a fingerprint.

        Yield None in place of arrays that are too expensive to read.
        """

    def updates(self, batch_size: int) -> int:
        """Return the number of batches of a pass, including a last, smaller one."""
        return count_updates(self.size, batch_size)

    def count_equal_batches(self, large: int, small: int) -> tuple[int, int]:
        """Return how many batches of two sizes are needed so that both cover the same first examples.

        The first number counts batches of ``large`` examples, the second those of ``small``, a divisor of ``large``.
        Here, both cover the first ``large`` examples, or all if there are fewer. The numbers are equal if the two sizes
        cut no batch of this data differently.
        """
        return 1, count_updates(min(large, self.size), small)

    def list_chunk_kinds(self) -> list[Chunk]:
        """Return one chunk for each combination of shapes that a pass may contain, with which graphs are traced."""
        return [next(self.chunks(1, None, 0))]

    def example(self) -> Any:
        """Return the first example, as a batch of one: (x,), (x, y) or (x, y, sample_weight)."""
        return self.examples(1)

    @abstractmethod
    def examples(self, count: int) -> Any:
        """Return the first examples, at most ``count``, as a batch (x,), (x, y) or (x, y, sample_weight).

        Texts are converted to a tensor.
        """

    def spread_examples(self, count: int) -> Any:
        """Return at most ``count`` examples, from all over the data if that is cheap.

        Texts are converted to a tensor.
        """
        return self.examples(count)

    def some_targets(self) -> Any:
        """Return the targets of some of the first examples, at least one; None if there are no targets."""
        return unpack_example(self.example())[1]

    def chunks(
        self,
        batch_size: int,
        seed: int | None,
        number: int,
        skipped: int = 0,
        share: Share | None = None,
    ) -> Iterator[Chunk]:
        """Return an iterator over the chunks of pass ``number`` (from 1) without its first ``skipped`` batches.

        ``batch_size`` tells where the batches begin; it does not cut the chunks into batches. The order depends only on
        (seed, number); without a seed, or if shuffling is off, it is the original order. With a ``share``, data that is
        too large to stay on the devices is read only as far as this process needs it.
        """
        return self._pass(
            Pass(batch_size, seed if self.visits.shuffle else None, number, skipped, share)
        )

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        raise NotImplementedError  # not abstract: a source that comes in batches overrides `chunks` instead


VALIDATION_BATCH = 256


def may_split_chunks(hp: Hyperparameters) -> bool:
    """Return whether ``steps_per_epoch`` or ``validation_steps`` is set: epochs may then end within a chunk."""
    return "steps_per_epoch" in hp or "validation_steps" in hp


class Walk:
    """A trial's position in its training data, from which it reads one epoch after another.

    Each epoch has the same number of updates. Update u (from 0) belongs to pass u // `per_pass`. An epoch continues
    where the one before it stopped, in the same chunk. To start anywhere else, the data is read from that position. So
    an epoch has the same batches wherever the training starts.
    """

    def __init__(
        self,
        data: Examples,
        batch_size: int,
        seed: int,
        steps: int | None = None,
        share: Share | None = None,
    ) -> None:
        """Start before update 0; read nothing yet.

        ``seed`` orders the passes. ``steps`` is the number of updates per epoch; None for one pass per epoch. ``share``
        is the part of each batch that this process needs; None for all of it. `per_pass` and `per_epoch` are the
        numbers of updates of a pass and of an epoch.
        """
        self.data = data
        self.batch_size = batch_size
        self.seed = seed
        self.share = share
        self.per_pass = data.updates(batch_size)
        self.steps = steps
        if steps is None:
            self.per_epoch = self.per_pass
        else:
            self.per_epoch = steps
        self._next = 0  # number of the next update
        # the rest of the present chunk, if an epoch ended within it
        self._left_over: Chunk | None = None
        self._rest: Iterator[Chunk] = iter(())  # the further chunks of the present pass

    @classmethod
    def of(
        cls,
        hp: Hyperparameters,
        data: Examples,
        batch_size: int,
        seed: int,
        share: Share | None = None,
    ) -> Walk:
        """Return the walk of a trial, whose epochs are passes unless ``steps_per_epoch`` is set; read nothing yet.

        Raises: TypeError: if ``steps_per_epoch`` is not a whole number. ValueError: if it is out of bounds.
        """
        if "steps_per_epoch" in hp:
            steps = hp.integer("steps_per_epoch", standard=True)
        else:
            steps = None
        return cls(data, batch_size, seed, steps, share)

    def epoch(self, number: int) -> Iterator[Chunk]:
        """Yield the chunks of epoch ``number`` (from 1), the last one cut where the epoch ends.

        The position moves with each chunk. If the epoch does not begin at the position, the data is read anew from the
        epoch's first batch on. At the end of a pass, the first chunk of the next pass is prepared ahead.
        """
        update = self.first_update(number)
        last = self.first_update(number + 1)
        while update < last:
            present, self._left_over = self._left_over, None
            # the data continues elsewhere, or with a new pass
            if self._next != update or update % self.per_pass == 0:
                present = None
                self._rest = self._read_from(update)
            if present is None:
                present = next(self._rest)
            chunk, self._left_over = split_chunk(present, self.batch_size, last - update)
            update = self._next = update + count_updates(len(chunk.order), self.batch_size)
            yield chunk
            # large; the next one may be read while these are not needed any more
            del present, chunk
            if update % self.per_pass == 0:
                # runs to the end of the pass, where the next pass's first chunk is prepared
                next(self._rest, None)

    def first_update(self, epoch: int) -> int:
        """Return the number of the first update of ``epoch`` (from 1); updates count from 0 over the whole trial."""
        return (epoch - 1) * self.per_epoch

    def read_epoch_again(self, number: int) -> Iterator[Chunk]:
        """Yield the chunks of epoch ``number`` (from 1) from a separate reader, which leaves the position unchanged.

        Its batches are not cut into micro-batches.
        """
        share = self.share and self.share.without_micro_batches()
        return Walk(self.data, self.batch_size, self.seed, self.per_epoch, share).epoch(number)

    def offset_in_pass(self, epoch: int) -> int:
        """Return the number of batches between the beginning of a pass and the beginning of ``epoch`` (from 1).

        The pass is that in which the epoch begins. Epochs with the same offset have the same numbers of chunks, batches
        and examples.
        """
        return self.first_update(epoch) % self.per_pass

    def count_passes(self, epochs: int) -> float:
        """Return how many passes over the data ``epochs`` epochs make; a fraction if epochs are not whole passes."""
        return epochs * self.per_epoch / self.per_pass

    def _read_from(self, update: int) -> Iterator[Chunk]:
        """Return the chunks from update ``update`` (from 0) to the end of its pass."""
        number, skipped = divmod(update, self.per_pass)
        return self.data.chunks(self.batch_size, self.seed, number + 1, skipped, self.share)


@dataclass(frozen=True)
class HeldOut:
    """The validation data of a trial, or the first batches of it.

    ``parts`` is the number of parts into which each batch is cut; it is above 1 if a whole batch did not fit into
    memory. ``share`` is the part of each batch that this process needs (None: all of it).
    """

    split: Examples
    batch_size: int
    steps: int | None = None  # None: all batches
    parts: int = 1
    share: Share | None = None
    as_trained: int | None = None  # the training's batch size, if this one is larger by default

    @classmethod
    def of(
        cls,
        hp: Hyperparameters,
        split: Examples | None,
        batch_size: int,
        parts: int,
        share: Share | None = None,
    ) -> HeldOut | None:
        """Return the validation data of a trial, as ``validation_steps`` and ``validation_batch_size`` select it.

        ``split`` has all the validation data. ``batch_size`` is the training's; by default, validation has the same,
        but at least 256. ``parts`` is into how many parts each batch is cut; with several, ``share`` is ignored.
        Returns None if ``split`` is None, but checks the parameters.
        Raises: TypeError: if a parameter is not a whole number. ValueError: if one is out of bounds, or there are fewer
        batches than ``validation_steps``.
        """
        size = get_validation_batch_size(hp, batch_size)
        steps = None
        if "validation_steps" in hp:
            steps = hp.integer("validation_steps", standard=True)
        if split is None:
            return None
        if steps is not None:
            batches = split.updates(size)
            if steps > batches:
                raise ValueError(
                    f"validation_steps is {steps}, but the validation data are {batches} batches of {size} "
                    "(validation_batch_size); leave it out for all of them"
                )
        return replace(cls.all_of(hp, split, batch_size, parts, share), steps=steps)

    @classmethod
    def all_of(
        cls,
        hp: Hyperparameters,
        split: Examples,
        batch_size: int,
        parts: int,
        share: Share | None = None,
    ) -> HeldOut:
        """Return a data set, such as the test data, with all its batches, even if ``validation_steps`` is set.

        ``batch_size`` is the training's; ``validation_batch_size`` is by default the same, but at least 256. ``parts``
        is into how many parts each batch is cut; with several, ``share`` is ignored.
        Raises: TypeError: if ``validation_batch_size`` is not a whole number. ValueError: if it is out of bounds.
        """
        size = get_validation_batch_size(hp, batch_size)
        # Only a default may be replaced by the training's size (`in_training_batches`). `validation_steps` counts
        # batches of `size`, so that another size would select other examples.
        asked = "validation_batch_size" in hp or "validation_steps" in hp
        as_trained = None if asked or size == batch_size else batch_size
        return cls(
            split,
            size,
            parts=parts,
            share=share if parts == 1 else None,
            as_trained=as_trained,
        )

    @property
    def in_training_batches(self) -> HeldOut:
        """The same data in batches of the training's size, as `Model.fit` validates.

        Unchanged if ``validation_batch_size`` or ``validation_steps`` is set, or the sizes are the same.
        """
        if self.as_trained is None:
            return self
        return replace(self, batch_size=self.as_trained, as_trained=None)

    @property
    def part_size(self) -> int:
        """The number of examples evaluated at once: the batch size divided by `parts`, rounded down, but at least 1."""
        return max(self.batch_size // self.parts, 1)

    @property
    def size(self) -> int:
        """The number of examples; if the first batches are cut from several buckets, an upper bound."""
        if self.steps is None:
            return self.split.size
        return min(self.steps * self.batch_size, self.split.size)

    @property
    def updates(self) -> int:
        """The number of batches of `batch_size`, before they are cut into `parts`."""
        if self.steps is None:
            return self.split.updates(self.batch_size)
        return self.steps

    def first_batch(self, epoch: int) -> int:
        """Return the number of the first part that is evaluated after ``epoch``; random draws are seeded by it.

        A part is a batch of `part_size` examples. The number is ``epoch`` (from 1) times the number of parts of all the
        data, even if only the first `steps` batches are evaluated, modulo 2**30.
        """
        return epoch * self.split.updates(self.part_size) % MOST_BATCHES

    def chunks(self) -> Iterator[Chunk]:
        """Return an iterator over the chunks of the validation batches, unshuffled; only the first `steps` if set."""
        chunks = self.split.chunks(self.batch_size, None, 0, 0, self.share)
        if self.steps is None:
            return chunks
        return take_batches(chunks, self.batch_size, self.steps)


def get_batch_size(hp: Hyperparameters, replicas: int) -> int:
    """Return the global batch size: ``batch_size`` (default 32), or ``per_replica_batch_size`` times ``replicas``.

    ``replicas`` is the number of replicas in all processes.
    Raises: TypeError: if the value is not a whole number. ValueError: if it is out of bounds, or if both are set.
    """
    if "per_replica_batch_size" not in hp:
        return hp.integer("batch_size", 32, standard=True)
    if "batch_size" in hp:
        raise ValueError("batch_size and per_replica_batch_size are both set, expected one of them")
    return hp.integer("per_replica_batch_size", standard=True) * replicas


def get_validation_batch_size(hp: Hyperparameters, batch_size: int) -> int:
    """Return ``validation_batch_size``; by default the training's ``batch_size``, but at least 256.

    Raises: TypeError: if the hyperparameter is not a whole number. ValueError: if it is out of bounds.
    """
    return hp.integer("validation_batch_size", max(batch_size, VALIDATION_BATCH), standard=True)


def split_chunk(chunk: Chunk, batch_size: int, count: int) -> tuple[Chunk, Chunk | None]:
    """Split a chunk after its first ``count`` batches; return both parts, the second None if there is no rest.

    Both share the tensors of the chunk; a chunk without a rest is returned itself.
    """
    rows = count * batch_size
    if len(chunk.order) <= rows:
        return chunk, None
    return Chunk(chunk.tensors, chunk.order[:rows]), Chunk(chunk.tensors, chunk.order[rows:])


def take_batches(chunks: Iterator[Chunk], batch_size: int, count: int) -> Iterator[Chunk]:
    """Yield chunks with the first ``count`` batches of ``chunks``, and read no more of them; the last may be cut.

    Raises: RuntimeError: if there are fewer batches, after all of them were yielded.
    """
    while count:  # if `chunks` ends, Python turns the StopIteration of `next` into RuntimeError
        chunk, _ = split_chunk(next(chunks), batch_size, count)
        count -= count_updates(len(chunk.order), batch_size)
        yield chunk
