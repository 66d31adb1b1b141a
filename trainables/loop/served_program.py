"""Asynchronous training of a model whose weights are on parameter servers, by TensorFlow's coordinator.

Batches and learning rates are those of our loop. Each batch is one update, which any worker computes while other
workers change the weights, so no two trials are the same. A batch's losses and metrics are returned with it.

A worker sends gradients, and the servers compute the changes by SGD or Adam where the weights are. The numbers are
those of Keras's optimizers, whose own code would fetch slots and weights to the worker and count updates there.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from sweep.contract import OutOfMemory
from sweep.hyperparameters import Hyperparameters
from trainables import keras_private
from trainables.data.chunks import Chunk
from trainables.data.passes import Examples, HeldOut, Walk, gather_examples, get_batch_specs
from trainables.data.residence import gather
from trainables.devices import parameter_server
from trainables.devices.replicas import Replicas
from trainables.loop.intake import Example, Intake
from trainables.loop.program import (
    AuthorParts,
    Evaluated,
    Program,
    ProgramOptions,
    Trained,
    flatten_metrics,
)
from trainables.loop.steps import CompiledStep, collect_metrics
from trainables.loop.update import Recipe
from trainables.numbers import seeds
from trainables.numbers.draws import EVALUATION
from trainables.numbers.finite import all_finite
from trainables.recipe import clipping, groups
from trainables.recipe.rates import get_own_rate
from trainables.recipe.refusals import Refused
from trainables.replicas import global_losses, keras_corrections, sharded_embedding, slices
from trainables.replicas.slices import Slice
from trainables.state import program_variables
from trainables.state.checkpoint import Shard
from trainables.state.program_variables import State

KINDS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class UpdateRule:
    """The update rule of an optimizer; ``slots`` names the variables that it keeps for each weight."""

    kind: str  # sgd, momentum, adam
    slots: tuple[str, ...]
    decay: float = 0.0  # weight decay, as a multiple of the rate
    beta: float = 0.0  # momentum
    nesterov: bool = False
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    @classmethod
    def of(cls, optimizer: keras.optimizers.Optimizer) -> UpdateRule:
        """Return the rule of a Keras optimizer, with its numbers at present but without its learning rate.

        Raises Refused for any but SGD, Adam and AdamW without AMSGrad; subclasses of these are refused as well.
        """
        kinds = keras.optimizers
        kind = type(optimizer)
        decay = float(optimizer.weight_decay or 0.0)
        if kind is kinds.SGD:
            momentum = float(optimizer.momentum)
            if not momentum:
                return cls("sgd", (), decay)
            return cls(
                "momentum", ("momentum",), decay, beta=momentum, nesterov=bool(optimizer.nesterov)
            )
        if kind in (kinds.Adam, kinds.AdamW) and not optimizer.amsgrad:
            return cls(
                "adam",
                ("momentum", "velocity"),
                decay,
                beta_1=float(optimizer.beta_1),
                beta_2=float(optimizer.beta_2),
                epsilon=float(optimizer.epsilon),
            )
        name = kind.__name__
        if getattr(optimizer, "amsgrad", False):
            name += " with amsgrad"
        raise Refused(
            f"a parameter server updates weights by {', '.join(KINDS)}, and the optimizer is {name}"
        )

    def change(
        self, gradient: tf.Tensor, slots: Sequence[tf.Tensor], rate: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return what to subtract from the weights, without weight decay, and the new values of the slots.

        ``slots`` are the present values in the order of the field `slots`, ``rate`` is the learning rate, and
        ``number`` is that of the update in the trial, from 0, for Adam's bias correction. No variable is changed.
        """
        match self.kind:
            case "sgd":
                return gradient * rate, []
            case "momentum":
                # Keras adds this to the weights; the result is subtracted, hence the signs.
                moved = slots[0] * self.beta - gradient * rate
                if self.nesterov:
                    return -(moved * self.beta - gradient * rate), [moved]
                return -moved, [moved]
            case _:  # adam: the slots are the moving means of the gradients and of their squares
                count = tf.cast(number + 1, tf.float32)
                correction = tf.sqrt(1 - tf.pow(self.beta_2, count)) / (
                    1 - tf.pow(self.beta_1, count)
                )
                moment_1 = slots[0] + (gradient - slots[0]) * (1 - self.beta_1)
                moment_2 = slots[1] + (tf.square(gradient) - slots[1]) * (1 - self.beta_2)
                change = moment_1 * (rate * correction) / (tf.sqrt(moment_2) + self.epsilon)
                return change, [moment_1, moment_2]


@dataclass
class Weight:
    """A trained variable on a server, with the optimizer's variables for it on the same server."""

    variable: Any
    device: str
    rule: UpdateRule
    lazy: bool = False  # an update changes only rows that have gradients
    decays: bool = False  # whether the rule's weight decay applies to it
    constraint: Any = None  # applied to the whole weight after each update, as Keras does
    slots: list[Any] = field(init=False)  # variables in the order of the rule's `slots`

    def __post_init__(self) -> None:
        """Create the slots, of zeros, on the server of the variable."""

        def make_zeros() -> tf.Tensor:
            return tf.zeros(self.variable.shape)

        self.slots = []
        for _ in self.rule.slots:
            self.slots.append(
                parameter_server.create_variable_on_device(self.device, make_zeros, trainable=False)
            )

    def update(
        self, gradient: tf.Tensor | tf.IndexedSlices, rate: tf.Tensor, number: tf.Tensor
    ) -> None:
        """Update variable and slots on their server by one gradient, inside a worker's graph.

        With `decays`, the weight also decays by ``rate`` times the rule's weight decay. `constraint`, if there is one,
        is applied to the whole weight afterwards. A sparse gradient must name each row once; without `lazy`, it is made
        dense if there are slots or weight decay. ``rate`` is the learning rate, and ``number`` that of the update in
        the trial, from 0.
        """
        decay = self.rule.decay if self.decays else 0.0
        with tf.device(self.device):
            # Without slots and decay, a dense update would change no other rows.
            only_rows = self.lazy or not (self.slots or decay)
            if isinstance(gradient, tf.IndexedSlices) and only_rows:
                self._update_rows(gradient, rate, number, decay)
            else:
                self._update_whole(gradient, rate, number, decay)
            if self.constraint is not None:
                self.variable.assign(self.constraint(self.variable.read_value()))

    def _update_whole(
        self,
        gradient: tf.Tensor | tf.IndexedSlices,
        rate: tf.Tensor,
        number: tf.Tensor,
        decay: float,
    ) -> None:
        """Apply a gradient to all rows of the variable and of its slots.

        A sparse gradient is 0 in all rows that it does not name. ``decay`` is the weight decay, as a multiple of
        ``rate``.
        """
        if isinstance(gradient, tf.IndexedSlices):
            indices = tf.cast(gradient.indices, tf.int64)[:, None]
            shape = tf.constant(self.variable.shape.as_list(), tf.int64)
            gradient = tf.scatter_nd(indices, gradient.values, shape)
        slots_before = [slot.read_value() for slot in self.slots]
        change, slots_after = self.rule.change(gradient, slots_before, rate, number)
        if decay:
            change += self.variable.read_value() * (rate * decay)
        for slot, value in zip(self.slots, slots_after, strict=True):
            slot.assign(value)
        self.variable.assign_sub(change)

    def _update_rows(
        self, gradient: tf.IndexedSlices, rate: tf.Tensor, number: tf.Tensor, decay: float
    ) -> None:
        """Apply a sparse gradient to the rows that it names, of the variable and of its slots; each may be named once.

        ``decay`` is the weight decay, as a multiple of ``rate``.
        """
        rows = gradient.indices
        slots_before = [slot.sparse_read(rows) for slot in self.slots]
        change, slots_after = self.rule.change(gradient.values, slots_before, rate, number)
        if decay:
            change += self.variable.sparse_read(rows) * (rate * decay)
        for slot, value in zip(self.slots, slots_after, strict=True):
            slot.scatter_update(tf.IndexedSlices(value, rows))
        self.variable.scatter_sub(tf.IndexedSlices(change, rows))


def sum_by_row(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Return a sparse gradient with the values of equal rows added up, so that each row is named once.

    Rows are in the order in which they first occur.
    """
    # `positions`: for each given row, where it is in `rows`
    rows, positions = tf.unique(tf.reshape(gradient.indices, [-1]))
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def list_weights(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> tuple[list[Weight], dict[str, list[Weight]]]:
    """Return the weights that an optimizer trains: variables of the model, and the shards of each table.

    A table is a `ShardedEmbedding`, whose rows are spread over the servers; its shards are by the path of the layer.
    Layers and variables that are not trainable are left out. This creates the optimizer's slots on the servers. Raises
    Refused for an optimizer that has no `UpdateRule`.
    """
    rule = UpdateRule.of(optimizer)
    does_decay = keras_private.decay_rule(optimizer)
    tables = {}
    for layer in sharded_embedding.list_sharded_embeddings(model):
        if layer.trainable:
            shards = []
            for shard in layer.shards:
                decays = does_decay(shard.variable)
                shards.append(
                    Weight(shard.variable, shard.device, rule, lazy=layer.lazy, decays=decays)
                )
            tables[layer.path] = shards
    weights = []
    for v in model.trainable_variables:
        weights.append(
            Weight(v.value, v.value.device, rule, decays=does_decay(v), constraint=v.constraint)
        )
    return weights, tables


IN_FLIGHT = 4  # updates per worker that are queued or computed; their batches stay in memory
SEVERAL = 16  # examples with which metrics are checked


class ServedProgram(Program):
    """A model whose weights are on parameter servers."""

    served = True
    differs = "workers take the weights as they are"

    def __init__(
        self,
        made: AuthorParts,
        options: ProgramOptions,
        intake: Intake,
        seen: Any,
    ) -> None:
        """Compile the model, replace its losses, and create the optimizer's variables on the servers.

        ``seen`` is one example after augmentation, as a batch of one. Raises Refused for options, an optimizer or a
        model that parameter servers cannot train, and OutOfMemory if a batch would have to be cut further.
        """
        parts = made.parts
        replicas = options.placement.replicas
        example = made.author.first_example
        model = parts.model
        _refuse_unsupported(options.recipe, made.hp, parts.optimizer)
        # The trial's own optimizer would create slots that nothing uses.
        model.compile(optimizer=keras.optimizers.SGD(), **parts.options, jit_compile=False)
        keras_corrections.create_variables(model, example)
        if parts.options.get("loss") is None:
            keras_corrections.check_added_losses(model, example)
        losses = global_losses.replace_losses(model, parts.loss_weights, seen, whole=True)
        self._step = CompiledStep(model, losses, intake)
        program_variables.check_scope(model, replicas)
        self.model, self.parts = model, parts
        self._replicas = replicas
        self._intake = intake
        self._coordinator = parameter_server.create_coordinator(replicas)
        self._clipping_bounds = clipping.read_bounds(made.hp)
        # the second one has only tables that are trained, by the path of the layer
        self._model_weights, self._table_weights = list_weights(model, parts.optimizer)
        # also of tables that are not trained
        self._shards_of_tables = {
            layer.path: layer.shards for layer in sharded_embedding.list_sharded_embeddings(model)
        }
        # all that are trained: first those of the model, then the shards of one table after the other
        self._weights = [*self._model_weights]
        for shards in self._table_weights.values():
            self._weights += shards

    def compile(
        self,
        train: Examples,
        validation: Examples | None,
        replicas: Replicas,
        *,
        loose: bool = False,
    ) -> None:
        """Trace training and evaluation once, and set `state`, which has no tables and none of their slots.

        If ``validation`` is None, evaluation is traced by the first `evaluate`, of test data. ``loose`` has no effect.
        With ``validation``, also lets a worker evaluate a few examples. Raises Refused for a metric whose variables do
        not start at 0 or, as tested with ``validation``, are not sums over batches.
        """
        self._train_graph = self._trace(self._update, train)
        if validation is None:
            self._test_graph = None
        else:
            self._test_graph = self._trace(self._evaluate, validation)
        slots = [slot for weight in self._model_weights for slot in weight.slots]
        self.hook_variables = self.list_hook_variables()
        # Tables and their slots are not a part of it: the servers save them themselves.
        tracked = [*self.model.variables, *slots, *self.hook_variables]
        self.state = State(tracked, [], replicas, self.parts.record)
        self._check_metrics(validation)

    def trace_anew(self, train: Examples) -> None:
        """Raise Refused, because workers keep what was traced."""
        raise Refused(
            "training.strategy is parameter_server, where no layer can be frozen between epochs"
        )

    def check_phases(self) -> NoReturn:
        """Raise Refused, because weights cannot be passed from one program to another yet."""
        raise Refused(
            "the trial has phases, and training.strategy is parameter_server, which has no way between them"
        )

    @property
    def tables(self) -> dict[str, list[Shard]]:
        """The shards on servers by path: the rows of each table by its layer's path, and the slots of its updates.

        A slot is under the layer's path, a slash and the slot's name. A table that is not trained has no slots.
        """
        found: dict[str, list[Shard]] = {}
        for path, shards in self._shards_of_tables.items():
            for i, shard in enumerate(shards):
                variables = {path: shard.variable}
                if path in self._table_weights:
                    weight = self._table_weights[path][i]
                    for name, slot in zip(weight.rule.slots, weight.slots, strict=True):
                        variables[f"{path}/{name}"] = slot
                for key, variable in variables.items():
                    found.setdefault(key, []).append(replace(shard, variable=variable))
        return found

    def train_epoch(
        self,
        walk: Walk,
        rates: np.ndarray[Any, Any],
        *,
        epoch: int,
        profile_into: Path | None = None,
    ) -> Trained:
        """Train one epoch (from 1) on all workers, with one learning rate per update, and return the result.

        Updates are scheduled in the order of the walk but may be applied in another. No more are scheduled once a batch
        that was not finite is noticed; such batches are not applied. Returns when all that were scheduled are done. The
        result is finite if all losses, gradients and trained weights are. The seconds spent waiting for data are not
        measured and reported as 0. ``profile_into`` has no effect.
        """
        first = walk.first_update(epoch)
        examples = _gather_batches(walk.epoch(epoch), walk.batch_size)
        batches = ((batch, rates[i], first + i) for i, batch in enumerate(examples))
        sums, seen = self._sum_results(self._train_graph, batches, walk.seed)
        # the first sum counts the batches that were not finite
        finite = not sums[0] and self._weights_finite()
        return Trained(self._convert_sums(sums, seen), finite, 0.0, seen)

    def evaluate(self, data: HeldOut, *, seed: int, epoch: int) -> Evaluated:
        """Return the loss and metrics over validation or test data, computed by all workers; `loss_std` is NaN.

        Names are without ``val_``. Random draws depend on ``seed`` and ``epoch``. No variable is changed.
        """
        if self._test_graph is None:  # there is test data alone
            self._test_graph = self._trace(self._evaluate, data.split)
        first = data.first_batch(epoch)
        examples = _gather_batches(data.chunks(), data.part_size)
        # 0: the learning rate, which evaluation does not use
        batches = ((batch, 0.0, first + i) for i, batch in enumerate(examples))
        sums, seen = self._sum_results(self._test_graph, batches, seed)
        return Evaluated(self._convert_sums(sums, seen))

    # ---- on the coordinator

    def _sum_results(
        self, step: Any, batches: Iterator[tuple[Any, float, int]], seed: int
    ) -> tuple[np.ndarray[Any, Any], int]:
        """Run ``step`` on the workers for each (batch, learning rate, number), and wait for all of them.

        The number is that of the update in the trial or, in evaluation, that of the batch. Together with ``seed``, the
        same for all batches, it determines the step's random draws. Return the sum of the vectors that ``step`` returns
        (see `_pack_results`) and the number of examples in the batches that were run. Without batches, the sum is one
        0. No more batches are scheduled once the result of one is noticed that was not finite. The sum is in float64.
        """
        total: np.ndarray[Any, Any] = np.zeros(1)
        seen = 0
        # for each scheduled batch, what the coordinator will have of it, and its number of examples
        waiting: deque[tuple[Any, int]] = deque()
        most = IN_FLIGHT * parameter_server.count_workers()

        # waits for the batch that was scheduled first
        def add_oldest_result() -> None:
            nonlocal total, seen
            result, count = waiting.popleft()
            total = total + np.asarray(result.fetch(), np.float64)
            seen += count

        for batch, rate, number in batches:
            tensors = tf.nest.flatten(batch)
            numbers = (
                tf.constant(rate, tf.float32),
                tf.constant(seeds.truncate_seed(seed)),
                tf.constant(number),
            )
            count = int(tensors[0].shape[0])
            result = self._coordinator.schedule(step, args=(*tensors, *numbers))
            waiting.append((result, count))
            if len(waiting) > most:
                add_oldest_result()
            if total[0]:  # the number of batches that were not finite
                break
        while waiting:
            add_oldest_result()
        self._coordinator.join()
        return total, seen

    def _convert_sums(self, sums: np.ndarray[Any, Any], examples: int) -> dict[str, float]:
        """Return metrics and mean losses by name, from the summed vectors of all batches (see `_pack_results`).

        Losses are divided by ``examples``, the number of examples in these batches. There must be at least one batch.
        """
        names = self._loss_names()
        losses = {}
        for name, value in zip(names, sums[1:], strict=False):  # the rest belongs to metrics
            losses[name] = float(value) / max(examples, 1)
        values = []  # pairs of a metric's variable and its sum over all batches
        start = 1 + len(names)
        for variable in self.model.metrics_variables:
            size = int(np.prod(variable.shape, dtype=np.int64))
            value = sums[start : start + size].reshape(variable.shape)
            values.append((variable, tf.constant(value, variable.dtype)))
            start += size
        # the variables themselves stay as they are
        with keras.StatelessScope(state_mapping=values):
            found = collect_metrics(self.model)
        metrics = {name: np.asarray(value) for name, value in found.items() if name != "loss"}
        return {**flatten_metrics(metrics), **losses}

    def _weights_finite(self) -> bool:
        """Return whether all trained weights are finite, by reading each on its server."""
        for weight in self._weights:
            with tf.device(weight.device):
                if not bool(all_finite([weight.variable.read_value()])):
                    return False
        return True

    def _check_metrics(self, validation: Examples | None) -> None:
        """Raise Refused if the variables of a metric do not start at 0, or are not sums over batches.

        The latter is tested by evaluating a few validation examples, whole and in two halves. It is not tested with
        fewer than 2 of them.
        """
        for variable in self.model.metrics_variables:
            if np.any(variable.numpy()):
                raise Refused(
                    f"metric variable {variable.path} does not begin at 0, so that workers cannot add up their batches"
                )
        if validation is None or validation.size < 2:
            return
        examples = validation.examples(SEVERAL)
        half = len(tf.nest.flatten(examples)[0]) // 2
        results = []
        for cut in (slice(None), slice(half), slice(half, None)):
            part = tf.nest.map_structure(operator.itemgetter(cut), examples)
            # learning rate, number and seed: the first one is not used, and any others do
            batch = (part, 0.0, 0)
            sums, _ = self._sum_results(self._test_graph, iter([batch]), 0)
            results.append(sums)
        whole, first_half, second_half = results
        # Only the metrics are compared. Before them come whether a number was not finite, and the losses.
        start = 1 + len(self._loss_names())
        of_halves = first_half + second_half
        if not np.allclose(whole[start:], of_halves[start:], rtol=1e-3, atol=1e-4):
            raise Refused(
                "a metric does not follow from those of the parts of the data, which workers compute apart"
            )

    # ---- traced functions, which run on a worker

    def _trace(self, step: Callable[..., tf.Tensor], data: Examples) -> Any:
        """Trace a step for batches of any size and of all shapes of ``data``, and return it as a concrete function.

        Its arguments are the tensors of a batch, one by one, and then the learning rate, the seed and the number of the
        batch.
        """
        kinds = []
        for chunk in data.list_chunk_kinds():  # of buckets, one of each length
            kinds.append(get_batch_specs(next(_gather_batches(iter([chunk]), 1))))
        specs = tf.nest.map_structure(
            lambda spec, *others: spec.most_specific_common_supertype(others), *kinds
        )

        # the coordinator only schedules functions of single tensors
        def run_flat(*given: tf.Tensor) -> tf.Tensor:
            *leaves, rate, seed, number = given
            batch = tf.nest.pack_sequence_as(specs, leaves)
            return self._replicas.run(step, batch, rate, seed, number)

        numbers = (
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([], tf.int32),
            tf.TensorSpec([], tf.int32),
        )
        return tf.function(run_flat, autograph=False).get_concrete_function(
            *tf.nest.flatten(specs), *numbers
        )

    def _update(self, batch: Any, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Compute a batch's gradients, send them to the servers, and return the batch's results, see `_pack_results`.

        The gradients are clipped as the trial asks. The servers apply them, unless one or the loss is not finite. The
        batch is augmented and mixed first. Raises Refused for mixed labels that something else than a loss uses.
        """
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        cut = Slice.whole(size, "keyed")
        cut.draw(seed, number)
        example = self._intake.take(batch, tf.range(size), cut)
        with slices.entering(cut):
            with tf.GradientTape() as tape:
                predicted, losses = self._step.compiled(cut, example, training=True)
            self._intake.check_losses(cut)
            gradients = tape.gradient(losses["loss"], [weight.variable for weight in self._weights])
            counted = self._count_in_metrics(example, predicted)
        finite = self._apply(gradients, losses["loss"], rate, number)
        return self._pack_results(finite, losses, counted, size)

    def _evaluate(
        self, batch: Any, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor
    ) -> tf.Tensor:
        """Evaluate a batch; return its losses and metrics as one vector, see `_pack_results`.

        ``rate`` has no effect. It counts as finite in any case.
        """
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        cut = Slice.whole(size, "keyed")
        cut.draw(seed, number, EVALUATION)
        example = gather_examples(batch, tf.range(size))
        with slices.entering(cut):
            predicted, losses = self._step.compiled(cut, example, training=False)
            counted = self._count_in_metrics(example, predicted)
        return self._pack_results(tf.constant(True), losses, counted, size)

    def _apply(
        self, gradients: Sequence[Any], loss: tf.Tensor, rate: tf.Tensor, number: tf.Tensor
    ) -> tf.Tensor:
        """Clip the gradients and send them to the servers, if they and the loss are finite; return whether they are.

        ``gradients`` has one for each of `_weights`, or None for a weight that the loss does not depend on. ``rate`` is
        the learning rate, and ``number`` that of the update in the trial, from 0.
        """
        known = []  # indices in `_weights` of those on which the loss depends
        known_gradients: list[Any] = []
        values: list[Any] = []  # the numbers of these gradients, without indices
        for i, gradient in enumerate(gradients):
            if gradient is None:
                continue
            known.append(i)
            if isinstance(gradient, tf.IndexedSlices):
                by_row = sum_by_row(gradient)
                known_gradients.append(by_row)
                values.append(by_row.values)
            else:
                known_gradients.append(gradient)
                values.append(gradient)
        # before clipping, which could make an infinite number finite
        finite = all_finite([loss, *values])
        known_gradients = clipping.clip(
            known_gradients, self._clipping_bounds, self._group_gradients(known)
        )

        def update_weights() -> tf.Tensor:
            for i, gradient in zip(known, known_gradients, strict=True):
                self._weights[i].update(gradient, rate, number)
            return tf.constant(0)  # `tf.cond` wants a value of both branches

        tf.cond(finite, update_weights, lambda: tf.constant(0))
        return finite

    def _group_gradients(self, known: Sequence[int]) -> list[list[int]]:
        """Return the gradients that are clipped by one norm, as groups of positions in ``known``.

        ``known`` has the indices of the elements of `_weights` that have a gradient. All shards of a table are one
        group; any other weight is a group by itself. Groups without a gradient are left out.
        """
        # groups of indices in `_weights`, which has the tables' shards last
        groups_of_all = [[i] for i in range(len(self._model_weights))]
        start = len(self._model_weights)
        for shards in self._table_weights.values():
            groups_of_all.append([*range(start, start + len(shards))])
            start += len(shards)
        groups_of_known = []
        for group in groups_of_all:
            positions = [known.index(i) for i in group if i in known]
            if positions:
                groups_of_known.append(positions)
        return groups_of_known

    def _count_in_metrics(self, example: Example, predicted: Any) -> list[tf.Tensor]:
        """Return by how much this batch alone increases each variable of the metrics, as float32.

        The variables themselves are not changed.
        """
        x, y, sample_weight = example
        variables = self.model.metrics_variables
        with keras.StatelessScope(
            state_mapping=[(v, tf.zeros(v.shape, v.dtype)) for v in variables]
        ) as counted:
            self._step.count(x, y, predicted, sample_weight)
        counts = []  # the variables would have these values after this batch if they were 0 before
        for v in variables:
            counts.append(tf.cast(counted.get_current_value(v), tf.float32))
        return counts

    def _pack_results(
        self,
        finite: tf.Tensor,
        losses: dict[str, tf.Tensor],
        counted: Sequence[tf.Tensor],
        size: tf.Tensor,
    ) -> tf.Tensor:
        """Return all results of a batch in one float32 vector, which is sent as one message.

        Its elements are 0, or 1 if the batch is not finite; each loss times the number of examples, in the order of
        `_loss_names`; and the increase of each metric variable, flattened. ``size`` is the number of examples.
        """
        examples = tf.cast(size, tf.float32)
        scalars = [tf.where(finite, 0.0, 1.0)]
        for name in self._loss_names():
            scalars.append(losses[name] * examples)
        return tf.concat([tf.stack(scalars), *(tf.reshape(value, [-1]) for value in counted)], 0)

    def _loss_names(self) -> list[str]:
        """Return the names of the losses, in the order in which `_pack_results` has them."""
        return list(self._step.zeros(training=True))


def _gather_batches(chunks: Iterator[Chunk], batch_size: int) -> Iterator[Any]:
    """Yield the examples of each batch of ``chunks`` as tensors; the last batch of a chunk may be smaller."""
    for chunk in chunks:
        for start in range(0, len(chunk.order), batch_size):
            rows = chunk.order[start : start + batch_size]
            yield tf.nest.map_structure(partial(gather, rows=rows), chunk.tensors)


def _refuse_unsupported(
    recipe: Recipe, hp: Hyperparameters, optimizer: keras.optimizers.Optimizer
) -> None:
    """Raise Refused for options that asynchronous updates cannot do, such as micro-batches or averages of weights.

    The others are mixed_float16, sharpness-aware minimization, and an optimizer with its own schedule or clipping.
    Raises OutOfMemory if the batch would have to be cut into more micro-batches than the trial asks for. Optimizers are
    checked further by `UpdateRule.of`.
    """
    if recipe.micro_batches > hp.integer("micro_batches", 1):
        raise OutOfMemory(
            "a batch does not fit into a worker, and asynchronous ones are not cut: lower batch_size"
        )
    if get_own_rate(optimizer) is None:
        raise Refused(
            "training.strategy is parameter_server, which cannot follow an optimizer's own schedule"
        )
    clips = groups.clips_gradients(optimizer)
    # pairs of whether a reason applies, and what cannot be done
    reasons = [
        (recipe.micro_batches > 1, "micro_batches"),
        (recipe.scale_loss, "mixed_float16"),
        (recipe.sharpness, "sam_rho"),
        (recipe.by_epoch, "swa_from"),
        (
            recipe.average or groups.get_averaging_momentum(optimizer) is not None,
            "averages of the weights",
        ),
        (
            bool(clips),
            "an optimizer that clips by itself: use the parameters " + ", ".join(clipping.KINDS),
        ),
    ]
    for applies, what in reasons:
        if applies:
            raise Refused(
                f"training.strategy is parameter_server, whose asynchronous updates cannot do {what}"
            )
