"""The program of our own training loop: a graph, and the state that its trials begin with.

The host puts chunks of data in and gets sums of losses out. Before another trial of the same structure, `state` is
reset; for a trial with another seed, `begin_as` replaces the initial values.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from trainables import tensorflow_private
from trainables.data.chunks import Chunk, count_updates
from trainables.data.passes import Batches, Examples, HeldOut, Walk, split_by_batch_size
from trainables.data.share import Share
from trainables.devices.precision import RELATIVE_OF_TF32, uses_tf32
from trainables.devices.replicas import Replicas
from trainables.loop import stopwatch
from trainables.loop.program import Evaluated, Program, Trained, flatten_metrics
from trainables.loop.steps import KerasStep
from trainables.loop.update import Graph
from trainables.loop.xla import FAILURES, Asked, Xla
from trainables.numbers.finite import all_finite
from trainables.recipe.refusals import Refused, list_overridden_methods
from trainables.replicas import global_losses
from trainables.state import program_variables
from trainables.state.initial import InitialModel
from trainables.state.program_variables import State
from trainables.state.registered import unregister_with_owner

if TYPE_CHECKING:
    from trainables.loop.epoch_average import EpochAverage
    from trainables.recipe.averaging import Average

BLOCK = 32
"""Updates between two checks that all numbers are finite; at each check the host waits for the device."""
RELATIVE = 2e-6
"""Share of the loss that rounding may change when the same examples are computed in other batches."""


class GraphProgram(Program):
    """A graph with compiled training and evaluation; create it under the strategy's scope."""

    kept = True

    def __init__(self, graph: Graph, parts: InitialModel, jit_compile: Asked = "") -> None:
        self.model = graph.model
        self.live = graph.live
        self.parts = parts
        self.validates_as_it_trains = bool(graph.step.by_itself)
        self.by_epoch: EpochAverage | None = None
        self._graph = graph
        self.xla = Xla(graph, jit_compile)
        self.stacks: list[
            Any
        ] = []  # `fused.stack.Stack`s, each for several trials of this program at once
        # how many times as fast trials train together as alone; None until measured
        self.gain: float | None = None
        self._trace_training_anew()
        # AutoGraph would translate all of our code and the author's, which takes longer than tracing it.
        evaluate = functools.partial(evaluate_batches, graph)
        self.evaluate_chunk = tf.function(evaluate, reduce_retracing=True, autograph=False)
        self._read_metrics_graph = tf.function(
            functools.partial(read_metrics, graph), autograph=False
        )

    def _trace_training_anew(self) -> None:
        """Make `train_chunk` a new function with the present update of `xla`; its next call traces it."""
        train = functools.partial(train_batches, self._graph, self.xla.update)
        self.train_chunk = tf.function(train, reduce_retracing=True, autograph=False)

    @property
    def numerics(self) -> dict[str, str]:
        """The trial's columns ``loop``, if the model trains itself, and those of `Xla.described`; may be empty."""
        columns = {}
        if self._graph.step.by_itself:
            columns["loop"] = f"model: {self._graph.step.by_itself}"
        return columns | self.xla.described

    def check_phases(self) -> None:
        """Raise Refused if the model trains itself and has its own `compile`, whose optimizers cannot start again."""
        if self._graph.step.by_itself and list_overridden_methods(self.model, "compile"):
            raise Refused(
                "the trial has phases, between which a compile() of the model's own cannot begin anew"
            )

    @property
    def called_with(self) -> Any:
        """Zeros like the inputs with which the model's own steps call it, as a batch of one.

        None if our loop calls the model, or if no step has called it.
        """
        step = self._graph.step
        if not isinstance(step, KerasStep):
            return None
        return step.called_with.example

    @property
    def graph(self) -> Graph:
        """The graph that is traced for training and evaluation."""
        return self._graph

    @property
    def average(self) -> Average | None:
        """The average of the weights with which the model is evaluated now; None if it uses the weights themselves.

        With ``swa_from``, this is the mean over epochs once it has begun, and None before.
        """
        if self.by_epoch and self.by_epoch.began:
            return self.by_epoch
        return self._graph.average

    @property
    def averages(self) -> list[Average]:
        """All averages of the weights that the program maintains: over updates and, with ``swa_from``, over epochs."""
        averages = []
        for average in (self._graph.average, self.by_epoch):
            if average:
                averages.append(average)
        return averages

    @property
    def networks(self) -> Sequence[Any]:
        """The model and all other networks of the trial, each once."""
        return self._graph.step.networks

    @property
    def optimizers(self) -> Sequence[Any]:
        """The trial's optimizer first, and then the optimizers of updates that have their own; each once."""
        return self._graph.optimizers

    @property
    def rated(self) -> Sequence[Any]:
        """The optimizers whose learning rate the loop sets; empty if `sets_no_rate`."""
        if self.sets_no_rate:
            return []
        return self._graph.rated

    def shares(self, rank: int) -> tuple[Share | None, Share | None]:
        """Return which part of each batch the process of this rank must load, for training and for validation.

        A part is None if the process loads the whole batch. Both are None on one replica. If mixup or cutmix mix
        examples, that of training is None, because an example's partner may be anywhere in the batch.
        """
        graph = self._graph
        number = graph.replicas.number
        if number == 1:
            return None, None
        share = Share(number, len(graph.replicas.devices), rank, graph.recipe.micro_batches)
        of_training = None if graph.intake.mixes else share
        return of_training, share.without_micro_batches()

    @unregister_with_owner
    def compile(
        self,
        train: Examples,
        validation: Examples | None,
        replicas: Replicas,
        *,
        loose: bool = False,
    ) -> None:
        """Trace training and evaluation by running them on no batches, which trains nothing, and set `state`.

        Evaluation is not traced if ``validation`` is None. With ``loose``, chunks may have different lengths, and one
        trace must accept all of them. If XLA cannot compile updates, the next way of `Xla` is traced. Sets
        `idle_numbers` and `optimizer_is_idle`, which say what training does not use; in the latter case, also sets
        `sets_no_rate`. Raises Refused if XLA must be used and no way works, or if the parts of a batch (on several
        replicas or with micro-batches) give other results than the whole batch, which is tested on some examples.
        Variables have their initial values afterwards. Errors of the author's code that is traced are passed on.
        """
        # whether chunks may have different lengths, also for later traces of training
        self._chunks_differ = loose or train.changes_shape
        self._trace_training(train)
        # number of graphs so far; those of evaluation come after them
        training_graph_count = len(self._graph.traced)
        self._graph.step.prepare_evaluation(None if validation is None else validation.example())
        if validation is not None:
            kinds = []
            for kind in validation.list_chunk_kinds():
                kinds.append((Batches.of(kind, 0, size=0, seed=0, first=0),))
            self._trace(
                self.evaluate_chunk, kinds, training=False, loose=loose or validation.changes_shape
            )
        if any(self._graph.step.counts_metrics(training=training) for training in (True, False)):
            self._read_metrics_graph()  # traces it, so that `traced` has its graph as well
        self.hook_variables = self.list_hook_variables()
        tracked = [
            *self._graph.variables,
            *self._list_average_variables(),
            *self.hook_variables,
        ]
        self.state = State(
            tracked, self._graph.traced, replicas, self.parts.record, self.live.variables
        )
        # ids of the variables' handles that training uses
        used_by_training = program_variables.find_captured_handles(
            self._graph.traced[:training_graph_count]
        )
        self.idle_numbers = self.live.find_unused(used_by_training, replicas.of_each)
        self.optimizer_is_idle = not self._graph.step.uses(
            program_variables.list_optimizer_state(self.parts.optimizer, self.model, replicas)
        )
        self.sets_no_rate |= self.optimizer_is_idle
        written_by_evaluation = []
        for graph in self._graph.traced[training_graph_count:]:
            for held in self.state.find_written(graph).values():
                written_by_evaluation.append(held.raw)
        # What `depends_on_batch_size` restores. Without validation data, evaluation is traced later, for the test data,
        # and may write any variable.
        if validation is None:
            self._changed_by_evaluation = [self.state[path].raw for path in self.state]
        else:
            self._changed_by_evaluation = written_by_evaluation
        self._graph.traced.clear()
        if not self._graph.whole:
            self._check_parts(train, validation)

    def _check_parts(self, train: Examples, validation: Examples | None) -> None:
        """Raise Refused if the parts of a batch would not give the same results as the whole batch.

        This computes some examples of ``train`` or ``validation`` in both ways. Variables that it changes get their
        initial values.
        """
        from trainables.replicas import additivity

        graph = self._graph

        # without losses, which are reported as means over an epoch and not by metrics
        def read_other_metrics(training: bool) -> dict[str, float]:
            found = self._read_and_reset_metrics(training=training)
            metrics = {}
            for name, value in found.items():
                if name not in graph.step.zeros(training=training):
                    metrics[name] = value
            return metrics

        tried = additivity.ProgramUnderTest(
            graph.replicas,
            self.state,
            graph.step.networks,
            read_other_metrics,
            self.live,
            graph.recipe.micro_batches,
        )
        modes = graph.modes(validates=validation is not None)
        additivity.check_parts(tried, modes, train, validation)

    def depends_on_batch_size(self, data: HeldOut, *, seed: int) -> bool:
        """Return whether validation gives other metrics in batches of the training's size than in larger ones.

        `compile` must have been called. Some examples of ``data`` are evaluated in both ways, with draws from ``seed``,
        and the metrics are compared within rounding; variables are restored. They differ, for example, if a loss
        divides by the sum of weights in a batch. Only batches of the training's size then give the numbers of
        `Model.fit`. False if the batch size of validation is set or is the training's, or if both sizes cut these
        examples alike. Metrics that are not finite in the larger batches are ignored; those that are not finite in the
        smaller ones alone differ.
        """
        if data.as_trained is None:
            return False
        # a multiple of the training's size, so that large and small batches hold the same examples
        large_size = count_updates(data.batch_size, data.as_trained) * data.as_trained
        large_count, small_count = data.split.count_equal_batches(large_size, data.as_trained)
        if large_count == small_count:  # both sizes cut these examples alike
            return False
        in_large = replace(data, batch_size=large_size, steps=large_count)
        in_small = replace(data.in_training_batches, steps=small_count)
        values_before = []
        for raw in self._changed_by_evaluation:
            values_before.append((raw, self.state.read(raw)))
        results = []
        for data_in_batches in (in_large, in_small):
            results.append(self.evaluate(data_in_batches, seed=seed, epoch=0).metrics)
            for raw, values in values_before:
                self.state.set_values(raw, values or ())
        of_large, of_small = results
        exact = self.model.compute_dtype == "float32" and not uses_tf32(self._graph.replicas)
        relative = RELATIVE if exact else RELATIVE_OF_TF32
        for name, value in of_large.items():
            # A value near 0 may be the sum of larger ones, and is rounded as they are.
            bound = relative * max(abs(value), 1e-3)
            # If only the other value is NaN, `<=` is false, and the values differ.
            if math.isfinite(value) and not abs(value - of_small[name]) <= bound:
                return True
        return False

    @unregister_with_owner
    def compile_updates(self, walk: Walk) -> bool:
        """Compile updates for a trial's batches if XLA was asked for; return whether it was asked for.

        If XLA fails, the next way of compiling is tried, down to none at all. Variables are restored afterwards. Raises
        an error that XLA has not caused, and Refused if XLA must be used and no way works.
        """
        # pairs of the index of a kind of chunk and a size of batches
        while uncompiled := self.xla.list_uncompiled(walk):
            kinds = [kind.tensors for kind in walk.data.list_chunk_kinds()]
            (types,) = find_common_types([(tensors,) for tensors in kinds])
            before = self.state.copy_all()
            try:
                self.xla.compile(kinds, types, uncompiled)
            except FAILURES as error:
                # the loop ends when no way is left, as nothing is uncompiled then
                self._try_next_mode(error)
                self._trace_training(walk.data)
            finally:
                self.state.assign(before)
                self._graph.traced.clear()
        return bool(self.xla.wanted)

    @unregister_with_owner
    def trace_anew(self, train: Examples) -> None:
        """Trace training again, because other layers are trainable now; `compile` must have been called before.

        Raises an error that XLA has not caused, and Refused if XLA must be used and no way works.
        """
        self.xla.begin_anew()  # first, because the function that trains is made with its `update`
        self._trace_training_anew()
        self._trace_training(train)
        if self.by_epoch:
            self.by_epoch.discard_trace()
        self._graph.traced.clear()

    def _trace_training(self, data: Examples) -> None:
        """Trace training for the chunks of ``data``, in the first way of compiling updates by XLA that works.

        Nothing is trained. The graphs are added to those in the graph's `traced`. Raises an error that XLA has not
        caused, and Refused if XLA must be used and no way works.
        """
        no_rates = np.zeros(0)  # for no batches: tracing trains nothing
        kinds = []
        for kind in data.list_chunk_kinds():
            no_batches = Batches.of(kind, 0, size=1, seed=0, first=0)
            kinds.append(_add_rates(no_rates, no_batches))
        while True:
            try:
                self._trace(self.train_chunk, kinds, training=True, loose=self._chunks_differ)
            except FAILURES as error:
                self._try_next_mode(error)
            else:
                return

    def _try_next_mode(self, error: Exception) -> None:
        """Switch to the next way of compiling updates if XLA may have caused ``error``; otherwise raise it again.

        The last way is to train without XLA. The caller must trace training again. Raises Refused if XLA must be used
        and no way is left.
        """
        if not self.xla.try_next_mode(error):
            raise error
        self._graph.traced.clear()
        self._trace_training_anew()

    def _trace(
        self, function: Any, kinds: list[tuple[Any, ...]], *, training: bool, loose: bool
    ) -> None:
        """Trace a function by a call that trains nothing, with the first element of ``kinds`` and zeros for the sums.

        Each element has the arguments for chunks of one shape, with 0 as the number of batches. With ``loose``, chunks
        may have any length, so the function is traced before that call for types that fit all elements; without it,
        only the first element is used. ``training`` says whether the sums are those of training or of evaluation.
        """
        zeros = self._graph.zeros(training=training)
        if loose:
            function.get_concrete_function(*find_common_types(kinds), zeros)
        function(*kinds[0], zeros)

    def begin_as(self, fresh: InitialModel) -> bool:
        """Replace the initial values of all variables by those that the author's methods made for another seed.

        The variables must have their initial values, and get those of ``fresh``. Averages start again. Return whether
        all values could be replaced; if False, nothing has changed, and a new program is needed.
        """
        self.state.will_train()
        if not self.parts.assign_from(fresh, self.state, self._list_average_variables()):
            return False
        for average in self.averages:
            average.reset()
        return True

    @unregister_with_owner
    def train_epoch(
        self,
        walk: Walk,
        rates: np.ndarray[Any, Any],
        *,
        epoch: int,
        profile_into: Path | None = None,
    ) -> Trained:
        """Train one epoch (from 1), with one learning rate per update, and return the result.

        Stops early after a block of at most `BLOCK` updates in which a number is not finite; the result then has the
        examples of all chunks that were begun. If all numbers are finite, an epoch from ``swa_from`` on then adds the
        weights to their mean over epochs. A profile of a few updates of the first chunk is written into
        ``profile_into``, if given. Metrics are reset at the end. Raises Refused if `on_train_batch_end` returns a value
        with the name of a metric.
        """
        self.state.will_train()
        batch_size, seed = walk.batch_size, walk.seed
        first = walk.first_update(epoch)
        updates_done = 0
        examples_seen = 0
        finite = True
        sums = self._graph.zeros(training=True)
        chunks = _TimedChunks(self._split_for_processes(walk.epoch(epoch), batch_size))
        for chunk, is_profiled in _split_for_profile(chunks, batch_size, profile_into):
            count = count_updates(len(chunk.order), batch_size)
            rates_of_chunk = rates[updates_done : updates_done + count]
            batches = Batches.of(
                chunk,
                len(rates_of_chunk),
                size=batch_size,
                seed=seed,
                first=first + updates_done,
            )
            with stopwatch.profiling(profile_into if is_profiled else None):
                sums, finite_so_far = self.train_chunk(*_add_rates(rates_of_chunk, batches), sums)
                # waits for the device, so that the profile has all updates of the chunk
                finite = bool(finite_so_far)
            updates_done = updates_done + count
            examples_seen = examples_seen + len(chunk.order)
            if not finite:
                break
        if self.by_epoch and epoch >= self.by_epoch.first_epoch and finite:
            self.by_epoch.count(walk.read_epoch_again(epoch), batch_size, seed, first)
        model_metrics = self._read_and_reset_metrics(training=True)
        # the names of metrics, unlike those of losses, are known only now
        if self._graph.watch is not None:
            self._graph.watch.check_names(model_metrics)
        metrics = flatten_metrics(self._graph.step.reported(model_metrics, sums, examples_seen))
        return Trained(metrics, finite, chunks.waited_s, examples_seen)

    @unregister_with_owner
    def try_updates(
        self, chunk: Chunk, rates: np.ndarray[Any, Any], *, batch_size: int, seed: int
    ) -> dict[str, float]:
        """Train on the first batches of a chunk, one for each learning rate, and return the summed losses by name.

        Each batch's mean losses are multiplied by its number of examples. Weights and metrics are changed. Stops early
        after a block of updates in which a number is not finite. Random draws are those of the trial's first updates.
        ``seed`` is the trial's. Used to compare training alone with training of several trials at once,
        in losses and speed.
        """
        self.state.will_train()
        arguments = _add_rates(
            rates, Batches.of(chunk, len(rates), size=batch_size, seed=seed, first=0)
        )
        sums, _ = self.train_chunk(*arguments, self._graph.zeros(training=True))
        return {name: float(value) for name, value in sums.items()}

    @unregister_with_owner
    def one_update(
        self, chunk: Chunk, rate: float, *, batch_size: int, seed: int, number: int
    ) -> float:
        """Train on a chunk's first batch; return its mean loss before the update, or NaN if any number is not finite.

        The numbers are losses, gradients, and the weights after the update. Weights are changed, so `state.will_train`
        must have been called before. Random draws depend on ``seed`` and ``number``, the number of the update. Raises
        Refused if the model reports no loss.
        """
        arguments = _add_rates(
            np.array([rate]), Batches.of(chunk, 1, size=batch_size, seed=seed, first=number)
        )
        sums, finite = self.train_chunk(*arguments, self._graph.zeros(training=True))
        # The number of examples in the batch, by which the summed loss is divided.
        found = self._graph.step.reported({}, sums, min(batch_size, len(chunk.order)))
        if "loss" not in found:
            raise Refused(f"{', '.join(found)} are reported, and no loss to look at")
        if bool(finite):
            return float(found["loss"])
        return float("nan")

    @unregister_with_owner
    def evaluate(self, data: HeldOut, *, seed: int, epoch: int) -> Evaluated:
        """Return the loss and metrics over validation or test data, with averaged weights if there are any.

        Names are without ``val_``. Random draws depend on ``seed`` and ``epoch``. The result's ``loss_std`` is NaN for
        a model that trains itself, and if the losses of single examples are unknown. The weights are not changed, and
        metrics are reset at the end. Evaluation is traced now if `compile` has not done so.
        """
        self.state.will_train()  # layers and metrics may have state that evaluation changes
        sums = self._graph.zeros(training=False)
        batch_size = data.part_size
        examples_seen = 0
        next_batch = data.first_batch(epoch)
        with self.average.swapping() if self.average else nullcontext():
            for chunk in self._split_for_processes(data.chunks(), batch_size):
                count = count_updates(len(chunk.order), batch_size)
                sums = self.evaluate_chunk(
                    Batches.of(chunk, count, size=batch_size, seed=seed, first=next_batch), sums
                )
                next_batch = next_batch + count
                examples_seen = examples_seen + len(chunk.order)
        step = self._graph.step
        # Means for the standard deviation of the loss. They are removed from the sums, because they are not reported.
        spread = []
        for name in step.spread:
            spread.append(float(sums.pop(name)) / examples_seen)
        found = flatten_metrics(
            step.reported(self._read_and_reset_metrics(training=False), sums, examples_seen)
        )
        return Evaluated(found, global_losses.compute_deviation(*spread) if spread else math.nan)

    def reset_metrics(self) -> None:
        """Reset the metrics, which an evaluation in a hook or callback may have counted.

        Nothing is done if neither training nor evaluation counts any.
        """
        if any(self._graph.step.counts_metrics(training=training) for training in (True, False)):
            self._read_metrics_graph()

    def _split_for_processes(self, chunks: Iterator[Chunk], batch_size: int) -> Iterator[Chunk]:
        """Return ``chunks``, split by `split_by_batch_size` if the trial has several processes."""
        if self._graph.replicas.span_processes:
            return split_by_batch_size(chunks, batch_size)
        return chunks

    def _list_average_variables(self) -> list[Any]:
        """Return the variables of all averages of the weights."""
        return [v for average in self.averages for v in average.state]

    def _read_and_reset_metrics(self, *, training: bool) -> dict[str, Any]:
        """Return the metrics accumulated since the last reset, by name, as NumPy values, and reset them.

        Returns an empty dictionary, and resets nothing, if the step does not update metrics in training or, if
        ``training`` is False, in evaluation. They include the loss of each
        output, averaged over slices as Keras averages it over batches.
        """
        if not self._graph.step.counts_metrics(training=training):
            return {}
        return {name: value.numpy() for name, value in self._read_metrics_graph().items()}


def train_batches(
    graph: Graph,
    update: Callable[..., Any],
    batches: Batches,
    rates: tf.Tensor,
    sums: dict[str, tf.Tensor],
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Train on batches, one learning rate each; return ``sums`` plus their losses, and whether all is finite.

    Each batch's mean losses, times its number of examples, are added to the sums of the same names; the values of a
    model that trains itself are replaced by those of the last batch. No names are added, and ``sums`` itself is not
    changed. ``update`` is `Graph.update` or a compiled form of it. ``rates`` may be longer than the number of batches.
    Stops at the end of the block of `BLOCK` updates in which a number is not finite; the trained weights are checked at
    the end. Called while tracing, it also adds the graph to ``graph.traced``.
    """
    graph.traced.append(tf.compat.v1.get_default_graph())

    # i: number of the batch in the chunk
    def train_batch(
        i: tf.Tensor, totals: dict[str, tf.Tensor], finite_before: tf.Tensor
    ) -> tuple[Any, ...]:
        rows = batches.rows(i)
        values, finite = update(batches.tensors, rows, rates[i], batches.seed, batches.first + i)
        graph.seeds.advance()  # after the batch, because all its slices draw from the same state
        return i + 1, graph.step.added(totals, values, rows), tf.logical_and(finite_before, finite)

    # Two loops: `finite` is read once per block, because the host waits for the device when a loop depends on it.
    def train_block(first: tf.Tensor, totals: dict[str, tf.Tensor], finite: tf.Tensor) -> Any:
        end = tf.minimum(first + BLOCK, batches.count)
        return tf.while_loop(lambda i, *_: i < end, train_batch, (first, totals, finite))

    _, totals, all_updates_finite = tf.while_loop(
        lambda i, _, finite: tf.logical_and(i < batches.count, finite),  # do not waste a long epoch
        train_block,
        (tf.constant(0), sums, tf.constant(True)),
    )
    weights_finite = all_finite([v.value for v in graph.trained])
    return totals, tf.logical_and(all_updates_finite, weights_finite)


def evaluate_batches(
    graph: Graph, batches: Batches, sums: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Evaluate batches and update the metrics with them; return ``sums`` plus their losses.

    Each batch's mean losses, times its number of examples, are added to the sums of the same names; the values of a
    model that trains itself are replaced by those of the last batch. No names are added, and ``sums`` itself is not
    changed. Called while tracing, it also adds the graph to ``graph.traced``.
    """
    graph.traced.append(tf.compat.v1.get_default_graph())

    # i: number of the batch in the chunk
    def evaluate_batch(i: tf.Tensor, totals: dict[str, tf.Tensor]) -> tuple[Any, ...]:
        rows = batches.rows(i)
        of_each_replica = graph.replicas.run(
            graph.evaluate, batches.tensors, rows, batches.seed, batches.first + i
        )
        # each replica has its part of the means
        values = graph.replicas.sum_values(of_each_replica)
        graph.seeds_of_evaluation.advance()
        return i + 1, graph.step.added(totals, values, rows)

    totals: dict[str, tf.Tensor] = tf.while_loop(
        lambda i, _: i < batches.count, evaluate_batch, (tf.constant(0), sums)
    )[1]
    return totals


def read_metrics(graph: Graph) -> dict[str, tf.Tensor]:
    """Return the metrics accumulated since the last reset, by name, and reset all metrics of the model.

    They include each output's loss, as Keras averages it over slices, and the total loss only if the model trains
    itself. Called while tracing, it also adds the graph to ``graph.traced``.
    """
    graph.traced.append(tf.compat.v1.get_default_graph())
    results = {}
    for name, value in graph.step.metrics().items():
        results[name] = tf.identity(value)
    with tf.control_dependencies(list(results.values())):  # read all metrics before any is reset
        for metric in graph.model.metrics:
            metric.reset_state()
    return results


def _add_rates(rates: np.ndarray[Any, Any], batches: Batches) -> tuple[Batches, tf.Tensor]:
    """Return the batches, and their learning rates as a tensor, as arguments of `GraphProgram.train_chunk`.

    The rates, at most as many as the chunk has rows, are padded as in `pad_rates`.
    """
    return batches, pad_rates(rates, batches.order.shape[0])


def pad_rates(rates: np.ndarray[Any, Any], rows: int) -> tf.Tensor:
    """Return the learning rates of updates as float32, padded with zeros along the first axis to length ``rows``.

    ``rows`` is the number of rows in a chunk. The shape is then the same for all batch sizes, so that one trace serves
    them all. Raises ValueError if there are more rates than rows.
    """
    padded = np.zeros([rows, *rates.shape[1:]], np.float32)
    padded[: len(rates)] = rates
    return tf.constant(padded)


def find_common_types(kinds: Sequence[Any]) -> Any:
    """Return the types of arguments for one trace that accepts the arguments of all ``kinds``, in the same structure.

    Each element of ``kinds`` has the arguments for one kind of chunk, and all have the same structure. The size of a
    dimension is unknown in the types if kinds differ in it; the length of a vector is always unknown. A type is None if
    the kinds have no common one, as with different dtypes.
    """

    # `values`: the same argument of all kinds
    def find_common_type(*values: Any) -> Any:
        first, *rest = map(_type_spec_of, values)
        # An order of examples, or their rates; chunks of any length may follow.
        if isinstance(first, tf.TensorSpec) and first.shape.rank == 1:
            return tf.TensorSpec([None], first.dtype)
        return first.most_specific_common_supertype(rest)

    return tf.nest.map_structure(find_common_type, *kinds)


def _type_spec_of(value: Any) -> Any:
    """Return the type of a tensor, which may be a composite one such as a `tf.RaggedTensor`."""
    if isinstance(value, tf.Tensor):
        return tf.type_spec_from_value(value)
    return tensorflow_private.type_spec(value)


class _TimedChunks:
    """Iterates over chunks and sums up, in `waited_s`, the seconds spent waiting for the next one (or the end)."""

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


def _split_for_profile(
    chunks: Iterator[Chunk], batch_size: int, profile_into: Path | None
) -> Iterator[tuple[Chunk, bool]]:
    """Yield each chunk with a flag that says whether to profile it.

    If ``profile_into`` is given, the first chunk is split by `stopwatch.split_for_profile`, and one part of it, which
    may be the whole chunk, has True. All others have False. With ``profile_into``, there must be at least one chunk.
    """
    if profile_into is not None:
        yield from stopwatch.split_for_profile(next(chunks), batch_size)
    for chunk in chunks:
        yield chunk, False
