"""A trial's way through its examples: passes over a data set, cut into chunks that are made ahead, epoch by epoch."""

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
from trainables.data.sources import DataError, Visits
from trainables.devices.replicas import Replicas
from trainables.numbers import seeds

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


class Batches(NamedTuple):
    """Batches of a chunk one after the other, as arguments of a graph."""

    tensors: Any
    order: tf.Tensor  # of the chunk's rows
    count: tf.Tensor  # of batches
    size: tf.Tensor  # of each but the last
    seed: tf.Tensor  # of the trial
    first: tf.Tensor  # the number of the first batch, from the beginning of the trial

    @classmethod
    def of(cls, chunk: Chunk, count: int, *, size: int, seed: int, first: int) -> Self:
        """The first batches of a chunk."""
        return cls(chunk.tensors, chunk.places(), *map(tf.constant, (count, size, seeds.short(seed), first)))

    def rows(self, i: tf.Tensor) -> tf.Tensor:
        """Where the examples of a batch are in the chunk."""
        return self.order[i * self.size : (i + 1) * self.size]


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


def batch_specs(example: Any) -> Any:
    """The types of batches of such examples, of any size."""

    def of(leaf: Any) -> tf.TensorSpec:
        return tf.TensorSpec([None, *leaf.shape[1:]], tf.as_dtype(leaf.dtype))

    return tf.nest.map_structure(of, example)


def unpacked(example: Any) -> tuple[Any, Any, Any]:
    """x, y and sample_weight of some examples, None where there are none of these."""
    x, y, sample_weight = (*example, None, None)[:3]
    return x, y, sample_weight


def gather_examples(tensors: Any, rows: tf.Tensor) -> tuple[Any, Any, Any]:
    """Gather rows of (x,), (x, y) or (x, y, sample_weight); None for what there is not."""
    return unpacked(tf.nest.map_structure(lambda leaf: residence.gather(leaf, rows), tensors))


class Examples(ABC):
    """A data set, cut into the chunks of a pass; kinds of it say how in `_pass`."""

    size: int  # how many examples there are
    changes_shape = False
    """Whether the chunks of another data set with the same program may have other shapes."""
    shuffled = "the data are arrays, which are shuffled as a whole; leave it out"  # why it takes no buffer
    differs = ""  # why its elements may be others each time
    order = ""
    """How passes are ordered, where it was once another way: a checkpoint of that cannot go on."""
    counted = True
    """Whether ``size`` is the number of examples, and not merely above all that a trial visits."""
    visits = Visits()
    """In which order its passes go, see `visit`."""

    def visit(self, visits: Visits) -> None:
        """Go on in this order; raises DataError for a buffer where there is none that could be set."""
        if visits.buffer is not None:
            raise DataError(f"shuffle_buffer is set, but {self.shuffled}")
        self.visits = visits

    def updates(self, batch_size: int) -> int:
        """Batches of a pass."""
        return updates(self.size, batch_size)

    def steps_alike(self, large: int, small: int) -> tuple[int, int]:
        """How many batches of two sizes hold the same first examples as they lie, ``large`` a multiple of ``small``.

        As many where no batch of this data would be cut in another way.
        """
        return 1, updates(min(large, self.size), small)

    def kinds(self) -> list[Chunk]:
        """A chunk of each kind of shapes, as the loop will meet them."""
        return [next(self.chunks(1, None, 0))]

    def example(self) -> Any:
        """The first example, as a batch of one."""
        return self.examples(1)

    @abstractmethod
    def examples(self, count: int) -> Any:
        """The first examples, at most this many; texts as a tensor."""

    def spread(self, count: int) -> Any:
        """At most so many examples from all over the data, where that is cheap; texts as a tensor."""
        return self.examples(count)

    def some_targets(self) -> Any:
        """The targets of the first examples, some megabytes of them where that is cheap; None without targets."""
        return unpacked(self.example())[1]

    def chunks(
        self, batch_size: int, seed: int | None, number: int, skipped: int = 0, share: Share | None = None
    ) -> Iterator[Chunk]:
        """One pass (from 1) without its first ``skipped`` batches; without a seed, the examples as they lie.

        The order depends on (seed, number) alone. With a ``share``, what is too large to lie on the devices is read
        for that alone.
        """
        return self._pass(Pass(batch_size, seed if self.visits.shuffle else None, number, skipped, share))

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        raise NotImplementedError  # a source that is batched already has `chunks` of its own


VALIDATION_BATCH = 256


def comes_in_parts(hp: Hyperparameters) -> bool:
    """Whether epochs may begin and end within a chunk."""
    return "steps_per_epoch" in hp or "validation_steps" in hp


class Walk:
    """A trial's way through its training data, so many updates an epoch.

    Update u (from 0) belongs to pass u // `per_pass`. An epoch goes on where the one before it stopped, in the chunk
    that was begun; to any other place the data are wound forward. So an epoch is the same wherever it begins.
    """

    def __init__(
        self, data: Examples, batch_size: int, seed: int, steps: int | None = None, share: Share | None = None
    ) -> None:
        """``steps``: updates of an epoch; None: those of a pass. ``share``: what this process needs; None: all."""
        self.data, self.batch_size, self.seed, self.share = data, batch_size, seed, share
        self.per_pass = data.updates(batch_size)
        self.steps = steps
        self.per_epoch = self.per_pass if steps is None else steps
        self._next = 0  # the update that comes next in
        self._begun: Chunk | None = None  # what is left of a chunk, and in
        self._rest: Iterator[Chunk] = iter(())  # the rest of its pass

    @classmethod
    def of(cls, hp: Hyperparameters, data: Examples, batch_size: int, seed: int, share: Share | None = None) -> Walk:
        """As ``steps_per_epoch`` says; raises ValueError or TypeError."""
        steps = hp.integer("steps_per_epoch", standard=True) if "steps_per_epoch" in hp else None
        return cls(data, batch_size, seed, steps, share)

    def epoch(self, number: int) -> Iterator[Chunk]:
        """The chunks of an epoch (from 1)."""
        update, last = self.first_update(number), self.first_update(number + 1)
        while update < last:
            begun, self._begun = self._begun, None
            if self._next != update or update % self.per_pass == 0:
                begun, self._rest = None, self._from(update)
            chunk, self._begun = parted(begun or next(self._rest), self.batch_size, last - update)
            update = self._next = update + updates(len(chunk.order), self.batch_size)
            yield chunk
            del begun, chunk
            if update % self.per_pass == 0:
                next(self._rest, None)  # to its end: the first chunk of the next pass is made meanwhile

    def first_update(self, epoch: int) -> int:
        """The number of the first update of an epoch (from 1), from the beginning of the trial."""
        return (epoch - 1) * self.per_epoch

    def anew(self, number: int) -> Iterator[Chunk]:
        """The same chunks, read by themselves: whoever walks on is not disturbed. Their batches are not cut further."""
        share = self.share and self.share.whole()
        return Walk(self.data, self.batch_size, self.seed, self.per_epoch, share).epoch(number)

    def passes(self, epochs: int) -> float:
        """How many times so many epochs visit each example."""
        return epochs * self.per_epoch / self.per_pass

    def _from(self, update: int) -> Iterator[Chunk]:
        number, skipped = divmod(update, self.per_pass)
        return self.data.chunks(self.batch_size, self.seed, number + 1, skipped, self.share)


@dataclass(frozen=True)
class HeldOut:
    """The validation data of a trial, or their first batches.

    ``parts``: that each batch is cut into where it did not fit into memory. ``share``: what this process needs of each
    batch; None: all of it.
    """

    split: Examples
    batch_size: int
    steps: int | None = None  # None: all batches
    parts: int = 1
    share: Share | None = None
    as_trained: int | None = None  # the batch size of the training, where nobody has asked for this other one

    @classmethod
    def of(
        cls, hp: Hyperparameters, split: Examples | None, batch_size: int, parts: int, share: Share | None = None
    ) -> HeldOut | None:
        """As ``validation_steps`` and ``validation_batch_size`` say; raises ValueError or TypeError."""
        size = held_out_size(hp, batch_size)
        steps = hp.integer("validation_steps", standard=True) if "validation_steps" in hp else None
        if split is None:
            return None
        if steps is not None and steps > (there := split.updates(size)):
            raise ValueError(
                f"validation_steps is {steps}, but the validation data are {there} batches of {size} "
                "(validation_batch_size); leave it out for all of them"
            )
        return replace(cls.all_of(hp, split, batch_size, parts, share), steps=steps)

    @classmethod
    def all_of(
        cls, hp: Hyperparameters, split: Examples, batch_size: int, parts: int, share: Share | None = None
    ) -> HeldOut:
        """All batches, as of test data; raises ValueError or TypeError."""
        size = held_out_size(hp, batch_size)
        asked = "validation_batch_size" in hp or "validation_steps" in hp
        as_trained = None if asked or size == batch_size else batch_size
        return cls(split, size, None, parts, share if parts == 1 else None, as_trained)

    @property
    def in_training_batches(self) -> HeldOut:
        """The same data in batches of the training's size, as `Model.fit` validates."""
        return self if self.as_trained is None else replace(self, batch_size=self.as_trained, as_trained=None)

    @property
    def part_size(self) -> int:
        """Examples that are evaluated at once."""
        return max(self.batch_size // self.parts, 1)

    @property
    def size(self) -> int:
        """Examples; where the first batches are cut from several buckets, at most so many."""
        return self.split.size if self.steps is None else min(self.steps * self.batch_size, self.split.size)

    @property
    def updates(self) -> int:
        """How many batches."""
        return self.split.updates(self.batch_size) if self.steps is None else self.steps

    def first_batch(self, epoch: int) -> int:
        """The number of the first part that is evaluated after an epoch, which its draws follow."""
        return epoch * self.split.updates(self.part_size)

    def chunks(self) -> Iterator[Chunk]:
        """These batches, as they lie."""
        chunks = self.split.chunks(self.batch_size, None, 0, 0, self.share)
        return chunks if self.steps is None else first(chunks, self.batch_size, self.steps)


def batch_size_of(hp: Hyperparameters, replicas: int) -> int:
    """The global batch size: ``batch_size``, or ``per_replica_batch_size`` times the replicas; raises ValueError."""
    if "per_replica_batch_size" not in hp:
        return hp.integer("batch_size", 32, standard=True)
    if "batch_size" in hp:
        raise ValueError("batch_size and per_replica_batch_size are both set, expected one of them")
    return hp.integer("per_replica_batch_size", standard=True) * replicas


def held_out_size(hp: Hyperparameters, batch_size: int) -> int:
    """Examples that are evaluated at once: ``validation_batch_size``; raises ValueError."""
    return hp.integer("validation_batch_size", max(batch_size, VALIDATION_BATCH), standard=True)


def parted(chunk: Chunk, batch_size: int, count: int) -> tuple[Chunk, Chunk | None]:
    """The first batches of a chunk, and what is left of it."""
    rows = count * batch_size
    if len(chunk.order) <= rows:
        return chunk, None
    return Chunk(chunk.tensors, chunk.order[:rows]), Chunk(chunk.tensors, chunk.order[rows:])


def first(chunks: Iterator[Chunk], batch_size: int, count: int) -> Iterator[Chunk]:
    """The first batches of these chunks."""
    while count:
        chunk, _ = parted(next(chunks), batch_size, count)
        count -= updates(len(chunk.order), batch_size)
        yield chunk
