"""One update, from the examples of a batch to the weights.

Read `Graph.update` from top to bottom. A batch has one or more turns, each a tuple of updates that are applied at once.
For each turn, every replica computes the gradients of its slices; these are summed, unscaled, checked for NaN and
infinity, clipped and applied. Then averages of the weights are updated. A `Step` says what is computed of a slice.
Batch sizes, learning rates and orders are arguments, and live numbers are variables, so that other trials run the same
graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import keras
import tensorflow as tf

from trainables.data.passes import gather_examples
from trainables.devices.precision import LossScale
from trainables.devices.replicas import Replicas, gather_rows, sum_over_replicas
from trainables.loop.hooks import InGraphHook
from trainables.loop.intake import Example, Intake
from trainables.loop.steps import Step
from trainables.numbers.draws import EVALUATION, UsedGenerators, is_compiling
from trainables.numbers.finite import all_finite
from trainables.numbers.live import Live, LiveNumber
from trainables.recipe import author_updates, clipping
from trainables.recipe.author_updates import Turn, Update
from trainables.recipe.rates import get_rate_variable
from trainables.replicas import global_losses, slices
from trainables.replicas.random_layers import list_generators
from trainables.replicas.slices import Mode, Slice
from trainables.state import program_variables
from trainables.state.origins import is_seed_state

if TYPE_CHECKING:
    from trainables.recipe.averaging import Average

CALLS = 2**10
"""How many random draws a turn may make: the draws of the next turn of a batch are numbered from so many further on."""
TINY = 1e-12

Forward: TypeAlias = Callable[..., tuple[list[list[Any]], dict[str, tf.Tensor]]]
"""Function that computes a turn (updates that are applied together) on each replica; see `Graph.forward`."""


@dataclass(frozen=True)
class Recipe:
    """Settings of a trial that are fixed in the graph."""

    clipping: tuple[str, ...] = ()
    micro_batches: int = 1
    scale_loss: bool = False
    average: bool = False
    sharpness: bool = False  # sharpness-aware: gradients are taken where the loss nearby is highest
    by_epoch: bool = False  # weights are averaged at the ends of epochs


class Graph:
    """Training and evaluation of a step inside a graph; create it under the strategy's scope.

    ``intake`` prepares the examples of a slice for training.
    """

    def __init__(
        self,
        step: Step,
        replicas: Replicas,
        live: Live,
        recipe: Recipe,
        intake: Intake,
        own_average: float | None = None,
    ) -> None:
        """Create the variables that updates need besides those of the step.

        The numbers of ``recipe``, such as bounds for clipping, are created in ``live`` as well. ``own_average`` is the
        momentum with which the author's optimizer would average the weights, or None; it is ignored if ``recipe``
        averages.
        """
        self.step, self.model = step, step.model
        self.live = live
        self.replicas = replicas
        self.recipe = recipe
        self.intake = intake
        self.whole = replicas.number * recipe.micro_batches == 1  # each batch is a single slice
        self.traced: list[Any] = []  # graphs of training and evaluation
        # by update, once traced: the weights its loss depends on
        self._weights_with_gradients: dict[int, list[keras.Variable]] = {}
        # by update, once traced: the weights with sparse gradients
        self._weights_with_sparse_gradients: dict[int, list[keras.Variable]] = {}
        # by number of the turn: how far seed generators have drawn at its end (see `Draws.seeds`)
        self._seeds_after_turn: dict[int, dict[int, tuple[Any, int]]] = {}
        # by id() of the update; an update without an optimizer of its own has the trial's
        self.optimizer_of = {}
        for update, optimizer in author_updates.list_optimizers(step.turns, self.optimizer):
            self.optimizer_of[id(update)] = optimizer
        self.loss_scale = LossScale() if recipe.scale_loss else None
        momentum: LiveNumber | float | None = own_average
        if recipe.average:
            momentum = live.number("ema_momentum", standard=True)
        self.average: Average | None = None  # None: the weights are not averaged
        if momentum is not None:
            from trainables.recipe.averaging import Average

            self.average = Average(self.model.trainable_variables, momentum, replicas)
        # the author's batch hook, if any; whoever makes the graph sets this and `created` afterwards
        self.watch: InGraphHook | None = None
        self.created: Sequence[Any] = ()  # all variables that the author's methods have created
        # the seed generators that a batch draws from, in training and in evaluation
        self.seeds = UsedGenerators()
        self.seeds_of_evaluation = UsedGenerators()
        numbers = [*recipe.clipping]
        if recipe.sharpness:
            numbers.append("sam_rho")
        for name in numbers:
            # create it here, so that replicas, in their threads, only look it up
            live.number(name, standard=True)

    # ---- one update, in cross-replica context

    def update(
        self,
        tensors: Any,
        rows: tf.Tensor,
        rate: tf.Tensor,
        seed: tf.Tensor,
        number: tf.Tensor,
        forward: Forward | None = None,
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Train on one batch; return its losses by name, and whether losses and gradients are finite.

        Changes weights, optimizers, metrics, averages of weights and the loss scale. ``tensors`` has the examples, as
        `Intake.take` accepts them, and ``rows`` the row numbers of the batch in it. ``rate`` is the learning rate,
        ``seed`` and ``number`` (of the batch) determine random draws, and ``forward`` replaces the method `forward`,
        for XLA.

        A batch has one or more turns, groups of updates that are applied together. They are computed and applied one
        after the other. The losses are means over the batch, with the sum of those that are minimised as ``loss``, and
        values of the author's batch hook. If the model trains itself, they are what its step returns, and only its
        ``loss``, if any, must be finite.

        Without loss scaling, a turn with numbers that are not finite is applied, and the second result is False. With
        it, such a turn is undone, and the second result is only False if the turn's loss is not finite: gradients may
        overflow by the scale alone. While it is traced, raises Refused as `forward` does.
        """
        batch_arguments = tensors, rows, seed, number
        if not self.step.turns:
            return self._update_by_model(*batch_arguments, rate)
        values: dict[str, tf.Tensor] = {}
        minimised: dict[str, tf.Tensor] = {}
        finite = applied = tf.constant(True)  # applied: whether no turn was undone
        all_gradients: list[Any] = []
        all_weights: list[keras.Variable] = []
        for place, turn in enumerate(self.step.turns):
            for update in turn:
                self._set_rate(update, rate)
            if self.loss_scale:
                before = program_variables.SavedVariables(self.replicas, self.state)
            else:
                before = None
            # one list of gradients for each update of the turn
            compute = functools.partial(forward or self.forward, place=place)
            gradients, means = self.replicas.run(self._compute_gradients, compute, *batch_arguments)
            means = self.replicas.first(means)  # they are sums over replicas, and thus equal on all
            if self.recipe.sharpness:
                # take the gradients again, where the loss nearby is highest
                with self._climb(turn, gradients):
                    compute = functools.partial(compute, again=True)
                    gradients, _ = self.replicas.run(
                        self._compute_gradients, compute, *batch_arguments
                    )
            losses = {}
            for update in turn:
                losses[update.loss] = means[update.loss]
            total = tf.add_n(list(losses.values()))
            # Before clipping, which could make an infinite gradient finite.
            turn_is_finite = all_finite([total, *self.replicas.first(tf.nest.flatten(gradients))])
            gradients = self._clip(gradients)
            self._apply(turn, gradients)
            if self.loss_scale and before:  # `before` is always there with a loss scale
                self.loss_scale.update(turn_is_finite)
                before.restore(unless=turn_is_finite)
                applied = tf.logical_and(applied, turn_is_finite)
                # gradients may overflow by the scale, which is no divergence
                turn_is_finite = tf.math.is_finite(total)
            finite = tf.logical_and(finite, turn_is_finite)
            values |= means
            minimised |= losses
            for update, of_update in zip(turn, gradients, strict=True):
                all_gradients += of_update
                all_weights += self._weights_with_gradients[id(update)]
        self._count_average(applied)
        values |= minimised  # a later turn may return the same losses again; those that were minimised count
        values = {"loss": tf.add_n(list(minimised.values())), **values}
        if self.watch:  # the author's batch hook; gradients are the same on all replicas
            of_first_replica = [_convert_to_slices(self.replicas.first(g)) for g in all_gradients]
            values |= self.watch(number, values, of_first_replica, all_weights)
        return values, finite

    def _compute_gradients(
        self, compute: Forward, *arguments: Any
    ) -> tuple[list[list[Any]], dict[str, tf.Tensor]]:
        """Return, on each replica, the whole batch's gradients for each update of a turn, and the batch's mean losses.

        A turn is a group of updates that are applied together; ``compute`` is `forward` for a turn, and ``arguments``
        are its arguments. Gradients are without the loss scale. Both results are summed over replicas in one reduction,
        because each takes a millisecond between processes.
        """
        by_update, losses = compute(*arguments)
        flat, totals = self._sum_and_unscale(
            [g for gradients in by_update for g in gradients], more=[*losses.values()]
        )
        # put the flat list into one list for each update again
        remaining = iter(flat)
        summed = []
        for gradients in by_update:
            summed.append([next(remaining) for _ in gradients])
        return summed, dict(zip(losses, totals, strict=True))

    def forward(
        self,
        tensors: Any,
        rows: tf.Tensor,
        seed: tf.Tensor,
        number: tf.Tensor,
        *,
        place: int = 0,
        again: bool = False,
    ) -> tuple[list[list[Any]], dict[str, tf.Tensor]]:
        """Return, on each replica, the gradients for each update of a turn, and the turn's losses by name.

        A turn is a group of updates that are applied together; ``place`` is its number in the batch, from 0. Both
        results are sums over the replica's slices, and gradients still have the loss scale. Metrics and moving
        statistics are updated. ``again`` marks the second pass of sharpness-aware minimization, which does not update
        the metrics. Weights that a loss does not depend on are left out of its gradients, see `changed`; raises Refused
        if a loss depends on none and the step forbids that. A sparse gradient is a tuple of values, indices and shape.
        """
        turn = self.step.turns[place]
        weights = [update.variables for update in turn]
        sums: list[list[Any]] = []  # for each update, a gradient for each of its weights
        for of_update in weights:
            sums.append([None] * len(of_update))
        values: dict[str, tf.Tensor] = {}
        if self.recipe.micro_batches > 1:
            totals = self._count_first(tensors, rows, seed, number)
        else:
            totals = None
        for cut in slices.cut_for_replica(tf.shape(rows)[0], self.recipe.micro_batches):
            cut.totals = totals
            cut.seeds = self.seeds_from
            draws = cut.draw(seed, number)
            # One micro-batch after the other, because the graph would otherwise hold all their activations at once.
            example = self.intake.take(
                tensors, rows, cut, after=[g for part in sums for g in _drop_none(part)]
            )
            with slices.entering(cut):
                # all turns have the same augmented examples; the model then draws anew in each
                if place:
                    draws = cut.draw(seed, number, place * CALLS)
                    # generators go on where the turn before has stopped
                    draws.seeds = dict(self._seeds_after_turn[place - 1])
                # A tape that is asked for gradients several times, once for each update, must be persistent.
                with tf.GradientTape(persistent=len(turn) > 1) as tape:
                    shares, count = self.step.losses(cut, example, turn, counts=not again)
                    scaled = [shares[update.loss] for update in turn]
                    if self.loss_scale:
                        scale = self.loss_scale.scale
                        scaled = [loss * scale for loss in scaled]
                slice_gradients = []
                for loss, of_update in zip(scaled, weights, strict=True):
                    slice_gradients.append(tape.gradient(loss, of_update))
                if not again:
                    count()  # update the metrics
            sums = [self._add_all(old, new) for old, new in zip(sums, slice_gradients, strict=True)]
            values = {name: values.get(name, 0.0) + share for name, share in shares.items()}
            self._seeds_after_turn[place] = draws.seeds
            self.seeds.record(draws)
        for update, of_update, gradients in zip(turn, weights, sums, strict=True):
            pairs = list(zip(of_update, gradients, strict=True))
            self._weights_with_gradients[id(update)] = [v for v, g in pairs if g is not None]
            self._weights_with_sparse_gradients[id(update)] = [
                v for v, g in pairs if isinstance(g, tuple)
            ]
            if not self._weights_with_gradients[id(update)]:
                self.step.refuse_untrained(update)
        return [_drop_none(gradients) for gradients in sums], values

    def _add_all(self, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
        """Return the sums of the gradients in two lists, pair by pair, as `_add` makes them."""
        sums = []
        for of_old, of_new in zip(old, new, strict=True):
            sums.append(self._add(of_old, of_new))
        return sums

    def _add(self, old: Any, new: Any) -> Any:
        """Return the sum of two gradients, or the other one if one is None; a sparse one is (values, indices, shape).

        ``old`` is such a sum or None, and ``new`` as a tape returns it. Sparse gradients stay sparse, because Keras's
        optimizers treat them in another way, unless clipping or sharpness-aware minimization needs all values or
        ``old`` is dense. Keras squares each row of a sparse gradient separately, so rows that do not come from the
        examples (such as those of a table of positions) are added value by value, as in a batch that is not cut.
        """
        if new is None:
            return old
        needs_all_values = self.recipe.clipping or self.recipe.sharpness
        is_sparse = isinstance(new, tf.IndexedSlices) and not isinstance(old, tf.Tensor)
        if needs_all_values or not is_sparse:
            if old is None:
                return tf.convert_to_tensor(new)
            return tf.convert_to_tensor(old) + tf.convert_to_tensor(new)
        rows = new.values, tf.cast(new.indices, tf.int64), tf.cast(new.dense_shape, tf.int64)
        if old is None:
            return rows
        if _has_static_row_count(rows):  # both have the same rows
            return old[0] + rows[0], *rows[1:]
        values = tf.concat([old[0], rows[0]], 0)
        indices = tf.concat([old[1], rows[1]], 0)
        return values, indices, rows[2]

    def _count_first(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, number: tf.Tensor
    ) -> Mapping[str, tf.Tensor] | None:
        """Return the divisors of masked and weighted means over the whole batch, by loss; None if no loss needs them.

        This takes a forward pass over all slices of the batch, before the pass that trains; it changes no variables.
        """
        names = self.step.counted_first
        if not names:
            return None
        counts = {name: tf.constant(0.0) for name in names}
        for cut in slices.cut_for_replica(tf.shape(rows)[0], self.recipe.micro_batches):
            # Any divisors do: the losses of this pass are not used, only what it counts.
            cut.totals = {name: tf.constant(1.0) for name in names}
            cut.draw(seed, number)
            example = self.intake.take(tensors, rows, cut)
            # the pass that trains assigns variables
            with (
                slices.entering(cut),
                keras.StatelessScope(),
            ):
                self.step.count_divisors(example)
            counts = {name: counts[name] + cut.counts.get(name, 0.0) for name in names}
        return dict(zip(names, sum_over_replicas(list(counts.values())), strict=True))

    def _sum_and_unscale(
        self, gradients: list[Any], *, more: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Return gradients summed over replicas and divided by the loss scale, and ``more`` summed over replicas alone.

        A sparse gradient is a tuple of values, indices and shape. If its rows come from the examples, the rows of all
        replicas are joined instead of summed. ``more`` is not divided.
        """

        def is_joined(gradient: Any) -> bool:
            return isinstance(gradient, tuple) and not _has_static_row_count(gradient)

        to_sum = []
        to_join = []
        for g in gradients:
            if is_joined(g):
                to_join.append(g[:2])
            else:
                to_sum.append(_get_values(g))
        found = sum_over_replicas([*to_sum, *more])
        sums = iter(found[: len(to_sum)])
        others = found[len(to_sum) :]
        joined = iter(gather_rows(to_join))
        # take the results in the order of the gradients
        summed: list[Any] = []
        for g in gradients:
            if is_joined(g):
                summed.append((*next(joined), g[2]))
            else:
                summed.append(_replace_values(g, next(sums)))
        if self.loss_scale:
            scale = self.loss_scale.scale
            summed = [_replace_values(g, _get_values(g) / scale) for g in summed]
        return summed, others

    def _climb(self, turn: Turn, gradients: Sequence[Any]) -> ExitStack:
        """Move weights along their gradients, towards a higher loss; closing the returned stack restores them.

        ``turn`` has updates that are applied together, and ``gradients`` the gradients of each of them. Each update's
        own weights are moved a distance of ``sam_rho`` along the gradients of that update. What a forward pass changes
        (moving statistics, metrics and the states of random draws) is restored as well. This is the first step of
        sharpness-aware minimization, see `climbing`.
        """
        stack = ExitStack()
        others = [*self.state, *self.counters, *self.seed_states]
        for update, of_update in zip(turn, gradients, strict=True):
            weights = self._weights_with_gradients[id(update)]
            rho = self.live.number("sam_rho")
            stack.enter_context(climbing(self.replicas, weights, of_update, rho, others))
            others = []  # restored once, by the first of the contexts
        return stack

    def _clip(self, parts: Any) -> Any:
        """Return the gradients of the whole batch, clipped separately for each update; unchanged if nothing clips.

        ``parts`` and the result have a list of gradients for each update.
        """

        def clip(found: list[list[Any]]) -> list[list[Any]]:
            bounds = {}  # such as {"clipnorm": 1.0}
            for kind in self.recipe.clipping:
                bounds[kind] = tf.convert_to_tensor(self.live.number(kind))
            return [clipping.clip(of_update, bounds) for of_update in found]

        if self.recipe.clipping:
            return self.replicas.run(clip, parts)
        return parts

    def _apply(self, turn: Turn, parts: Any) -> None:
        """Change the weights by the gradients of each update and its optimizer, on all replicas.

        ``parts`` has a list of gradients for each update of the ``turn``. As in `Model.fit`, this calls
        `apply_gradients` of the optimizer, which an author's own may override.
        """

        def apply(found: list[list[Any]]) -> None:
            for update, of_update in zip(turn, found, strict=True):
                gradients = [_convert_to_slices(g) for g in of_update]
                weights = self._weights_with_gradients[id(update)]
                self.optimizer_of[id(update)].apply_gradients(zip(gradients, weights, strict=True))

        self.replicas.run(apply, parts)

    def _count_average(self, applied: tf.Tensor) -> None:
        """Add the updated weights to their average, unless the update was undone (``applied`` is False).

        Does nothing without an average. ``applied`` only matters with a loss scale.
        """
        if self.average is None:
            return
        if not self.loss_scale:  # no update is ever undone
            self.average.update()
            return
        before = program_variables.SavedVariables(self.replicas, self.average.state)
        self.average.update()
        before.restore(unless=applied)

    def _update_by_model(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, number: tf.Tensor, rate: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Make an update by a model's own `train_step`, on the only replica, at the learning rate ``rate``.

        The rate is not set if the model's optimizers keep their own. Return the step's values, and whether its ``loss``
        is finite (True if it returns none).
        """
        if self.step.follows_the_rate:
            self._assign_rate(self.optimizer, rate)

        values = self.replicas.first(
            self.replicas.run(
                self._run_on_whole_batch, self._train_by_model, tensors, rows, seed, number
            )
        )
        return values, all_finite([values.get("loss", tf.constant(0.0))])

    def _train_by_model(self, cut: Slice, example: Example) -> dict[str, tf.Tensor]:
        """Make one update by the model's own `train_step`, and return the values that it returns, by name."""
        return self.step.evaluate(cut, example, training=True)

    def losses(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, number: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Return the training losses of a batch without gradients, by name, and update the metrics with the batch.

        ``rows`` are the batch's row numbers in ``tensors``. Random draws, as of augmentation, depend on ``seed``, that
        of the trial, and ``number``, that of the update. An author's own `train_step` gives all its values, and
        metrics only if it calls `Batch.measure`. Only for one replica, without micro-batches, and if all updates of a
        batch are applied together (one `Turn`), as for several trials in one program. Raises Refused as `losses` of the
        step and `Intake.take` do.
        """

        def compute(cut: Slice, example: Example) -> dict[str, tf.Tensor]:
            shares, count = self.step.losses(cut, example, self.step.turns[0], counts=True)
            count()
            return shares

        return self._run_on_whole_batch(compute, tensors, rows, seed, number)

    def _run_on_whole_batch(
        self,
        compute: Callable[[Slice, Example], dict[str, tf.Tensor]],
        tensors: Any,
        rows: tf.Tensor,
        seed: tf.Tensor,
        number: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Return what ``compute`` returns for all examples of a batch, prepared for training, on the only replica.

        Random draws follow ``seed`` and ``number``, that of the update.
        """
        (cut,) = slices.cut_for_replica(tf.shape(rows)[0], 1)
        cut.seeds = self.seeds_from
        draws = cut.draw(seed, number)
        example = self.intake.take(tensors, rows, cut)
        with slices.entering(cut):
            values = compute(cut, example)
        self.seeds.record(draws)
        return values

    def evaluate(
        self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, batch: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Evaluate this replica's slice of a batch; return its contributions to the batch's means, and update metrics.

        ``batch`` is the number of the batch, on which random draws depend. The contributions of all replicas add up to
        the means. They include the sums for the standard deviation of the loss, unless the model trains itself.
        """
        (cut,) = slices.cut_for_replica(tf.shape(rows)[0], 1)
        example = gather_examples(tensors, rows[cut.start : cut.stop])
        draws = cut.draw(seed, batch, EVALUATION)
        if cut.parts == 1:  # otherwise all slices must draw from the same seeds
            cut.seeds = "keras"
        else:
            cut.seeds = "counted"
        with slices.entering(cut):
            values = self.step.evaluate(cut, example, training=False)
        self.seeds_of_evaluation.record(draws)
        if self.step.spread:
            return values | global_losses.compute_spread_shares(cut)
        return values

    # ---- for other modules

    @property
    def optimizer(self) -> Any:
        """The trial's optimizer; None if the model has no attribute ``optimizer``."""
        return getattr(self.model, "optimizer", None)

    @property
    def trained(self) -> list[keras.Variable]:
        """The weights that updates may change, each once; the model's trainable weights if it trains itself."""
        if not self.step.turns:
            return list(self.model.trainable_variables)
        distinct = {}
        for turn in self.step.turns:
            for update in turn:
                for variable in update.variables:
                    distinct[id(variable)] = variable
        return list(distinct.values())

    def changed(self, update: Update) -> Sequence[keras.Variable]:
        """Return those of an update's weights that its loss depends on; raises KeyError before training was traced."""
        return self._weights_with_gradients[id(update)]

    def changed_by_rows(self, update: Update) -> Sequence[keras.Variable]:
        """Return the weights, such as embeddings, for which an update has sparse gradients that are applied as such.

        Raises KeyError before training was traced.
        """
        return self._weights_with_sparse_gradients[id(update)]

    @property
    def seeds_from(self) -> slices.Seeds:
        """The source of the seeds for random draws in training: ``"keras"`` or ``"counted"``, see `slices.Seeds`.

        It is ``"keras"`` if a batch is one slice that is computed once (in one turn, without sharpness-aware
        minimization), and no function is being traced for XLA.
        """
        once = self.whole and len(self.step.turns) <= 1 and not self.recipe.sharpness
        if once and not is_compiling():
            return "keras"
        return "counted"

    @property
    def optimizers(self) -> Sequence[Any]:
        """The trial's optimizer, if it is one of Keras's class `Optimizer`, and those of all updates, each once."""
        found: list[Any] = []
        if isinstance(self.optimizer, keras.optimizers.Optimizer):
            found.append(self.optimizer)
        found += self.optimizer_of.values()
        return list({id(optimizer): optimizer for optimizer in found}.values())

    @property
    def rated(self) -> Sequence[Any]:
        """The optimizers that follow the trial's learning rate.

        These are all optimizers if the model trains itself, and otherwise those of updates that use the trial's
        optimizer or have a ``rate``.
        """
        if not self.step.turns:
            return self.optimizers
        distinct = {id(u): u for turn in self.step.turns for u in turn}.values()
        rated = []
        for u in distinct:
            uses_trial_optimizer = u.optimizer is None
            if uses_trial_optimizer or u.rate is not None:
                rated.append(self.optimizer_of[id(u)])
        return rated

    @property
    def variables(self) -> list[Any]:
        """The variables of model, networks, optimizers, metrics, loss scale and the average over updates, each once."""
        parts = [self.model, *self.optimizers, *self.step.networks]
        known = [v for part in parts for v in part.variables]
        if self.loss_scale:
            scale = self.loss_scale.variables
        else:
            scale = []
        found = [
            *known,
            *self.model.metrics_variables,
            *scale,
            *(self.average.state if self.average else []),
        ]
        return list({id(v): v for v in found}.values())

    @property
    def state(self) -> list[Any]:
        """All variables that an update may write, except those of metrics, seeds and the loss scale.

        They get their old values back when an update is undone. Those of metrics, seeds and the loss scale do not, as
        in Keras.
        """
        networks = [v for network in self.step.networks for v in network.variables]
        optimizers = [
            v
            for optimizer in self.optimizers
            for v in program_variables.list_optimizer_variables(optimizer)
        ]
        averages = self.average.state if self.average else []
        # `created` may have the raw TensorFlow variable of a Keras variable, so both are excluded
        excluded: set[int] = set()
        for v in (*self.counters, *self.seed_states):
            excluded.add(id(v))
            if isinstance(v, keras.Variable):
                excluded.add(id(v.value))
        found = []
        for v in (*networks, *optimizers, *self.created, *averages):
            if id(v) not in excluded:
                found.append(v)
        return found

    @property
    def seed_states(self) -> list[Any]:
        """The states of the networks' seed generators and of those that the author keeps elsewhere."""
        states: list[Any] = []
        for generator in list_generators(self.step.networks):
            states.append(generator.state)
        known = {id(state.value) for state in states}
        for raw in self.created:  # TensorFlow variables
            if is_seed_state(raw) and id(raw) not in known:
                states.append(raw)
        return states

    @property
    def counters(self) -> list[keras.Variable]:
        """The variables of the metrics of all networks that are models."""
        models = []
        for network in self.step.networks:
            if isinstance(network, keras.Model):
                models.append(network)
        return [v for model in models for v in model.metrics_variables]

    def begin_anew(self) -> None:
        """Forget which seed generators training uses; to be called before training is traced again."""
        self.seeds = UsedGenerators()

    def prepare(self, example: Any) -> None:
        """Find and store the names of the values that an update and the author's batch hook return, by extra traces.

        ``example`` is a batch of one. Raises Refused if a step or the hook returns something wrong.
        """
        self.step.prepare(self.replicas, self.intake, example)
        if self.watch:
            self.watch.prepare(self.step.zeros(training=True), self.trained)

    def zeros(self, *, training: bool) -> dict[str, tf.Tensor]:
        """Return zeros, by name, from which the values of an epoch or a validation are summed.

        Includes the values of the author's batch hook in training, and the sums for the standard deviation of the loss
        in evaluation. `prepare` must have been called.
        """
        more: Sequence[str] = ()
        if not training:
            more = self.step.spread
        elif self.watch:
            more = self.watch.names
        return self.step.zeros(training=training) | {name: tf.constant(0.0) for name in more}

    def modes(self, *, validates: bool) -> list[Mode]:
        """Return the step's modes that `additivity.check_parts` tests: training and, with ``validates``, evaluation."""
        return self.step.modes(self.intake, validates=validates)

    def _set_rate(self, update: Update, rate: tf.Tensor) -> None:
        """Set the learning rate of an update's optimizer to ``rate``, that of the trial.

        An update's own optimizer gets ``rate`` times ``update.rate``, or keeps its rate if ``update.rate`` is None.
        Schedules stay.
        """
        if update.optimizer is None:
            self._assign_rate(self.optimizer, rate)
        elif update.rate is not None:
            self._assign_rate(update.optimizer, rate * tf.convert_to_tensor(update.rate))

    def _assign_rate(self, optimizer: Any, rate: tf.Tensor) -> None:
        """Set the learning rate of ``optimizer`` to ``rate``, unless it has a schedule."""
        current = get_rate_variable(optimizer)
        if current is not None:  # an author's optimizer may have a schedule of its own
            current.assign(rate)


def _drop_none(gradients: Sequence[Any]) -> list[Any]:
    """Return the gradients that are not None, in their order."""
    return [gradient for gradient in gradients if gradient is not None]


def _get_values(gradient: Any) -> Any:
    """Return the values of a gradient, which is a tensor or, if it is sparse, a tuple that begins with them."""
    if isinstance(gradient, tuple):
        return gradient[0]
    return gradient


def _replace_values(gradient: Any, values: tf.Tensor) -> Any:
    """Return ``gradient`` with its values replaced by ``values``; a sparse gradient stays sparse."""
    if isinstance(gradient, tuple):
        return (values, *gradient[1:])
    return values


def _has_static_row_count(rows: tuple[Any, Any, Any]) -> bool:
    """Return whether the number of rows of a sparse gradient is known while tracing.

    The number of examples is unknown while tracing, so rows of a known number do not come from the examples and are the
    same for each part of a batch. ``rows`` has the values, indices and shape of the gradient.
    """
    return rows[1].shape.num_elements() is not None


@contextmanager
def climbing(
    replicas: Replicas,
    weights: Sequence[keras.Variable],
    gradients: Sequence[Any],
    rho: LiveNumber,
    others: Sequence[Any],
) -> Iterator[None]:
    """Move ``weights`` a distance ``rho`` along their gradients, towards a higher loss; restore them after the block.

    Source: Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, 2021, algorithm 1. The
    gradient's norm is taken for the whole batch; papers take it on each device, so that results depend on the number of
    devices. Nothing is restored if the block raises.

    ``others`` are variables that a forward pass may change (moving statistics, metrics); they are restored as well,
    because each batch must count once in them. Must be called in cross-replica context.
    """

    # the distances by which one replica moves its copies of the weights
    def compute_moves(found: Sequence[Any]) -> list[Any]:
        # no division by 0
        length = tf.convert_to_tensor(rho) / (tf.linalg.global_norm(found) + TINY)
        return [g * tf.cast(length, g.dtype) for g in found]

    before = program_variables.SavedVariables(replicas, [*weights, *others])
    moves = replicas.run(compute_moves, list(gradients))
    for weight, move in zip(weights, moves, strict=True):
        replicas.update_copies(weight.value, lambda w, d: w.assign_add(tf.cast(d, w.dtype)), move)
    yield
    before.restore()


def _convert_to_slices(gradient: Any) -> Any:
    """Return a sparse gradient, a tuple (values, indices, shape), as `tf.IndexedSlices`; any other one unchanged."""
    if isinstance(gradient, tuple):
        return tf.IndexedSlices(*gradient)
    return gradient
