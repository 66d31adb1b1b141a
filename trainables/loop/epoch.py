"""An epoch of updates, and a validation, over a chunk of data as one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import tensorflow as tf

from trainables.data.chunks import Chunk
from trainables.loop import finiteness
from trainables.loop.update import Graph

BLOCK = 32
"""Updates between two looks at whether all is finite: at each, the host waits for the device."""


class Batches(NamedTuple):
    """Batches of a chunk one after the other, as arguments of a graph."""

    tensors: Any
    order: tf.Tensor  # of the chunk's rows
    count: tf.Tensor  # of batches
    size: tf.Tensor  # of each but the last
    seed: tf.Tensor  # of the trial
    first: tf.Tensor  # the number of the first batch, from the beginning of the trial

    @classmethod
    def of(cls, chunk: Chunk, count: int, *, size: int, seed: int, first: int) -> Self:
        """The first batches of a chunk."""
        return cls(chunk.tensors, chunk.places(), *map(tf.constant, (count, size, seed & 0x7FFFFFFF, first)))

    def rows(self, i: tf.Tensor) -> tf.Tensor:
        """Where the examples of a batch are in the chunk."""
        return self.order[i * self.size : (i + 1) * self.size]


def train(
    graph: Graph, update: Callable[..., Any], given: Batches, rates: tf.Tensor, sums: dict[str, tf.Tensor]
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Train on batches; return the ``sums`` of losses by examples counted on, and whether all of it is finite.

    ``update``: that of the graph, or what compiles it.
    """
    graph.traced.append(tf.compat.v1.get_default_graph())

    def one(i: tf.Tensor, totals: dict[str, tf.Tensor], before: tf.Tensor) -> tuple[Any, ...]:
        rows = given.rows(i)
        values, finite = update(given.tensors, rows, rates[i], given.seed, given.first + i)
        graph.seeds.go_on()
        return i + 1, graph.step.added(totals, values, rows), tf.logical_and(before, finite)

    def block(first: tf.Tensor, *found: Any) -> Any:
        end = tf.minimum(first + BLOCK, given.count)
        return tf.while_loop(lambda i, *_: i < end, one, (first, *found))

    _, totals, all_finite = tf.while_loop(
        lambda i, _, finite: tf.logical_and(i < given.count, finite),  # a long epoch is not wasted
        block,
        (tf.constant(0), sums, tf.constant(True)),
    )
    return totals, tf.logical_and(all_finite, finiteness.of([v.value for v in graph.trained]))


def evaluate(graph: Graph, given: Batches, sums: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Evaluate batches; return the ``sums`` of losses by examples counted on, and count the metrics."""
    graph.traced.append(tf.compat.v1.get_default_graph())

    def one(i: tf.Tensor, totals: dict[str, tf.Tensor]) -> tuple[Any, ...]:
        rows = given.rows(i)
        each = graph.replicas.run(graph.evaluate, given.tensors, rows, given.seed, given.first + i)
        values = graph.replicas.sums(each)
        graph.seeds_of_evaluation.go_on()
        return i + 1, graph.step.added(totals, values, rows)

    totals: dict[str, tf.Tensor] = tf.while_loop(lambda i, _: i < given.count, one, (tf.constant(0), sums))[1]
    return totals


def read_metrics(graph: Graph) -> dict[str, tf.Tensor]:
    """Return the metrics since the last call; each output's loss is among them, as Keras averages it over slices."""
    graph.traced.append(tf.compat.v1.get_default_graph())
    results = {name: tf.identity(value) for name, value in graph.step.metrics().items()}
    with tf.control_dependencies(list(results.values())):
        for metric in graph.model.metrics:
            metric.reset_state()
    return results
