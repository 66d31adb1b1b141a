"""Slices: the parts of a global batch that one replica computes at once, one for each micro-batch.

What Keras derives from "the batch" (a mean loss, a dropout mask) is derived here from the global batch, so results do
not depend on how it is cut. The current slice is thread-local, because TensorFlow traces each replica in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from trainables.data.share import compute_bounds
from trainables.devices.replicas import get_replica_index, sum_over_replicas
from trainables.numbers.draws import DrawnRows, Draws, drawing_rows

Seeds: TypeAlias = Literal["counted", "keras", "keyed"]
"""Source of the seeds of a slice's random draws.

"counted": Keras's generators, which advance only after the whole batch. "keras": the same generators, which advance at
each draw, as in Keras. "keyed": a key of the update.
"""

_present = threading.local()


@dataclass(eq=False)
class Mixture:
    """The two labels of each mixed example; ``share`` is the weight of the first label, one number per row."""

    own: tf.Tensor
    other: tf.Tensor
    share: tf.Tensor
    lost: bool = False  # True once a loss has used them


@dataclass(eq=False)
class Slice:
    """The rows from ``start`` to ``stop`` of a global batch of ``size``, computed at once.

    A slice is never empty, because kernels fail on empty batches (oneDNN's convolution returns another shape). If a
    batch has fewer examples than slices, one of its rows stands in: the slice is then not ``real`` and counts nowhere.
    """

    size: tf.Tensor
    start: tf.Tensor
    stop: tf.Tensor
    parts: int = 1  # number of slices of the batch
    real: tf.Tensor | None = None  # whether the rows are the slice's own; None if they always are
    own: tf.Tensor | None = None  # number of its own rows, 0 if a row stands in; None for all
    in_fit: bool = False  # True if Keras divides by the number of replicas and sums over them
    draws: Draws | None = None  # None if nothing is drawn for the slice
    seeds: Seeds = "counted"
    # sums of `counts` over the global batch, if counted beforehand
    totals: Mapping[str, tf.Tensor] | None = None
    # this slice's divisors of means, by loss
    counts: dict[str, tf.Tensor] = field(default_factory=dict)
    # each loss's part of its mean over the global batch
    losses: dict[str, tf.Tensor] = field(default_factory=dict)
    examples: list[tf.Tensor | None] | None = None  # each example's part of each loss, if requested
    mixes: bool = False  # True if its examples are mixed with others
    graph: Any = None  # the graph that computes it
    # (tensor that stands for the mixed labels, their mixture), by the id of the tensor
    mixtures: dict[int, tuple[tf.Tensor, Mixture]] = field(default_factory=dict)

    @classmethod
    def whole(cls, size: tf.Tensor, seeds: Seeds = "counted") -> Slice:
        """Return the slice that is the whole batch of ``size`` examples, without random draws until `draw` is called.

        ``seeds`` names the source of the seeds of its draws, see `Seeds`.
        """
        return cls(size, tf.constant(0), size, seeds=seeds)

    @property
    def count(self) -> tf.Tensor:
        """The number of examples in this slice; 0 if a row stands in."""
        if self.own is None:
            return self.stop - self.start
        return self.own

    @property
    def share(self) -> tf.Tensor:
        """The fraction of the global batch's examples that are in this slice, as float32; 0 if a row stands in."""
        return tf.cast(self.count, tf.float32) / tf.cast(self.size, tf.float32)

    def share_of(self, mean: Any) -> tf.Tensor:
        """Return this slice's contribution to a mean over the global batch, from its own mean; 0 if a row stands in."""
        return tf.where(self.count > 0, tf.cast(mean, tf.float32) * self.share, 0.0)

    def draw(self, seed: tf.Tensor, update: tf.Tensor, calls: int = 0) -> Draws:
        """Set and return the source of this slice's random draws in an update.

        Draws depend on the trial's ``seed``, the number of the ``update``, and a count of the draws, which starts at
        ``calls``. Call this before `entering`, which finds out for which rows to draw.
        """
        self.draws = Draws(seed, update, self.size, self.start, self.stop, calls)
        return self.draws

    def mixture(self, target: Any) -> Mixture | None:
        """Return the mixed labels that ``target``, a tensor of targets, stands for; None if it stands for none."""
        if id(target) not in self.mixtures:
            return None
        return self.mixtures[id(target)][1]

    def total(self, name: str, count: tf.Tensor) -> tf.Tensor:
        """Record ``count`` as this slice's count under ``name``, and return its sum over the global batch.

        The sum is taken from `totals` if they were counted beforehand (KeyError if ``name`` was not); otherwise, counts
        are summed over replicas, but not over micro-batches. A row that stands in for an empty slice counts as 0. No
        gradient flows through the counts.
        """
        if self.real is None:
            own = count
        else:
            own = tf.where(self.real, count, tf.zeros_like(count))
        count = self.counts[name] = tf.stop_gradient(own)
        if self.totals is not None:
            return self.totals[name]
        return sum_over_replicas([count])[0]


def cut(size: tf.Tensor, part: int, parts: int) -> Slice:
    """Return part number ``part``, from 0, of a batch of ``size`` examples that is cut into ``parts`` parts.

    The sizes of the parts differ by at most one. An empty part gets one row of the batch, which stands in, and is not
    ``real``.
    """
    if parts == 1:
        return Slice.whole(size)
    start, stop = compute_bounds(size, part, parts)
    first = tf.minimum(start, size - 1)
    return Slice(size, first, tf.maximum(stop, first + 1), parts, stop > start, stop - start)


def cut_for_replica(size: tf.Tensor, micro_batches: int) -> list[Slice]:
    """Return this replica's slices of a global batch, one per micro-batch, whose sizes differ by at most one.

    Micro-batches are the same parts of the global batch for any number of replicas.
    """
    replicas, replica = get_replica_index()
    pieces = []
    for i in range(micro_batches):
        pieces.append(cut(size, i * replicas + replica, replicas * micro_batches))
    return pieces


@contextmanager
def entering(piece: Slice) -> Iterator[Slice]:
    """Make ``piece`` the current slice of this thread inside the block, so that losses and random draws follow it.

    Random draws follow it only if `Slice.draw` was called before the block. Sets `Slice.graph` to the present graph.
    Yields ``piece``; afterwards, the previous slice, if any, is the current one again.
    """
    before = get_current_slice()
    piece.graph = tf.compat.v1.get_default_graph()
    _present.slice = piece
    try:
        with drawing_rows(_find_drawn_rows(piece)):
            yield piece
    finally:
        _present.slice = before


def _find_drawn_rows(piece: Slice) -> DrawnRows | None:
    """Return the rows of the batch for which a slice draws random numbers; None for all rows, or without draws.

    They are those of the slice or, if its draws are for certain rows only, the rows `Draws.places`.
    """
    draws = piece.draws
    if draws is None:
        return None
    if draws.places is not None:
        return DrawnRows(piece.size, piece.start, tf.size(draws.places), draws.places)
    if piece.stop is piece.size:  # the same tensor: made by `Slice.whole`
        return None
    return DrawnRows(piece.size, piece.start, piece.stop - piece.start)


def get_current_slice() -> Slice | None:
    """Return the slice that this thread computes now, set by `entering`; None outside of slices."""
    return getattr(_present, "slice", None)


@dataclass(frozen=True)
class Mode:
    """One way in which a program computes a slice, such as evaluation, to be tested by `additivity.check_parts`."""

    name: str  # in messages
    compute: Callable[[Any, tf.Tensor, Slice], Mapping[str, tf.Tensor]]
    """Update the metrics and return this slice's parts of mean values, for (examples, their positions, slice)."""
    training: bool = True
    calls: int = 0  # number of its first draw
    totals: tuple[str, ...] = ()  # losses whose divisors must be counted first
    told: str = (
        "{what} is not the mean over its examples: {whole:.6g} for {size} of them, {parts:.6g} as the mean "
        "of {count} parts, in {mode}"
    )
    hint: str = "Let losses and add_loss() average over the examples, or train in one part"
