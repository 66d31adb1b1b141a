"""Random numbers per example, the same whichever replica or micro-batch an example falls into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import tensorflow as tf
from tensorflow.python.ops import gen_stateless_random_ops_v2

from trainables.numbers.drawn_rows import drawn_for, on_host
from trainables.numbers.xla_draws import PHILOX

EVALUATION = 2**20
"""Where the calls of an evaluation are counted from: its draws are others than those of training."""
Kind: TypeAlias = Literal["uniform", "normal"]


class Draws:
    """Counter-based draws for one slice of one global batch.

    The key is (trial seed, update), the counter (call, row of the global batch, element): an example's draws do not
    depend on how the batch was cut, and a slice draws its own rows alone (Salmon et al., Parallel Random Numbers: As
    Easy as 1, 2, 3). Calls are counted while the graph is traced: inside a `tf.while_loop`, one call gives the
    same numbers at each turn.
    """

    def __init__(
        self,
        seed: tf.Tensor,
        update: tf.Tensor,
        size: tf.Tensor,
        start: tf.Tensor,
        stop: tf.Tensor,
        calls: int = 0,
        places: tf.Tensor | None = None,
    ) -> None:
        """``places``: the rows of the global batch to draw for; by default those from ``start`` to ``stop``."""
        self._seed = tf.cast(seed, tf.int32)
        self._update = tf.cast(update, tf.int32)
        self._size, self._start, self._stop = size, start, stop
        self.calls = calls
        self.places = places
        self.seeds: dict[int, tuple[Any, int]] = {}  # the generators that were drawn from, by id, and how many times

    def uniform(self, shape: tuple[int, ...] = (), low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Uniform float32 draws of shape ``(examples, *shape)`` in [low, high)."""
        return self.rows("uniform", shape) * (high - low) + low

    def normal(self, shape: tuple[int, ...] = (), stddev: float = 1.0) -> tf.Tensor:
        """Normal float32 draws of shape ``(examples, *shape)`` around 0."""
        return self.rows("normal", shape) * stddev

    def rows(
        self, kind: Kind, shape: Sequence[Any], dtype: tf.DType = tf.float32, times: int | tf.Tensor = 1
    ) -> tf.Tensor:
        """Draws from [0, 1) or around 0, of shape ``(examples * times, *shape)``, whose sizes may be tensors."""
        self.calls += 1
        if self.places is None:
            return self._drawn(kind, self._start * times, (self._stop - self._start) * times, shape, dtype)
        full = self._drawn(kind, tf.constant(0), self._size * times, shape, dtype)
        apart = tf.reshape(full, [self._size, times, *shape])
        return tf.reshape(tf.gather(apart, self.places), [tf.size(self.places) * times, *shape])

    def _drawn(
        self, kind: Kind, first: tf.Tensor, count: tf.Tensor, shape: Sequence[Any], dtype: tf.DType
    ) -> tf.Tensor:
        """So many rows of the global batch from the first on; each begins with a counter, 16 bytes, of its own."""
        elements, each = 1, 4 if dtype.size <= 4 else 2
        for size in shape:
            elements = elements * size
        counters = -(-elements // each)
        with on_host():
            key = tf.bitcast(tf.stack([[self._update, self._seed]]), tf.uint64)
            skipped = tf.cast(tf.cast(first, tf.int64) * tf.cast(counters, tf.int64), tf.uint64)
            counter = tf.stack([skipped, tf.constant(self.calls, tf.uint64)])
        draw = getattr(gen_stateless_random_ops_v2, f"stateless_random_{kind}_v2")
        with drawn_for(None):
            found = draw([count, counters * each], key, counter, PHILOX, dtype)
        if not isinstance(elements, int) or elements != counters * each:
            found = found[:, :elements]
        return found if len(shape) == 1 else tf.reshape(found, [count, *shape])

    def beta(self, alpha: Any) -> tf.Tensor:
        """Float32 draws of shape ``(examples,)`` of Beta(alpha, alpha), for any alpha above 0, also a tensor.

        A ratio of two of Gamma(alpha), each Gamma(alpha + 1) times a power of a uniform one (Marsaglia and Tsang, A
        Simple Method for Generating Gamma Variables, section 6), in logarithms: those of a small alpha underflow.
        """
        alpha = tf.convert_to_tensor(alpha, tf.float32)

        def of_gamma() -> tf.Tensor:
            gamma = tf.random.stateless_gamma([self._size], self.key(), alpha + 1.0)
            return tf.math.log(gamma) + tf.math.log(1.0 - tf.random.stateless_uniform([self._size], self.key())) / alpha

        with drawn_for(None):
            return self._kept(tf.sigmoid(of_gamma() - of_gamma()))

    def partners(self) -> tf.Tensor:
        """A row of the global batch for each example: those of all examples are a permutation."""
        with drawn_for(None):
            uniform = tf.random.stateless_uniform([self._size], self.key(), alg="philox")
        # As int64, of which kernels of GPUs take and give what lies there.
        return self._kept(tf.cast(tf.argsort(uniform, stable=True), tf.int64))

    def key(self) -> tf.Tensor:
        """The seed of the next draw, for `tf.random.stateless_*`: another one at each call."""
        self.calls += 1
        with on_host():
            of_call = tf.random.fold_in(tf.stack([self._seed, self.calls]), 0, alg="philox")[0]
            return tf.stack([of_call, self._update])

    def follow(self, other: Draws) -> None:
        """Go on where another one of the same batch has ended."""
        self.calls, self.seeds = other.calls, dict(other.seeds)

    def from_call(self, calls: int) -> Draws:
        """Other draws for the same examples."""
        return Draws(self._seed, self._update, self._size, self._start, self._stop, calls, self.places)

    def at(self, places: tf.Tensor) -> Draws:
        """The draws that other rows of the global batch would have."""
        return Draws(self._seed, self._update, self._size, self._start, self._stop, self.calls, places)

    def _kept(self, full: tf.Tensor) -> tf.Tensor:
        return full[self._start : self._stop] if self.places is None else tf.gather(full, self.places)
