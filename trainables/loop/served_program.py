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
        """Return the rule of a Keras optimizer, with its numbers at present.

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
                *("adam", ("momentum", "velocity"), decay),
                beta_1=float(optimizer.beta_1),
                beta_2=float(optimizer.beta_2),
                epsilon=float(optimizer.epsilon),
            )
        if getattr(optimizer, "amsgrad", False):
            name = f"{kind.__name__} with amsgrad"
        else:
            name = kind.__name__
        raise Refused(
            f"a parameter server updates weights by {', '.join(KINDS)}, and the optimizer is {name}"
        )

    def change(
        self, gradient: tf.Tensor, slots: Sequence[tf.Tensor], rate: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return what to subtract from the weights, without weight decay, and the new values of the slots.

        ``slots`` are the present values in the order of the field `slots`, ``rate`` is the learning rate, and
        ``number`` is that of the update, from 0, for Adam's bias correction.
        """
        match self.kind:
            case "sgd":
                return gradient * rate, []
            case "momentum":
                # Keras adds this to the weights; the result is subtracted, hence the signs.
                moved = slots[0] * self.beta - gradient * rate
                return -(moved * self.beta - gradient * rate) if self.nesterov else -moved, [moved]
            case _:
                count = tf.cast(number + 1, tf.float32)
                correction = tf.sqrt(1 - tf.pow(self.beta_2, count)) / (
                    1 - tf.pow(self.beta_1, count)
                )
                moment_1 = slots[0] + (gradient - slots[0]) * (1 - self.beta_1)
                moment_2 = slots[1] + (tf.square(gradient) - slots[1]) * (1 - self.beta_2)
                return moment_1 * (rate * correction) / (tf.sqrt(moment_2) + self.epsilon), [
                    moment_1,
                    moment_2,
                ]


@dataclass
class Weight:
    """A trained variable on a server, with the optimizer's variables for it on the same server."""

    variable: Any
    device: str
    rule: UpdateRule
    lazy: bool = False  # an update changes only rows that have gradients
    decays: bool = False
    constraint: Any = None  # applied to the whole weight after each update, as Keras does
    slots: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        def begin() -> tf.Tensor:
            return tf.zeros(self.variable.shape)

        self.slots = [
            parameter_server.create_variable_on_device(self.device, begin, trainable=False)
            for _ in self.rule.slots
        ]

    def update(
        self, gradient: tf.Tensor | tf.IndexedSlices, rate: tf.Tensor, number: tf.Tensor
    ) -> None:
        """Update variable and slots on their server by one gradient, inside a worker's graph.

        With `decays`, the weight also decays by ``rate`` times the rule's weight decay. `constraint`, if there is one,
        is applied to the whole weight afterwards. A sparse gradient must name each row once; without `lazy`, it is made
        dense if there are slots or weight decay.
        """
        decay = self.rule.decay if self.decays else 0.0
        with tf.device(self.device):
            # Without slots and decay, a dense update would change no other rows.
            if isinstance(gradient, tf.IndexedSlices) and (self.lazy or not (self.slots or decay)):
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
        """Apply a gradient to all rows of the variable and of its slots; ``decay`` is as in `_update_rows`."""
        if isinstance(gradient, tf.IndexedSlices):
            places = tf.cast(gradient.indices, tf.int64)[:, None]
            shape = self.variable.shape
            gradient = tf.scatter_nd(
                places, gradient.values, tf.constant(shape.as_list(), tf.int64)
            )
        change, slots = self.rule.change(
            gradient, [slot.read_value() for slot in self.slots], rate, number
        )
        if decay:
            change += self.variable.read_value() * (rate * decay)
        for slot, value in zip(self.slots, slots, strict=True):
            slot.assign(value)
        self.variable.assign_sub(change)

    def _update_rows(
        self, gradient: tf.IndexedSlices, rate: tf.Tensor, number: tf.Tensor, decay: float
    ) -> None:
        """Apply a sparse gradient to the rows that it names, of the variable and of its slots; each may be named once.

        ``decay`` is the weight decay, as a multiple of ``rate``.
        """
        rows = gradient.indices
        before = [slot.sparse_read(rows) for slot in self.slots]
        change, slots = self.rule.change(gradient.values, before, rate, number)
        if decay:
            change += self.variable.sparse_read(rows) * (rate * decay)
        for slot, value in zip(self.slots, slots, strict=True):
            slot.scatter_update(tf.IndexedSlices(value, rows))
        self.variable.scatter_sub(tf.IndexedSlices(change, rows))


def sum_by_row(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Return a sparse gradient with the values of equal rows added up, so that each row is named once."""
    rows, places = tf.unique(tf.reshape(gradient.indices, [-1]))
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def list_weights(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> tuple[list[Weight], dict[str, list[Weight]]]:
    """Return the weights that an optimizer trains: variables of the model, and the shards of each table.

    The shards are by the path of the table's layer. Layers and variables that are not trainable are left out. This
    creates the optimizer's slots on the servers. Raises Refused for an optimizer that has no `UpdateRule`.
    """
    rule = UpdateRule.of(optimizer)
    decays = keras_private.decay_rule(optimizer)
    tables = {}
    for layer in sharded_embedding.list_sharded_embeddings(model):
        if layer.trainable:
            weights = []
            for shard in layer.shards:
                decay = decays(shard.variable)
                weights.append(
                    Weight(shard.variable, shard.device, rule, lazy=layer.lazy, decays=decay)
                )
            tables[layer.path] = weights
    return [
        Weight(v.value, v.value.device, rule, decays=decays(v), constraint=v.constraint)
        for v in model.trainable_variables
    ], tables


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
        self._bounds = clipping.read_bounds(made.hp)
        self._whole, self._tables = list_weights(model, parts.optimizer)
        self._shards = {
            layer.path: layer.shards for layer in sharded_embedding.list_sharded_embeddings(model)
        }
        self._weights = [
            *self._whole,
            *(weight for parts in self._tables.values() for weight in parts),
        ]

    def compile(
        self,
        train: Examples,
        validation: Examples | None,
        replicas: Replicas,
        *,
        loose: bool = False,
    ) -> None:
        """Trace training and evaluation once, and set `state`.

        If ``validation`` is None, evaluation is traced by the first `evaluate`, of test data. ``loose`` has no effect.
        Raises Refused for a metric whose variables do not start at 0 or, as tested with ``validation``, are not sums
        over batches.
        """
        self._train_step = self._trace(self._update, train)
        if validation is None:
            self._test_step = None
        else:
            self._test_step = self._trace(self._evaluate, validation)
        slots = [slot for weight in self._whole for slot in weight.slots]
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

        A slot is under the layer's path, a slash and the slot's name.
        """
        found: dict[str, list[Shard]] = {}
        for path, shards in self._shards.items():
            for i, shard in enumerate(shards):
                held = {path: shard.variable}
                if path in self._tables:
                    weight = self._tables[path][i]
                    held |= {
                        f"{path}/{name}": slot
                        for name, slot in zip(weight.rule.slots, weight.slots, strict=True)
                    }
                for name, variable in held.items():
                    found.setdefault(name, []).append(replace(shard, variable=variable))
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
        that was not finite is noticed. The seconds spent waiting for data are not measured and reported as 0.
        ``profile_into`` has no effect.
        """
        first = walk.first_update(epoch)
        given = (
            (batch, rates[i], first + i)
            for i, batch in enumerate(_gather_batches(walk.epoch(epoch), walk.batch_size))
        )
        sums, seen = self._sum_results(self._train_step, given, walk.seed)
        # the first sum counts the batches that were not finite
        finite = not sums[0] and self._weights_finite()
        return Trained(self._convert_sums(sums, seen), finite, 0.0, seen)

    def evaluate(self, data: HeldOut, *, seed: int, epoch: int) -> Evaluated:
        """Return the loss and metrics over validation or test data, computed by all workers; `loss_std` is NaN."""
        if self._test_step is None:  # there is test data alone
            self._test_step = self._trace(self._evaluate, data.split)
        first = data.first_batch(epoch)
        given = (
            (batch, 0.0, first + i)
            for i, batch in enumerate(_gather_batches(data.chunks(), data.part_size))
        )
        return Evaluated(self._convert_sums(*self._sum_results(self._test_step, given, seed)))

    # ---- on the coordinator

    def _sum_results(
        self, step: Any, batches: Iterator[tuple[Any, float, int]], seed: int
    ) -> tuple[np.ndarray[Any, Any], int]:
        """Run ``step`` on the workers for each (batch, learning rate, number), and wait for all of them.

        The number is that of the update in the trial or, in evaluation, that of the batch. Together with ``seed``, the
        same for all batches, it determines the step's random draws. Return the sum of the vectors that ``step`` returns
        (see `_pack_results`) and the number of examples in the batches that were run. Without batches, the sum is one
        0. No more batches are scheduled once the result of one is noticed that was not finite.
        """
        total: np.ndarray[Any, Any] = np.zeros(1)
        waiting: deque[tuple[Any, int]] = deque()
        most = IN_FLIGHT * parameter_server.count_workers()
        seen = 0

        def land() -> None:
            nonlocal total, seen
            value, count = waiting.popleft()
            total = total + np.asarray(value.fetch(), np.float64)
            seen += count

        for batch, rate, number in batches:
            arguments = (
                tf.constant(rate, tf.float32),
                tf.constant(seeds.truncate_seed(seed)),
                tf.constant(number),
            )
            count = int(tf.nest.flatten(batch)[0].shape[0])
            waiting.append(
                (
                    self._coordinator.schedule(step, args=(*tf.nest.flatten(batch), *arguments)),
                    count,
                )
            )
            if len(waiting) > most:
                land()
            if total[0]:  # the number of batches that were not finite
                break
        while waiting:
            land()
        self._coordinator.join()
        return total, seen

    def _convert_sums(self, sums: np.ndarray[Any, Any], examples: int) -> dict[str, float]:
        """Return metrics and mean losses by name, from the summed vectors of all batches (see `_pack_results`).

        Losses are divided by ``examples``, the number of examples in these batches.
        """
        names = self._names()
        losses = {}
        for name, value in zip(names, sums[1:], strict=False):  # the rest belongs to metrics
            losses[name] = float(value) / max(examples, 1)
        variables = self.model.metrics_variables
        values = []
        start = 1 + len(names)
        for variable in variables:
            size = int(np.prod(variable.shape, dtype=np.int64))
            value = sums[start : start + size].reshape(variable.shape)
            values.append((variable, tf.constant(value, variable.dtype)))
            start += size
        # the variables themselves stay as they are
        with keras.StatelessScope(state_mapping=values):
            found = collect_metrics(self.model)
        return {
            **flatten_metrics(
                {name: np.asarray(value) for name, value in found.items() if name != "loss"}
            ),
            **losses,
        }

    def _weights_finite(self) -> bool:
        """Return whether all trained weights are finite."""
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
        begun = {}
        for v in self.model.metrics_variables:
            begun[v.path] = v.numpy()
        odd = []
        for path, value in begun.items():
            if np.any(value):
                odd.append(path)
        if odd:
            raise Refused(
                f"metric variable {odd[0]} does not begin at 0, so that workers cannot add up their batches"
            )
        if validation is None or validation.size < 2:
            return
        examples = validation.examples(SEVERAL)
        half = len(tf.nest.flatten(examples)[0]) // 2
        cuts = (slice(None), slice(half), slice(half, None))
        parts = []
        for cut in cuts:
            parts.append(tf.nest.map_structure(operator.itemgetter(cut), examples))
        found = []
        for part in parts:
            batch = (
                part,
                0.0,
                0,
            )  # with a learning rate and a number, which evaluation does not use
            sums, _examples = self._sum_results(self._test_step, iter([batch]), 0)
            found.append(sums)
        whole, *halves = found
        # Only the metrics are compared. Before them come whether a number was not finite, and the losses.
        start = 1 + len(self._names())
        if not np.allclose(whole[start:], (halves[0] + halves[1])[start:], rtol=1e-3, atol=1e-4):
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

        def flat(*given: tf.Tensor) -> tf.Tensor:
            *leaves, rate, seed, number = given
            batch = tf.nest.pack_sequence_as(specs, leaves)
            return self._replicas.run(step, batch, rate, seed, number)

        numbers = (
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([], tf.int32),
            tf.TensorSpec([], tf.int32),
        )
        return tf.function(flat, autograph=False).get_concrete_function(
            *tf.nest.flatten(specs), *numbers
        )

    def _update(self, batch: Any, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Compute a batch's gradients, send them to the servers, and return the batch's results, see `_pack_results`.

        The gradients are clipped as the trial asks. The servers apply them, unless one or the loss is not finite.
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

        ``rate`` has no effect.
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

        ``gradients`` has one for each of `_weights`, or None for a weight that the loss does not depend on.
        """
        known = []  # indices of the weights on which the loss depends
        for i, gradient in enumerate(gradients):
            if gradient is not None:
                known.append(i)
        summed = []
        for gradient in gradients:
            summed.append(
                sum_by_row(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
            )
        known_gradients = [summed[i] for i in known]
        values = []
        for gradient in known_gradients:
            values.append(gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient)
        # before clipping, which could make an infinite number finite
        finite = all_finite([loss, *values])
        known_gradients = clipping.clip(known_gradients, self._bounds, self._group_gradients(known))

        def update() -> tf.Tensor:
            for i, gradient in zip(known, known_gradients, strict=True):
                self._weights[i].update(gradient, rate, number)
            return tf.constant(0)

        tf.cond(finite, update, lambda: tf.constant(0))
        return finite

    def _group_gradients(self, known: Sequence[int]) -> list[list[int]]:
        """Return the gradients that are clipped by one norm, as groups of positions in ``known``.

        ``known`` has the indices of the elements of `_weights` that have a gradient. All shards of a table are one
        group; any other weight is a group by itself.
        """
        groups = [[i] for i in range(len(self._whole))]
        start = len(self._whole)
        for weights in self._tables.values():
            groups.append([*range(start, start + len(weights))])
            start += len(weights)
        places = []
        for group in groups:
            of_group = [known.index(i) for i in group if i in known]
            if of_group:
                places.append(of_group)
        return places

    def _count_in_metrics(self, example: Example, predicted: Any) -> list[tf.Tensor]:
        """Return by how much this batch alone increases each variable of the metrics."""
        x, y, sample_weight = example
        variables = self.model.metrics_variables
        with keras.StatelessScope(
            state_mapping=[(v, tf.zeros(v.shape, v.dtype)) for v in variables]
        ) as counted:
            self._step.count(x, y, predicted, sample_weight)
        counts = []
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
        `_names`; and the increase of each metric variable.
        """
        examples = tf.cast(size, tf.float32)
        first = [tf.where(finite, 0.0, 1.0), *(losses[name] * examples for name in self._names())]
        return tf.concat([tf.stack(first), *(tf.reshape(value, [-1]) for value in counted)], 0)

    def _names(self) -> list[str]:
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
    Raises OutOfMemory if the batch would have to be cut into more micro-batches than the trial asks for.
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
