"""Whether losses and metrics of a batch follow from its parts, as they must where several parts make one batch.

A sum, or a loss that compares examples with each other, would train another model on several replicas; it is tried
on a few examples before the first update.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from trainables.numbers.draws import EVALUATION, Draws
from trainables.recipe.refusals import Refused
from trainables.replicas import slices
from trainables.replicas.global_losses import GlobalLoss, Noted
from trainables.replicas.slices import Slice

EXAMPLES = 32
TOLERANCE, TOLERANCE_OF_HALF = 1e-3, 5e-2  # of the loss, which rounding moves by less


def check(
    model: keras.Model, losses: Iterable[GlobalLoss | Noted], examples: Any, put_back: Callable[[], None]
) -> None:
    """Raise Refused for a loss that is no mean over the first of these ``examples``.

    ``put_back`` undoes what losses and layers change of their state: parts are computed side by side, not in turn.
    """
    some = tf.nest.map_structure(lambda leaf: leaf[:EXAMPLES], examples)
    size = len(tf.nest.flatten(some)[0])
    if size < 2:
        return
    counted = [loss.name for loss in losses if loss.counts_first]
    loss = _traced(model, some, counted)

    def alone(*given: Any) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        try:
            return loss(*given)
        finally:
            put_back()

    whole = _mean(alone, some, [0, size], counted)
    half = model.compute_dtype in ("float16", "bfloat16")
    tolerance = (TOLERANCE_OF_HALF if half else TOLERANCE) * max(abs(whole), 1e-3)
    for cut in _cuts(size) if np.isfinite(whole) else ():
        parts = _mean(alone, some, [0, cut, size], counted)
        if abs(whole - parts) <= tolerance:
            continue
        raise Refused(
            f"the loss of a batch is not the mean over its examples: {whole:.6g} for {size} of them, {parts:.6g} as "
            "the mean of two parts; replicas and micro-batches, which each compute a part, would train another model. "
            "Let losses and add_loss() average over the examples, or train in one part"
        )


def check_metrics(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    examples: Any,
    read: Callable[[], dict[str, float]],
    put_back: Callable[[], None],
) -> None:
    """Raise Refused for a metric that counts these ``examples`` otherwise in two parts, each on a replica of its own.

    ``read`` gives the metrics since its last call.
    """
    some = tf.nest.map_structure(lambda leaf: leaf[:EXAMPLES], examples)
    size = len(tf.nest.flatten(some)[0])
    if size < 2:
        return
    count = _counting(model, strategy, some)

    def measured(edges: list[int]) -> dict[str, float]:
        read()
        for i, (first, last) in enumerate(itertools.pairwise(edges)):
            part = tf.nest.map_structure(lambda leaf: leaf[first:last], some)  # noqa: B023 - at once
            count(part, first, last, size, i % strategy.num_replicas_in_sync)
        found = read()
        put_back()
        return found

    whole, *cut = (measured(edges) for edges in ([0, size], *([0, cut, size] for cut in _cuts(size))))
    for parts, (name, value) in itertools.product(cut, whole.items()):
        if np.isfinite(value) and abs(value - parts[name]) > TOLERANCE * max(abs(value), 1e-3):
            raise Refused(
                f"metric {name!r} is {value:.6g} for {size} examples and {parts[name]:.6g} for two parts of them: "
                "replicas and micro-batches, which each count a part, would report another number; use a metric object "
                "that sums up over examples, such as keras.metrics.RootMeanSquaredError"
            )


def _cuts(size: int) -> list[int]:
    """Where to cut: by chance alone, one cut in dozens leaves a standard deviation as it is."""
    return sorted({1, size // 3 or 1, size // 2})


def _counting(model: keras.Model, strategy: tf.distribute.Strategy, examples: Any) -> Callable[..., None]:
    """Count a part of the examples into the metrics of one replica."""
    specs = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), examples)
    number = tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[specs, *[number] * 4], autograph=False)  # type: ignore[untyped-decorator]  # as all of TensorFlow
    def count(part: Any, start: Any, stop: Any, size: Any, replica: Any) -> None:
        def on_each() -> None:
            here = tf.distribute.get_replica_context().replica_id_in_sync_group
            x, y, *given = part
            draws = Draws(tf.constant(0), tf.constant(0), size, start, stop, EVALUATION)
            with slices.entered(Slice(size, start, stop, draws=draws)):
                predicted = model(x, training=False)

                def counted() -> tf.Tensor:
                    model.compute_metrics(x, y, predicted, given[0] if given else None)
                    return tf.constant(0)

                tf.cond(tf.equal(here, replica), counted, lambda: tf.constant(0))

        strategy.run(on_each)

    counting: Callable[..., None] = count
    return counting


_Loss: TypeAlias = "Callable[..., tuple[tf.Tensor, dict[str, tf.Tensor]]]"


def _traced(model: keras.Model, examples: Any, counted: list[str]) -> _Loss:
    """A part's share of the mean loss, and what it counts; traced, for batch sizes to be as unknown as in training."""
    specs = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), examples)
    number = tf.TensorSpec([], tf.int32)

    @tf.function(  # type: ignore[untyped-decorator]  # as all of TensorFlow
        input_signature=[specs, number, number, number, {name: tf.TensorSpec([], tf.float32) for name in counted}],
        autograph=False,
    )
    def loss(part: Any, start: Any, stop: Any, size: Any, totals: Any) -> Any:
        x, y, *given = part
        draws = Draws(tf.constant(0), tf.constant(0), size, start, stop, EVALUATION)
        with slices.entered(Slice(size, start, stop, draws=draws, totals=totals)) as cut:
            predicted = model(x, training=False)
            value = model._compute_loss(x, y, predicted, given[0] if given else None, training=False)
            return tf.cast(value, tf.float32) * cut.share, {name: cut.counts[name] for name in counted}

    traced: _Loss = loss
    return traced


def _mean(loss: _Loss, examples: Any, edges: list[int], counted: list[str]) -> float:
    """The loss of the examples in the parts between the edges, each by its share."""

    def parts(totals: dict[str, Any]) -> list[tuple[tf.Tensor, dict[str, tf.Tensor]]]:
        return [
            loss(tf.nest.map_structure(lambda leaf: leaf[a:b], examples), a, b, edges[-1], totals)  # noqa: B023 - at once
            for a, b in itertools.pairwise(edges)
        ]

    totals = {name: tf.constant(1.0) for name in counted}
    if counted:
        found = parts(totals)
        totals = {name: tf.add_n([counts[name] for _, counts in found]) for name in counted}
    return float(sum(float(value) for value, _ in parts(totals)))
