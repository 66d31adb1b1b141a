"""Whether a `tf.data.Dataset` gives the same elements in the same order each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

DRAWING = (
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle", "Multinomial",
    "RandomGamma", "RandomPoissonV2",
)  # fmt: skip


def uncertainty(dataset: tf.data.Dataset) -> str:
    """Why it may differ from pass to pass; nothing where it does not, as far as its parts tell.

    Draws of a map follow the seed under which `data` has run, but in parallel whichever element comes first takes them.
    """
    loose = dataset.options().deterministic is False
    for part in _parts(dataset):
        order = getattr(part, "_deterministic", None)
        if order is None:
            continue
        if order == "false" or (order == "default" and loose):
            return "a tf.data.Dataset hands on its elements as they come: deterministic=False"
        function = getattr(getattr(part, "_map_func", None), "function", None)
        if function is not None and any(kind in DRAWING for kind in _operations(function.graph)):
            return "a tf.data.Dataset draws in a map with num_parallel_calls; use tf.random.stateless_*, or augment()"
    return ""


def _parts(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    yield dataset
    for part in dataset._inputs():
        yield from _parts(part)


def _operations(graph: Any) -> Iterator[str]:
    definition = graph.as_graph_def()
    for nodes in (definition.node, *(function.node_def for function in definition.library.function)):
        yield from (node.op for node in nodes)
