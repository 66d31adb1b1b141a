"""Random numbers per example, the same whichever replica or micro-batch an example falls into."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

EVALUATION = 2**20
"""Where the calls of an evaluation are counted from: its draws are others than those of training."""


class Draws:
    """Counter-based draws for one slice of one global batch.

    Each call draws for the whole global batch from (trial seed, update, call) and keeps this slice's rows,
    so an example's draws do not depend on how the batch was cut (Salmon et al., Parallel Random Numbers: As
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

    def uniform(self, shape: tuple[int, ...] = (), low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Uniform float32 draws of shape ``(examples, *shape)`` in [low, high)."""
        return self._kept(tf.random.stateless_uniform([self._size, *shape], self.key(), low, high))

    def normal(self, shape: tuple[int, ...] = (), stddev: float = 1.0) -> tf.Tensor:
        """Normal float32 draws of shape ``(examples, *shape)`` around 0."""
        return self._kept(tf.random.stateless_normal([self._size, *shape], self.key(), 0.0, stddev))

    def beta(self, alpha: Any) -> tf.Tensor:
        """Float32 draws of shape ``(examples,)`` of Beta(alpha, alpha), for any alpha above 0, also a tensor.

        A ratio of two of Gamma(alpha), each Gamma(alpha + 1) times a power of a uniform one (Marsaglia and Tsang, A
        Simple Method for Generating Gamma Variables, section 6), in logarithms: those of a small alpha underflow.
        """
        alpha = tf.convert_to_tensor(alpha, tf.float32)

        def of_gamma() -> tf.Tensor:
            gamma = tf.random.stateless_gamma([self._size], self.key(), alpha + 1.0)
            return tf.math.log(gamma) + tf.math.log(1.0 - tf.random.stateless_uniform([self._size], self.key())) / alpha

        return self._kept(tf.sigmoid(of_gamma() - of_gamma()))

    def partners(self) -> tf.Tensor:
        """A row of the global batch for each example: those of all examples are a permutation."""
        uniform = tf.random.stateless_uniform([self._size], self.key())
        return self._kept(tf.argsort(uniform, stable=True))

    def key(self) -> tf.Tensor:
        """The seed of the next draw, for `tf.random.stateless_*`: another one at each call."""
        self.calls += 1
        of_call = tf.random.fold_in(tf.stack([self._seed, self.calls]), 0)[0]
        return tf.stack([of_call, self._update])

    def from_call(self, calls: int) -> Draws:
        """Other draws for the same examples."""
        return Draws(self._seed, self._update, self._size, self._start, self._stop, calls, self.places)

    def at(self, places: tf.Tensor) -> Draws:
        """The draws that other rows of the global batch would have."""
        return Draws(self._seed, self._update, self._size, self._start, self._stop, self.calls, places)

    def _kept(self, full: tf.Tensor) -> tf.Tensor:
        return full[self._start : self._stop] if self.places is None else tf.gather(full, self.places)
