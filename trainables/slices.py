"""The part of a global batch that the present code computes: one replica's share of one micro-batch.

What Keras derives from "the batch" (a mean loss, a dropout mask) is derived here from the global batch, so that
it does not matter how the batch was cut. The slice is thread-local: TensorFlow traces each replica in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from trainables.draws import Draws

_present = threading.local()


@dataclass(eq=False)
class Slice:
    """Rows ``start`` to ``stop`` of a global batch of ``size``."""

    size: tf.Tensor
    start: tf.Tensor
    stop: tf.Tensor
    parts: int  # how many slices the batch is cut into
    draws: Draws | None = None  # None: nothing is random (evaluation)
    totals: Mapping[str, tf.Tensor] | None = None  # of the global batch, counted beforehand
    counts: dict[str, tf.Tensor] = field(default_factory=dict)  # of this slice
    losses: dict[str, tf.Tensor] = field(default_factory=dict)  # each loss's share of its global mean

    @property
    def count(self) -> tf.Tensor:
        """Examples in this slice; may be 0."""
        return self.stop - self.start

    @property
    def share(self) -> tf.Tensor:
        """Examples of this slice by those of the global batch."""
        return tf.cast(self.count, tf.float32) / tf.cast(self.size, tf.float32)

    def total(self, name: str, count: tf.Tensor) -> tf.Tensor:
        """The sum over the global batch of what each slice counts under ``name``."""
        count = self.counts[name] = tf.stop_gradient(count)
        if self.totals is not None:
            return self.totals[name]
        return sum_over_replicas([count])[0]


@contextmanager
def entered(cut: Slice) -> Iterator[Slice]:
    """Compute this slice inside the block."""
    before = current()
    _present.slice = cut
    try:
        yield cut
    finally:
        _present.slice = before


def current() -> Slice | None:
    """The slice that is being computed, if any."""
    return getattr(_present, "slice", None)


def sum_over_replicas(values: list[Any]) -> list[Any]:
    """Sums of values over all replicas; called on each of them."""
    context = tf.distribute.get_replica_context()
    if not values or context is None or context.num_replicas_in_sync == 1:
        return values
    return list(context.all_reduce(tf.distribute.ReduceOp.SUM, values))
