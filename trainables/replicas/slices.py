"""The part of a global batch that the present code computes: one replica's share of one micro-batch.

What Keras derives from "the batch" (a mean loss, a dropout mask) is derived here from the global batch, so that
it does not matter how the batch was cut. The slice is thread-local: TensorFlow traces each replica in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from trainables.data.share import bounds
from trainables.devices.replicas import here, sums
from trainables.numbers.draws import Draws, Rows, drawn_for

Seeds: TypeAlias = Literal["counted", "keras", "keyed"]
"""Where a slice's draws get their seeds: from Keras's generators, which stay as they are and are counted on when the
whole batch is done; from these as Keras does it, which each draw changes; from a key of the update."""

_present = threading.local()


@dataclass(eq=False)
class Mixture:
    """Labels that two examples have at once; ``share``: how much the first one's weigh, one number for each row."""

    own: tf.Tensor
    other: tf.Tensor
    share: tf.Tensor
    lost: bool = False  # whether a loss has weighed them


@dataclass(eq=False)
class Slice:
    """Rows ``start`` to ``stop`` of a global batch of ``size``.

    A slice is never empty, for kernels go wrong on empty batches (oneDNN's convolution returns another shape): where
    a batch has fewer examples than parts, one of its rows stands in, and is not ``real``: it counts nowhere.
    """

    size: tf.Tensor
    start: tf.Tensor
    stop: tf.Tensor
    parts: int = 1  # how many slices the batch is cut into
    real: tf.Tensor | None = None  # whether these rows are the slice's own; None: always
    own: tf.Tensor | None = None  # how many they are: 0 where a row stands in
    in_fit: bool = False  # whether Keras sums what the replicas compute, after a division by their number
    draws: Draws | None = None  # None: nothing is random (evaluation)
    seeds: Seeds = "counted"
    totals: Mapping[str, tf.Tensor] | None = None  # of the global batch, counted beforehand
    counts: dict[str, tf.Tensor] = field(default_factory=dict)  # of this slice
    losses: dict[str, tf.Tensor] = field(default_factory=dict)  # each loss's share of its global mean
    examples: list[tf.Tensor | None] | None = None  # what each adds to each loss, where that is asked for
    mixes: bool = False  # whether its examples are mixed with others
    graph: Any = None  # in which it is computed
    mixtures: dict[int, tuple[tf.Tensor, Mixture]] = field(default_factory=dict)  # by id, with what stands for them

    @classmethod
    def whole(cls, size: tf.Tensor, seeds: Seeds = "counted") -> Slice:
        """All of a batch."""
        return cls(size, tf.constant(0), size, seeds=seeds)

    @property
    def count(self) -> tf.Tensor:
        """Examples in this slice; 0 where a row stands in."""
        return self.stop - self.start if self.own is None else self.own

    @property
    def share(self) -> tf.Tensor:
        """Examples of this slice by those of the global batch."""
        return tf.cast(self.count, tf.float32) / tf.cast(self.size, tf.float32)

    def share_of(self, mean: Any) -> tf.Tensor:
        """What this slice's mean adds to that of the global batch; a row that stands in adds nothing."""
        return tf.where(self.count > 0, tf.cast(mean, tf.float32) * self.share, 0.0)

    def draw(self, seed: tf.Tensor, update: tf.Tensor, calls: int = 0) -> Draws:
        """Begin with the random numbers of an update of the global batch, and return them."""
        self.draws = Draws(seed, update, self.size, self.start, self.stop, calls)
        return self.draws

    def mixture(self, target: Any) -> Mixture | None:
        """What this tensor of targets stands for, where examples are mixed."""
        return self.mixtures[id(target)][1] if id(target) in self.mixtures else None

    def total(self, name: str, count: tf.Tensor) -> tf.Tensor:
        """The sum over the global batch of what each slice counts under ``name``."""
        own = count if self.real is None else tf.where(self.real, count, tf.zeros_like(count))
        count = self.counts[name] = tf.stop_gradient(own)
        if self.totals is not None:
            return self.totals[name]
        return sums([count])[0]


def cut(size: tf.Tensor, part: int, parts: int) -> Slice:
    """One of the parts of a global batch, which differ by one example at most."""
    if parts == 1:
        return Slice.whole(size)
    start, stop = bounds(size, part, parts)
    first = tf.minimum(start, size - 1)
    return Slice(size, first, tf.maximum(stop, first + 1), parts, stop > start, stop - start)


def cuts(size: tf.Tensor, micro_batches: int) -> list[Slice]:
    """This replica's slices of a global batch: one of each micro-batch, differing by one example at most.

    Micro-batches are the same parts of the global batch whatever the number of replicas.
    """
    replicas, replica = here()
    return [cut(size, i * replicas + replica, replicas * micro_batches) for i in range(micro_batches)]


@contextmanager
def entered(piece: Slice) -> Iterator[Slice]:
    """Compute this slice inside the block."""
    before, piece.graph = current(), tf.compat.v1.get_default_graph()
    _present.slice = piece
    try:
        with drawn_for(_rows(piece)):
            yield piece
    finally:
        _present.slice = before


def _rows(piece: Slice) -> Rows | None:
    """The rows that are drawn for; None for those of the whole batch."""
    draws = piece.draws
    if draws is None or (draws.places is None and piece.stop is piece.size):
        return None
    count = piece.stop - piece.start if draws.places is None else tf.size(draws.places)
    return Rows(piece.size, piece.start, count, draws.places)


def current() -> Slice | None:
    """The slice that is being computed, if any."""
    return getattr(_present, "slice", None)
