"""One compiled structure: a model, its optimizer, and the epoch around them as a single graph.

This is the training loop. Gradients are summed over the global batch, then clipped, then applied; batch
sizes, learning rates and orders are arguments and live numbers are variables, so that other trials of the
same structure run the same graph after `reset`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainables import keras_corrections, optimizers
from trainables.data import Chunk, Split, updates
from trainables.draws import Draws
from trainables.live import Live
from trainables.precision import LossScale


@dataclass(frozen=True)
class Recipe:
    """What of a trial is fixed in the graph."""

    clipping: tuple[str, ...] = ()
    micro_batches: int = 1
    scale_loss: bool = False


class Program:
    """A built model with its compiled training and evaluation.

    ``augment(x, draws)`` maps the inputs of one slice of a batch. Create it under the strategy's scope.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        live: Live,
        recipe: Recipe,
        augment: Callable[[Any, Draws], Any],
    ) -> None:
        self.model = model
        self.live = live
        self._strategy = strategy
        self._recipe = recipe
        self._augment = augment
        self._updated: list[keras.Variable] = []  # known once traced: weights that the loss depends on
        self.loss_scale = LossScale() if recipe.scale_loss else None
        self._initial = [np.asarray(v) for v in self.model.optimizer.variables]
        self.train_chunk = tf.function(self._train_chunk, reduce_retracing=True)
        self.evaluate_chunk = tf.function(self._evaluate_chunk, reduce_retracing=True)
        self.compiled = False
        self._read_metrics = tf.function(self._metrics_then_reset)
        for kind in recipe.clipping:
            live.number(kind)

    @property
    def variables(self) -> list[keras.Variable | tf.Variable]:
        """All state that training changes, in an order that is the same in every process."""
        scale = self.loss_scale.variables if self.loss_scale else []
        return [*self.model.variables, *self.model.optimizer.variables, *scale]

    def reset(self, fresh: keras.Model | None) -> None:
        """Back to the start of a trial: weights from a freshly built model (None: as they are), the rest as new."""
        if fresh is not None:
            for mine, new in zip(self.model.variables, fresh.variables, strict=True):
                mine.assign(new.value)
        for variable, value in zip(self.model.optimizer.variables, self._initial, strict=True):
            variable.assign(value)
        if self.loss_scale:
            self.loss_scale.reset()
        keras_corrections.part_seeds(self.model, self._strategy)
        self._read_metrics()

    def compile(self, train: Split, validation: Split | None) -> None:
        """Trace and optimise both graphs by running them over no batch at all, which changes nothing."""
        self._train(next(train.chunks(1, None, 0)), np.zeros(0), batch_size=1, seed=0, first_update=0)
        if validation is not None:
            chunk, none = next(validation.chunks(1, None, 0)), tf.constant(0)
            self.evaluate_chunk(chunk.tensors, tf.constant(chunk.order), none, none)
        self.compiled = True

    def train_epoch(
        self, data: Split, rates: np.ndarray[Any, Any], *, batch_size: int, seed: int, epoch: int
    ) -> tuple[dict[str, float], bool]:
        """Train one epoch (from 1), one rate per update; its metrics, and whether all updates were finite."""
        first = (epoch - 1) * len(rates)
        total, done, finite = 0.0, 0, True
        for chunk in data.chunks(batch_size, seed, epoch):
            count = updates(len(chunk.order), batch_size)
            part = rates[done : done + count]
            loss, finite = self._train(chunk, part, batch_size=batch_size, seed=seed, first_update=first + done)
            total, done = total + loss, done + count
            if not finite:
                break
        return {"loss": total / data.size, **self._metrics()}, finite

    def evaluate(self, data: Split, *, batch_size: int) -> dict[str, float]:
        """The loss and metrics over a whole data set."""
        total = 0.0
        for chunk in data.chunks(batch_size, None, 0):
            count = tf.constant(updates(len(chunk.order), batch_size))
            total += float(self.evaluate_chunk(chunk.tensors, tf.constant(chunk.order), count, tf.constant(batch_size)))
        return {"loss": total / data.size, **self._metrics()}

    def _train(
        self, chunk: Chunk, rates: np.ndarray[Any, Any], *, batch_size: int, seed: int, first_update: int
    ) -> tuple[float, bool]:
        padded = np.zeros(len(chunk.order), np.float32)  # one shape whatever the batch size: one trace
        padded[: len(rates)] = rates
        loss, finite = self.train_chunk(
            chunk.tensors,
            tf.constant(chunk.order),
            tf.constant(padded),
            tf.constant(len(rates)),
            tf.constant(batch_size),
            tf.constant(seed & 0x7FFFFFFF),
            tf.constant(first_update),
        )
        return float(loss), bool(finite)

    def _metrics(self) -> dict[str, float]:
        """The metrics since the last call; the loss is not among them, its sum is exact already."""
        return {name: float(value) for name, value in self._read_metrics().items()}

    def weights_finite(self) -> bool:
        """Whether all weights are finite; a finite loss can hide a NaN weight behind a relu."""
        return all(bool(tf.reduce_all(tf.math.is_finite(v.value))) for v in self.model.trainable_variables)

    def _train_chunk(
        self,
        tensors: Any,
        order: tf.Tensor,
        rates: tf.Tensor,
        count: tf.Tensor,
        batch_size: tf.Tensor,
        seed: tf.Tensor,
        first_update: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        total, all_finite = tf.constant(0.0), tf.constant(True)
        for i in tf.range(count):
            start = i * batch_size
            rows = order[start : start + batch_size]
            self._set_rate(rates[i])
            gradients, loss = self._strategy.run(self._gradients, args=(tensors, rows, seed, first_update + i))
            loss = self._strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)
            finite = self._finite(gradients, loss)
            if self.loss_scale:
                self.loss_scale.update(finite)
                if finite:
                    self._strategy.run(self._apply, args=(gradients,))
                finite = tf.math.is_finite(loss)
            else:
                self._strategy.run(self._apply, args=(gradients,))
            all_finite = tf.logical_and(all_finite, finite)
            total += loss * tf.cast(tf.shape(rows)[0], tf.float32)
        return total, all_finite

    def _gradients(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, update: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """On one replica: the gradients of the global batch, and this replica's share of its mean loss."""
        model, size = self.model, tf.shape(rows)[0]
        weights = model.trainable_variables
        sums: list[Any] = [None] * len(weights)
        total = tf.constant(0.0)
        for start, stop in self._slices(size):
            # One micro-batch after the other: the graph would otherwise hold all their activations at once.
            with tf.control_dependencies([g for g in sums if g is not None]):
                x, y, sample_weight = _take(tensors, rows[start:stop])
            x = self._augment(x, Draws(seed, update, size, start, stop))
            with tf.GradientTape() as tape:
                predicted = _as_float32(model(x, training=True))
                loss = self._mean_loss(x, y, predicted, sample_weight, stop - start, size, training=True)
                scaled = loss * self.loss_scale.scale if self.loss_scale else loss
            found = tape.gradient(scaled, weights)
            sums = [_add(old, new) for old, new in zip(sums, found, strict=True)]
            total += loss
            model.compute_metrics(x, y, predicted, sample_weight)
        self._updated = [v for v, g in zip(weights, sums, strict=True) if g is not None]
        return self._global([g for g in sums if g is not None]), total

    def _slices(self, size: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """This replica's micro-batches of a global batch of ``size``: parts that differ by one example at most."""
        context = tf.distribute.get_replica_context()
        parts = context.num_replicas_in_sync * self._recipe.micro_batches
        first = context.replica_id_in_sync_group * self._recipe.micro_batches
        cuts = [size * (first + i) // parts for i in range(self._recipe.micro_batches + 1)]
        return list(itertools.pairwise(cuts))

    def _mean_loss(
        self,
        x: Any,
        y: Any,
        predicted: Any,
        sample_weight: Any,
        count: tf.Tensor,
        size: tf.Tensor,
        *,
        training: bool,
    ) -> tf.Tensor:
        """This slice's share of the mean loss over the global batch.

        Keras takes the mean over the slice and divides it by the number of replicas; slices may differ in
        size, so each counts by its share of the examples.
        """
        loss = self.model.compute_loss(x, y, predicted, sample_weight, training=training)
        share = tf.cast(count, tf.float32) / tf.cast(size, tf.float32)
        return tf.cast(loss, tf.float32) * share * float(self._strategy.num_replicas_in_sync)

    def _global(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sum over replicas, undo the loss scale, then clip: clipping must see the global batch."""
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        if self.loss_scale:
            gradients = [g / tf.cast(self.loss_scale.scale, g.dtype) for g in gradients]
        bounds = {kind: tf.convert_to_tensor(self.live.number(kind)) for kind in self._recipe.clipping}
        return optimizers.clip(gradients, bounds)

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        self.model.optimizer.apply(gradients, self._updated)

    def _finite(self, gradients: Any, loss: tf.Tensor) -> tf.Tensor:
        one = tf.nest.map_structure(lambda g: self._strategy.experimental_local_results(g)[0], gradients)
        checks = [tf.math.is_finite(loss), *(tf.reduce_all(tf.math.is_finite(g)) for g in one)]
        return tf.reduce_all(tf.stack(checks))

    def _set_rate(self, rate: tf.Tensor) -> None:
        current = self.model.optimizer.learning_rate
        if isinstance(current, keras.Variable):  # an author's own optimizer may bring its own schedule
            current.assign(rate)

    def _evaluate_chunk(self, tensors: Any, order: tf.Tensor, count: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        for i in tf.range(count):
            rows = order[i * batch_size : (i + 1) * batch_size]
            loss = self._strategy.run(self._evaluate, args=(tensors, rows))
            loss = self._strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)
            total += loss * tf.cast(tf.shape(rows)[0], tf.float32)
        return total

    def _evaluate(self, tensors: Any, rows: tf.Tensor) -> tf.Tensor:
        size = tf.shape(rows)[0]
        total = tf.constant(0.0)
        for start, stop in self._slices(size):
            x, y, sample_weight = _take(tensors, rows[start:stop])
            predicted = _as_float32(self.model(x, training=False))
            total += self._mean_loss(x, y, predicted, sample_weight, stop - start, size, training=False)
            self.model.compute_metrics(x, y, predicted, sample_weight)
        return total

    def _metrics_then_reset(self) -> dict[str, tf.Tensor]:
        results = {name: tf.identity(v) for name, v in self.model.get_metrics_result().items() if name != "loss"}
        with tf.control_dependencies(list(results.values())):
            for metric in self.model.metrics:
                metric.reset_state()
        return results


def _take(tensors: Any, rows: tf.Tensor) -> tuple[Any, Any, Any]:
    """Gather rows of (x, y) or (x, y, sample_weight); x, y and no weight."""
    taken = tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), tensors)
    return (*taken, None) if len(taken) == 2 else taken


def _as_float32(predicted: Any) -> Any:
    return tf.nest.map_structure(lambda t: tf.cast(t, tf.float32) if t.dtype.is_floating else t, predicted)


def _add(old: Any, new: Any) -> Any:
    """Sum of two gradients, dense: sparse ones follow other update rules when they come from several replicas."""
    if new is None:
        return old
    dense = tf.convert_to_tensor(new)
    return dense if old is None else old + dense
