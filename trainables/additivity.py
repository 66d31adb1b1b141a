"""Whether the loss of a batch is the mean over its examples, as it must be where several parts make one batch.

A sum, or a loss that compares examples with each other, would train another model on several replicas; it is tried
on a few examples before the first update.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

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


def check(model: keras.Model, losses: Iterable[GlobalLoss | Noted], examples: Any) -> None:
    """Raise Refused for a loss that is no mean over the first of these ``examples``; may change the state of layers."""
    some = tf.nest.map_structure(lambda leaf: leaf[:EXAMPLES], examples)
    size = len(tf.nest.flatten(some)[0])
    if size < 2:
        return
    counted = [loss.name for loss in losses if loss.counts_first]
    whole, parts = (_loss(model, some, edges, counted) for edges in ([0, size], [0, size // 3 or 1, size]))
    half = model.compute_dtype in ("float16", "bfloat16")
    tolerance = (TOLERANCE_OF_HALF if half else TOLERANCE) * max(abs(whole), 1e-3)
    if np.isfinite(whole) and abs(whole - parts) > tolerance:
        raise Refused(
            f"the loss of a batch is not the mean over its examples: {whole:.6g} for {size} of them, {parts:.6g} as "
            "the mean of two parts; replicas and micro-batches, which each compute a part, would train another model. Let "
            "losses and add_loss() average over the examples, or train in one part"
        )


def _loss(model: keras.Model, examples: Any, edges: list[int], counted: list[str]) -> float:
    """The loss of the examples in the parts between the edges, each by its share."""
    ones, sums = {name: tf.constant(1.0) for name in counted}, {name: tf.constant(0.0) for name in counted}
    for cut, _ in _parts(model, examples, edges, ones) if counted else ():
        sums = {name: sums[name] + cut.counts[name] for name in sums}
    return float(sum(float(value) * float(cut.share) for cut, value in _parts(model, examples, edges, sums)))


def _parts(model: keras.Model, examples: Any, edges: list[int], totals: dict[str, Any]) -> list[tuple[Slice, Any]]:
    size, found = tf.constant(edges[-1]), []
    for first, last in itertools.pairwise(edges):
        x, y, *given = tf.nest.map_structure(lambda leaf: tf.convert_to_tensor(leaf[first:last]), examples)  # noqa: B023
        start, stop = tf.constant(first), tf.constant(last)
        draws = Draws(tf.constant(0), tf.constant(0), size, start, stop, EVALUATION)
        with slices.entered(Slice(size, start, stop, draws=draws, totals=totals)) as cut:
            predicted = model(x, training=False)
            loss = model._compute_loss(x, y, predicted, given[0] if given else None, training=False)
            found.append((cut, loss))
    return found
