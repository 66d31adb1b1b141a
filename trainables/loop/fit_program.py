"""Training by `Model.fit`, and what `fit` and our loop share for a model with its own `train_step`.

`fit` sees the same batches in the same order at the same learning rates as our loop. What cannot be computed correctly
inside it is refused with a reason, instead of being trained differently.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sweep.contract import Incompatible
from trainables import keras_private
from trainables.data.chunks import BucketSplit, Chunk
from trainables.data.passes import Examples, HeldOut, Walk, gather_examples, get_batch_specs
from trainables.devices import gpu_support
from trainables.devices.replicas import Replicas, get_replica_index, sum_over_replicas
from trainables.loop import first_trace, own_methods, stopwatch
from trainables.loop.intake import Intake
from trainables.loop.program import (
    AuthorParts,
    Evaluated,
    Program,
    ProgramOptions,
    Trained,
    flatten_metrics,
)
from trainables.loop.steps import InputRecorder, KerasStep, collect_metrics, pack_batch, wrap_step
from trainables.loop.update import Recipe
from trainables.loop.xla import ON, UNSUPPORTED, describe_xla_error
from trainables.numbers import seeds
from trainables.numbers.draws import EVALUATION, tracing_for_xla
from trainables.numbers.finite import all_finite
from trainables.recipe import clipping, groups, refusals
from trainables.recipe.mixing import ONE_HOT
from trainables.recipe.rates import get_rate_variable
from trainables.replicas import additivity, global_losses, keras_corrections, slices
from trainables.replicas.slices import Mode, Slice
from trainables.state import program_variables
from trainables.state.program_variables import State
from trainables.state.registered import unregister_with_owner


class NotInFit(Incompatible):
    """Raised if `Model.fit` would not train what the sweep file asks for."""


OWN = "use loop: own, and a train_step() of the trainable in place of the model's (docs/steps.md)"


def keras_step(made: AuthorParts, replicas: Replicas, intake: Intake) -> KerasStep:
    """Compile a model that has its own `train_step`, and return the step that calls it in our loop.

    Creates the variables of the model, its optimizers, losses and metrics. A model with its own `compile` is not
    compiled again. Raises Refused or NotInScope for a model that cannot be trained in this way, and ValueError if a
    loss weight is for an output without a loss.
    """
    author = made.author
    parts = made.parts
    model = made.parts.model
    refusals.check_fit(model, replicas.number, validates=author.validates)
    has_own_compile, _ = _compile(made, replicas, intake, jit_compile=False)
    if not has_own_compile and parts.options.get("loss") is None:
        _check_added_losses(model, author.first_example, validates=author.validates)
    return KerasStep(model, made.by_itself, follows_the_rate=made.follows_the_rate)


def check_options(
    recipe: Recipe,
    replicas: Replicas,
    optimizer: keras.optimizers.Optimizer | None,
    mixed: Any,
    *,
    who: str,
    jit_compile: bool = False,
) -> None:
    """Raise NotInFit for options that cannot be used if a model's own step or `fit` applies the gradients.

    Such options are micro-batches, sharpness-aware updates, averages of the weights (also by the optimizer) and, on
    several replicas, clipping, loss scaling and ``jit_compile``. ``optimizer`` is None if the model has none. If mixup
    or cutmix mix targets, ``mixed`` has those of an example, which must be floating-point numbers; otherwise it is
    empty. ``who`` begins the messages and names what trains the trial.
    """
    _refuse_options(recipe, replicas.number, optimizer, who=who, jit_compile=jit_compile)
    if any(not leaf.dtype.is_floating for leaf in tf.nest.flatten(mixed) if leaf is not None):
        raise NotInFit(
            f"{who} trains this trial, whose losses and metrics take whole-number targets of one example alone, and "
            f"mixup or cutmix give those of two; {ONE_HOT}, or use loop: own"
        )


def _compile(
    made: AuthorParts, replicas: Replicas, intake: Intake, *, jit_compile: bool
) -> tuple[bool, tuple[global_losses.GlobalLoss | global_losses.RecordedLoss, ...]]:
    """Compile a model as its author would for `fit`, and create its variables and those of its optimizer and metrics.

    Return whether the model has its own `compile`, and the losses that replace the model's own. A model with its own
    `compile` is not compiled: only its attribute `jit_compile` is set, no variables are created, and the losses are
    empty. The trial's clipping is set on the optimizer in any case. Raises NotInScope for variables that were made
    outside of the strategy's scope, and ValueError if a loss weight is for an output without a loss.
    """
    parts = made.parts
    example = made.author.first_example
    model = parts.model
    optimizer = parts.optimizer
    for kind, bound in clipping.read_bounds(made.hp).items():
        setattr(optimizer, kind, bound)  # the loop does not see the gradients of these steps
    by_step = own_methods.trains_itself(model)
    if by_step:
        keras_corrections.leave_building_to_steps(model)
    if refusals.list_overridden_methods(model, "compile"):  # the model makes its optimizers
        model.jit_compile = jit_compile
        return True, ()
    model.compile(optimizer=optimizer, **parts.options, jit_compile=jit_compile)
    if by_step:
        first_trace.make_variables(model, replicas, intake, example)
    else:
        keras_corrections.create_variables(model, example)
    program_variables.check_scope(model, replicas)
    # an own step may call the losses with something else than the data
    example_of_losses = None if by_step else example
    # `fit` sums the gradients of the replicas, whose parts of a batch are equal: each loss counts as its share.
    share = 1 / replicas.number
    return False, global_losses.replace_losses(
        model, parts.loss_weights, example_of_losses, share, whole=replicas.number == 1
    )


def _check_added_losses(model: keras.Model, example: Any, *, validates: bool) -> None:
    """Raise Refused if no layer, regularizer or own `compute_loss` of a model gives a loss to Keras's steps.

    Call this for a model without a compiled loss. With ``validates``, validation is checked as well. A `train_step` or
    `test_step` that the model defines itself is not checked. ``example`` is a batch of one.
    """
    if not refusals.list_overridden_methods(model, "train_step"):
        keras_corrections.check_added_losses(model, example, training=True)
    if validates and not refusals.list_overridden_methods(model, "test_step"):
        keras_corrections.check_added_losses(model, example, training=False)


def _refuse_xla(model: keras.Model) -> None:
    """Raise NotInFit if XLA cannot compile a layer of the model, or cannot compile for a GPU of this process."""
    unfit = []
    for layer in keras_private.flatten_layers(model):
        if not layer.supports_jit:
            unfit.append(layer.name)
    if unfit:
        raise NotInFit(
            f"jit_compile is true, and XLA cannot compile {', '.join(unfit)}; leave it out"
        )
    why_not = gpu_support.find_unknown_gpu()
    if why_not:
        raise NotInFit(f"jit_compile is true, and {why_not}; leave it out")


class FitProgram(Program):
    """A model that one call of `Model.fit` trains in each epoch."""

    validates_as_it_trains = True

    def __init__(
        self,
        made: AuthorParts,
        options: ProgramOptions,
        intake: Intake,
        example: Any,
    ) -> None:
        """Compile the model, and wrap its steps so that `fit` computes them as our loop would.

        ``example`` is one example after augmentation. Raises what `check_options` raises, NotInFit if XLA is asked for
        and cannot be used, and NotInScope or ValueError as `_compile`.
        """
        # which steps the model defines; then `fit` may train it although the sweep file does not say so
        self.because = made.by_itself
        self.jit_compile = jit_compile = options.jit_compile == "must"
        parts = made.parts
        replicas = options.placement.replicas
        seed = options.seed
        model = parts.model
        optimizer = parts.optimizer
        mixed = example[1] if intake.mixes else ()
        check_options(
            options.recipe, replicas, optimizer, mixed, who="Model.fit", jit_compile=jit_compile
        )
        if jit_compile:
            _refuse_xla(model)
        has_own_compile, self._losses = _compile(made, replicas, intake, jit_compile=jit_compile)
        self.sets_no_rate = not made.follows_the_rate
        # A counter of our own, because no optimizer counts batches: it starts again in each phase, skips updates, and a
        # model with its own compile() may have none.
        self._batch_number = keras.Variable(
            0, trainable=False, dtype="int", aggregation="only_first_replica", name="number"
        )
        # `fit` calls the steps without a slice, on which losses and random draws depend, so they enter one themselves.
        wrap_in_slice = functools.partial(
            _wrap_step_in_slice, self._batch_number, seed=seed, jit_compile=jit_compile
        )
        self._recorded_inputs = InputRecorder()
        model.train_step = wrap_in_slice(
            wrap_step(model, self._recorded_inputs, training=True), training=True
        )
        model.test_step = wrap_in_slice(
            wrap_step(model, self._recorded_inputs, training=False), training=False
        )
        # without a compiled loss, what layers add must be one
        self._needs_added_losses = not has_own_compile and parts.options.get("loss") is None
        self.model = model
        self.parts = parts
        self.live = made.author.live
        self._replicas = replicas
        self._intake = intake

    @property
    def numerics(self) -> dict[str, str]:
        """The trial's columns ``loop``, if the model has steps of its own, and ``xla``, if XLA compiles."""
        columns = {}
        if self.because:
            columns["loop"] = f"fit: {self.because}"
        if self.jit_compile:
            columns["xla"] = ON
        return columns

    @property
    def optimizers(self) -> Sequence[Any]:
        """The model's optimizer, in a list; empty if it has none."""
        found = getattr(self.model, "optimizer", None)
        if not isinstance(found, keras.optimizers.Optimizer):
            return []
        return [found]

    @property
    def called_with(self) -> Any:
        """Zeros like the inputs with which steps have called the model, as a batch of one; None if none has."""
        return self._recorded_inputs.example

    def trace_anew(self, train: Examples) -> None:
        """Make `fit` trace training again in the next epoch, because other layers are trainable now.

        ``train`` has no effect.
        """
        self.model.train_function = None

    def check_phases(self) -> None:
        """Raise Refused if the model has its own `compile`, or the trial has Keras's callbacks.

        Neither can start again between phases.
        """
        if refusals.list_overridden_methods(self.model, "compile"):
            what = "a compile() of the model's own"
        elif self.callbacks:
            what = "Keras's callbacks"
        else:
            return
        raise refusals.Refused(
            f"the trial has phases, between which {what} cannot begin anew; use loop: own"
        )

    @unregister_with_owner
    def compile(
        self,
        train: Examples,
        validation: Examples | None,
        replicas: Replicas,
        *,
        loose: bool = False,
    ) -> None:
        """Trace training and evaluation once, and set `state`, which has all variables that they create or use.

        Evaluation is not traced if ``validation`` is None. Sets `idle_numbers` and `optimizer_is_idle`, which say what
        training does not use; in the latter case, also sets `sets_no_rate`. ``loose`` has no effect, and `fit` itself
        traces again. Raises NotInFit for data that `fit` cannot take. Raises Refused for a model that `fit` cannot
        train, if nothing gives a loss and, on several replicas, if a batch gives other results when it is computed in
        parts.
        """
        model = self.model
        for data in (train, validation):
            if data is not None:
                _refuse_data(data, replicas.number)
        refusals.check_fit(model, replicas.number, validates=validation is not None)
        if self._needs_added_losses:
            _check_added_losses(model, train.example(), validates=validation is not None)
        steps = [(model.train_step, self._example(train))]
        if validation is not None:
            steps.append((model.test_step, self._example(validation, augment=False)))
        graphs = []
        for step, example in steps:
            batch = get_batch_specs(example)
            # `step=step`: the present one, and not the last one of the loop
            run = tf.function(lambda data, step=step: replicas.run(step, data), autograph=False)
            graphs.append(run.get_concrete_function(batch).graph)
        optimizer = getattr(model, "optimizer", None)
        of_optimizer = [] if optimizer is None else optimizer.variables
        self.hook_variables = self.list_hook_variables()
        tracked = [*model.variables, *of_optimizer, *model.metrics_variables, *self.hook_variables]
        self.state = State(tracked, graphs, replicas, self.parts.record)
        # ids of the variables' handles that training uses; its graph is the first one
        used_by_training = program_variables.find_captured_handles(graphs[:1])
        self.idle_numbers = self.live.find_unused(used_by_training, replicas.of_each)
        optimizer_state = program_variables.list_optimizer_state(
            self.parts.optimizer, model, replicas
        )
        self.optimizer_is_idle = not any(
            id(part.handle) in used_by_training for part in optimizer_state
        )
        self.sets_no_rate |= self.optimizer_is_idle
        if replicas.number > 1:
            tried = additivity.ProgramUnderTest(replicas, self.state, [model], self._metrics)
            additivity.check_parts(tried, self._modes(validates=validation is not None), train)

    def _modes(self, *, validates: bool) -> list[Mode]:
        """Return training and, with ``validates``, evaluation as modes that `additivity.check_parts` tests."""
        # losses whose divisors must be counted over the whole batch first
        totals = tuple(loss.name for loss in self._losses if loss.counts_first)
        training = functools.partial(self._run_for_test, training=True)
        modes = [Mode("training", training, totals=totals)]
        if validates:
            evaluation = functools.partial(self._run_for_test, training=False)
            modes.append(
                Mode("evaluation", evaluation, training=False, calls=EVALUATION, totals=totals)
            )
        return modes

    def _run_for_test(
        self, tensors: Any, rows: tf.Tensor, cut: Slice, *, training: bool
    ) -> dict[str, tf.Tensor]:
        """Compute a slice for `additivity.check_parts`, without gradients, and update the metrics with it.

        ``rows`` has the row numbers of the whole batch in ``tensors``, and ``cut`` says which of them are the slice.
        Return the slice's contributions to the batch's mean loss, and to the mean of each loss that a layer adds; keys
        are phrases for messages. With ``training``, the examples are augmented and mixed.
        """
        if training:
            x, y, weight = self._intake.take(tensors, rows, cut)
        else:
            x, y, weight = gather_examples(tensors, rows[cut.start : cut.stop])
        predicted = self.model(x, training=training)
        added = keras_corrections.get_added_losses(self.model)
        loss = keras_private.compute_loss(self.model, x, y, predicted, weight, training=training)

        def update_metrics() -> tf.Tensor:
            self.model.compute_metrics(x, y, predicted, weight)
            return tf.constant(0)  # `tf.cond` wants a value of both branches

        # a row that stands in for an empty slice must not count
        tf.cond(cut.count > 0, update_metrics, lambda: tf.constant(0))
        added_by_phrase = {}
        for name, value in added.items():
            added_by_phrase[f"what layer {name} adds to the loss"] = cut.share_of(value)
        return {**added_by_phrase, "the loss of a batch": cut.share_of(loss)}

    def _metrics(self, training: bool) -> dict[str, float]:
        """Return the metrics accumulated since the last reset by name, without losses, and reset all of them.

        ``training`` has no effect; `additivity.check_parts` gives it.
        """
        losses = {"loss", *(f"{loss.name}_loss" for loss in self._losses)}
        found = {}
        for name, value in collect_metrics(self.model).items():
            if name not in losses:
                found[name] = value
        self.model.reset_metrics()
        return flatten_metrics({name: np.asarray(value) for name, value in found.items()})

    @unregister_with_owner
    def train_epoch(
        self,
        walk: Walk,
        rates: np.ndarray[Any, Any],
        *,
        epoch: int,
        profile_into: Path | None = None,
    ) -> Trained:
        """Train one epoch (from 1) by a call of `Model.fit`, with one learning rate per update; return the result.

        ``rates`` hold until a callback sets another rate, which then holds for the rest of the epoch and is the
        result's ``rate`` (otherwise None). The author's `callbacks` are called before and after each update. The result
        is finite if the losses of all batches, and the trainable weights at the end, are; a number that is not finite
        does not end the epoch. A profile of the whole epoch is written into ``profile_into``, if given. The seconds
        spent waiting for data are not measured and reported as 0. Raises NotInFit if replicas would get parts of
        unequal size, or if XLA cannot compile an operation.
        """
        self.state.will_train()
        batch_size = walk.batch_size
        self._refuse_uneven_batches(walk.data, batch_size)
        # of the batches that were read last: `fit` may look at a batch before it reads them all
        sizes: list[int] = []
        first, count = walk.first_update(epoch), len(rates)

        def source() -> Iterator[Any]:
            nonlocal sizes
            sizes = []
            return self._batches(walk.read_epoch_again(epoch), batch_size, walk.seed, first, sizes)

        # It comes before the author's callbacks, which then see the rate of the update.
        rate_setter = _RateSetter(rates, self.optimizers, sets=not self.sets_no_rate)
        losses = FiniteLosses()
        dataset = self._dataset(walk.data, source, count, augment=True)
        with dataset as batches, stopwatch.profiling(profile_into), self._explaining_xla_errors():
            history = self.model.fit(
                batches,
                initial_epoch=epoch - 1,
                epochs=epoch,
                shuffle=False,
                verbose=0,
                callbacks=[
                    rate_setter,
                    losses,
                    _BatchCounter(self._batch_number, first),
                    *map(_BatchCallback, self.callbacks),
                ],
            )
        metrics = flatten_metrics({name: values[-1] for name, values in history.history.items()})
        finite = losses.finite and bool(
            all_finite([v.value for v in self.model.trainable_variables])
        )
        # `sizes` may have more entries: Keras first takes a batch from an iterator of its own, to build the model.
        return Trained(metrics, finite, 0.0, sum(sizes[:count]), rate_setter.last_set)

    def _refuse_uneven_batches(self, data: Examples, batch_size: int) -> None:
        """Raise NotInFit if the replicas would get parts of unequal size of a batch."""
        number = self._replicas.number
        sizes_of_batches = [min(batch_size, data.size)]
        if data.counted:
            # the smaller batch at the end of the data, to which no epoch of data of unknown length comes
            sizes_of_batches.append(data.size % batch_size)
        for size in sizes_of_batches:
            if size % number:
                raise NotInFit(
                    f"training.loop is fit with {number} replicas, which cannot weigh their parts of a batch of "
                    f"{size} examples rightly; use loop: own, or a batch_size that leaves no such batch of {data.size}"
                )

    @unregister_with_owner
    def evaluate(self, data: HeldOut, *, seed: int, epoch: int) -> Evaluated:
        """Return the loss and metrics over validation or test data, by a call of `Model.evaluate`.

        Names are without ``val_``. The standard deviation of the loss is not computed and NaN. Random draws depend on
        ``epoch`` and on the seed that the program was built with; ``seed`` has no effect. The author's callbacks are
        not called.
        """
        self.state.will_train()

        def source() -> Iterator[Any]:
            # no seed: nothing is augmented or mixed
            return self._batches(data.chunks(), data.batch_size, None, 0)

        with self._dataset(data.split, source, data.updates, augment=False) as batches:
            first = epoch * data.split.updates(data.batch_size)
            counter = _BatchCounter(self._batch_number, first)
            results = self.model.evaluate(batches, verbose=0, return_dict=True, callbacks=[counter])
        return Evaluated(flatten_metrics(results))

    @contextmanager
    def _explaining_xla_errors(self) -> Iterator[None]:
        """Raise NotInFit in place of XLA's error about an operation that it cannot compile, inside the block.

        Other errors pass, and so do all of them if the trial does not ask for XLA.
        """
        try:
            yield
        except tf.errors.OpError as error:
            if not self.jit_compile or UNSUPPORTED not in str(error):
                raise
            raise NotInFit(
                f"jit_compile is true, and {describe_xla_error(error)}; leave it out"
            ) from error

    @contextmanager
    def _dataset(
        self, data: Examples, batches: Callable[[], Iterator[Any]], count: int, *, augment: bool
    ) -> Iterator[tf.data.Dataset]:
        """Yield a `tf.data.Dataset` of the ``count`` batches that ``batches()`` yields, for use inside the block only.

        ``batches`` is called anew for each pass over the dataset. Shapes and types are those of an example of ``data``,
        augmented and mixed if ``augment`` is True.
        """
        signature = get_batch_specs(self._example(data, augment=augment))
        # to be emptied: TensorFlow keeps the function for ever, and all that it holds
        source = [batches]
        dataset = tf.data.Dataset.from_generator(lambda: source[0](), output_signature=signature)
        try:
            yield dataset.apply(tf.data.experimental.assert_cardinality(count)).prefetch(2)
        finally:
            source.clear()

    def _batches(
        self,
        chunks: Iterator[Chunk],
        batch_size: int,
        seed: int | None,
        update: int,
        sizes: list[int] | None = None,
    ) -> Iterator[Any]:
        """Yield the batches of ``chunks`` as `fit` takes them, see `pack_batch`.

        With a ``seed``, batches are augmented and mixed; if ``seed`` is None, they are not. The draws also depend on
        the number of the batch, which is ``update`` for the first one. The number of examples in each batch is appended
        to ``sizes``, if given.
        """
        for chunk in chunks:
            # Each replica has all examples of a chunk; `fit` itself cuts batches for the replicas.
            tensors = tf.nest.map_structure(lambda t: self._replicas.first(t), chunk.tensors)
            for start in range(0, len(chunk.order), batch_size):
                rows = chunk.order[start : start + batch_size]
                if sizes is not None:
                    sizes.append(len(rows))
                yield self._batch(tensors, rows, seed, update)
                update += 1

    def _example(self, data: Examples, *, augment: bool = True) -> Any:
        """Return the first example of ``data`` as a batch of one for `fit`, augmented and mixed with ``augment``."""
        return self._batch(data.example(), tf.constant([0]), 0 if augment else None, 0)

    def _batch(self, tensors: Any, rows: Any, seed: int | None, update: int) -> Any:
        """Return the examples ``rows`` as a batch for `fit`, augmented and mixed unless ``seed`` is None.

        Random draws depend on ``seed`` and on ``update``, the number of the batch.
        """
        if seed is None:
            return pack_batch(gather_examples(tensors, rows))
        cut = Slice.whole(tf.constant(len(rows)))
        cut.draw(tf.constant(seeds.truncate_seed(seed)), tf.constant(update))
        return pack_batch(self._intake.take(tensors, tf.convert_to_tensor(rows), cut))


def _wrap_step_in_slice(
    number: keras.Variable,
    its_step: Callable[[Any], Any],
    *,
    seed: int,
    training: bool,
    jit_compile: bool,
) -> Callable[[Any], Any]:
    """Return a model's `train_step` or `test_step` (``its_step``), wrapped to run in the replica's slice of a batch.

    The wrapped step takes the replica's part of a batch, as ``its_step`` does. Random draws then depend on ``seed`` and
    on ``number``, a variable with the number of the batch, and differ between training and evaluation. Losses know the
    size of the whole batch. ``jit_compile`` says that XLA compiles the step.
    """

    def step(data: Any) -> Any:
        replicas, replica = get_replica_index()  # their number, and which of them this is
        own_count = tf.shape(tf.nest.flatten(data)[0])[0]
        # Each replica writes its number of examples in a place of its own; the sum has those of all replicas.
        counts_here = tf.one_hot(replica, replicas) * tf.cast(own_count, tf.float32)
        counts_of_all = tf.cast(sum_over_replicas([counts_here])[0], tf.int32)
        start = tf.reduce_sum(counts_of_all[:replica])  # examples of the replicas before this one
        size = tf.reduce_sum(counts_of_all)
        piece = Slice(size, start, start + own_count, replicas, in_fit=True, seeds="keras")
        piece.draw(
            tf.constant(seeds.truncate_seed(seed)),
            tf.convert_to_tensor(number),
            0 if training else EVALUATION,
        )
        with slices.entering(piece), tracing_for_xla() if jit_compile else nullcontext():
            return its_step(data)

    return step


class _RateSetter(keras.callbacks.Callback):
    """Sets the learning rate of each update until another callback sets it."""

    def __init__(
        self, rates: np.ndarray[Any, Any], optimizers: Sequence[Any], *, sets: bool
    ) -> None:
        """Set the first update's rate on the first optimizer, so that callbacks see it when the epoch begins.

        ``rates`` has the learning rate of each update of the epoch. With ``sets=False``, no rate is set, and rates that
        other callbacks set are only recorded. Nothing is set or recorded if there is no optimizer, or if it has a
        schedule of its own.
        """
        super().__init__()
        # None without an optimizer, and for a schedule
        self._rate_variable = get_rate_variable(optimizers[0]) if optimizers else None
        self._sets = sets
        if self._rate_variable is not None and sets:
            self._rate_variable.assign(rates[0])  # callbacks see this rate when the epoch begins
        self._rates = rates
        # the rate when it was last read or set here: if the variable differs, another callback has set it
        self._known_rate = self._read_rate()
        self._set_by_others: float | None = None

    @property
    def last_set(self) -> float | None:
        """The learning rate that another callback has set last, which replaces the given rates; None if none has.

        A callback that sets the present rate again is not noticed. Reading this looks for a new rate, and so must
        happen before the next rate is set.
        """
        present = self._read_rate()
        if present != self._known_rate:
            self._set_by_others = self._known_rate = present
        return self._set_by_others

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the rate of the update with the number ``batch`` (from 0), unless another callback has set one."""
        if self._rate_variable is not None and self._sets and self.last_set is None:
            self._rate_variable.assign(self._rates[batch])
            self._known_rate = self._read_rate()

    def _read_rate(self) -> float | None:
        """Return the optimizer's present rate, which waits for the device; None if there is no variable for it."""
        if self._rate_variable is None:
            return None
        return float(self._rate_variable.numpy())


class _BatchCounter(keras.callbacks.Callback):
    """Sets a variable to the number of each batch before it begins, in training or validation.

    The first batch of the pass has the number ``first``.
    """

    def __init__(self, number: keras.Variable, first: int) -> None:
        super().__init__()
        self._number, self._first = number, first

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._number.assign(self._first + batch)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._number.assign(self._first + batch)


class FiniteLosses(keras.callbacks.Callback):
    """Sets `finite` to False once the loss of a batch or an epoch is NaN or infinite.

    The history of `fit` does not tell this, because it may only have the loss of the last batch.
    """

    async_safe = True  # otherwise Keras would make the host wait for each batch

    def __init__(self) -> None:
        super().__init__()
        self.finite = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Look at ``loss`` in ``logs``, the values that the step has returned; without it, nothing is noticed."""
        if not np.all(np.isfinite((logs or {}).get("loss", 0.0))):
            # never set back to True, as several threads of Keras's run this at once
            self.finite = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.on_train_batch_end(0, logs)


class _BatchCallback(keras.callbacks.Callback):
    """Passes the start and end of each update in one `fit` call to an author's callback.

    The trial calls the callback's other methods. If Keras's `TerminateOnNaN` raises RuntimeError, this callback stops
    `fit` instead; that the trial has diverged is then known from `FiniteLosses`. Other errors are passed on.
    """

    def __init__(self, callback: keras.callbacks.Callback) -> None:
        super().__init__()
        self._callback = callback

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._callback.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        try:
            self._callback.on_train_batch_end(batch, logs)
        except RuntimeError:
            if type(self._callback) is not keras.callbacks.TerminateOnNaN:  # nor a subclass of it
                raise
            # TerminateOnNaN(raise_error=True): the trial has diverged, not failed
            self.model.stop_training = True


def _refuse_data(data: Examples, number: int) -> None:
    """Raise NotInFit for several buckets of lengths and, on several replicas, for texts and batches of a PyDataset.

    ``number`` is the number of replicas.
    """
    inputs = tf.nest.flatten(data.example()[0])
    has_texts = any(leaf.dtype == tf.string for leaf in inputs)
    if isinstance(data, BucketSplit) and len(data.parts) > 1:
        raise NotInFit(
            "training.loop is fit, which takes batches of one length; use loop: own, or one bucket"
        )
    if number == 1:
        return
    if has_texts:
        what = "texts"
    elif data.cut_by_author:
        what = "the batches of a PyDataset"
    else:
        return
    raise NotInFit(
        f"training.loop is fit with {number} replicas, which cannot share out {what}; use loop: own"
    )


def _refuse_options(
    recipe: Recipe,
    number: int,
    optimizer: keras.optimizers.Optimizer | None,
    *,
    who: str,
    jit_compile: bool,
) -> None:
    """Raise NotInFit for options that cannot be used if a model's own step or `fit` applies the gradients.

    They are listed in `check_options`. The message has the first one that applies, and begins with ``who``. ``number``
    is the number of replicas.
    """
    clipped = recipe.clipping or (optimizer is not None and groups.clips_gradients(optimizer))
    # pairs of whether a reason applies, and what cannot be done
    reasons = [
        (
            number > 1 and clipped,
            "clipping, which Keras applies to each replica's gradients before their sum",
        ),
        (
            number > 1 and recipe.scale_loss,
            "mixed_float16, whose loss scale watches the first replica alone",
        ),
        (
            number > 1 and jit_compile,
            "jit_compile: true, for replicas sum up inside of what XLA would compile",
        ),
        (recipe.micro_batches > 1, "micro_batches, which Keras cannot accumulate under a strategy"),
        (recipe.sharpness, "sam_rho, whose update takes two passes"),
        (recipe.by_epoch, "swa_from, which it does not evaluate with"),
        (recipe.average, "ema_momentum, which fit does not evaluate with"),
        (
            optimizer is not None and groups.get_averaging_momentum(optimizer) is not None,
            "an averaging optimizer, which fit overwrites the weights with at each epoch's end",
        ),
    ]
    for applies, what in reasons:
        if applies:
            raise NotInFit(
                f"{who} trains this trial, which with {number} replicas cannot do {what}; {OWN}"
            )
