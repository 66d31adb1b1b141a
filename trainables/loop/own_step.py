"""A training step of the author's own in our loop: he gives losses, gradients and updates are made here.

So gradients are those of the global batch, clipped, unscaled and applied as in `update.py`, whatever the number of
networks, optimizers, replicas and micro-batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import keras
import tensorflow as tf

from trainables.loop import batches, sharpness
from trainables.loop.finiteness import Before
from trainables.loop.update import Graph
from trainables.numbers.draws import EVALUATION, Draws
from trainables.recipe import updates
from trainables.recipe.refusals import Refused
from trainables.recipe.updates import Batch, Turn, Update
from trainables.replicas import by_example, slices
from trainables.replicas.additivity import Mode
from trainables.replicas.slices import Slice

CALLS = 2**10
"""Where the draws of each further turn of a batch are counted from."""
TOLD = "_step() gives {what!r} of {whole:.6g} for {size} examples and {parts:.6g} as the mean of their parts"
HINT = (
    "Return one number for each example; a loss that compares examples takes those of the whole batch from "
    "batch.gather()"
)

Step = Callable[[Batch], Mapping[str, Any]]


class StepGraph(Graph):
    """As `Graph`, with the author's `train_step` in the place of model and loss, and `test_step` where he has one."""

    def __init__(
        self,
        *given: Any,
        train_step: Step,
        test_step: Step | None,
        turns: Sequence[Turn],
        networks: Sequence[keras.Layer],
        **named: Any,
    ) -> None:
        """``networks``: all that take part, trained or not."""
        super().__init__(*given, **named)
        self._train_step, self._test_step, self._turns, self._others = train_step, test_step, turns, networks
        self.optimizer_of = {id(update): its for update, its in updates.optimizers(turns, self.model.optimizer)}
        self._names: tuple[tuple[str, ...], tuple[str, ...]] = (), ()  # of training and of evaluation
        self._changed: dict[int, list[keras.Variable]] = {}  # by update, known once traced
        self._drawn: dict[int, dict[int, tuple[Any, int]]] = {}  # of seed generators, at the end of each turn
        self._measured: set[bool] = set()  # whether training, and whether evaluation, count metrics

    # ---- what others ask for

    @property
    def networks(self) -> Sequence[keras.Layer]:
        """The model, and what else takes part."""
        return self._others

    @property
    def seeds_from(self) -> slices.Seeds:
        """All turns see the same examples, which are drawn for each of them."""
        return super().seeds_from if len(self._turns) == 1 else "counted"

    @property
    def trained(self) -> list[keras.Variable]:
        """The weights of all updates."""
        found = {id(v): v for turn in self._turns for update in turn for v in update.variables}
        return list(found.values())

    @property
    def optimizers(self) -> Sequence[Any]:
        """Those of all updates, each once."""
        return [*{id(its): its for its in (self.model.optimizer, *self.optimizer_of.values())}.values()]

    @property
    def rated(self) -> Sequence[Any]:
        """The optimizers that follow the trial's learning rate."""
        updates = [update for turn in self._turns for update in turn]
        return [self.optimizer_of[id(u)] for u in updates if u.optimizer is None or u.rate is not None]

    @property
    def more_variables(self) -> list[keras.Variable]:
        """The variables of all networks and optimizers."""
        parts = [*self.networks, *self.optimizer_of.values()]
        return list({id(v): v for part in parts for v in part.variables}.values())

    def prepare(self, example: Any) -> None:
        """Learn which values the steps return for an example, by traces that are thrown away."""
        trained: dict[str, Any] = {}
        for number, turn in enumerate(self._turns):
            trained |= dict.fromkeys(self._traced_names(example, number, turn))
        self._names = tuple({"loss": None, **trained}), ()
        if self._test_step is not None:
            self._names = self._names[0], tuple(self._traced_names(example, None, ()))
        if self.model._compile_metrics is not None and not (self._measured or self.loses):
            raise Refused("metrics() are never counted: call batch.measure(outputs) in train_step() or test_step()")
        if self.watch:
            self.watch.prepare({name: tf.constant(0.0) for name in self._names[0]}, self.trained)

    def zeros(self, *, training: bool) -> dict[str, tf.Tensor]:
        """Where the sums of an epoch begin: a mean for each value that a step returns."""
        if not training and self._test_step is None:
            return super().zeros(training=False)
        watched = self.watch.names if training and self.watch else ()
        return {name: tf.constant(0.0) for name in (*self._names[0 if training else 1], *watched)}

    # ---- what is traced, across replicas

    def update(
        self, tensors: Any, rows: tf.Tensor, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """All turns of one batch."""
        values: dict[str, tf.Tensor] = {}
        minimised: dict[str, tf.Tensor] = {}
        finite = applied = tf.constant(True)
        found: list[tuple[Any, keras.Variable]] = []
        for place, turn in enumerate(self._turns):
            for update in turn:
                self._rate(update, rate)
            before = Before(self.strategy, self.state) if self.loss_scale else None
            again = functools.partial(self._of_turn, turn=turn, place=place, again=True)
            run = functools.partial(self._of_turn, turn=turn, place=place)
            gradients, means = self.strategy.run(run, args=(tensors, rows, seed, number))
            means = self.summed(means)
            if self.recipe.sharpness:
                with ExitStack() as stack:
                    others = [*self.state, *self.counters]
                    for update, part in zip(turn, gradients, strict=True):
                        changed, rho = self._changed[id(update)], self.live.number("sam_rho")
                        stack.enter_context(sharpness.climbed(self.strategy, changed, part, rho, others))
                        others = []
                    gradients, _ = self.strategy.run(again, args=(tensors, rows, seed, number))
            losses = {update.loss: means[update.loss] for update in turn}
            total = tf.add_n(list(losses.values()))
            good = self.are_finite(gradients, total)
            gradients = [self.clipped(part) for part in gradients]
            self._apply_turn(turn, gradients)
            if self.loss_scale and before:
                self.loss_scale.update(good)
                before.put_back(unless=good)
                applied = tf.logical_and(applied, good)
                good = tf.math.is_finite(total)
            finite = tf.logical_and(finite, good)
            values |= means
            minimised |= losses
            flat_ones = [g for part in gradients for g in self.one_of_each(part)]
            variables = [v for update in turn for v in self._changed[id(update)]]
            found += list(zip(flat_ones, variables, strict=True))
        if self.average:
            averaged = Before(self.strategy, self.average.state) if self.loss_scale else None
            self.average.update()
            if averaged:
                averaged.put_back(unless=applied)
        values |= minimised
        values = {"loss": tf.add_n(list(minimised.values())), **values}
        if self.watch:
            values |= self.watch(number, values, [g for g, _ in found], [v for _, v in found])
        return values, finite

    def _rate(self, update: Update, rate: tf.Tensor) -> None:
        optimizer = self.optimizer_of[id(update)]
        if update.optimizer is None:
            self.set_rate(rate)
        elif update.rate is not None and isinstance(optimizer.learning_rate, keras.Variable):
            optimizer.learning_rate.assign(rate * tf.convert_to_tensor(update.rate))

    def _apply_turn(self, turn: Turn, gradients: Any) -> None:
        def apply(found: list[list[Any]]) -> None:
            for update, part in zip(turn, found, strict=True):
                self.optimizer_of[id(update)].apply([batches.as_slices(g) for g in part], self._changed[id(update)])

        self.strategy.run(apply, args=(gradients,))

    # ---- what is traced, on each replica

    def _of_turn(
        self,
        tensors: Any,
        rows: tf.Tensor,
        seed: tf.Tensor,
        number: tf.Tensor,
        *,
        turn: Turn,
        place: int,
        again: bool = False,
    ) -> tuple[list[list[Any]], dict[str, tf.Tensor]]:
        """The gradients of each update over the global batch, and this replica's shares of the mean values."""
        weights = [update.variables for update in turn]
        sums: list[list[Any]] = [[None] * len(part) for part in weights]
        values: dict[str, tf.Tensor] = {}
        for cut in batches.cuts(tf.shape(rows)[0], self.recipe.micro_batches):
            cut.draws, cut.seeds = Draws(seed, number, cut.size, cut.start, cut.stop), self.seeds_from
            known = [g for part in sums for g in part if g is not None]
            x, y, sample_weight = self.intake.take(tensors, rows, cut, after=known)
            with slices.entered(cut):
                if place:
                    cut.draws = Draws(seed, number, cut.size, cut.start, cut.stop, place * CALLS)
                    cut.draws.seeds = dict(self._drawn[place - 1])
                with tf.GradientTape(persistent=len(turn) > 1) as tape:
                    shares = self._shares(cut, x, y, sample_weight, turn, counts=not again)
                    scale = self.loss_scale.scale if self.loss_scale else 1.0
                    scaled = [shares[update.loss] * scale for update in turn]
                found = [tape.gradient(loss, part) for loss, part in zip(scaled, weights, strict=True)]
            sums = [
                [self.add(old, new) for old, new in zip(*parts, strict=True)] for parts in zip(sums, found, strict=True)
            ]
            values = {name: values.get(name, 0.0) + share for name, share in shares.items()}
            self._drawn[place] = cut.draws.seeds
            self.seeds.note(cut.draws)
        for update, part, grads in zip(turn, weights, sums, strict=True):
            self._changed[id(update)] = [v for v, g in zip(part, grads, strict=True) if g is not None]
            if not self._changed[id(update)]:
                raise Refused(f"train_step() returns {update.loss!r}, which depends on none of the weights it trains")
        return [self.whole_batch([g for g in part if g is not None])[0] for part in sums], values

    def _shares(
        self, cut: Slice, x: Any, y: Any, sample_weight: Any, turn: Turn, *, counts: bool
    ) -> dict[str, tf.Tensor]:
        """This slice's shares of the mean values of the author's step; a row that stands in has none."""
        training = bool(turn)

        def measure(predicted: Any) -> None:
            if self.model._compile_metrics is None:
                raise Refused("batch.measure() has nothing to count; define metrics()")
            self._measured.add(training)
            if counts:
                self.count_metrics(cut, x, y, predicted, sample_weight)

        batch = Batch(
            x,
            y,
            sample_weight,
            cut.draws,
            turn="+".join(update.loss for update in turn),
            first=cut.start,
            size=cut.size,
            gather=functools.partial(self._gathered, cut),
            measure=measure,
            one_hot=functools.partial(_one_hot, cut, y),
        )
        name, step = ("train_step", self._train_step) if training else ("test_step", self._test_step)
        means = updates.means(step(batch), name)  # type: ignore[misc]  # it is asked for where there is one
        if sample_weight is not None and not batch.weight_was_read:
            raise Refused(
                f"the examples have weights (of the data, or class_weights), and {name}() does not read "
                "batch.sample_weight; multiply its losses by them"
            )
        if batch.y_was_read:
            self.intake.check_losses(cut)
        missing = [update.loss for update in turn if update.loss not in means]
        if missing:
            raise Refused(f"train_step() returned {', '.join(means)}, expected {' and '.join(missing)} among them")
        if self.recipe.micro_batches > 1 and any(loss.counts_first for loss in self.losses):
            raise Refused(
                f"{name}() has a masked or weighted mean, whose divisor micro_batches do not know; leave them"
            )
        if cut.parts == 1:
            return means
        return {name: cut.share_of(mean) for name, mean in means.items()}

    def _gathered(self, cut: Slice, values: Any) -> Any:
        """Values of all examples of the batch, in its order."""
        if cut.parts == 1:
            return values
        if self.recipe.micro_batches > 1:
            raise Refused("batch.gather() needs the whole batch, which micro_batches compute part by part; leave them")
        context = tf.distribute.get_replica_context()
        return tf.nest.map_structure(lambda leaf: context.all_gather(leaf[: cut.count], 0), values)

    def evaluate(self, tensors: Any, rows: tf.Tensor, seed: tf.Tensor, batch: tf.Tensor) -> dict[str, tf.Tensor]:
        if self._test_step is None:
            return super().evaluate(tensors, rows, seed, batch)
        (cut,) = batches.cuts(tf.shape(rows)[0], 1)
        x, y, sample_weight = batches.take(tensors, rows[cut.start : cut.stop])
        cut.draws = Draws(seed, batch, cut.size, cut.start, cut.stop, EVALUATION)
        cut.seeds = "keras" if cut.parts == 1 else "counted"
        with slices.entered(cut):
            found = self._shares(cut, x, y, sample_weight, (), counts=True) | by_example.shares(cut)
        self.seeds_of_evaluation.note(cut.draws)
        return found

    def measures(self, *, training: bool) -> bool:
        """Whether training or evaluation counts the metrics."""
        return training in self._measured or (self.loses and not training)

    @property
    def loses(self) -> bool:
        """Whether evaluation is that of the compiled losses and metrics."""
        return self._test_step is None and self.model._compile_loss is not None

    # ---- looking ahead

    def _traced_names(self, example: Any, place: int | None, turn: Turn) -> list[str]:
        names: list[str] = []

        def on_each() -> None:
            tensors, one = tf.nest.map_structure(tf.convert_to_tensor, example), tf.constant(1)
            cut = Slice(one, tf.constant(0), one, seeds="keras")
            cut.draws = Draws(one, one, one, cut.start, cut.stop, EVALUATION if place is None else 0)
            rows = tf.constant([0])
            x, y, weight = self.intake.take(tensors, rows, cut) if turn else batches.take(tensors, rows)
            with slices.entered(cut):
                names[:] = self._shares(cut, x, y, weight, turn, counts=True)

        _trace(lambda: self.strategy.run(on_each))
        return names

    def modes(self, *, validates: bool) -> list[Mode]:
        """The turns of a batch, and the evaluation."""
        turns = {id(turn): (place, turn) for place, turn in reversed(list(enumerate(self._turns)))}
        steps: list[tuple[int, Turn]] = [*turns.values(), *([(0, ())] if validates and self._test_step else [])]
        found = [
            Mode(
                "training" if turn else "evaluation",
                functools.partial(self._tried_step, turn=turn),
                training=bool(turn),
                calls=place * CALLS if turn else EVALUATION,
                totals=self.counted_first,
                told=("train" if turn else "test") + TOLD,
                hint=HINT,
            )
            for place, turn in steps
        ]
        return found + ([self.evaluation_mode] if validates and self.loses else [])

    def _tried_step(self, tensors: Any, rows: tf.Tensor, cut: Slice, *, turn: Turn) -> dict[str, tf.Tensor]:
        take = functools.partial(self.intake.take, cut=cut) if turn else batches.take
        x, y, sample_weight = take(tensors, rows if turn else rows[cut.start : cut.stop])
        return self._shares(cut, x, y, sample_weight, turn, counts=True)


def _one_hot(cut: Slice, labels: Any, classes: int) -> tf.Tensor:
    mixture = cut.mixture(labels)
    if mixture is None:
        return tf.one_hot(labels, classes)
    mixture.lost = True
    share = tf.reshape(mixture.share, [-1, *[1] * labels.shape.rank])
    return share * tf.one_hot(mixture.own, classes) + (1 - share) * tf.one_hot(mixture.other, classes)


def _trace(function: Callable[[], Any]) -> None:
    tf.function(function, autograph=False).get_concrete_function()
