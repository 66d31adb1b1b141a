"""Random numbers per example, the same whichever replica or micro-batch an example falls into."""

from __future__ import annotations

import tensorflow as tf


class Draws:
    """Counter-based draws for one slice of one global batch.

    Each call draws for the whole global batch from (trial seed, update, call) and keeps this slice's rows,
    so an example's draws do not depend on how the batch was cut (Salmon et al., Parallel Random Numbers: As
    Easy as 1, 2, 3).
    """

    def __init__(self, seed: tf.Tensor, update: tf.Tensor, size: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> None:
        self._seed = tf.cast(seed, tf.int32)
        self._update = tf.cast(update, tf.int32)
        self._size, self._start, self._stop = size, start, stop
        self._calls = 0

    def uniform(self, shape: tuple[int, ...] = (), low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Uniform float32 draws of shape ``(examples, *shape)`` in [low, high)."""
        full = [self._size, *shape]
        return tf.random.stateless_uniform(full, self._next(), low, high)[self._start : self._stop]

    def normal(self, shape: tuple[int, ...] = (), stddev: float = 1.0) -> tf.Tensor:
        """Normal float32 draws of shape ``(examples, *shape)`` around 0."""
        full = [self._size, *shape]
        return tf.random.stateless_normal(full, self._next(), 0.0, stddev)[self._start : self._stop]

    def _next(self) -> tf.Tensor:
        self._calls += 1
        # The update counts from 0 without bound, the calls within one are few: 64 of them never overlap.
        return tf.stack([self._seed, self._update * 64 + self._calls])
