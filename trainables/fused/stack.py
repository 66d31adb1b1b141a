"""The states of several trials of one program side by side, and updates of all of them at once.

Each variable has one more dimension in front, the trials. A trial's part of an update is the same as alone
(`loop/update.py`): the same functions run inside `tf.vectorized_map`, under a `keras.StatelessScope` that gives each
variable the trial's value. Gradients are taken around the map, because loops over time steps have no batched gradient
inside it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainables import keras_private
from trainables.fused.batched_ops import (
    Lookup,
    Streams,
    drawing_per_stream,
    map_over_trials,
    recording_lookups,
)
from trainables.loop.graph_program import pad_rates
from trainables.loop.update import Graph
from trainables.numbers.finite import all_finite
from trainables.numbers.live import Live, replacing_values
from trainables.recipe import groups
from trainables.recipe.refusals import Refused
from trainables.replicas import random_layers
from trainables.state.program_variables import Arrays, State
from trainables.state.registered import unregister_with_owner


class StackedBatches(NamedTuple):
    """Batches of one chunk for all trials of a stack; trials of one stream get the same batches in the same order."""

    tensors: Any  # the examples of the chunk
    orders: tf.Tensor  # for each stream, an order of the chunk's rows
    count: tf.Tensor  # number of batches
    size: tf.Tensor  # examples in each batch but the last
    seeds: tf.Tensor  # seed of each stream's trials
    numbers: tf.Tensor  # for each stream, the number of its first batch since its trials began
    first: tf.Tensor  # for each stream, the position in the stack of one of its trials
    of: tf.Tensor  # the stream of each trial


class Stack:
    """The variables of a fixed number of trials of one program, in a fixed number of streams, to be trained at once.

    Trials of one stream have the same seed and have trained equally long. Creating a stack raises Refused if the
    program has a `tf.Variable`, of which trials cannot have separate values. Create it under the strategy's scope, and
    only after the program's own training was traced: otherwise KeyError is raised. All values are 0 until `put`.
    """

    def __init__(self, graph: Graph, state: State, live: Live, trials: int, streams: int) -> None:
        self.trials, self.streams = trials, streams
        self.graph = graph
        self._zeros: dict[bool, dict[str, tf.Tensor]] = {}  # for training (True) and evaluation
        self.epoch_s = self.trace_s = 0.0  # of its fastest epoch, and of its first trace; 0 before
        self._paths = list(state)
        # the program's variables, in the order of the paths; the positions below are those in this list
        self._variables = _list_keras_variables(graph, state)
        positions = {}
        for position, v in enumerate(self._variables):
            positions[id(v)] = position
        ((update,),) = graph.step.turns  # a compiled model has one turn with one update
        self._trained_positions = [positions[id(v)] for v in graph.changed(update)]
        # of trained weights with sparse gradients, such as embeddings
        self._table_positions = {positions[id(v)] for v in graph.changed_by_rows(update)}
        self._metric_positions = [positions[id(v)] for v in graph.counters if id(v) in positions]
        generators = random_layers.list_generators(graph.step.networks)
        self._seed_positions: set[int] = set()
        for generator in generators:
            if id(generator.state) in positions:
                self._seed_positions.add(positions[id(generator.state)])
        # for each of `_variables`, the values of all trials
        self._stacked_variables: list[tf.Variable] = []
        for position, v in enumerate(self._variables):
            on_host = position in self._seed_positions
            self._stacked_variables.append(self._make_variable(v.dtype, v.shape, on_host=on_host))
        # the values of all trials by the id of a live number's variable
        self._stacked_numbers: dict[int, tf.Variable] = {}
        for number in live.variables:
            self._stacked_numbers[id(number)] = self._make_variable(number.dtype.name, number.shape)
        self._train_graph = tf.function(self._train_all, autograph=False, reduce_retracing=True)
        self._evaluate_graph = tf.function(
            self._evaluate_all, autograph=False, reduce_retracing=True
        )
        self._read_graph = tf.function(self._read_all, autograph=False)

    def _make_variable(
        self, dtype: str, shape: Sequence[int], *, on_host: bool = False
    ) -> tf.Variable:
        """Return a new variable of zeros for all trials: ``shape`` with the trials as one more axis in front.

        With ``on_host`` it is in the memory of the CPU.
        """
        with tf.device("/cpu:0") if on_host else nullcontext():  # kernels take seeds from there
            return tf.Variable(tf.zeros([self.trials, *shape], dtype), trainable=False)

    # ---- methods for the host

    def put(self, states: Sequence[Arrays], numbers: Sequence[Mapping[int, float]]) -> None:
        """Assign the states and live numbers of all trials, in the order of their places, to the stack's variables.

        A place is a trial's position in the stack, and both arguments must have as many elements as the stack has
        trials. Each of ``numbers`` maps the ids of the variables of live numbers to a trial's values. Of several
        replicas' values in a state, the first one's are taken. Raises KeyError if a state or numbers lack an entry.
        """
        for path, variable in zip(self._paths, self._stacked_variables, strict=True):
            variable.assign(np.stack([arrays[path][0] for arrays in states]))
        for key, variable in self._stacked_numbers.items():
            variable.assign([each[key] for each in numbers])

    def arrays(self, place: int) -> Arrays:
        """Return the state of the trial at position ``place`` of the stack, with live numbers left out.

        It has for each path a tuple of one array, as in a checkpoint.
        """
        return {
            path: (value[place].numpy(),)
            for path, value in zip(self._paths, self._stacked_variables, strict=True)
        }

    def states(self) -> list[Arrays]:
        """Return the states of all trials in the order of their places, each as `arrays` returns it.

        Each variable is read once. The arrays of all trials are parts of the same memory.
        """
        read = [np.array(value.numpy()) for value in self._stacked_variables]
        states: list[Arrays] = []
        for place in range(self.trials):
            states.append(
                {path: (value[place],) for path, value in zip(self._paths, read, strict=True)}
            )
        return states

    @unregister_with_owner
    def trace(self, train: StackedBatches, validation: StackedBatches | None) -> None:
        """Trace training, evaluation and metrics by running them with zero batches; do nothing if they are traced.

        The number of batches in ``train`` and ``validation`` must be 0. Without ``validation``, evaluation is traced by
        the first `evaluate`. Sets `trace_s` to the seconds that it took, and resets the metrics of all trials. Raises
        whatever the author's code raises while it is traced, and Refused for operations that have no form for several
        trials, or if the model assigns a trained weight while it computes its loss.
        """
        if self.trace_s:
            return
        began = time.perf_counter()
        self.train(train, np.zeros((0, self.trials), np.float32), self.zeros(training=True))
        if validation is not None:
            self.evaluate(validation, self.zeros(training=False))
        if any(self.graph.step.counts_metrics(training=training) for training in (True, False)):
            self._read_graph()
        self.trace_s = time.perf_counter() - began

    @unregister_with_owner
    def train(
        self, batches: StackedBatches, rates: np.ndarray[Any, Any], sums: dict[str, tf.Tensor]
    ) -> Any:
        """Train all trials on ``batches``; return ``sums`` plus the batches' losses, and which trials are finite.

        A trial is finite if the losses and gradients of all updates, and its trained weights afterwards, are free of
        NaN and infinity. ``rates`` has the learning rates, with shape (batches, trials). Each batch's mean losses,
        times its number of examples, are added to the sums of the same names; no names are added, and ``sums`` itself
        is not changed. Each sum, and the tensor of booleans, has shape (trials,). All later batches are trained on even
        if a trial is not finite.
        """
        return self._train_graph(batches, pad_rates(rates, batches.orders.shape[1]), sums)

    @unregister_with_owner
    def evaluate(self, batches: StackedBatches, sums: dict[str, tf.Tensor]) -> Any:
        """Evaluate all trials on the same batches and update their metrics; return ``sums`` plus the batches' losses.

        Of the orders in ``batches``, the first stream's is used for all. Each batch's mean losses, times its number of
        examples, are added to the sums of the same names; no names are added, and ``sums`` itself is not changed. Each
        sum has shape (trials,).
        """
        return self._evaluate_graph(batches, sums)

    def reported(
        self, sums: Mapping[str, Any], examples: int, *, training: bool
    ) -> list[dict[str, Any]]:
        """Return for each trial the losses and metrics of an epoch or a validation of ``examples`` examples, by name.

        ``sums`` has the summed losses of all trials by name, as `train` or `evaluate` returns them. They are divided by
        ``examples``, which must not be 0. The metrics of all trials are read and reset, unless the step does not count
        metrics in training (or in evaluation, if ``training`` is False): then they are left out and stay as they are.
        """
        step = self.graph.step
        read = self._read_graph() if step.counts_metrics(training=training) else {}
        metrics = {}
        for name, value in read.items():
            metrics[name] = np.asarray(value)
        totals = {}
        for name, value in sums.items():
            totals[name] = np.asarray(value)
        reports = []
        for k in range(self.trials):
            metrics_of_trial = {}
            for name, value in metrics.items():
                metrics_of_trial[name] = value[k]
            totals_of_trial = {}
            for name, value in totals.items():
                totals_of_trial[name] = value[k]
            reports.append(step.reported(metrics_of_trial, totals_of_trial, examples))
        return reports

    def zeros(self, *, training: bool) -> dict[str, tf.Tensor]:
        """Return zeros of shape (trials,) by name, from which the losses are summed over an epoch or a validation.

        They are made at the first call for each value of ``training``; later calls return the same dictionary.
        """
        if training not in self._zeros:
            zeros = self.graph.zeros(training=training).items()
            self._zeros[training] = {
                name: tf.repeat(zero[None], self.trials, 0) for name, zero in zeros
            }
        return self._zeros[training]

    # ---- the graphs

    def _train_all(
        self, batches: StackedBatches, rates: tf.Tensor, sums: dict[str, tf.Tensor]
    ) -> Any:
        """Train all trials on all batches; return ``sums`` plus the batches' losses, and which trials are finite.

        Each batch's mean losses, times its number of examples, are added to the sums of the same names; no names are
        added, and ``sums`` itself is not changed. `train`, whose docstring has the rest, calls this as a graph.
        """

        # i: number of the batch in the chunk
        def train_batch(
            i: tf.Tensor, totals: dict[str, tf.Tensor], finite_before: tf.Tensor
        ) -> tuple[Any, ...]:
            rows = batches.orders[:, i * batches.size : (i + 1) * batches.size]
            losses, finite = self._update(batches, rows, rates[i], batches.numbers + i)
            return (
                i + 1,
                self.graph.step.added(totals, losses, rows[0]),
                tf.logical_and(finite_before, finite),
            )

        all_true = tf.ones([self.trials], tf.bool)
        _, totals, finite = tf.while_loop(
            lambda i, *_: i < batches.count, train_batch, (tf.constant(0), sums, all_true)
        )
        with tf.control_dependencies([finite]):  # read the weights after the loop
            weights = []
            for position in self._trained_positions:
                weights.append(tf.identity(self._stacked_variables[position]))
        return totals, tf.logical_and(finite, all_finite(weights, by_row=True))

    def _update(
        self, batches: StackedBatches, rows: tf.Tensor, rate: tf.Tensor, number: tf.Tensor
    ) -> Any:
        """Make one update of all trials; return their losses by name, and for which trials all numbers are finite.

        Each loss, and the tensor of booleans, has shape (trials,). The numbers that must be finite are losses and
        gradients; updates in which some are not are applied as well. ``rows`` has the row numbers of each stream's
        batch, ``rate`` each trial's learning rate, and ``number`` the number of each stream's update since its trials
        began.
        """
        own = self._list_own_tensors(batches)
        alike = self._list_shared_tensors(batches, rows, number)
        # several streams: each trial has the rows, the seed and the number of its stream
        if not alike:
            stream_of_trial = batches.of
            own |= {
                "rows": tf.gather(rows, stream_of_trial),
                "seed": tf.gather(batches.seeds, stream_of_trial),
                "number": tf.gather(number, stream_of_trial),
            }
        with self._drawing_per_stream(batches):
            trained = [own["state"][position] for position in self._trained_positions]
            # the tape is around the map, see the module
            with (
                recording_lookups() as lookups,
                tf.GradientTape(watch_accessed_variables=False) as tape,
            ):
                tape.watch(trained)
                shares, state = map_over_trials(
                    functools.partial(self._forward, batches, alike), own
                )
                # a trial's weights only affect its own loss, so the sum has the gradients of all
                total = tf.reduce_sum(shares["loss"])
            gradients = self._gradients(tape, total, trained, lookups)
            own |= {
                "state": state,
                "rate": rate,
                "shares": shares,
                "gradients": gradients,
            }
            values, finite, state = map_over_trials(
                functools.partial(self._apply_gradients, alike), own
            )
        self._assign_state(state)
        return values, finite

    def _gradients(
        self, tape: Any, total: tf.Tensor, trained: Sequence[tf.Tensor], lookups: Sequence[Lookup]
    ) -> Any:
        """Return the gradients of all trials for each trained weight, with the trials as the first axis.

        ``tape`` has recorded the forward pass, ``total`` is the sum of the trials' losses, ``trained`` has the values
        of the trained weights, and ``lookups`` all lookups of rows in the forward pass. The gradient of a table such as
        an embedding is a tuple of the rows that were looked up, with shape (trials, rows, ...), and their indices, with
        shape (trials, rows). Rows that were looked up twice occur twice. Raises Refused if a weight has sparse
        gradients although no lookup of its rows was found.
        """
        whole = []  # weights with dense gradients
        lookups_of: dict[int, list[Lookup]] = {}  # by the position of a table, those of its rows
        for position, weight in zip(self._trained_positions, trained, strict=True):
            if position not in self._table_positions:
                whole.append(weight)
                continue
            lookups_of[position] = [one for one in lookups if _find_origin(one.table) is weight]
        for position, of_table in lookups_of.items():
            if not of_table:
                raise Refused(
                    f"rows of {self._variables[position].path} are trained, and not looked up by themselves"
                )
        # Of a table, only the rows that were found are differentiated. The gradients come in the order of the sources.
        found = [one.found for of_table in lookups_of.values() for one in of_table]
        gradients = iter(tape.gradient(total, [*whole, *found]))
        dense = {id(weight): tf.convert_to_tensor(next(gradients)) for weight in whole}
        sparse = {}
        for position, of_table in lookups_of.items():
            parts = [self._get_row_gradients(one, next(gradients)) for one in of_table]
            # join the lookups: rows with rows, indices with indices
            sparse[position] = tuple(tf.concat(part, 1) for part in zip(*parts, strict=True))
        by_weight: list[Any] = []
        for position, weight in zip(self._trained_positions, trained, strict=True):
            by_weight.append(sparse[position] if position in sparse else dense[id(weight)])
        return by_weight

    def _get_row_gradients(
        self, lookup: Lookup, gradient: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return each trial's gradients of the rows that a lookup has read, and the rows' indices in the table.

        ``gradient`` is that of `Lookup.found`. The shapes are (trials, rows, ...) and (trials, rows): all that a trial
        has looked up is in one axis.
        """
        rows = tf.reshape(gradient, [self.trials, -1, *lookup.table.shape[2:]])
        indices = tf.cast(lookup.places, tf.int64)
        if lookup.alike:  # one set of indices for all trials
            return rows, tf.repeat(tf.reshape(indices, [1, -1]), self.trials, 0)
        return rows, tf.reshape(indices, [self.trials, -1])

    def _forward(
        self, batches: StackedBatches, alike: Mapping[str, Any], own: dict[str, Any]
    ) -> Any:
        """Return one trial's training losses by name, and the values of all its variables after they were computed.

        ``alike`` has the tensors that all trials share, ``own`` those of this trial. The values are in the order of
        `_variables`; no variable is changed. Raises Refused if a trained weight is assigned meanwhile.
        """
        of_trial = {**own, **alike}
        with self._replacing_variables(of_trial) as scope:
            shares = self.graph.replicas.first(
                self.graph.replicas.run(
                    self.graph.losses,
                    batches.tensors,
                    of_trial["rows"],
                    of_trial["seed"],
                    of_trial["number"],
                )
            )
            state = []
            for v in self._variables:
                state.append(scope.get_current_value(v))
        for position in self._trained_positions:
            # a variable that was not assigned has the same tensor
            if state[position] is not of_trial["state"][position]:
                raise Refused(
                    f"{self._variables[position].path} is assigned while the loss is computed"
                )
        return shares, state

    def _apply_gradients(self, alike: Mapping[str, Any], own: dict[str, Any]) -> Any:
        """Apply one trial's gradients to its values; return its losses, whether all is finite, and all its new values.

        ``alike`` has the tensors that all trials share, ``own`` those of this trial, its gradients and losses among
        them. All is finite if losses and gradients are; the gradients are applied in any case. The new values are in
        the order of `_variables`; no variable is changed.
        """
        of_trial = {
            **own,
            **alike,
            # none: the states of generators after the forward pass are in "state"
            "seeds": {},
        }
        parts = [
            part for optimizer in self.graph.optimizers for part in groups.list_parts(optimizer)
        ]
        with self._replacing_variables(of_trial) as scope, _updating_by_value(parts):
            gradients: list[Any] = []
            for position, gradient in zip(
                self._trained_positions, of_trial["gradients"], strict=True
            ):
                if isinstance(gradient, tuple):
                    # of a table: rows and indices; the update also wants the table's shape
                    shape = tf.constant([*self._variables[position].shape], tf.int64)
                    gradients.append((*gradient, shape))
                else:
                    gradients.append(gradient)

            # In place of the forward and backward pass, which are done. Only these need the batch's examples, rows,
            # seed and number, which therefore are None below.
            def get_known_gradients(*_: Any, **__: Any) -> Any:
                return [gradients], of_trial["shares"]

            losses, finite = self.graph.update(
                None, None, of_trial["rate"], None, None, forward=get_known_gradients
            )
            return losses, finite, [scope.get_current_value(v) for v in self._variables]

    def _evaluate_all(
        self, batches: StackedBatches, sums: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Evaluate all trials on all batches and update their metrics; return ``sums`` plus the batches' losses.

        Each batch's mean losses, times its number of examples, are added to the sums of the same names; no names are
        added, and ``sums`` itself is not changed. `evaluate` calls this as a graph.
        """

        # i: number of the batch in the chunk
        def evaluate_batch(i: tf.Tensor, totals: dict[str, tf.Tensor]) -> tuple[Any, ...]:
            rows = batches.orders[0, i * batches.size : (i + 1) * batches.size]
            own = self._list_own_tensors(batches)
            alike = self._list_shared_tensors(batches, rows[None], batches.numbers + i)
            # several streams: each trial has the seed and the number of its stream
            if not alike:
                stream_of_trial = batches.of
                own |= {
                    "seed": tf.gather(batches.seeds, stream_of_trial),
                    "number": tf.gather(batches.numbers + i, stream_of_trial),
                }
            alike = {**alike, "rows": rows}  # all streams evaluate the same rows
            with self._drawing_per_stream(batches):
                values, state = map_over_trials(
                    functools.partial(self._evaluate_one, batches, alike), own
                )
            self._assign_state(state)
            return i + 1, self.graph.step.added(totals, values, rows)

        totals: dict[str, tf.Tensor] = tf.while_loop(
            lambda i, _: i < batches.count, evaluate_batch, (tf.constant(0), sums)
        )[1]
        return totals

    def _evaluate_one(
        self, batches: StackedBatches, alike: Mapping[str, Any], own: dict[str, Any]
    ) -> Any:
        """Return one trial's losses in evaluation by name, and the values of all its variables afterwards.

        ``alike`` has the tensors that all trials share, ``own`` those of this trial. The values are in the order of
        `_variables`; no variable is changed.
        """
        of_trial, graph = {**own, **alike}, self.graph
        with self._replacing_variables(of_trial) as scope:
            values = graph.replicas.first(
                graph.replicas.run(
                    graph.evaluate,
                    batches.tensors,
                    of_trial["rows"],
                    of_trial["seed"],
                    of_trial["number"],
                )
            )
            return values, [scope.get_current_value(v) for v in self._variables]

    def _read_all(self) -> dict[str, tf.Tensor]:
        """Return the metrics of all trials by name, with the trials as the first axis, and reset them."""
        metric_variables = [self._variables[position] for position in self._metric_positions]

        # of one trial, whose values of the metrics' variables are given
        def compute_metrics(values: list[tf.Tensor]) -> dict[str, tf.Tensor]:
            with keras.StatelessScope(list(zip(metric_variables, values, strict=True))):
                metrics = {}
                for name, value in self.graph.step.metrics().items():
                    metrics[name] = tf.identity(value)
                return metrics

        # of one trial: the values that the same variables have after a reset
        def reset_metrics(values: list[tf.Tensor]) -> list[tf.Tensor]:
            with keras.StatelessScope(list(zip(metric_variables, values, strict=True))) as scope:
                for metric in self.graph.model.metrics:
                    metric.reset_state()
                return [scope.get_current_value(variable) for variable in metric_variables]

        counted = []
        for position in self._metric_positions:
            counted.append(tf.convert_to_tensor(self._stacked_variables[position]))
        results: dict[str, tf.Tensor] = map_over_trials(compute_metrics, counted)
        # reset the counts only after they were read
        with tf.control_dependencies(list(results.values())):
            fresh = map_over_trials(reset_metrics, counted)
            for position, value in zip(self._metric_positions, fresh, strict=True):
                self._stacked_variables[position].assign(value)
        return results

    # ---- the values of one trial

    @property
    def _shared_positions(self) -> set[int]:
        """The positions in `_variables` of those that all trials share: seed states if there is one stream, or none."""
        if self.streams == 1:
            return self._seed_positions
        return set()

    def _list_own_tensors(self, batches: StackedBatches) -> dict[str, Any]:
        """Return variables ("state") and live numbers ("numbers") of all trials, with the trials as the first axis."""
        state = []
        for value in self._stacked_variables:
            state.append(tf.convert_to_tensor(value))
        return {
            "state": state,
            "numbers": [tf.convert_to_tensor(v) for v in self._stacked_numbers.values()],
        }

    def _list_shared_tensors(
        self, batches: StackedBatches, rows: tf.Tensor, number: tf.Tensor
    ) -> dict[str, Any]:
        """Return the tensors that all trials share if there is one stream; otherwise {}.

        ``rows`` has the row numbers of each stream's batch, and ``number`` the number of each stream's update or
        batch. The result has those of the only stream under "rows" and "number", its seed under "seed", and under
        "seeds" the states of seed generators, by their positions in `_variables`.
        """
        if self.streams > 1:
            return {}
        seeds = {}
        for position in self._shared_positions:
            # the first trial's, which is the same for all
            seeds[position] = tf.convert_to_tensor(self._stacked_variables[position])[0]
        return {"rows": rows[0], "seed": batches.seeds[0], "number": number[0], "seeds": seeds}

    @contextmanager
    def _drawing_per_stream(self, batches: StackedBatches) -> Iterator[None]:
        """Make trials of one stream share their random numbers inside the block, if there are several streams.

        With one stream nothing is done: its seeds are shared tensors, from which numbers are drawn once for all.
        """
        if self.streams == 1:
            yield
        else:
            with drawing_per_stream(Streams(self.streams, batches.first, batches.of)):
                yield

    @contextmanager
    def _replacing_variables(self, values: Mapping[str, Any]) -> Iterator[keras.StatelessScope]:
        """Replace all variables and live numbers by one trial's values inside the block.

        ``values`` has the values of `_variables` under "state", and the live numbers under "numbers". What it has under
        "seeds", by the position of a variable, is used in place of the value under "state"; that key may be missing.
        Yields the scope, which knows the values that variables are assigned inside the block.
        """
        shared = values.get("seeds", {})
        state = []
        for position, value in enumerate(values["state"]):
            state.append(shared.get(position, value))
        numbers = dict(zip(self._stacked_numbers, values["numbers"], strict=True))
        with (
            _Values(list(zip(self._variables, state, strict=True))) as scope,
            replacing_values(numbers),
        ):
            yield scope

    def _assign_state(self, state: Sequence[tf.Tensor]) -> None:
        """Assign the values of all variables, with the trials as the first axis, to the stack's variables."""
        for variable, value in zip(self._stacked_variables, state, strict=True):
            variable.assign(value)


def _list_keras_variables(graph: Graph, state: State) -> list[keras.Variable]:
    """Return the Keras variable of each variable in ``state``, in order.

    Raises Refused if one is a `tf.Variable` alone, whose value no `keras.StatelessScope` can replace.
    """
    by_raw = {}  # by the id of the `tf.Variable` within
    for v in graph.variables:
        if isinstance(v, keras.Variable):
            by_raw[id(v.value)] = v
    strays = [path for path in state if id(state[path].raw) not in by_raw]
    if strays:
        raise Refused(
            f"{', '.join(strays)} is a tf.Variable, of which several trials cannot have a value each"
        )
    return [by_raw[id(state[path].raw)] for path in state]


def _find_origin(tensor: tf.Tensor) -> tf.Tensor:
    """Return the tensor from which this one was made by `Identity` operations; the tensor itself if there are none."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


class _Values(keras.StatelessScope):
    """A scope in which Keras's variables have the given values; no gradient flows through what is assigned inside it.

    It also collects the losses that layers add.
    """

    def __init__(self, state_mapping: Sequence[tuple[keras.Variable, tf.Tensor]]) -> None:
        super().__init__(state_mapping=state_mapping, collect_losses=True)

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Record what Keras assigns to a variable: ``update`` is the variable and its new value."""
        variable, value = update
        super().add_update((variable, tf.stop_gradient(value)))


@contextmanager
def _updating_by_value(optimizers: Sequence[Any]) -> Iterator[None]:
    """Make Keras's optimizers update variables by `assign` inside the block, as its backend-independent code does.

    Keras's methods for TensorFlow go through `tf.distribute` instead. This changes the class, and so all optimizers,
    because some, such as Nadam, extend these methods. ``optimizers`` are those that will update: inside the block they
    know their variables even where a `keras.StatelessScope` replaces the values.
    """
    distributed = {}  # the methods to be put back, by name
    for name, method in vars(keras_private.TFOptimizer).items():
        if name in keras_private.DISTRIBUTED_METHODS:
            distributed[name] = method
    for optimizer in optimizers:
        keras_private.fix_variable_keys(optimizer)
    for name in distributed:
        setattr(keras_private.TFOptimizer, name, getattr(keras_private.BaseOptimizer, name))
    try:
        yield
    finally:
        for name, method in distributed.items():
            setattr(keras_private.TFOptimizer, name, method)
        for optimizer in optimizers:
            keras_private.restore_variable_keys(optimizer)
