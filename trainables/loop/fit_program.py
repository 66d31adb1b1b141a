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

    A model with its own `compile` is not compiled again. Raises Refused or NotInScope for a model that cannot be
    trained in this way, and ValueError if a loss weight is for an output without a loss.
    """
    author = made.author
    parts = made.parts
    model = made.parts.model
    refusals.check_fit(model, replicas.number, validates=author.validates)
    own, _ = _compile(made, replicas, intake, jit_compile=False)
    if not own and parts.options.get("loss") is None:
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

    Such options are micro-batches, sharpness-aware updates, averages of the weights and, on several replicas, clipping,
    loss scaling and ``jit_compile``. ``optimizer`` is None if the model has none. If mixup or cutmix mix targets,
    ``mixed`` has those of an example, which must be floating-point numbers; otherwise it is empty. ``who`` begins the
    messages and names what trains the trial.
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
    """Compile a model as its author would for `fit`, and create its variables.

    Return whether the model has its own `compile`, and the losses that were installed. A model with its own `compile`
    only gets ``jit_compile``, without any loss. The trial's clipping is set on the optimizer in any case.
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
    of_data = None if by_step else example
    # `fit` sums the gradients of the replicas, whose parts of a batch are equal: each loss counts as its share.
    return False, global_losses.replace_losses(
        model, parts.loss_weights, of_data, 1 / replicas.number, whole=replicas.number == 1
    )


def _check_added_losses(model: keras.Model, example: Any, *, validates: bool) -> None:
    """Raise Refused if no layer, regularizer or own `compute_loss` of a model gives a loss to Keras's steps.

    Call this for a model without a compiled loss. With ``validates``, validation is checked as well. A step that the
    model defines itself is not checked.
    """
    for step, training in (("train_step", True), *([("test_step", False)] if validates else [])):
        if not refusals.list_overridden_methods(model, step):
            keras_corrections.check_added_losses(model, example, training=training)


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
        # why `fit` trains the trial, if the sweep file does not say so
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
        if jit_compile and (
            unfit := [x.name for x in keras_private.flatten_layers(model) if not x.supports_jit]
        ):
            raise NotInFit(
                f"jit_compile is true, and XLA cannot compile {', '.join(unfit)}; leave it out"
            )
        if jit_compile:
            unknown_gpu = gpu_support.find_unknown_gpu()
        else:
            unknown_gpu = ""
        if unknown_gpu:
            raise NotInFit(f"jit_compile is true, and {unknown_gpu}; leave it out")
        own, self._losses = _compile(made, replicas, intake, jit_compile=jit_compile)
        self.sets_no_rate = not made.follows_the_rate
        # A counter of our own, because no optimizer counts batches: it starts again in each phase, skips updates, and a
        # model with its own compile() may have none.
        self._number = keras.Variable(
            0, trainable=False, dtype="int", aggregation="only_first_replica", name="number"
        )
        # `fit` calls the steps without a slice, on which losses and random draws depend, so they enter one themselves.
        in_slices = functools.partial(
            _wrap_step_in_slice, self._number, seed=seed, jit_compile=jit_compile
        )
        self._called_with = InputRecorder()
        model.train_step = in_slices(
            wrap_step(model, self._called_with, training=True), training=True
        )
        model.test_step = in_slices(
            wrap_step(model, self._called_with, training=False), training=False
        )
        self._losses_are_added = not own and parts.options.get("loss") is None
        self.model = model
        self.parts = parts
        self.live = made.author.live
        self._replicas = replicas
        self._intake = intake
        self._live = made.author.live

    @property
    def numerics(self) -> dict[str, str]:
        """The trial's columns ``loop``, if the model has steps of its own, and ``xla``, if XLA compiles."""
        if self.because:
            loop = {"loop": f"fit: {self.because}"}
        else:
            loop = {}
        return loop | ({"xla": ON} if self.jit_compile else {})

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
        return self._called_with.example

    def trace_anew(self, train: Examples) -> None:
        """Make `fit` trace training again in the next epoch, because other layers are trainable now.

        ``train`` has no effect.
        """
        self.model.train_function = None

    def check_phases(self) -> None:
        """Raise Refused if the model has its own `compile`, or the trial has Keras's callbacks.

        Neither can start again between phases.
        """
        own = refusals.list_overridden_methods(self.model, "compile")
        if own or self.callbacks:
            if own:
                what = "a compile() of the model's own"
            else:
                what = "Keras's callbacks"
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
        training does not use. ``loose`` has no effect, and `fit` itself traces again. Raises NotInFit for data that
        `fit` cannot take. Raises Refused for a model that `fit` cannot train, if nothing gives a loss and, on several
        replicas, if a batch gives other results when it is computed in parts.
        """
        model = self.model
        for data in (train, validation):
            if data is not None:
                _refuse_data(data, replicas.number)
        refusals.check_fit(model, replicas.number, validates=validation is not None)
        if self._losses_are_added:
            _check_added_losses(model, train.example(), validates=validation is not None)
        steps = [(model.train_step, self._example(train))]
        if validation is not None:
            steps.append((model.test_step, self._example(validation, augment=False)))
        graphs = []
        for step, example in steps:
            batch = get_batch_specs(example)
            run = tf.function(lambda data, step=step: replicas.run(step, data), autograph=False)
            graphs.append(run.get_concrete_function(batch).graph)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is None:
            moments = []
        else:
            moments = optimizer.variables
        self.hook_variables = self.list_hook_variables()
        tracked = [*model.variables, *moments, *model.metrics_variables, *self.hook_variables]
        self.state = State(tracked, graphs, replicas, self.parts.record)
        # by training, which is traced first
        captured = program_variables.find_captured_handles(graphs[:1])
        self.idle_numbers = self._live.find_unused(captured, replicas.of_each)
        its_own = program_variables.list_optimizer_state(self.parts.optimizer, model, replicas)
        self.optimizer_is_idle = not any(id(part.handle) in captured for part in its_own)
        self.sets_no_rate |= self.optimizer_is_idle
        if replicas.number > 1:
            tried = additivity.ProgramUnderTest(replicas, self.state, [model], self._metrics)
            additivity.check_parts(tried, self._modes(validates=validation is not None), train)

    def _modes(self, *, validates: bool) -> list[Mode]:
        """Return training and, with ``validates``, evaluation as modes that `additivity.check_parts` tests."""
        totals = tuple(loss.name for loss in self._losses if loss.counts_first)
        training, evaluation = (
            functools.partial(self._run_for_test, training=training) for training in (True, False)
        )
        modes = [Mode("training", training, totals=totals)]
        if validates:
            modes.append(
                Mode("evaluation", evaluation, training=False, calls=EVALUATION, totals=totals)
            )
        return modes

    def _run_for_test(
        self, tensors: Any, rows: tf.Tensor, cut: Slice, *, training: bool
    ) -> dict[str, tf.Tensor]:
        """Compute a slice for `additivity.check_parts`, and update the metrics with it.

        ``rows`` has the row numbers of the whole batch in ``tensors``. Return the slice's contributions to the loss and
        to each loss that a layer adds; keys are phrases for messages.
        """
        if training:
            x, y, weight = self._intake.take(tensors, rows, cut)
        else:
            x, y, weight = gather_examples(tensors, rows[cut.start : cut.stop])
        predicted = self.model(x, training=training)
        added = keras_corrections.get_added_losses(self.model)
        loss = keras_private.compute_loss(self.model, x, y, predicted, weight, training=training)

        def count() -> tf.Tensor:
            self.model.compute_metrics(x, y, predicted, weight)
            return tf.constant(0)

        # a row that stands in for an empty slice must not count
        tf.cond(cut.count > 0, count, lambda: tf.constant(0))
        added_by_phrase = {}
        for name, value in added.items():
            added_by_phrase[f"what layer {name} adds to the loss"] = cut.share_of(value)
        return {**added_by_phrase, "the loss of a batch": cut.share_of(loss)}

    def _metrics(self, training: bool) -> dict[str, float]:
        """Return the metrics accumulated since the last call, without losses, and reset them.

        ``training`` has no effect.
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

        ``rates`` hold until a callback sets another rate, which is then the result's. A profile of the whole epoch is
        written into ``profile_into``, if given. The seconds spent waiting for data are not measured and reported as 0.
        Raises NotInFit if replicas would get parts of unequal size, or if XLA cannot compile an operation.
        """
        self.state.will_train()
        number = self._replicas.number
        size = walk.data.size
        batch_size = walk.batch_size
        sizes_of_batches = [min(batch_size, size)]
        if (
            walk.data.counted
        ):  # otherwise no epoch comes to the end of the data, with its smaller batch
            sizes_of_batches.append(size % batch_size)
        uneven = [n for n in sizes_of_batches if n % number]
        if uneven:
            raise NotInFit(
                f"training.loop is fit with {number} replicas, which cannot weigh their parts of a batch of "
                f"{uneven[0]} examples rightly; use loop: own, or a batch_size that leaves no such batch of {size}"
            )
        # of the batches that were read last: `fit` may look at a batch before it reads them all
        sizes: list[int] = []
        first, count = walk.first_update(epoch), len(rates)

        def source() -> Iterator[Any]:
            nonlocal sizes
            sizes = []
            return self._batches(walk.read_epoch_again(epoch), batch_size, walk.seed, first, sizes)

        # It comes before the author's callbacks, which then see the rate of the update.
        setting = _RateSetter(rates, self.optimizers, sets=not self.sets_no_rate)
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
                    setting,
                    losses,
                    _BatchCounter(self._number, first),
                    *map(_BatchCallback, self.callbacks),
                ],
            )
        metrics = flatten_metrics({name: values[-1] for name, values in history.history.items()})
        finite = losses.finite and bool(
            all_finite([v.value for v in self.model.trainable_variables])
        )
        # `sizes` may have more entries: Keras first takes a batch from an iterator of its own, to build the model.
        return Trained(metrics, finite, 0.0, sum(sizes[:count]), setting.last_set)

    @unregister_with_owner
    def evaluate(self, data: HeldOut, *, seed: int, epoch: int) -> Evaluated:
        """Return the loss and metrics over validation data, by a call of `Model.evaluate`.

        The standard deviation of the loss is not computed and NaN. Random draws depend on ``epoch`` and on the seed
        that the program was built with; ``seed`` has no effect.
        """
        self.state.will_train()

        def source() -> Iterator[Any]:
            # no seed: nothing is augmented or mixed
            return self._batches(data.chunks(), data.batch_size, None, 0)

        with self._dataset(data.split, source, data.updates, augment=False) as batches:
            counting = _BatchCounter(self._number, epoch * data.split.updates(data.batch_size))
            results = self.model.evaluate(
                batches, verbose=0, return_dict=True, callbacks=[counting]
            )
        return Evaluated(flatten_metrics(results))

    @contextmanager
    def _explaining_xla_errors(self) -> Iterator[None]:
        """Raise NotInFit in place of XLA's error about an operation that it cannot compile; let other errors pass."""
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

        Shapes and types are those of an example of ``data``, augmented and mixed if ``augment`` is True.
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

        With a ``seed``, batches are augmented and mixed, by draws that also depend on ``update``, the number of the
        first batch, and its successors; if ``seed`` is None, they are not. The number of examples in each batch is
        appended to ``sizes``, if given.
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

    Random draws then depend on ``seed`` and on ``number``, a variable with the number of the batch, and differ between
    training and evaluation. Losses know the size of the whole batch. ``jit_compile`` says that XLA compiles the step.
    """

    def step(data: Any) -> Any:
        replicas, replica = get_replica_index()
        own_count = tf.shape(tf.nest.flatten(data)[0])[0]
        # Each replica writes its number of examples in a place of its own; the sum has those of all replicas.
        counts_here = tf.one_hot(replica, replicas) * tf.cast(own_count, tf.float32)
        counts_of_all = tf.cast(sum_over_replicas([counts_here])[0], tf.int32)
        start = tf.reduce_sum(counts_of_all[:replica])
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

        ``rates`` has the learning rate of each update. With ``sets=False``, no rate is set, and rates that other
        callbacks set are only recorded. Nothing is set or recorded if there is no optimizer, or if it has a schedule of
        its own.
        """
        super().__init__()
        if optimizers:
            self._variable = get_rate_variable(optimizers[0])
        else:
            self._variable = None
        self._sets = sets
        if self._variable is not None and sets:
            self._variable.assign(rates[0])  # callbacks see this rate when the epoch begins
        self._rates, self._seen = rates, self._present()
        self._set: float | None = None

    @property
    def last_set(self) -> float | None:
        """The learning rate that another callback has set last, which replaces the given rates; None if none has.

        A callback that sets the present rate again is not noticed.
        """
        if self._present() != self._seen:
            self._set = self._seen = self._present()
        return self._set

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._variable is not None and self._sets and self.last_set is None:
            self._variable.assign(self._rates[batch])
            self._seen = self._present()

    def _present(self) -> float | None:
        if self._variable is None:
            return None
        return float(self._variable.numpy())


class _BatchCounter(keras.callbacks.Callback):
    """Sets a variable to the number of the next batch, counted from ``first``, in training or validation."""

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
        if not np.all(np.isfinite((logs or {}).get("loss", 0.0))):
            # never set back to True, as several threads of Keras's run this at once
            self.finite = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.on_train_batch_end(0, logs)


class _BatchCallback(keras.callbacks.Callback):
    """Passes the start and end of each update in one `fit` call to an author's callback.

    The trial calls the callback's other methods. If Keras's `TerminateOnNaN` raises, training stops without an error,
    and the trial counts as diverged.
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
            if type(self._callback) is not keras.callbacks.TerminateOnNaN:
                raise
            # TerminateOnNaN(raise_error=True): the trial has diverged, not failed
            self.model.stop_training = True


def _refuse_data(data: Examples, number: int) -> None:
    """Raise NotInFit for several buckets of lengths and, on several replicas, for texts and batches of a PyDataset.

    ``number`` is the number of replicas.
    """
    texts = any(leaf.dtype == tf.string for leaf in tf.nest.flatten(data.example()[0]))
    if isinstance(data, BucketSplit) and len(data.parts) > 1:
        raise NotInFit(
            "training.loop is fit, which takes batches of one length; use loop: own, or one bucket"
        )
    if number > 1 and (texts or data.cut_by_author):
        if texts:
            what = "texts"
        else:
            what = "the batches of a PyDataset"
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

    They are listed in `check_options`. ``number`` is the number of replicas, and ``who`` begins the message.
    """
    clipped = recipe.clipping or (optimizer is not None and groups.clips_gradients(optimizer))
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
