"""A training step of the author's own in our loop: it gives losses; gradients and updates are made in `update.py`.

So gradients are those of the global batch, clipped, unscaled and applied as any, whatever the number of networks,
optimizers, replicas and micro-batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from trainables.data.passes import gather_examples
from trainables.devices.replicas import Replicas, gathered
from trainables.loop.intake import Example, Intake
from trainables.loop.steps import Shares, Step, shapes_of
from trainables.loop.update import CALLS
from trainables.numbers.draws import EVALUATION
from trainables.recipe import author_updates
from trainables.recipe.author_updates import Batch, Turn, Update
from trainables.recipe.refusals import Refused
from trainables.replicas.additivity import Mode
from trainables.replicas.global_losses import GlobalLoss, Noted
from trainables.replicas.slices import Slice

TOLD = "_step() gives {what!r} of {whole:.6g} for {size} examples and {parts:.6g} as the mean of their parts"
HINT = (
    "Return one number for each example; a loss that compares examples takes those of the whole batch from "
    "batch.gather()"
)

Own: TypeAlias = Callable[[Batch], Mapping[str, Any]]


class AuthorStep(Step):
    """The author's `train_step` in the place of model and loss, and `test_step` where there is one."""

    def __init__(
        self,
        model: keras.Model,
        losses: Sequence[GlobalLoss | Noted],
        steps: tuple[Own, Own | None],
        turns: tuple[Turn, ...],
        networks: Sequence[keras.Layer],
        *,
        micro_batches: int,
    ) -> None:
        """``steps``: those of training and evaluation; ``networks``: all that take part, trained or not."""
        super().__init__(model, losses)
        (self._train_step, self._test_step), self.turns, self._networks = steps, turns, networks
        self._micro_batches = micro_batches
        self._names: tuple[tuple[str, ...], tuple[str, ...]] = (), ()  # of training and of evaluation
        self._measured: set[bool] = set()  # whether training, and whether evaluation, count metrics
        self._check_losses: Callable[[Slice], None]

    @property
    def networks(self) -> Sequence[keras.Layer]:
        """The model, and what else takes part."""
        return self._networks

    @property
    def _is_compiled(self) -> bool:
        """Whether evaluation is that of the compiled losses and metrics."""
        return self._test_step is None and self.model._compile_loss is not None

    def prepare(self, replicas: Replicas, intake: Intake, example: Any) -> None:
        """Learn which values the steps return for an example, by traces that are thrown away."""
        self._check_losses = intake.check_losses
        trained: dict[str, Any] = {"loss": None}
        for turn in self.turns:
            trained |= shapes_of(functools.partial(self._shares, turn=turn, counts=True), replicas, intake, example)
        self._names = tuple(trained), ()
        if self._test_step is not None:
            compute = functools.partial(self._shares, turn=(), counts=True)
            self._names = self._names[0], tuple(shapes_of(compute, replicas, None, example))
        if self.model._compile_metrics is not None and not (self._measured or self._is_compiled):
            raise Refused("metrics() are never counted: call batch.measure(outputs) in train_step() or test_step()")

    def zeros(self, *, training: bool) -> Shares:
        """Where the sums of an epoch begin: a mean for each value that a step returns."""
        if not training and self._test_step is None:
            return super().zeros(training=False)
        return {name: tf.constant(0.0) for name in self._names[0 if training else 1]}

    def measures(self, *, training: bool) -> bool:
        """Whether training or evaluation counts the metrics."""
        return training in self._measured or (self._is_compiled and not training)

    def refuse_untrained(self, update: Update) -> None:
        """Raise Refused."""
        raise Refused(f"train_step() returns {update.loss!r}, which depends on none of the weights it trains")

    def losses(self, cut: Slice, example: Example, turn: Turn, *, counts: bool) -> tuple[Shares, Callable[[], None]]:
        """This slice's shares of the values of a turn, which `Batch.measure` has counted."""
        return self._shares(cut, example, turn, counts=counts), lambda: None

    def evaluate(self, cut: Slice, example: Example, *, training: bool) -> Shares:
        """This slice's shares of what the author's step gives, or of the compiled losses."""
        if self._test_step is None:
            return self.evaluate_compiled(cut, example)
        return self._shares(cut, example, (), counts=True)

    def _shares(self, cut: Slice, example: Example, turn: Turn, *, counts: bool) -> Shares:
        """This slice's shares of the mean values of the author's step; a row that stands in has none."""
        x, y, sample_weight = example
        training = bool(turn)

        def measure(predicted: Any) -> None:
            if self.model._compile_metrics is None:
                raise Refused("batch.measure() has nothing to count; define metrics()")
            self._measured.add(training)
            if counts:
                self.count_metrics(cut, example, predicted)

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
        means = author_updates.means(step(batch), name)  # type: ignore[misc]  # it is asked for where there is one
        if sample_weight is not None and not batch.weight_was_read:
            raise Refused(
                f"the examples have weights (of the data, or class_weights), and {name}() does not read "
                "batch.sample_weight; multiply its losses by them"
            )
        if batch.y_was_read:
            self._check_losses(cut)
        missing = [update.loss for update in turn if update.loss not in means]
        if missing:
            raise Refused(f"train_step() returned {', '.join(means)}, expected {' and '.join(missing)} among them")
        if self._micro_batches > 1 and self.counted_first:
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
        if self._micro_batches > 1:
            raise Refused("batch.gather() needs the whole batch, which micro_batches compute part by part; leave them")
        return gathered(tf.nest.map_structure(lambda leaf: leaf[: cut.count], values))

    def modes(self, intake: Intake, *, validates: bool) -> list[Mode]:
        """The turns of a batch, and the evaluation."""
        turns = {id(turn): (place, turn) for place, turn in reversed(list(enumerate(self.turns)))}
        steps: list[tuple[int, Turn]] = [*turns.values(), *([(0, ())] if validates and self._test_step else [])]
        found = [
            Mode(
                "training" if turn else "evaluation",
                functools.partial(self._tried_step, intake, turn=turn),
                training=bool(turn),
                calls=place * CALLS if turn else EVALUATION,
                totals=self.counted_first,
                told=("train" if turn else "test") + TOLD,
                hint=HINT,
            )
            for place, turn in steps
        ]
        compiled = validates and self._is_compiled
        return found + ([self.compiled_mode(intake, training=False)] if compiled else [])

    def _tried_step(self, intake: Intake, tensors: Any, rows: tf.Tensor, cut: Slice, *, turn: Turn) -> Shares:
        example = intake.take(tensors, rows, cut) if turn else gather_examples(tensors, rows[cut.start : cut.stop])
        return self._shares(cut, example, turn, counts=True)


def _one_hot(cut: Slice, labels: Any, classes: int) -> tf.Tensor:
    mixture = cut.mixture(labels)
    if mixture is None:
        return tf.one_hot(labels, classes)
    mixture.lost = True
    share = tf.reshape(mixture.share, [-1, *[1] * labels.shape.rank])
    return share * tf.one_hot(mixture.own, classes) + (1 - share) * tf.one_hot(mixture.other, classes)
