"""The way through training data, pass after pass, whatever the length of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sweep.hyperparameters import Hyperparameters
from trainables.data.ahead import Chunk, updates
from trainables.data.chunks import Split
from trainables.data.share import Share

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
        self, data: Split, batch_size: int, seed: int, steps: int | None = None, share: Share | None = None
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
    def of(cls, hp: Hyperparameters, data: Split, batch_size: int, seed: int, share: Share | None = None) -> Walk:
        """As ``steps_per_epoch`` says; raises ValueError or TypeError."""
        steps = hp.integer("steps_per_epoch", standard=True) if "steps_per_epoch" in hp else None
        return cls(data, batch_size, seed, steps, share)

    def epoch(self, number: int) -> Iterator[Chunk]:
        """The chunks of an epoch (from 1)."""
        update, last = (number - 1) * self.per_epoch, number * self.per_epoch
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

    split: Split
    batch_size: int
    steps: int | None = None  # None: all batches
    parts: int = 1
    share: Share | None = None
    as_trained: int | None = None  # the batch size of the training, where nobody has asked for this other one

    @classmethod
    def of(
        cls, hp: Hyperparameters, split: Split | None, batch_size: int, parts: int, share: Share | None = None
    ) -> HeldOut | None:
        """As ``validation_steps`` and ``validation_batch_size`` say; raises ValueError or TypeError."""
        size = hp.integer("validation_batch_size", max(batch_size, VALIDATION_BATCH), standard=True)
        asked = "validation_batch_size" in hp or "validation_steps" in hp
        steps = hp.integer("validation_steps", standard=True) if "validation_steps" in hp else None
        if split is None:
            return None
        if steps is not None and steps > (there := split.updates(size)):
            raise ValueError(
                f"validation_steps is {steps}, but the validation data are {there} batches of {size} "
                "(validation_batch_size); leave it out for all of them"
            )
        as_trained = None if asked or size == batch_size else batch_size
        return cls(split, size, steps, parts, share if parts == 1 else None, as_trained)

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

    def chunks(self) -> Iterator[Chunk]:
        """These batches, as they lie."""
        chunks = self.split.chunks(self.batch_size, None, 0, 0, self.share)
        return chunks if self.steps is None else first(chunks, self.batch_size, self.steps)


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
