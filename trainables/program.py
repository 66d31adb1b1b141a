"""One compiled structure: a model, its optimizer, and the epoch around them as a single graph.

This is the training loop. Gradients are summed over the global batch, then clipped, then applied; batch
sizes, learning rates and orders are arguments and live numbers are variables, so that other trials of the
same structure run the same graph after `reset`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from trainables import optimizers, profile, slices
from trainables.averaging import Average
from trainables.data import Chunk, Split, updates
from trainables.draws import Draws
from trainables.global_losses import GlobalLoss
from trainables.live import Live
from trainables.precision import LossScale
from trainables.slices import Slice

_T = TypeVar("_T")


@dataclass(frozen=True)
class Recipe:
    """What of a trial is fixed in the graph."""

    clipping: tuple[str, ...] = ()
    micro_batches: int = 1
    scale_loss: bool = False
    average: bool = False


@dataclass(frozen=True)
class Trained:
    """What training an epoch brought."""

    metrics: dict[str, float]
    finite: bool  # all losses, gradients and weights
    wait_s: float  # spent waiting for data


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
        losses: tuple[GlobalLoss, ...],
        augment: Callable[[Any, Draws], Any],
    ) -> None:
        self.model = model
        self.live = live
        self._strategy = strategy
        self._recipe = recipe
        self._losses = losses
        self._augment = augment
        self._updated: list[keras.Variable] = []  # known once traced: weights that the loss depends on
        self.loss_scale = LossScale() if recipe.scale_loss else None
        weights = model.trainable_variables
        self.average = Average(weights, live.number("ema_momentum"), strategy) if recipe.average else None
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
        average = self.average.state if self.average else []
        return [*self.model.variables, *self.model.optimizer.variables, *scale, *average]

    def reset(self, fresh: keras.Model | None) -> None:
        """Back to the start of a trial: weights from a freshly built model (None: as they are), the rest as new."""
        if fresh is not None:
            for mine, new in zip(self.model.variables, fresh.variables, strict=True):
                mine.assign(new.value)
        for variable, value in zip(self.model.optimizer.variables, self._initial, strict=True):
            variable.assign(value)
        if self.loss_scale:
            self.loss_scale.reset()
        if self.average:
            self.average.reset()
        self._read_metrics()

    def compile(self, train: Split, validation: Split | None) -> None:
        """Trace and optimise both graphs by running them over no batch at all, which changes nothing."""
        self._train(next(train.chunks(1, None, 0)), np.zeros(0), batch_size=1, seed=0, first_update=0)
        if validation is not None:
            chunk, none = next(validation.chunks(1, None, 0)), tf.constant(0)
            self.evaluate_chunk(chunk.tensors, tf.constant(chunk.order), none, none)
        self.compiled = True

    def train_epoch(
        self,
        data: Split,
        rates: np.ndarray[Any, Any],
        *,
        batch_size: int,
        seed: int,
        epoch: int,
        profile_into: Path | None = None,
    ) -> Trained:
        """Train one epoch (from 1), one rate per update."""
        first, done, finite = (epoch - 1) * len(rates), 0, True
        totals: dict[str, float] = {}
        chunks = _Timed(data.chunks(batch_size, seed, epoch))
        for chunk, kept in _parts(chunks, batch_size, profile_into):
            count = updates(len(chunk.order), batch_size)
            part = rates[done : done + count]
            with profile.kept(profile_into if kept else None):
                sums, finite = self._train(chunk, part, batch_size=batch_size, seed=seed, first_update=first + done)
            totals, done = {name: totals.get(name, 0.0) + value for name, value in sums.items()}, done + count
            if not finite:
                break
        means = {name: total / data.size for name, total in totals.items()}
        return Trained({**self._metrics(), **means}, finite, chunks.waited_s)

    def evaluate(self, data: Split, *, batch_size: int) -> dict[str, float]:
        """The loss and metrics over a whole data set, with the averaged weights where there are such."""
        totals: dict[str, float] = {}
        if self.average:
            self.average.swap()
        for chunk in data.chunks(batch_size, None, 0):
            count = tf.constant(updates(len(chunk.order), batch_size))
            sums = self.evaluate_chunk(chunk.tensors, tf.constant(chunk.order), count, tf.constant(batch_size))
            totals = {name: totals.get(name, 0.0) + float(value) for name, value in sums.items()}
        if self.average:
            self.average.swap()
        return {**self._metrics(), **{name: total / data.size for name, total in totals.items()}}

    def _train(
        self, chunk: Chunk, rates: np.ndarray[Any, Any], *, batch_size: int, seed: int, first_update: int
    ) -> tuple[dict[str, float], bool]:
        padded = np.zeros(len(chunk.order), np.float32)  # one shape whatever the batch size: one trace
        padded[: len(rates)] = rates
        sums, finite = self.train_chunk(
            chunk.tensors,
            tf.constant(chunk.order),
            tf.constant(padded),
            tf.constant(len(rates)),
            tf.constant(batch_size),
            tf.constant(seed & 0x7FFFFFFF),
            tf.constant(first_update),
        )
        return {name: float(value) for name, value in sums.items()}, bool(finite)

    def _metrics(self) -> dict[str, float]:
        """The metrics since the last call; each output's loss is among them, as Keras averages it over slices."""
        return {name: float(value) for name, value in self._read_metrics().items()}

    # ---- what is traced, across replicas

    def _train_chunk(
        self,
        tensors: Any,
        order: tf.Tensor,
        rates: tf.Tensor,
        count: tf.Tensor,
        batch_size: tf.Tensor,
        seed: tf.Tensor,
        first_update: tf.Tensor,
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        totals, all_finite = self._zeros(), tf.constant(True)
        for i in tf.range(count):
            start = i * batch_size
            rows = order[start : start + batch_size]
            self._set_rate(rates[i])
            gradients, losses = self._strategy.run(self._gradients, args=(tensors, rows, seed, first_update + i))
            losses = self._sum(losses)
            finite = self._finite(gradients, losses["loss"])
            if self.loss_scale:
                self.loss_scale.update(finite)
                if finite:
                    self._apply(gradients)
                finite = tf.math.is_finite(losses["loss"])
            else:
                self._apply(gradients)
            all_finite = tf.logical_and(all_finite, finite)
            examples = tf.cast(tf.shape(rows)[0], tf.float32)
            totals = {name: totals[name] + losses[name] * examples for name in totals}
            if not all_finite:  # a long epoch is not wasted
                break
        weights = [tf.reduce_all(tf.math.is_finite(v.value)) for v in self.model.trainable_variables]
        return totals, tf.reduce_all([all_finite, *weights])

    def _evaluate_chunk(
        self, tensors: Any, order: tf.Tensor, count: tf.Tensor, batch_size: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        totals = self._zeros()
        for i in tf.range(count):
            rows = order[i * batch_size : (i + 1) * batch_size]
            losses = self._sum(self._strategy.run(self._evaluate, args=(tensors, rows)))
            examples = tf.cast(tf.shape(rows)[0], tf.float32)
            totals = {name: totals[name] + losses[name] * examples for name in totals}
        return totals

    def _zeros(self) -> dict[str, tf.Tensor]:
        named = [f"{loss.name}_loss" for loss in self._losses] if len(self._losses) > 1 else []
        return {name: tf.constant(0.0) for name in ("loss", *named)}

    def _sum(self, values: _T) -> _T:
        reduced: _T = self._strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)
        return reduced

    def _apply(self, gradients: Any) -> None:
        self._strategy.run(lambda found: self.model.optimizer.apply(found, self._updated), args=(gradients,))
        if self.average:
            self.average.update()

    def _finite(self, gradients: Any, loss: tf.Tensor) -> tf.Tensor:
        one = tf.nest.map_structure(lambda g: self._strategy.experimental_local_results(g)[0], gradients)
        checks = [tf.math.is_finite(loss), *(tf.reduce_all(tf.math.is_finite(g)) for g in one)]
        return tf.reduce_all(tf.stack(checks))

    def _set_rate(self, rate: tf.Tensor) -> None:
        current = self.model.optimizer.learning_rate
        if isinstance(current, keras.Variable):  # an author's own optimizer may bring its own schedule
            current.assign(rate)

    def _metrics_then_reset(self) -> dict[str, tf.Tensor]:
        results = {name: tf.identity(v) for name, v in self.model.get_metrics_result().items() if name != "loss"}
        with tf.control_dependencies(list(results.values())):
            for metric in self.model.metrics:
                metric.reset_state()
        return results

    # ---- what is traced, on each replica

    def _gradients(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, update: tf.Tensor
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """The gradients of the global batch, and this replica's shares of its mean losses."""
        model, micro_batches = self.model, self._recipe.micro_batches
        weights = model.trainable_variables
        sums: list[Any] = [None] * len(weights)
        losses = self._zeros()
        totals = self._count_first(tensors, rows) if micro_batches > 1 else None
        for cut in _cuts(tf.shape(rows)[0], micro_batches):
            # One micro-batch after the other: the graph would otherwise hold all their activations at once.
            with tf.control_dependencies([g for g in sums if g is not None]):
                x, y, sample_weight = _take(tensors, rows[cut.start : cut.stop])
            cut.draws, cut.totals = Draws(seed, update, cut.size, cut.start, cut.stop), totals
            with slices.entered(cut):
                x = self._augment(x, cut.draws)
                with tf.GradientTape() as tape:
                    predicted = _as_float32(model(x, training=True))
                    loss = self._global_loss(cut, x, y, predicted, sample_weight, training=True)
                    scaled = loss["loss"] * self.loss_scale.scale if self.loss_scale else loss["loss"]
                found = tape.gradient(scaled, weights)
                model.compute_metrics(x, y, predicted, sample_weight)
            sums = [_add(old, new) for old, new in zip(sums, found, strict=True)]
            losses = {name: losses[name] + loss[name] for name in losses}
        self._updated = [v for v, g in zip(weights, sums, strict=True) if g is not None]
        return self._global([g for g in sums if g is not None]), losses

    def _evaluate(self, tensors: Any, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        (cut,) = _cuts(tf.shape(rows)[0], 1)
        x, y, sample_weight = _take(tensors, rows[cut.start : cut.stop])
        with slices.entered(cut):
            predicted = _as_float32(self.model(x, training=False))
            losses = self._global_loss(cut, x, y, predicted, sample_weight, training=False)
            self.model.compute_metrics(x, y, predicted, sample_weight)
        return losses

    def _count_first(self, tensors: Any, rows: tf.Tensor) -> dict[str, tf.Tensor] | None:
        """The divisors of masked and weighted means, which are known only when all slices were computed once."""
        names = [loss.name for loss in self._losses if loss.counts_first]
        if not names:
            return None
        counts = {name: tf.constant(0.0) for name in names}
        for cut in _cuts(tf.shape(rows)[0], self._recipe.micro_batches):
            x, y, sample_weight = _take(tensors, rows[cut.start : cut.stop])
            cut.totals = {name: tf.constant(1.0) for name in names}
            with slices.entered(cut):
                self.model.compute_loss(x, y, _as_float32(self.model(x, training=False)), sample_weight, training=False)
            counts = {name: counts[name] + cut.counts[name] for name in names}
        return dict(zip(names, slices.sum_over_replicas(list(counts.values())), strict=True))

    def _global_loss(
        self, cut: Slice, x: Any, y: Any, predicted: Any, sample_weight: Any, *, training: bool
    ) -> dict[str, tf.Tensor]:
        """This slice's share of the mean losses over the global batch; an empty slice has none."""
        loss = tf.cast(self.model.compute_loss(x, y, predicted, sample_weight, training=training), tf.float32)
        named = {f"{name}_loss": share for name, share in cut.losses.items()} if len(cut.losses) > 1 else {}
        return {"loss": tf.where(cut.count > 0, loss * cut.share, 0.0), **named}

    def _global(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sum over replicas, undo the loss scale, then clip: clipping must see the global batch."""
        gradients = slices.sum_over_replicas(gradients)
        if self.loss_scale:
            gradients = [g / tf.cast(self.loss_scale.scale, g.dtype) for g in gradients]
        bounds = {kind: tf.convert_to_tensor(self.live.number(kind)) for kind in self._recipe.clipping}
        return optimizers.clip(gradients, bounds)


class _Timed:
    """Iterates and adds up the time spent in waiting for the next item."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self.waited_s = 0.0

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        began = time.perf_counter()
        try:
            return next(self._chunks)
        finally:
            self.waited_s += time.perf_counter() - began


def _parts(chunks: Iterator[Chunk], batch_size: int, profile_into: Path | None) -> Iterator[tuple[Chunk, bool]]:
    """The chunks as they are, but the first in parts where one of them is to be profiled."""
    if profile_into is not None:
        yield from profile.parts(next(chunks), batch_size)
    for chunk in chunks:
        yield chunk, False


def _cuts(size: tf.Tensor, micro_batches: int) -> list[Slice]:
    """This replica's slices of a global batch: one of each micro-batch, differing by one example at most.

    Micro-batches are the same parts of the global batch whatever the number of replicas.
    """
    context = tf.distribute.get_replica_context()
    replicas, replica = context.num_replicas_in_sync, context.replica_id_in_sync_group
    parts = replicas * micro_batches
    firsts = [i * replicas + replica for i in range(micro_batches)]
    return [Slice(size, size * i // parts, size * (i + 1) // parts, parts) for i in firsts]


def _take(tensors: Any, rows: tf.Tensor) -> tuple[Any, Any, Any]:
    """Gather rows of (x, y) or (x, y, sample_weight); x, y and no weight."""
    taken = tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), tensors)
    return (*taken, None) if len(taken) == 2 else taken


def _as_float32(predicted: Any) -> Any:
    def cast(t: tf.Tensor) -> tf.Tensor:
        if not t.dtype.is_floating or t.dtype == tf.float32:
            return t
        wide = tf.cast(t, tf.float32)
        mask = getattr(t, "_keras_mask", None)
        if mask is not None:
            wide._keras_mask = mask
        return wide

    return tf.nest.map_structure(cast, predicted)


def _add(old: Any, new: Any) -> Any:
    """Sum of two gradients, dense: sparse ones follow other update rules when they come from several replicas."""
    if new is None:
        return old
    dense = tf.convert_to_tensor(new)
    return dense if old is None else old + dense
