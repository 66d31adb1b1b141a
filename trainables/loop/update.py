"""What of a program is traced: an epoch over a chunk of data as one graph, on one replica or several.

Gradients are summed over the global batch, then clipped, then applied; batch sizes, learning rates and orders
are arguments and live numbers are variables, so that other trials run the same graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from trainables.devices.precision import LossScale
from trainables.loop import batches, finiteness, sharpness
from trainables.loop.finiteness import Before
from trainables.loop.hooks import Watch
from trainables.loop.intake import Intake
from trainables.numbers.draws import EVALUATION, Draws
from trainables.numbers.live import Live
from trainables.numbers.rows import is_compiling
from trainables.recipe import clipping, refusals
from trainables.recipe.averaging import Average
from trainables.replicas import by_example, keras_corrections, slices
from trainables.replicas.additivity import Mode
from trainables.replicas.global_losses import GlobalLoss, Noted
from trainables.replicas.random_layers import Seeds
from trainables.replicas.slices import Slice

BLOCK = 32
"""Updates between two looks at whether all is finite: at each, the host waits for the device."""


@dataclass(frozen=True)
class Recipe:
    """What of a trial is fixed in the graph."""

    clipping: tuple[str, ...] = ()
    micro_batches: int = 1
    scale_loss: bool = False
    average: bool = False
    sharpness: bool = False  # sharpness-aware: gradients are taken where the loss nearby is highest
    by_epoch: bool = False  # weights are averaged at the ends of epochs


class Graph:
    """The training and the evaluation of a built model; ``intake`` gives training the examples of one slice.

    Create it under the strategy's scope.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        live: Live,
        recipe: Recipe,
        losses: tuple[GlobalLoss | Noted, ...],
        intake: Intake,
        own_average: float | None = None,
    ) -> None:
        """``own_average``: the momentum with which the author's optimizer would average the weights."""
        self.model = model
        self.live = live
        self.strategy = strategy
        self.recipe = recipe
        self.losses = losses
        self.intake = intake
        self.whole = strategy.num_replicas_in_sync * recipe.micro_batches == 1
        self.traced: list[Any] = []  # graphs
        self._updated: list[keras.Variable] = []  # known once traced: weights that the loss depends on
        self.loss_scale = LossScale() if recipe.scale_loss else None
        momentum = live.number("ema_momentum", standard=True) if recipe.average else own_average
        self.average = None if momentum is None else Average(model.trainable_variables, momentum, strategy)
        self.watch: Watch | None = None
        self.made: Sequence[Any] = ()  # all variables that the author's methods have made
        self.step: Callable[..., Any] = self.update  # as `train_chunk` runs it
        self.own: Callable[..., Any] = self.own_gradients  # as each replica runs it
        self.seeds, self.seeds_of_evaluation = Seeds(), Seeds()
        for number in (*recipe.clipping, *(["sam_rho"] if recipe.sharpness else [])):
            live.number(number, standard=True)

    # ---- what is traced, across replicas

    def train_chunk(
        self,
        tensors: Any,
        order: tf.Tensor,
        rates: tf.Tensor,
        count: tf.Tensor,
        batch_size: tf.Tensor,
        seed: tf.Tensor,
        first_update: tf.Tensor,
        sums: dict[str, tf.Tensor],
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Train ``count`` updates; the ``sums`` of losses by examples counted on, and whether all of it is finite."""

        self.traced.append(tf.compat.v1.get_default_graph())

        def update(i: tf.Tensor, totals: dict[str, tf.Tensor], before: tf.Tensor) -> tuple[Any, ...]:
            rows = order[i * batch_size : (i + 1) * batch_size]
            losses, finite = self.step(tensors, rows, rates[i], seed, first_update + i)
            self.seeds.go_on()
            return i + 1, batches.added(totals, losses, rows), tf.logical_and(before, finite)

        def block(first: tf.Tensor, *found: Any) -> Any:
            end = tf.minimum(first + BLOCK, count)
            return tf.while_loop(lambda i, *_: i < end, update, (first, *found))

        _, totals, all_finite = tf.while_loop(
            lambda i, _, finite: tf.logical_and(i < count, finite),  # a long epoch is not wasted
            block,
            (tf.constant(0), sums, tf.constant(True)),
        )
        return totals, tf.logical_and(all_finite, finiteness.of([v.value for v in self.trained]))

    @property
    def trained(self) -> list[keras.Variable]:
        """The weights that updates may change."""
        return list(self.model.trainable_variables)

    @property
    def seeds_from(self) -> slices.Seeds:
        """Where the draws of training get their seeds: of Keras, where a batch is one slice that is passed once."""
        return "keras" if self.whole and not self.recipe.sharpness and not is_compiling() else "counted"

    @property
    def networks(self) -> Sequence[keras.Layer]:
        """The model, and what else takes part."""
        return [self.model]

    @property
    def optimizers(self) -> Sequence[Any]:
        """The trial's own, and what else takes part."""
        return [self.model.optimizer]

    @property
    def rated(self) -> Sequence[Any]:
        """The optimizers whose learning rate is set at each update."""
        return [self.model.optimizer]

    @property
    def more_variables(self) -> list[keras.Variable]:
        """Variables beside those of model and optimizer."""
        return []

    def measures(self, *, training: bool) -> bool:
        """Whether training or evaluation counts the metrics."""
        return True

    @property
    def loses(self) -> bool:
        """Whether evaluation is that of the compiled losses and metrics."""
        return True

    def prepare(self, example: Any) -> None:
        """Learn which values an update gives, once, before anything is traced."""
        if self.watch:
            self.watch.prepare(self.zeros(training=False), self.trained)

    def modes(self, *, validates: bool) -> list[Mode]:
        """What must follow from the parts of a batch, see `additivity`: training, and evaluation where there is one."""
        found = [Mode("training", functools.partial(self._tried, training=True), totals=self.counted_first)]
        return found + ([self.evaluation_mode] if validates else [])

    @property
    def evaluation_mode(self) -> Mode:
        """The evaluation by compiled losses and metrics."""
        compute = functools.partial(self._tried, training=False)
        return Mode("evaluation", compute, training=False, calls=EVALUATION, totals=self.counted_first)

    @property
    def counted_first(self) -> tuple[str, ...]:
        """The losses whose divisors only all slices know."""
        return tuple(loss.name for loss in self.losses if loss.counts_first)

    def _tried(self, tensors: Any, rows: tf.Tensor, cut: Slice, *, training: bool) -> dict[str, tf.Tensor]:
        """This slice's shares of what layers add to the loss, of each loss and of their sum."""
        take = functools.partial(self.intake.take, cut=cut) if training else batches.take
        x, y, sample_weight = take(tensors, rows if training else rows[cut.start : cut.stop])
        predicted = batches.as_float32(self.model(x, training=training))
        added = keras_corrections.added_losses(self.model)
        losses = self._global_loss(cut, x, y, predicted, sample_weight, training=training)
        self.count_metrics(cut, x, y, predicted, sample_weight)
        total = losses.pop("loss")
        return {
            **{f"what layer {name} adds to the loss": cut.share_of(value) for name, value in added.items()},
            **{f"the loss {name.removesuffix('_loss')!r} of a batch": value for name, value in losses.items()},
            "the loss of a batch": total,
        }

    def update(
        self, tensors: Any, rows: tf.Tensor, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """One update with the examples of these rows; its mean losses, and whether they and it are finite."""
        self.set_rate(rate)
        before = Before(self.strategy, self.state) if self.loss_scale else None
        gradients, losses = self.strategy.run(self._gradients, args=(tensors, rows, seed, number))
        losses = self.first(losses)
        if self.recipe.sharpness:
            again, others = functools.partial(self._gradients, again=True), [*self.state, *self.counters]
            with sharpness.climbed(self.strategy, self._updated, gradients, self.live.number("sam_rho"), others):
                gradients, _ = self.strategy.run(again, args=(tensors, rows, seed, number))
        finite = self.are_finite(gradients, losses["loss"])
        gradients = self.clipped(gradients)
        self._apply(gradients)
        if self.loss_scale and before:
            self.loss_scale.update(finite)
            before.put_back(unless=finite)
            finite = tf.math.is_finite(losses["loss"])
        if self.watch:
            losses |= self.watch(number, losses, self.one_of_each(gradients), self._updated)
        return losses, finite

    def evaluate_chunk(
        self,
        tensors: Any,
        order: tf.Tensor,
        count: tf.Tensor,
        batch_size: tf.Tensor,
        seed: tf.Tensor,
        first_batch: tf.Tensor,
        sums: dict[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """Evaluate ``count`` batches; the ``sums`` of losses by examples counted on, and the metrics too."""

        self.traced.append(tf.compat.v1.get_default_graph())

        def evaluate(i: tf.Tensor, totals: dict[str, tf.Tensor]) -> tuple[Any, ...]:
            rows = order[i * batch_size : (i + 1) * batch_size]
            losses = self.summed(self.strategy.run(self.evaluate, args=(tensors, rows, seed, first_batch + i)))
            self.seeds_of_evaluation.go_on()
            return i + 1, batches.added(totals, losses, rows)

        totals: dict[str, tf.Tensor] = tf.while_loop(lambda i, _: i < count, evaluate, (tf.constant(0), sums))[1]
        return totals

    def zeros(self, *, training: bool) -> dict[str, tf.Tensor]:
        """Where the sums of an epoch begin: the total loss and, of several global losses, each."""
        named = [f"{loss.name}_loss" for loss in self.losses] if len(self.losses) > 1 else []
        watched = self.watch.names if training and self.watch else ()
        return {name: tf.constant(0.0) for name in ("loss", *named, *watched)}

    def zeros_of_evaluation(self) -> dict[str, tf.Tensor]:
        """Where the sums of an evaluation begin: the losses, and what tells how they differ between examples."""
        return self.zeros(training=False) | dict.fromkeys(by_example.NAMES, tf.constant(0.0))

    def summed(self, values: dict[str, Any]) -> dict[str, tf.Tensor]:
        """The sums of each replica's values over all of them, in one reduction."""
        sums = self.strategy.run(slices.sum_over_replicas, args=([*values.values()],))
        return self.first(dict(zip(values, sums, strict=True)))

    def first(self, values: dict[str, Any]) -> dict[str, tf.Tensor]:
        """The values of a replica, where all have the same."""
        return {name: self.strategy.experimental_local_results(value)[0] for name, value in values.items()}

    def _apply(self, gradients: Any) -> None:
        def apply(found: list[Any]) -> None:
            self.model.optimizer.apply([batches.as_slices(g) for g in found], self._updated)

        self.strategy.run(apply, args=(gradients,))
        if self.average:
            self.average.update()

    def one_of_each(self, gradients: Any) -> list[Any]:
        """Those of the first replica: all have the same."""
        return [
            batches.as_slices(tf.nest.map_structure(lambda t: self.strategy.experimental_local_results(t)[0], g))
            for g in gradients
        ]

    def are_finite(self, gradients: Any, loss: tf.Tensor) -> tf.Tensor:
        one = [self.strategy.experimental_local_results(g)[0] for g in tf.nest.flatten(gradients)]
        return finiteness.of([loss, *one])

    @property
    def state(self) -> list[Any]:
        """What an update may write, wherever the author put it, but for what counts metrics.

        Nor seeds, which lie in the host's memory: they go on with each batch, as in Keras.
        """
        networks = [v for network in self.networks for v in network.variables]
        optimizers = [v for optimizer in self.optimizers for v in finiteness.variables(optimizer)]
        averages = self.average.state if self.average else []
        counters = {id(v) for counter in self.counters for v in (counter, counter.value)}
        found = [v for v in (*networks, *optimizers, *self.made, *averages) if id(v) not in counters]
        return [v for v in found if v.dtype not in ("uint32", tf.uint32)]

    @property
    def counters(self) -> list[keras.Variable]:
        """The variables of metrics."""
        models = [network for network in self.networks if isinstance(network, keras.Model)]
        return [v for model in models for v in model.metrics_variables]

    def set_rate(self, rate: tf.Tensor) -> None:
        current = self.model.optimizer.learning_rate
        if isinstance(current, keras.Variable):  # an author's own optimizer may bring its own schedule
            current.assign(rate)

    def read_metrics(self) -> dict[str, tf.Tensor]:
        """The metrics since the last call; each output's loss is among them, as Keras averages it over slices."""
        self.traced.append(tf.compat.v1.get_default_graph())
        found = self.model.get_metrics_result()
        results = {name: tf.identity(value) for name, value in found.items() if name != "loss"}
        with tf.control_dependencies(list(results.values())):
            for metric in self.model.metrics:
                metric.reset_state()
        return results

    # ---- what is traced, on each replica

    def _gradients(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, update: tf.Tensor, *, again: bool = False
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """The gradients of the global batch, and its mean losses.

        ``again``: it was counted already, and the weights are where it is steepest.
        """
        sums, losses = self.own(tensors, rows, seed, update, again=again)
        gradients, total = self.whole_batch(sums, more=[*losses.values()])
        return gradients, dict(zip(losses, total, strict=True))

    def own_gradients(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, update: tf.Tensor, *, again: bool = False
    ) -> tuple[list[Any], dict[str, tf.Tensor]]:
        """This replica's part of both: the sums over its slices."""
        model, micro_batches = self.model, self.recipe.micro_batches
        weights = model.trainable_variables
        sums: list[Any] = [None] * len(weights)
        losses = self.zeros(training=False)
        totals = self._count_first(tensors, rows, seed, update) if micro_batches > 1 else None
        for cut in batches.cuts(tf.shape(rows)[0], micro_batches):
            # One micro-batch after the other: the graph would otherwise hold all their activations at once.
            cut.draws, cut.totals = Draws(seed, update, cut.size, cut.start, cut.stop), totals
            cut.seeds = self.seeds_from
            x, y, sample_weight = self.intake.take(tensors, rows, cut, after=[g for g in sums if g is not None])
            with slices.entered(cut):
                with tf.GradientTape() as tape:
                    predicted = batches.as_float32(model(x, training=True))
                    loss = self._global_loss(cut, x, y, predicted, sample_weight, training=True)
                    scaled = loss["loss"] * self.loss_scale.scale if self.loss_scale else loss["loss"]
                self.intake.check_losses(cut)
                found = tape.gradient(scaled, weights)
                if not again:
                    self.count_metrics(cut, x, y, predicted, sample_weight)
            self.seeds.note(cut.draws)
            sums = [self.add(old, new) for old, new in zip(sums, found, strict=True)]
            losses = {name: losses[name] + loss[name] for name in losses}
        self._updated = [v for v, g in zip(weights, sums, strict=True) if g is not None]
        return [g for g in sums if g is not None], losses

    def add(self, old: Any, new: Any) -> Any:
        """Sum of two gradients; those of rows stay rows, as Keras's optimizers have a rule of their own for them.

        To clip, or for their norm, they must be known as a whole.
        """
        if new is None:
            return old
        whole = self.recipe.clipping or self.recipe.sharpness
        if not isinstance(new, tf.IndexedSlices) or whole or isinstance(old, tf.Tensor):
            return tf.convert_to_tensor(new) if old is None else tf.convert_to_tensor(old) + tf.convert_to_tensor(new)
        rows = new.values, tf.cast(new.indices, tf.int64), tf.cast(new.dense_shape, tf.int64)
        return rows if old is None else (*(tf.concat(part, 0) for part in zip(old[:2], rows[:2], strict=True)), rows[2])

    def evaluate(self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, batch: tf.Tensor) -> dict[str, tf.Tensor]:
        (cut,) = batches.cuts(tf.shape(rows)[0], 1)
        x, y, sample_weight = batches.take(tensors, rows[cut.start : cut.stop])
        cut.draws = Draws(seed, batch, cut.size, cut.start, cut.stop, EVALUATION)
        cut.seeds = "keras" if cut.parts == 1 else "counted"
        keras_means = type(self.model).compute_loss is keras.Model.compute_loss
        cut.examples = [] if keras_means else None
        with slices.entered(cut):
            predicted = batches.as_float32(self.model(x, training=False))
            losses = self._global_loss(cut, x, y, predicted, sample_weight, training=False)
            self.count_metrics(cut, x, y, predicted, sample_weight)
        self.seeds_of_evaluation.note(cut.draws)
        return losses | by_example.shares(cut)

    def count_metrics(self, cut: Slice, x: Any, y: Any, predicted: Any, sample_weight: Any) -> None:
        def count(*given: Any) -> tf.Tensor:
            returned = self.model.compute_metrics(*given)
            if type(self.model).compute_metrics is not keras.Model.compute_metrics:
                refusals.check_metrics(self.model, returned)
            return tf.constant(0)

        given = x, y, predicted, sample_weight
        if cut.real is None:
            count(*given)
            return
        # A branch takes int32 from the host's memory.
        wide = tf.nest.map_structure(lambda t: tf.cast(t, tf.int64) if _is_int32(t) else t, given)

        def count_real() -> tf.Tensor:
            return count(*tf.nest.map_structure(lambda t, w: tf.cast(w, tf.int32) if w is not t else t, given, wide))

        tf.cond(cut.real, count_real, lambda: tf.constant(0))

    def _count_first(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, update: tf.Tensor
    ) -> dict[str, tf.Tensor] | None:
        """The divisors of masked and weighted means, which are known only when all slices were computed once."""
        names = self.counted_first
        if not names:
            return None
        counts = {name: tf.constant(0.0) for name in names}
        for cut in batches.cuts(tf.shape(rows)[0], self.recipe.micro_batches):
            cut.totals = {name: tf.constant(1.0) for name in names}
            cut.draws = Draws(seed, update, cut.size, cut.start, cut.stop)
            x, y, sample_weight = self.intake.take(tensors, rows, cut)
            with slices.entered(cut), keras.StatelessScope():  # what assigns or counts does so in the pass that trains
                predicted = batches.as_float32(self.model(x, training=False))
                self.model._compute_loss(x, y, predicted, sample_weight, training=False)
            counts = {name: counts[name] + cut.counts.get(name, 0.0) for name in names}
        return dict(zip(names, slices.sum_over_replicas(list(counts.values())), strict=True))

    def _global_loss(
        self, cut: Slice, x: Any, y: Any, predicted: Any, sample_weight: Any, *, training: bool
    ) -> dict[str, tf.Tensor]:
        """This slice's share of the mean losses over the global batch; a row that stands in has none."""
        loss = self.model._compute_loss(x, y, predicted, sample_weight, training=training)
        named = {f"{name}_loss": share for name, share in cut.losses.items()} if len(cut.losses) > 1 else {}
        if cut.parts == 1:
            return {"loss": tf.cast(loss, tf.float32), **named}
        return {"loss": cut.share_of(loss), **named}

    def whole_batch(self, gradients: list[Any], *, more: Sequence[Any] = ()) -> tuple[list[Any], list[Any]]:
        """Sum over replicas and undo the loss scale.

        ``more`` is summed too, in the same reduction: between processes, each one takes a millisecond.
        """
        whole = [g for g in gradients if not isinstance(g, tuple)]
        sums = slices.sum_over_replicas([*whole, *more])
        dense, others = iter(sums[: len(whole)]), sums[len(whole) :]
        rows = iter(slices.gathered([g for g in gradients if isinstance(g, tuple)]))
        gradients = [next(rows) if isinstance(g, tuple) else next(dense) for g in gradients]
        if self.loss_scale:
            scale = self.loss_scale.scale
            gradients = [(g[0] / scale, *g[1:]) if isinstance(g, tuple) else g / scale for g in gradients]
        return gradients, others

    def clipped(self, gradients: Any) -> Any:
        """Clip the gradients of the global batch, once it is known whether they are finite; called across replicas."""

        def clip(found: list[Any]) -> list[Any]:
            bounds = {kind: tf.convert_to_tensor(self.live.number(kind)) for kind in self.recipe.clipping}
            return clipping.clip(found, bounds)

        return self.strategy.run(clip, args=(gradients,)) if self.recipe.clipping else gradients


def _is_int32(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor) and bool(leaf.dtype == tf.int32)
