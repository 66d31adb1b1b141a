"""The replicas of a model: all that the training asks of `tf.distribute` once its devices are placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from trainables.numbers.draws import CannotCompile, is_compiling

MEET = "replicas sum up while they compute gradients (batch statistics, masked or weighted means)"

BUCKET = 32 * 2**20
"""Bytes of gradients that are summed at a time, while others are still computed."""

Rows: TypeAlias = tuple[Any, Any, Any]
"""The values, indices and shape of a gradient of rows."""


class Replicas:
    """The replicas under a strategy, seen from outside of them: what all of them do, and hold.

    A function that `run` calls is on one of them: there, `here`, `sums`, `gathered` and `of_each_replica` apply.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        self.number = int(strategy.num_replicas_in_sync)  # in all processes together
        self.on_servers = isinstance(strategy, tf.distribute.ParameterServerStrategy)
        self.devices: tuple[str, ...] = ("/cpu:0",)  # of this process; a parameter server's workers are sent batches
        if not self.on_servers:
            self.devices = tuple(strategy.extended.worker_devices)

    @property
    def on_gpu(self) -> bool:
        """Whether they compute on GPUs."""
        return "GPU" in self.devices[0].upper()

    @property
    def on_cpu(self) -> bool:
        """Whether they compute on CPUs."""
        return "CPU" in self.devices[0].upper()

    @property
    def several_here(self) -> bool:
        """Whether this process has several of them, of which each may have rows of its own."""
        return len(self.devices) > 1

    @property
    def span_processes(self) -> bool:
        """Whether some are in other processes."""
        return self.number > len(self.devices)

    def scope(self) -> AbstractContextManager[Any]:
        """Variables that are made inside the block belong to all replicas."""
        scope: AbstractContextManager[Any] = self.strategy.scope()
        return scope

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What each replica makes of its part of the arguments."""
        return self.strategy.run(function, args=arguments)

    def of_each(self, value: Any) -> tuple[Any, ...]:
        """A value, or a variable, as each replica of this process has it."""
        return tuple(self.strategy.experimental_local_results(value))

    def first(self, values: Any) -> Any:
        """Values, in any structure, of a replica where all have the same."""
        return tf.nest.map_structure(lambda value: self.of_each(value)[0], values)

    def sums(self, values: dict[str, Any]) -> dict[str, tf.Tensor]:
        """The sums of each replica's values over all of them, in one reduction."""
        found: dict[str, tf.Tensor] = self.first(dict(zip(values, self.run(sums, [*values.values()]), strict=True)))
        return found

    def change(self, variable: tf.Variable, function: Callable[..., Any], *arguments: Any) -> None:
        """Call ``function`` with each replica's copy of a variable and its part of the arguments."""
        self.strategy.extended.update(variable, function, args=arguments, group=False)

    def spread(self, value: Callable[[int], Any]) -> Any:
        """A value for each replica: that of its place among this process's devices."""
        here = len(self.devices)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: value(context.replica_id_in_sync_group % here)
        )

    def hold(self, variable: keras.Variable) -> bool:
        """Whether a variable was made in their scope."""
        return bool(self.strategy.extended.variable_created_in_scope(variable.value))


def in_scope_of_servers() -> bool:
    """Whether variables that are made here lie on parameter servers."""
    return isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy)


def here() -> tuple[int, Any]:
    """How many replicas there are, and which of them this is."""
    context = tf.distribute.get_replica_context()
    return context.num_replicas_in_sync, context.replica_id_in_sync_group


def sums(values: Sequence[Any]) -> list[Any]:
    """Sums of values over all replicas; called on each of them.

    Values of one type are summed together, a few big ones in a bucket: each reduction takes its time to begin.
    """
    context = _meeting(values)
    if context is None:
        return list(values)
    tensors = [tf.convert_to_tensor(value) for value in values]
    places: dict[tf.DType, list[int]] = {}
    for i, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(i)
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=BUCKET)
    for of_type in places.values():
        totals = context.all_reduce(tf.distribute.ReduceOp.SUM, [tensors[i] for i in of_type], options)
        for i, total in zip(of_type, totals, strict=True):
            tensors[i] = total
    return tensors


def of_each_replica(values: tf.Tensor) -> tf.Tensor:
    """The values of all replicas, one after the other along a first dimension, in one sum; called on each of them."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values[None]
    place = tf.one_hot(context.replica_id_in_sync_group, context.num_replicas_in_sync, dtype=values.dtype)
    apart = tf.reshape(place, [-1, *[1] * values.shape.rank]) * values
    return sums([apart])[0]


def gathered(values: Any) -> Any:
    """Rows of all replicas one after the other, of each tensor of a structure; called on each of them."""
    context = _meeting(tf.nest.flatten(values))
    return values if context is None else tf.nest.map_structure(lambda rows: context.all_gather(rows, 0), values)


def _meeting(values: Sequence[Any]) -> Any:
    """Where these values meet those of other replicas; None where there are neither."""
    context = tf.distribute.get_replica_context()
    if not values or context is None or context.num_replicas_in_sync == 1:
        return None
    if is_compiling():
        raise CannotCompile(MEET)
    return context
