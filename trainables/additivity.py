"""Whether the loss of a batch is the mean over its examples, as it must be where several parts make one batch.

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

from trainables import slices
from trainables.draws import EVALUATION, Draws
from trainables.global_losses import GlobalLoss, Noted
from trainables.refusals import Refused
from trainables.slices import Slice

EXAMPLES = 8
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

    whole, parts = (_mean(alone, some, edges, counted) for edges in ([0, size], [0, size // 3 or 1, size]))
    half = model.compute_dtype in ("float16", "bfloat16")
    tolerance = (TOLERANCE_OF_HALF if half else TOLERANCE) * max(abs(whole), 1e-3)
    if np.isfinite(whole) and abs(whole - parts) > tolerance:
        raise Refused(
            f"the loss of a batch is not the mean over its examples: {whole:.6g} for {size} of them, {parts:.6g} as "
            "the mean of two parts; replicas and micro-batches, which each compute a part, would train another model. "
            "Let losses and add_loss() average over the examples, or train in one part"
        )


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
