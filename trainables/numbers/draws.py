"""Random numbers per example, the same whichever replica or micro-batch an example falls into."""

from __future__ import annotations

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
    ) -> None:
        self._seed = tf.cast(seed, tf.int32)
        self._update = tf.cast(update, tf.int32)
        self._size, self._start, self._stop = size, start, stop
        self._calls = calls

    def uniform(self, shape: tuple[int, ...] = (), low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Uniform float32 draws of shape ``(examples, *shape)`` in [low, high)."""
        return self._slice(tf.random.stateless_uniform([self._size, *shape], self.key(), low, high))

    def normal(self, shape: tuple[int, ...] = (), stddev: float = 1.0) -> tf.Tensor:
        """Normal float32 draws of shape ``(examples, *shape)`` around 0."""
        return self._slice(tf.random.stateless_normal([self._size, *shape], self.key(), 0.0, stddev))

    def _slice(self, full: tf.Tensor) -> tf.Tensor:
        return full[self._start : self._stop]

    def key(self) -> tf.Tensor:
        """The seed of the next draw, for `tf.random.stateless_*`: another one at each call."""
        self._calls += 1
        of_call = tf.random.fold_in(tf.stack([self._seed, self._calls]), 0)[0]
        return tf.stack([of_call, self._update])
