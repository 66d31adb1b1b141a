"""An epoch of updates, and a validation, over a chunk of data as one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainables.loop import finiteness
from trainables.loop.update import Graph

BLOCK = 32
"""Updates between two looks at whether all is finite: at each, the host waits for the device."""


def train(
    graph: Graph,
    update: Callable[..., Any],
    tensors: Any,
    order: tf.Tensor,
    rates: tf.Tensor,
    count: tf.Tensor,
    batch_size: tf.Tensor,
    seed: tf.Tensor,
    first_update: tf.Tensor,
    sums: dict[str, tf.Tensor],
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Train ``count`` updates; return the ``sums`` of losses by examples counted on, and whether all of it is finite.

    ``update``: that of the graph, or what compiles it.
    """
    graph.traced.append(tf.compat.v1.get_default_graph())

    def one(i: tf.Tensor, totals: dict[str, tf.Tensor], before: tf.Tensor) -> tuple[Any, ...]:
        rows = order[i * batch_size : (i + 1) * batch_size]
        values, finite = update(tensors, rows, rates[i], seed, first_update + i)
        graph.seeds.go_on()
        return i + 1, graph.step.added(totals, values, rows), tf.logical_and(before, finite)

    def block(first: tf.Tensor, *found: Any) -> Any:
        end = tf.minimum(first + BLOCK, count)
        return tf.while_loop(lambda i, *_: i < end, one, (first, *found))

    _, totals, all_finite = tf.while_loop(
        lambda i, _, finite: tf.logical_and(i < count, finite),  # a long epoch is not wasted
        block,
        (tf.constant(0), sums, tf.constant(True)),
    )
    return totals, tf.logical_and(all_finite, finiteness.of([v.value for v in graph.trained]))


def evaluate(
    graph: Graph,
    tensors: Any,
    order: tf.Tensor,
    count: tf.Tensor,
    batch_size: tf.Tensor,
    seed: tf.Tensor,
    first_batch: tf.Tensor,
    sums: dict[str, tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Evaluate ``count`` batches; return the ``sums`` of losses by examples counted on, and count the metrics."""
    graph.traced.append(tf.compat.v1.get_default_graph())

    def one(i: tf.Tensor, totals: dict[str, tf.Tensor]) -> tuple[Any, ...]:
        rows = order[i * batch_size : (i + 1) * batch_size]
        values = graph.summed(graph.strategy.run(graph.evaluate, args=(tensors, rows, seed, first_batch + i)))
        graph.seeds_of_evaluation.go_on()
        return i + 1, graph.step.added(totals, values, rows)

    totals: dict[str, tf.Tensor] = tf.while_loop(lambda i, _: i < count, one, (tf.constant(0), sums))[1]
    return totals


def read_metrics(graph: Graph) -> dict[str, tf.Tensor]:
    """Return the metrics since the last call; each output's loss is among them, as Keras averages it over slices."""
    graph.traced.append(tf.compat.v1.get_default_graph())
    results = {name: tf.identity(value) for name, value in graph.step.metrics().items()}
    with tf.control_dependencies(list(results.values())):
        for metric in graph.model.metrics:
            metric.reset_state()
    return results
