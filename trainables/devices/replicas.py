"""The replicas of a model: everything that the training uses of `tf.distribute` once the devices are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from trainables.numbers.draws import CannotCompile, is_compiling

MEET = "replicas sum up while they compute gradients (batch statistics, masked or weighted means)"

BUCKET = 32 * 2**20
"""Bytes of gradients that are summed at once, while others are still computed."""

Rows: TypeAlias = tuple[Any, Any, Any]
"""The values, indices and shape of a sparse gradient."""


class Replicas:
    """The replicas of a strategy, with functions that are called once for all replicas.

    A function called by `run` runs on each replica. There, use the functions of this module: `get_replica_index`,
    `sum_over_replicas`, `gather_rows` and `stack_over_replicas`.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        self.number = int(strategy.num_replicas_in_sync)  # in all processes together
        self.on_servers = isinstance(strategy, tf.distribute.ParameterServerStrategy)
        # devices of this process; workers of servers are sent batches
        self.devices: tuple[str, ...] = ("/cpu:0",)
        if not self.on_servers:
            self.devices = tuple(strategy.extended.worker_devices)

    @property
    def on_gpu(self) -> bool:
        """Whether the replicas compute on GPUs."""
        return "GPU" in self.devices[0].upper()

    @property
    def on_cpu(self) -> bool:
        """Whether the replicas compute on CPUs."""
        return "CPU" in self.devices[0].upper()

    @property
    def several_here(self) -> bool:
        """Whether this process has more than one replica."""
        return len(self.devices) > 1

    @property
    def span_processes(self) -> bool:
        """Whether some replicas are in other processes."""
        return self.number > len(self.devices)

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which created variables belong to all replicas."""
        scope: AbstractContextManager[Any] = self.strategy.scope()
        return scope

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on each replica, and return the results per replica, in the structure that it returns.

        A distributed value among ``arguments`` is replaced by the replica's part of it; others are the same on all
        replicas. With several replicas, the results are distributed values, of which `of_each` gives the parts.
        """
        return self.strategy.run(function, args=arguments)

    def of_each(self, value: Any) -> tuple[Any, ...]:
        """Return the values of a distributed value or variable as a tuple, one for each replica of this process.

        A value that is not distributed gives a tuple of one.
        """
        return tuple(self.strategy.experimental_local_results(value))

    def first(self, values: Any) -> Any:
        """Return the first replica's values in this process, in the same structure.

        Use it for values that are equal on all replicas. Values that are not distributed are returned as they are.
        """
        return tf.nest.map_structure(lambda value: self.of_each(value)[0], values)

    def sum_values(self, values: dict[str, Any]) -> dict[str, tf.Tensor]:
        """Sum values that differ between replicas over all replicas, and return the sums by name.

        Call it outside of replicas. Values of one type are summed together, see `sum_over_replicas`, whose errors it
        raises.
        """
        totals = self.run(sum_over_replicas, [*values.values()])
        by_name: dict[str, tf.Tensor] = self.first(dict(zip(values, totals, strict=True)))
        return by_name

    def update_copies(
        self, variable: tf.Variable, function: Callable[..., Any], *arguments: Any
    ) -> None:
        """Call ``function(copy, *parts)`` for each copy of ``variable``, with its replica's part of ``arguments``.

        Call it where all replicas are together, not on one of them. What ``function`` returns is not used.
        """
        self.strategy.extended.update(variable, function, args=arguments, group=False)

    def create_per_replica(self, value: Callable[[int], Any]) -> Any:
        """Return a distributed value that has ``value(i)`` for the replica on device ``i`` of this process, from 0."""
        local = len(self.devices)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: value(context.replica_id_in_sync_group % local)
        )

    def contain(self, variable: keras.Variable) -> bool:
        """Return whether a variable was created in the scope of this strategy."""
        return bool(self.strategy.extended.variable_created_in_scope(variable.value))


def in_scope_of_servers() -> bool:
    """Return whether the present strategy places variables on parameter servers."""
    return isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy)


def get_replica_index() -> tuple[int, Any]:
    """Return the number of all replicas, and the index among them of the replica that runs this code.

    Both count the replicas of all processes. Call it on a replica; elsewhere under a strategy, it raises
    AttributeError. Without any strategy, there is one replica, with index 0.
    """
    context = tf.distribute.get_replica_context()
    return context.num_replicas_in_sync, context.replica_id_in_sync_group


def sum_over_replicas(values: Sequence[Any]) -> list[Any]:
    """Sum each value over all replicas and return the sums in the same order; called on each replica.

    With one replica, or outside of replicas, returns the values themselves. Values of one type are summed together, in
    a few large buckets, because starting a reduction takes time.
    Raises: CannotCompile: inside code that XLA compiles, if there are several replicas and any values.
    """
    context = _get_exchange_context(values)
    if context is None:
        return list(values)
    sums = [tf.convert_to_tensor(value) for value in values]  # each is replaced by its sum below
    positions_by_type: dict[tf.DType, list[int]] = {}
    for i, tensor in enumerate(sums):
        positions_by_type.setdefault(tensor.dtype, []).append(i)
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=BUCKET)
    for positions in positions_by_type.values():
        totals = context.all_reduce(
            tf.distribute.ReduceOp.SUM, [sums[i] for i in positions], options
        )
        for i, total in zip(positions, totals, strict=True):
            sums[i] = total
    return sums


def stack_over_replicas(values: tf.Tensor) -> tf.Tensor:
    """Return the values of all replicas, stacked along a new first axis, by one reduction; called on each replica.

    With one replica, or outside of replicas, the new axis has the length 1. Values must have the same shape on all
    replicas. Raises CannotCompile inside code that XLA compiles, if there are several replicas.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values[None]
    # Each replica puts its values at its own position of the stack and zeros at the others; the sum is the stack.
    is_own_position = tf.one_hot(
        context.replica_id_in_sync_group, context.num_replicas_in_sync, dtype=values.dtype
    )
    own_part = tf.reshape(is_own_position, [-1, *[1] * values.shape.rank]) * values
    return sum_over_replicas([own_part])[0]


def gather_rows(values: Any) -> Any:
    """Return, for each tensor of a structure, the rows of all replicas joined along the first axis.

    The rows are in the order of the replicas, of which each may have another number of rows. Called on each replica;
    with one replica, or outside of replicas, returns ``values``.
    Raises: CannotCompile: inside code that XLA compiles, if there are several replicas.
    """
    context = _get_exchange_context(tf.nest.flatten(values))
    if context is None:
        return values
    return tf.nest.map_structure(lambda rows: context.all_gather(rows, 0), values)


def _get_exchange_context(values: Sequence[Any]) -> Any:
    """Return TensorFlow's replica context, by which ``values`` can be exchanged with other replicas.

    Returns None if there are no values, no other replicas, or no replica runs this code.
    Raises: CannotCompile: inside code that XLA compiles, if there are values and other replicas.
    """
    context = tf.distribute.get_replica_context()
    if not values or context is None or context.num_replicas_in_sync == 1:
        return None
    if is_compiling():
        raise CannotCompile(MEET)
    return context
