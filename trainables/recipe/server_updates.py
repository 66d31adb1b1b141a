"""SGD and Adam where the weights lie: a worker sends gradients, and the servers compute what they change.

The numbers are those of Keras's optimizers, whose own code would fetch slots and weights to the worker and count
updates in a variable that asynchronous workers overwrite for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from trainables.devices import parameter_server
from trainables.recipe.refusals import Refused

KINDS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class Rule:
    """An optimizer in numbers; its slots are as many as it has ``slots``."""

    kind: str  # sgd, momentum, adam
    slots: tuple[str, ...]
    decay: float = 0.0  # times the rate, of the weights that decay
    beta: float = 0.0  # of the momentum
    nesterov: bool = False
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    @classmethod
    def of(cls, optimizer: keras.optimizers.Optimizer) -> Rule:
        """What an optimizer of Keras's does; raises Refused for one that has no rule here."""
        kinds, kind = keras.optimizers, type(optimizer)
        decay = float(optimizer.weight_decay or 0.0)
        if kind is kinds.SGD:
            momentum = float(optimizer.momentum)
            if not momentum:
                return cls("sgd", (), decay)
            return cls("momentum", ("momentum",), decay, beta=momentum, nesterov=bool(optimizer.nesterov))
        if kind in (kinds.Adam, kinds.AdamW) and not optimizer.amsgrad:
            return cls(
                *("adam", ("momentum", "velocity"), decay),
                beta_1=float(optimizer.beta_1),
                beta_2=float(optimizer.beta_2),
                epsilon=float(optimizer.epsilon),
            )
        name = f"{kind.__name__} with amsgrad" if getattr(optimizer, "amsgrad", False) else kind.__name__
        raise Refused(f"a parameter server updates weights by {', '.join(KINDS)}, and the optimizer is {name}")

    def change(
        self, gradient: tf.Tensor, slots: Sequence[tf.Tensor], rate: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """What to subtract from weights, and the new slots; ``number``: of the update, from 0."""
        match self.kind:
            case "sgd":
                return gradient * rate, []
            case "momentum":
                moved = slots[0] * self.beta - gradient * rate
                return -(moved * self.beta - gradient * rate) if self.nesterov else -moved, [moved]
            case _:
                count = tf.cast(number + 1, tf.float32)
                corrected = tf.sqrt(1 - tf.pow(self.beta_2, count)) / (1 - tf.pow(self.beta_1, count))
                first = slots[0] + (gradient - slots[0]) * (1 - self.beta_1)
                second = slots[1] + (tf.square(gradient) - slots[1]) * (1 - self.beta_2)
                return first * (rate * corrected) / (tf.sqrt(second) + self.epsilon), [first, second]


@dataclass
class Weight:
    """A variable on a server, and what its updates keep there."""

    variable: Any
    device: str
    rule: Rule
    lazy: bool = False  # an update touches the rows alone that have gradients
    decays: bool = False
    slots: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        def begin() -> tf.Tensor:
            return tf.zeros(self.variable.shape)

        self.slots = [parameter_server.variable_on(self.device, begin, trainable=False) for _ in self.rule.slots]

    def update(self, gradient: tf.Tensor | tf.IndexedSlices, rate: tf.Tensor, number: tf.Tensor) -> None:
        """Apply one gradient, in the graph of a worker; that of rows names each row once."""
        decay = self.rule.decay if self.decays else 0.0
        with tf.device(self.device):
            if isinstance(gradient, tf.IndexedSlices):
                if self.lazy or not (self.slots or decay):
                    self._update_rows(gradient, rate, number, decay)
                    return
                places, shape = tf.cast(gradient.indices, tf.int64)[:, None], self.variable.shape
                gradient = tf.scatter_nd(places, gradient.values, tf.constant(shape.as_list(), tf.int64))
            change, slots = self.rule.change(gradient, [slot.read_value() for slot in self.slots], rate, number)
            if decay:
                change += self.variable.read_value() * (rate * decay)
            for slot, value in zip(self.slots, slots, strict=True):
                slot.assign(value)
            self.variable.assign_sub(change)

    def _update_rows(self, gradient: tf.IndexedSlices, rate: tf.Tensor, number: tf.Tensor, decay: float) -> None:
        rows = gradient.indices
        before = [slot.sparse_read(rows) for slot in self.slots]
        change, slots = self.rule.change(gradient.values, before, rate, number)
        if decay:
            change += self.variable.sparse_read(rows) * (rate * decay)
        for slot, value in zip(self.slots, slots, strict=True):
            slot.scatter_update(tf.IndexedSlices(value, rows))
        self.variable.scatter_sub(tf.IndexedSlices(change, rows))


def of_each_row(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same gradient with each row once."""
    rows, places = tf.unique(tf.reshape(gradient.indices, [-1]))
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
