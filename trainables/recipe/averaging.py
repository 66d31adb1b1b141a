"""Exponential moving average of a model's weights, used for evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras
import tensorflow as tf

from trainables.devices.replicas import Replicas
from trainables.numbers.live import LiveNumber


class Average:
    """An exponential moving average of weights over the updates; create it under the strategy's scope.

    Source: Polyak & Juditsky, Acceleration of Stochastic Approximation by Averaging; exponential, as with Keras's
    ``ema_momentum``.
    """

    def __init__(
        self, weights: Sequence[keras.Variable], momentum: LiveNumber | float, replicas: Replicas
    ) -> None:
        self.weights = list(weights)
        self._momentum = momentum
        self.replicas = replicas
        self.variables = [
            tf.Variable(w.value, trainable=False, name=f"average_{i}")
            for i, w in enumerate(weights)
        ]
        self.started = tf.Variable(0.0, trainable=False, name="average_started")
        self._swap = tf.function(self._swap_all, autograph=False)

    @property
    def state(self) -> list[tf.Variable]:
        """The variables that a checkpoint must hold: the averages, and whether (or how often) they were updated."""
        return [*self.variables, self.started]

    def reset(self) -> None:
        """Set the average to the present weights; the next `update` replaces it by the weights of that time."""
        self.started.assign(0.0)
        for average, weight in zip(self.variables, self.weights, strict=True):
            average.assign(weight.value)

    def update(self) -> None:
        """Move the average towards the present weights; the first update, also that after `reset`, copies them.

        The average is multiplied by the momentum, and the weights by 1 minus the momentum. Called across replicas after
        each optimizer update.
        """
        # `started` is 0 at the first update, which thus copies the weights.
        momentum = tf.convert_to_tensor(self._momentum) * self.started
        self.started.assign(1.0)
        for average, weight in zip(self.variables, self.weights, strict=True):
            self.replicas.update_copies(
                average,
                lambda a, w, m: a.assign(a * tf.cast(m, a.dtype) + w * tf.cast(1 - m, a.dtype)),
                weight.value,
                momentum,
            )

    @contextmanager
    def swapping(self) -> Iterator[None]:
        """Exchange weights and averages inside the block, and exchange them again after it, even on errors.

        Values stay the same bit for bit. If the block assigns a value to a weight, the average keeps it, and the weight
        gets its own value back.
        """
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap_all(self) -> None:
        # the graph behind `_swap`
        for average, weight in zip(self.variables, self.weights, strict=True):
            held = tf.identity(average)
            # the average is read before the weight is written over it
            with tf.control_dependencies([held]):
                self.replicas.update_copies(average, lambda a, w: a.assign(w), weight.value)
                weight.value.assign(held)
