"""Steps, which compute a slice of a batch: with a compiled model and its losses, or by a model's own `train_step`.

A slice is the part of a batch that one replica or micro-batch computes. A step says what is computed of it;
`loop/update.py` takes the gradients and applies them. The step for an author's `train_step` is in `loop/own_step.py`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from trainables import keras_private
from trainables.data.passes import gather_examples
from trainables.devices.replicas import Replicas
from trainables.loop.intake import Example, Intake
from trainables.numbers.draws import EVALUATION
from trainables.recipe import refusals
from trainables.recipe.author_updates import Turn, Update
from trainables.replicas import global_losses, keras_corrections, slices
from trainables.replicas.global_losses import GlobalLoss, RecordedLoss
from trainables.replicas.slices import Mode, Slice
from trainables.state import program_variables

Shares: TypeAlias = dict[str, tf.Tensor]
"""Contributions of a slice to the mean values of its batch, by name."""


class Step(ABC):
    """Computes the losses and metrics of a slice of a batch; subclasses define how.

    Call the methods that compute a slice inside `slices.entering` of that slice: losses and random draws follow the
    current slice of the thread, not an argument.
    """

    turns: tuple[Turn, ...] = ()
    """Updates of a batch in order; those in one turn are applied at once.

    Empty if the step applies gradients itself.
    """
    spread: tuple[str, ...] = global_losses.SPREAD
    """Names of the sums from which the standard deviation of the loss over examples is computed in evaluation."""
    by_itself = ""
    """Description of the steps that the model defines, if it trains itself."""
    follows_the_rate = True

    def __init__(
        self, model: keras.Model, losses: Sequence[GlobalLoss | RecordedLoss] = ()
    ) -> None:
        """Create a step with the losses that `global_losses.replace_losses` has returned for the model, if any."""
        self.model = model
        self.global_losses = losses

    @property
    def networks(self) -> Sequence[keras.Layer]:
        """The model and all other networks that take part; by default the model alone."""
        return [self.model]

    @property
    def counted_first(self) -> tuple[str, ...]:
        """The names of losses whose divisors are known only after a first pass over all slices of a batch."""
        return tuple(loss.name for loss in self.global_losses if loss.counts_first)

    def prepare(self, replicas: Replicas, intake: Intake, example: Any) -> None:
        """Find the names of the values that the step returns for ``example``; by default, do nothing.

        ``example`` is a batch of one training example, as it is before ``intake`` prepares it.
        """
        return

    def prepare_evaluation(self, example: Any | None) -> None:
        """Prepare evaluation for an example of the validation data, which may have another structure.

        ``example`` is None if there are none; does nothing by default. Called after `prepare`.
        """
        return

    def losses(
        self, cut: Slice, example: Example, turn: Turn, *, counts: bool
    ) -> tuple[Shares, Callable[[], None]]:
        """Return a slice's contributions to the training losses, and a function that adds the slice to the metrics.

        ``turn`` is the tuple of updates whose losses are wanted. The caller calls the function after the gradients are
        taken. If the batch has already been counted in the metrics, ``counts`` must be False and the function must not
        be called. Raises NotImplementedError for a step that trains itself.
        """
        raise NotImplementedError  # never called for a step that trains itself, as it has no turns

    @abstractmethod
    def evaluate(self, cut: Slice, example: Example, *, training: bool) -> Shares:
        """Return a slice's contributions to the losses in evaluation, by name, and add the slice to the metrics.

        A model that trains itself is also trained by this method if ``training`` is True; other steps ignore
        ``training``.
        """

    def run_model(self, cut: Slice, example: Example) -> None:
        """Run the model on a slice in training mode, which updates its moving statistics, without updating metrics.

        By default, the model is called with x.
        """
        self.model(example[0], training=True)

    def count_divisors(self, example: Example) -> None:
        """Run the model, in inference mode, and its losses on the examples of the slice that is entered.

        The losses store the divisors of masked and weighted means in `counts` of this slice; their values are dropped.
        Used before a batch is computed in micro-batches.
        """
        x, y, sample_weight = example
        predicted = _cast_to_float32(self.model(x, training=False))
        keras_private.compute_loss(self.model, x, y, predicted, sample_weight, training=False)

    def uses(self, variables: Iterable[Any]) -> bool:
        """Return whether training uses any of ``variables``, which belong to the trial's optimizer.

        Always True by default, because the loop applies the optimizer.
        """
        return True

    def refuse_untrained(self, update: Update) -> None:
        """Raise Refused for an update whose loss depends on no weight that it trains; by default, do nothing."""
        return

    def zeros(self, *, training: bool) -> Shares:
        """Return zeros (float32) from which the losses are summed over an epoch or a validation, by name.

        There is ``loss`` and, with several losses, ``<name>_loss`` for each of them.
        """
        names = ["loss"]
        if len(self.global_losses) > 1:
            for loss in self.global_losses:
                names.append(f"{loss.name}_loss")
        return {name: tf.constant(0.0) for name in names}

    def added(self, totals: Shares, values: Shares, rows: tf.Tensor) -> Shares:
        """Return ``totals`` plus the mean losses of one more batch, ``values``, times its number of examples.

        ``rows`` are the batch's rows, of which only the number matters. Losses that are not in ``totals`` are left out;
        all that are in it must be in ``values``.
        """
        examples = tf.cast(tf.shape(rows)[0], tf.float32)
        return {name: totals[name] + values[name] * examples for name in totals}

    def reported(
        self, metrics: Mapping[str, Any], sums: Mapping[str, tf.Tensor], examples: int
    ) -> dict[str, Any]:
        """Return ``metrics`` and the mean losses that are reported for an epoch or a validation.

        A mean loss is the loss in ``sums`` divided by ``examples``, the number of examples, which must not be 0. Means
        are rounded to float32, as those of Keras, so that the losses of `Model.fit` have the same bits. A mean loss
        replaces a metric of the same name.
        """
        means = {name: float(np.float32(float(total) / examples)) for name, total in sums.items()}
        return {**metrics, **means}

    def counts_metrics(self, *, training: bool) -> bool:
        """Return whether training (or evaluation, if ``training`` is False) updates the metrics; by default True."""
        return True

    def metrics(self) -> Mapping[str, tf.Tensor]:
        """Return the present metrics by name, without the loss, which is reported as a mean over examples."""
        others = {}
        for name, value in collect_metrics(self.model).items():
            if name != "loss":
                others[name] = value
        return others

    def modes(self, intake: Intake, *, validates: bool) -> list[Mode]:
        """Return training and, with ``validates``, evaluation as modes that `additivity.check_parts` tests.

        By default, raises NotImplementedError, because only a step that does not train itself can have several slices.
        """
        raise NotImplementedError  # a step that trains itself is refused on several slices

    def count(self, x: Any, y: Any, predicted: Any, sample_weight: Any) -> tf.Tensor:
        """Update the metrics with the examples, and return 0, because a branch of `tf.cond` must return a tensor.

        Raises Refused if the model's own `compute_metrics` returns keys that belong to no metric object.
        """
        returned = self.model.compute_metrics(x, y, predicted, sample_weight)
        if refusals.list_overridden_methods(self.model, "compute_metrics"):
            refusals.check_metrics(self.model, returned)
        return tf.constant(0)

    def count_metrics(self, cut: Slice, example: Example, predicted: Any) -> None:
        """Update the metrics with a slice, unless it only has a row that stands in for an empty slice.

        A batch with fewer examples than slices has such slices, because no slice may be empty.
        """
        x, y, sample_weight = example
        arguments = x, y, predicted, sample_weight
        if cut.real is None:
            self.count(*arguments)
            return
        # A branch of `tf.cond` takes int32 tensors from the host's memory.
        wide = tf.nest.map_structure(_widen_int32, arguments)

        def count_real() -> tf.Tensor:
            return self.count(*tf.nest.map_structure(_restore_int32, arguments, wide))

        tf.cond(cut.real, count_real, lambda: tf.constant(0))

    def compiled(self, cut: Slice, example: Example, *, training: bool) -> tuple[Any, Shares]:
        """Run the model on a slice; return its outputs, and the slice's contributions to the compiled losses by name.

        There is ``loss``, the total, and with several losses ``<name>_loss`` for each of them. A row that stands in for
        an empty slice contributes nothing. Floating outputs are cast to float32. Each loss also stores its own part in
        ``cut.losses``. Metrics are not updated.
        """
        x, y, sample_weight = example
        predicted = _cast_to_float32(self.model(x, training=training))
        # The model's losses are wrapped (`global_losses.replace_losses`). While this computes the total, each of them
        # also stores its own part in `cut.losses`, which has 0 for a row that stands in for an empty slice.
        total = keras_private.compute_loss(
            self.model, x, y, predicted, sample_weight, training=training
        )
        # Of a batch in several slices, this slice contributes by its share of the examples.
        if cut.parts == 1:
            contributions = {"loss": tf.cast(total, tf.float32)}
        else:
            contributions = {"loss": cut.share_of(total)}
        if len(cut.losses) > 1:  # a single loss would be the total once more
            for name, share in cut.losses.items():
                contributions[f"{name}_loss"] = share
        return predicted, contributions

    def evaluate_compiled(self, cut: Slice, example: Example) -> Shares:
        """Evaluate a slice: update the compiled metrics, and return its contributions to the compiled losses.

        Also sets ``cut.examples`` to a list of the losses of single examples, or to None if the model has its own
        `compute_loss`.
        """
        if refusals.list_overridden_methods(self.model, "compute_loss"):
            cut.examples = None
        else:
            cut.examples = []  # a list asks the losses to append those of single examples
        predicted, shares = self.compiled(cut, example, training=False)
        self.count_metrics(cut, example, predicted)
        return shares

    def compiled_mode(self, intake: Intake, *, training: bool) -> Mode:
        """Return training or evaluation by the compiled losses as a mode that `additivity.check_parts` tests."""
        compute = functools.partial(self._run_for_test, intake, training=training)
        if training:
            name, calls = "training", 0
        else:
            name, calls = "evaluation", EVALUATION
        return Mode(name, compute, training=training, calls=calls, totals=self.counted_first)

    def _run_for_test(
        self, intake: Intake, tensors: Any, rows: tf.Tensor, cut: Slice, *, training: bool
    ) -> Shares:
        """Return a slice's contributions to what layers add to the loss, to each loss, and to their sum.

        Also update the metrics. Keys are phrases for messages. ``rows`` has the row numbers of the whole batch in
        ``tensors``; in training, ``intake`` prepares the examples of the slice.
        """
        if training:
            example = intake.take(tensors, rows, cut)
        else:
            example = gather_examples(tensors, rows[cut.start : cut.stop])
        predicted, losses = self.compiled(cut, example, training=training)
        added = keras_corrections.get_added_losses(self.model)
        self.count_metrics(cut, example, predicted)
        total = losses.pop("loss")
        contributions = {}
        for layer, value in added.items():
            contributions[f"what layer {layer} adds to the loss"] = cut.share_of(value)
        for name, value in losses.items():
            contributions[f"the loss {name.removesuffix('_loss')!r} of a batch"] = value
        contributions[self._name_of_loss] = total
        return contributions

    @property
    def _name_of_loss(self) -> str:
        """The phrase for the loss in messages, with name and class if the only loss is of the author's own class."""
        if len(self.global_losses) != 1 or not _is_author_loss(self.global_losses[0].loss):
            return "the loss of a batch"
        (one,) = self.global_losses
        return f"the loss {one.name!r} ({type(one.loss).__name__}) of a batch"


class CompiledStep(Step):
    """A model with the losses and metrics that it is compiled with."""

    def __init__(
        self, model: keras.Model, losses: Sequence[GlobalLoss | RecordedLoss], intake: Intake
    ) -> None:
        super().__init__(model, losses)
        self.turns = ((Update("loss", model),),)
        self._check_losses = intake.check_losses

    def losses(
        self, cut: Slice, example: Example, turn: Turn, *, counts: bool
    ) -> tuple[Shares, Callable[[], None]]:
        """Return a slice's contributions to the losses, and a function that adds the slice to the metrics.

        ``turn`` and ``counts`` have no effect. Raises Refused if mixup or cutmix has given examples two whole-number
        labels each, and an array of such targets was used by no compiled loss (but, for instance, by the model's own
        `compute_loss`), or by one that cannot take two labels.
        """
        predicted, shares = self.compiled(cut, example, training=True)
        self._check_losses(cut)
        return shares, lambda: self.count_metrics(cut, example, predicted)

    def evaluate(self, cut: Slice, example: Example, *, training: bool) -> Shares:
        """Return a slice's contributions to the losses, and add the slice to the metrics.

        Also sets ``cut.examples`` as `evaluate_compiled` does. ``training`` has no effect.
        """
        return self.evaluate_compiled(cut, example)

    def modes(self, intake: Intake, *, validates: bool) -> list[Mode]:
        """Return the modes of training and, with ``validates``, of evaluation, which `additivity.check_parts` tests."""
        modes = [self.compiled_mode(intake, training=True)]
        if validates:
            modes.append(self.compiled_mode(intake, training=False))
        return modes


class KerasStep(Step):
    """A model's own `train_step` and `test_step`, called with batches as `Model.fit` calls them, on one replica.

    As in `fit`, the model's metrics are reported or, if the step returns values with other names, those of the last
    batch.
    """

    spread = ()

    def __init__(self, model: keras.Model, because: str, *, follows_the_rate: bool) -> None:
        """Create the step; ``because`` is a phrase that says which steps the model defines.

        ``follows_the_rate`` says whether the loop sets the learning rate of the model's optimizer.
        """
        super().__init__(model)
        self.by_itself = because
        self.follows_the_rate = follows_the_rate
        self._used: set[int] = set()  # ids of the handles of the variables that its training uses
        self.called_with = InputRecorder()
        self._shapes: Callable[[bool], Mapping[str, tf.TensorShape]]
        self._example_of_evaluation: Any

    def prepare(self, replicas: Replicas, intake: Intake, example: Any) -> None:
        """Store a function that finds the shapes of a step's values; it traces the step when they are first needed.

        ``example``, a batch of one, is used for training and, unless `prepare_evaluation` gives another one before the
        trace, for evaluation.
        """
        self._example_of_evaluation = example

        @functools.cache  # one trace for training, and one for evaluation
        def shapes(training: bool) -> Mapping[str, tf.TensorShape]:
            compute = functools.partial(self.evaluate, training=training)
            if training:
                return trace_shapes(compute, replicas.run, intake, example, self._used)
            return trace_shapes(compute, replicas.run, None, self._example_of_evaluation)

        self._shapes = shapes

    def uses(self, variables: Iterable[Any]) -> bool:
        """Return whether the model's own `train_step` uses any of ``variables``.

        May trace the step. `prepare` must have been called.
        """
        self._shapes(True)
        return any(id(variable.handle) in self._used for variable in variables)

    def prepare_evaluation(self, example: Any | None) -> None:
        """Use an example of the validation data, if any, to trace evaluation, because its structure may differ."""
        if example is not None:
            self._example_of_evaluation = example

    def evaluate(self, cut: Slice, example: Example, *, training: bool) -> Shares:
        """Run the model's `train_step` (which also trains it) or `test_step`; return its values by name, as float32.

        Nested dictionaries are flattened: their values keep their own names, and the name of the dictionary is dropped.
        ``cut`` has no effect. Raises Refused if the step returns an empty dictionary or no dictionary, or for a known
        reason cannot take the data; other errors of the step are passed on.
        """
        name = _name_of_step(training=training)
        returned = wrap_step(self.model, self.called_with, training=training)(pack_batch(example))
        if not isinstance(returned, Mapping) or not returned:
            raise refusals.Refused(
                f"{type(self.model).__name__}.{name}() returned {type(returned).__name__}, expected a dictionary of "
                "names and values"
            )
        return {name: tf.cast(value, tf.float32) for name, value in _flatten_named_values(returned)}

    def zeros(self, *, training: bool) -> Shares:
        """Return zeros (float32) with the names and shapes of the values that the model's own step returns.

        The first call for training, and the first one for evaluation, traces the step. `prepare` must have been called.
        """
        return {name: tf.zeros(shape) for name, shape in self._shapes(training).items()}

    def added(self, totals: Shares, values: Shares, rows: tf.Tensor) -> Shares:
        """Return ``values`` of the new batch in place of sums, because `Model.fit` reports the last batch.

        Values whose names are not in ``totals`` are left out. ``rows`` has no effect.
        """
        return {name: values[name] for name in totals}

    def reported(
        self, metrics: Mapping[str, Any], sums: Mapping[str, tf.Tensor], examples: int
    ) -> dict[str, Any]:
        """Return the model's metrics if their names are those in ``sums``; otherwise the last batch's values, ``sums``.

        The last batch's values become NumPy arrays. ``examples`` has no effect.
        """
        if set(metrics) == set(sums):
            return dict(metrics)
        return {name: value.numpy() for name, value in sums.items()}

    def metrics(self) -> Mapping[str, tf.Tensor]:
        """Return all present metrics of the model by name, including the loss if the model tracks it."""
        return collect_metrics(self.model)


class InputRecorder:
    """Records the inputs with which a model's own steps call the model; they may differ from the data."""

    def __init__(self) -> None:
        self._found: dict[bool, Any] = {}  # of training (True) and evaluation (False)

    @property
    def example(self) -> Any:
        """NumPy zeros with the shapes and types of the recorded inputs, as a batch of one; None if none are recorded.

        Inputs of evaluation are preferred to those of training.
        """
        found = self._found.get(False, self._found.get(True))
        if found is None:
            return None
        return tf.nest.map_structure(
            lambda spec: np.zeros([1, *spec.shape[1:]], spec.dtype.as_numpy_dtype), found
        )

    @contextmanager
    def recording(self, model: keras.Model, *, training: bool) -> Iterator[None]:
        """Record the shapes and types of the first argument with which the model is called inside the block.

        One call is recorded for training and one for evaluation, over all blocks: the first one whose first argument
        has nothing but tensors of known shape, apart from the number of examples. Calls without positional arguments
        are ignored. `model.call` is replaced inside the block and restored after it, also if the block raises. Does
        nothing for a model without its own `call`.
        """
        if not refusals.list_overridden_methods(model, "call"):
            yield
            return
        # None in most cases: `call` is then only a method of the class, not an attribute of this object
        own_attribute = vars(model).get("call")
        original = model.call

        def call(*args: Any, **kwargs: Any) -> Any:
            if (
                args
                and training not in self._found
                and all(map(_is_of_known_shape, tf.nest.flatten(args[0])))
            ):
                self._found[training] = tf.nest.map_structure(tf.TensorSpec.from_tensor, args[0])
            return original(*args, **kwargs)

        model.call = call
        try:
            yield
        finally:
            if own_attribute is None:
                del model.call
            else:
                model.call = own_attribute


def _is_of_known_shape(leaf: Any) -> bool:
    """Return whether ``leaf`` is a tensor with axes, of which only the first may have an unknown size."""
    return (
        isinstance(leaf, tf.Tensor) and bool(leaf.shape.rank) and leaf.shape[1:].is_fully_defined()
    )


def wrap_step(
    model: keras.Model, called_with: InputRecorder, *, training: bool
) -> Callable[[Any], Any]:
    """Return a model's `train_step` or `test_step`, wrapped to record in ``called_with`` the inputs of the model.

    The wrapped step takes a batch as `pack_batch` returns it. If the step cannot take the data, it raises Refused if
    the reason is known, and otherwise Keras's error. A reason is always known if Keras's own `test_step` of a model
    with its own `train_step` fails.
    """
    name = _name_of_step(training=training)
    step = getattr(model, name)
    is_own_step = bool(refusals.list_overridden_methods(model, name))
    has_own_train_step = bool(refusals.list_overridden_methods(model, "train_step"))

    def call(data: Any) -> Any:
        try:
            with called_with.recording(model, training=training):
                return step(data)
        except (ValueError, TypeError, RuntimeError, tf.errors.InvalidArgumentError) as error:
            reason = ""
            if is_own_step:
                reason = refusals.explain_step_error(model, name, data, error)
            elif has_own_train_step:
                reason = (
                    f"{type(model).__name__} has no test_step(), and Keras's calls the model and its loss with the "
                    f"validation data, which fails: {error}; define test_step(), or return None as validation data"
                )
            if not reason:
                raise
            raise refusals.Refused(reason) from error

    return call


def _name_of_step(*, training: bool) -> str:
    """Return the name of the model's method that trains or, if ``training`` is False, evaluates."""
    return "train_step" if training else "test_step"


def trace_shapes(
    compute: Callable[[Slice, Example], Shares],
    run: Callable[..., Any],
    intake: Intake | None,
    example: Any,
    used: set[int] | None = None,
) -> dict[str, tf.TensorShape]:
    """Trace ``compute`` for an example, and return the shapes of the values that it returns, by name.

    The trace is for batches of any size, in training if there is an ``intake`` and otherwise in evaluation, and is
    thrown away, so no values are computed. ``run`` calls a function on the replicas, and ``example`` is a batch of one.
    The ids of the handles of all variables that ``compute`` uses are added to the set ``used``, if given.
    """
    found: dict[str, tf.TensorShape] = {}

    def on_each(rows: tf.Tensor) -> None:
        tensors = tf.nest.map_structure(tf.convert_to_tensor, example)
        cut = Slice.whole(tf.shape(rows)[0], "keras")
        # any seed does: nothing is computed
        cut.draw(tf.constant(1), tf.constant(1), 0 if intake else EVALUATION)
        if intake:
            prepared = intake.take(tensors, rows, cut)
        else:
            prepared = gather_examples(tensors, rows)
        with slices.entering(cut):
            for name, value in compute(cut, prepared).items():
                found[name] = value.shape

    of_any_size = [tf.TensorSpec([None], tf.int32)]
    trace = tf.function(
        lambda rows: run(on_each, rows), input_signature=of_any_size, autograph=False
    )
    graph = trace.get_concrete_function().graph
    if used is not None:
        used |= program_variables.find_captured_handles([graph])
    return found


def pack_batch(example: Example) -> Any:
    """Return a batch as `Model.fit` takes it: (x, y, sample_weight), (x, y), or x alone if there are no targets.

    Without targets, the weights are left out as well, and an x that is a tuple or a list itself is in a tuple of one.
    Lists become tuples, because a `Dataset` would take lists for tensors.
    """
    parts: list[Any] = []
    for part in example:
        parts.append(None if part is None else keras.tree.lists_to_tuples(part))
    x, y, weight = parts
    return keras.utils.pack_x_y_sample_weight(x, y, weight)


def collect_metrics(model: keras.Model) -> dict[str, tf.Tensor]:
    """Return the present metrics of a model by name, including the loss if the model tracks it.

    As in `Model.fit`, a metric whose result is a dictionary gives all its keys.
    """
    return dict(_flatten_named_values(model.get_metrics_result()))


def _flatten_named_values(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return pairs of name and value from a dictionary and the dictionaries nested in it.

    The names of nested dictionaries are dropped, so a name may come more than once.
    """
    pairs: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += _flatten_named_values(value)
        else:
            pairs.append((str(name), value))
    return pairs


def _is_author_loss(loss: keras.losses.Loss) -> bool:
    """Return whether the class of a loss is not one of Keras's."""
    return not type(loss).__module__.startswith("keras.")


def _widen_int32(leaf: Any) -> Any:
    """Return an int32 tensor as int64, and anything else as it is."""
    is_int32 = isinstance(leaf, tf.Tensor) and bool(leaf.dtype == tf.int32)
    if is_int32:
        return tf.cast(leaf, tf.int64)
    return leaf


def _restore_int32(leaf: Any, wide: Any) -> Any:
    """Return ``wide``, which `_widen_int32` made of ``leaf``, in the type of ``leaf``."""
    if wide is leaf:
        return leaf
    return tf.cast(wide, tf.int32)


def _cast_to_float32(predicted: Any) -> Any:
    """Return the outputs with floating ones cast to float32, each with its Keras mask; others are unchanged."""

    def cast(t: tf.Tensor) -> tf.Tensor:
        if not t.dtype.is_floating or t.dtype == tf.float32:
            return t
        wide = tf.cast(t, tf.float32)  # a new tensor, to which Keras has attached no mask
        mask = keras_private.mask_of(t)
        if mask is not None:
            keras_private.set_mask(wide, mask)
        return wide

    return tf.nest.map_structure(cast, predicted)
