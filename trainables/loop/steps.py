"""What a slice of a batch computes: a compiled model and its losses, or a step that a model brings itself.

A step says what is computed; `loop/update.py` does the rest. The author's own step is in `loop/own_step.py`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from trainables.data.passes import gather_examples
from trainables.devices.replicas import Replicas
from trainables.loop.intake import Example, Intake
from trainables.numbers.draws import EVALUATION
from trainables.recipe import refusals
from trainables.recipe.author_updates import Turn, Update
from trainables.replicas import global_losses, keras_corrections, slices
from trainables.replicas.additivity import Mode
from trainables.replicas.global_losses import GlobalLoss, Noted
from trainables.replicas.slices import Slice
from trainables.state import owned

Shares: TypeAlias = dict[str, tf.Tensor]
"""What a slice adds to the mean values of its batch, by name."""


class Step(ABC):
    """What a slice of a batch computes, and what of it is minimised."""

    turns: tuple[Turn, ...] = ()
    """What is minimised, in order; nothing: the step takes and applies gradients itself."""
    spread: tuple[str, ...] = global_losses.SPREAD
    """What an evaluation tells beside, of how losses differ between examples."""
    by_itself = ""
    """Why the model trains itself, where it does."""
    follows_the_rate = True

    def __init__(self, model: keras.Model, losses: Sequence[GlobalLoss | Noted] = ()) -> None:
        """``losses``: what `global_losses.install` has made of the model's."""
        self.model, self.global_losses = model, losses

    @property
    def networks(self) -> Sequence[keras.Layer]:
        """The model, and what else takes part."""
        return [self.model]

    @property
    def counted_first(self) -> tuple[str, ...]:
        """The losses whose divisors only all slices know."""
        return tuple(loss.name for loss in self.global_losses if loss.counts_first)

    def prepare(self, replicas: Replicas, intake: Intake, example: Any) -> None:
        """Learn which values it gives for an example, before anything is traced."""
        return

    def losses(self, cut: Slice, example: Example, turn: Turn, *, counts: bool) -> tuple[Shares, Callable[[], None]]:
        """This slice's shares in training, and what counts it in the metrics once gradients are taken."""
        raise NotImplementedError  # a step that trains itself has no turns, for which this is asked

    @abstractmethod
    def evaluate(self, cut: Slice, example: Example, *, training: bool) -> Shares:
        """This slice's shares in evaluation, counted; of a step that trains itself, in training too."""

    def count_divisors(self, example: Example) -> None:
        """Compute a slice for the divisors of its losses alone."""
        x, y, sample_weight = example
        predicted = _as_float32(self.model(x, training=False))
        self.model._compute_loss(x, y, predicted, sample_weight, training=False)

    def uses(self, variables: Iterable[Any]) -> bool:
        """Return whether training uses any of these variables of the trial's optimizer: the loop applies it."""
        return True

    def refuse_untrained(self, update: Update) -> None:
        """Say that an update changes nothing, where that is a mistake."""
        return

    def zeros(self, *, training: bool) -> Shares:
        """Where the sums of an epoch, or of a validation, begin."""
        named = [f"{loss.name}_loss" for loss in self.global_losses] if len(self.global_losses) > 1 else []
        return {name: tf.constant(0.0) for name in ("loss", *named)}

    def added(self, totals: Shares, values: Shares, rows: tf.Tensor) -> Shares:
        """Sums of losses by examples, with one more batch."""
        examples = tf.cast(tf.shape(rows)[0], tf.float32)
        return {name: totals[name] + values[name] * examples for name in totals}

    def reported(self, metrics: Mapping[str, Any], sums: Mapping[str, tf.Tensor], seen: int) -> dict[str, Any]:
        """What an epoch, or a validation, of so many examples is reported as."""
        return {**metrics, **{name: float(total) / seen for name, total in sums.items()}}

    def measures(self, *, training: bool) -> bool:
        """Whether training or evaluation counts the metrics."""
        return True

    def metrics(self) -> Mapping[str, tf.Tensor]:
        """The metrics at present, but for the loss that is reported as a mean over examples."""
        return {name: value for name, value in self.model.get_metrics_result().items() if name != "loss"}

    def modes(self, intake: Intake, *, validates: bool) -> list[Mode]:
        """What must follow from the parts of a batch, see `additivity`: training, and evaluation where there is one."""
        raise NotImplementedError  # a step that trains itself is refused on several slices

    def count(self, x: Any, y: Any, predicted: Any, sample_weight: Any) -> tf.Tensor:
        """Count these examples."""
        returned = self.model.compute_metrics(x, y, predicted, sample_weight)
        if refusals.own_methods(self.model, "compute_metrics"):
            refusals.check_metrics(self.model, returned)
        return tf.constant(0)

    def count_metrics(self, cut: Slice, example: Example, predicted: Any) -> None:
        """Count a slice, unless a row stands in for it."""
        x, y, sample_weight = example
        given = x, y, predicted, sample_weight
        if cut.real is None:
            self.count(*given)
            return
        # A branch takes int32 from the host's memory.
        wide = tf.nest.map_structure(lambda t: tf.cast(t, tf.int64) if _is_int32(t) else t, given)

        def count_real() -> tf.Tensor:
            return self.count(
                *tf.nest.map_structure(lambda t, w: tf.cast(w, tf.int32) if w is not t else t, given, wide)
            )

        tf.cond(cut.real, count_real, lambda: tf.constant(0))

    def compiled(self, cut: Slice, example: Example, *, training: bool) -> tuple[Any, Shares]:
        """The outputs of the model, and this slice's shares of its compiled losses; a row that stands in has none."""
        x, y, sample_weight = example
        predicted = _as_float32(self.model(x, training=training))
        loss = self.model._compute_loss(x, y, predicted, sample_weight, training=training)
        named = {f"{name}_loss": share for name, share in cut.losses.items()} if len(cut.losses) > 1 else {}
        if cut.parts == 1:
            return predicted, {"loss": tf.cast(loss, tf.float32), **named}
        return predicted, {"loss": cut.share_of(loss), **named}

    def evaluate_compiled(self, cut: Slice, example: Example) -> Shares:
        """The evaluation by compiled losses and metrics."""
        cut.examples = None if refusals.own_methods(self.model, "compute_loss") else []
        predicted, shares = self.compiled(cut, example, training=False)
        self.count_metrics(cut, example, predicted)
        return shares

    def compiled_mode(self, intake: Intake, *, training: bool) -> Mode:
        """Training or evaluation by compiled losses and metrics, for `additivity`."""
        compute = functools.partial(self._tried, intake, training=training)
        name, calls = ("training", 0) if training else ("evaluation", EVALUATION)
        return Mode(name, compute, training=training, calls=calls, totals=self.counted_first)

    def _tried(self, intake: Intake, tensors: Any, rows: tf.Tensor, cut: Slice, *, training: bool) -> Shares:
        """This slice's shares of what layers add to the loss, of each loss and of their sum."""
        example = intake.take(tensors, rows, cut) if training else gather_examples(tensors, rows[cut.start : cut.stop])
        predicted, losses = self.compiled(cut, example, training=training)
        added = keras_corrections.added_losses(self.model)
        self.count_metrics(cut, example, predicted)
        total = losses.pop("loss")
        return {
            **{f"what layer {name} adds to the loss": cut.share_of(value) for name, value in added.items()},
            **{f"the loss {name.removesuffix('_loss')!r} of a batch": value for name, value in losses.items()},
            "the loss of a batch": total,
        }


class CompiledStep(Step):
    """A model with the losses and metrics that it is compiled with."""

    def __init__(self, model: keras.Model, losses: Sequence[GlobalLoss | Noted], intake: Intake) -> None:
        super().__init__(model, losses)
        self.turns = ((Update("loss", model),),)
        self._check_losses = intake.check_losses

    def losses(self, cut: Slice, example: Example, turn: Turn, *, counts: bool) -> tuple[Shares, Callable[[], None]]:
        """This slice's shares of the losses."""
        predicted, shares = self.compiled(cut, example, training=True)
        self._check_losses(cut)
        return shares, lambda: self.count_metrics(cut, example, predicted)

    def evaluate(self, cut: Slice, example: Example, *, training: bool) -> Shares:
        """This slice's shares of the losses."""
        return self.evaluate_compiled(cut, example)

    def modes(self, intake: Intake, *, validates: bool) -> list[Mode]:
        """Training, and evaluation where there is one."""
        return [self.compiled_mode(intake, training=training) for training in ((True, False) if validates else (True,))]


class KerasStep(Step):
    """A model's own `train_step` and `test_step`, called with batches as `Model.fit` calls them, on one replica.

    It reports what `fit` does: the model's metrics, or the values of the last batch where they have other names.
    """

    spread = ()

    def __init__(self, model: keras.Model, because: str, *, follows_the_rate: bool) -> None:
        """``because``: which steps are the model's own."""
        super().__init__(model)
        self.by_itself, self.follows_the_rate = because, follows_the_rate
        self._used: set[int] = set()  # handles of variables, by identity, that its training uses
        self._shapes: Callable[[bool], Mapping[str, tf.TensorShape]]

    def prepare(self, replicas: Replicas, intake: Intake, example: Any) -> None:
        """Be ready to learn which values both steps give."""

        @functools.cache
        def shapes(training: bool) -> Mapping[str, tf.TensorShape]:
            compute = functools.partial(self.evaluate, training=training)
            return shapes_of(compute, replicas, intake if training else None, example, self._used if training else None)

        self._shapes = shapes

    def uses(self, variables: Iterable[Any]) -> bool:
        """Return whether the model's own training uses any of these variables, once it was traced."""
        self._shapes(True)
        return any(id(variable.handle) in self._used for variable in variables)

    def evaluate(self, cut: Slice, example: Example, *, training: bool) -> Shares:
        """Run a step; its values by name."""
        step, name = (self.model.train_step, "train_step") if training else (self.model.test_step, "test_step")
        returned = step(as_fit_takes(example))
        if not isinstance(returned, Mapping) or not returned:
            raise refusals.Refused(
                f"{type(self.model).__name__}.{name}() returned {type(returned).__name__}, expected a dictionary of "
                "names and values"
            )
        return {name: tf.cast(value, tf.float32) for name, value in _flat(returned)}

    def zeros(self, *, training: bool) -> Shares:
        """Values of the right shapes, for the first batch to replace."""
        return {name: tf.zeros(shape) for name, shape in self._shapes(training).items()}

    def added(self, totals: Shares, values: Shares, rows: tf.Tensor) -> Shares:
        """The values of the last batch."""
        return {name: values[name] for name in totals}

    def reported(self, metrics: Mapping[str, Any], sums: Mapping[str, tf.Tensor], seen: int) -> dict[str, Any]:
        """As `Model.fit` chooses between the two."""
        return dict(metrics) if set(metrics) == set(sums) else {name: value.numpy() for name, value in sums.items()}

    def metrics(self) -> Mapping[str, tf.Tensor]:
        """All of the model's."""
        found: Mapping[str, tf.Tensor] = self.model.get_metrics_result()
        return found


def shapes_of(
    compute: Callable[[Slice, Example], Shares],
    replicas: Replicas,
    intake: Intake | None,
    example: Any,
    used: set[int] | None = None,
) -> dict[str, tf.TensorShape]:
    """What ``compute`` gives for an example by name, in training or (without an ``intake``) in evaluation.

    A trace that is thrown away; ``used`` gets the handles of the variables that it used, by identity.
    """
    found: dict[str, tf.TensorShape] = {}

    def on_each() -> None:
        tensors, one = tf.nest.map_structure(tf.convert_to_tensor, example), tf.constant(1)
        cut = Slice.whole(one, "keras")
        cut.draw(one, one, 0 if intake else EVALUATION)
        rows = tf.constant([0])
        given = intake.take(tensors, rows, cut) if intake else gather_examples(tensors, rows)
        with slices.entered(cut):
            found.update({name: value.shape for name, value in compute(cut, given).items()})

    traced = tf.function(lambda: replicas.run(on_each), autograph=False).get_concrete_function()
    if used is not None:
        used |= owned.captured_by([traced.graph])
    return found


def as_fit_takes(example: Example) -> Any:
    """A batch as Keras hands it on, x alone where there are no targets; a `Dataset` would take lists for tensors."""
    x, y, weight = (None if part is None else keras.tree.lists_to_tuples(part) for part in example)
    return keras.utils.pack_x_y_sample_weight(x, y, weight)


def _flat(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The values by name, those of inner dictionaries among them."""
    return [
        leaf
        for name, value in values.items()
        for leaf in (_flat(value) if isinstance(value, Mapping) else [(str(name), value)])
    ]


def _is_int32(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor) and bool(leaf.dtype == tf.int32)


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
