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

    tensors: Any
    orders: tf.Tensor  # for each stream, an order of the chunk's rows
    count: tf.Tensor  # number of batches
    size: tf.Tensor  # examples in each batch but the last
    seeds: tf.Tensor  # seed of each stream's trials
    numbers: tf.Tensor  # for each stream, the number of its first batch since its trials began
    first: tf.Tensor  # the place of one trial of each stream
    of: tf.Tensor  # the stream of each trial


class Stack:
    """The variables of a fixed number of trials of one program, in a fixed number of streams, to be trained at once.

    Trials of one stream have the same seed and have trained equally long. Creating a stack raises Refused if the
    program has a `tf.Variable`, of which trials cannot have separate values. Create it under the strategy's scope.
    """

    def __init__(self, graph: Graph, state: State, live: Live, trials: int, streams: int) -> None:
        self.trials, self.streams = trials, streams
        self.graph = graph
        self._zeros: dict[bool, dict[str, tf.Tensor]] = {}
        self.epoch_s = self.trace_s = 0.0  # of its fastest epoch, and of its first trace
        keras_variables = {}
        for v in graph.variables:
            if isinstance(v, keras.Variable):
                keras_variables[id(v.value)] = v
        self._paths = list(state)
        strays = []
        for path in self._paths:
            if id(state[path].raw) not in keras_variables:
                strays.append(path)
        if strays:
            raise Refused(
                f"{', '.join(strays)} is a tf.Variable, of which several trials cannot have a value each"
            )
        self._variables = [keras_variables[id(state[path].raw)] for path in self._paths]
        places = {}
        for place, v in enumerate(self._variables):
            places[id(v)] = place
        ((update,),) = graph.step.turns  # a compiled model has one turn with one update
        self._trained = [places[id(v)] for v in graph.changed(update)]
        self._tables = {places[id(v)] for v in graph.changed_by_rows(update)}
        self._counts = [places[id(v)] for v in graph.counters if id(v) in places]
        generators = random_layers.list_generators(graph.step.networks)
        self._seeds = {
            places[id(generator.state)] for generator in generators if id(generator.state) in places
        }
        self._values = []
        for place, v in enumerate(self._variables):
            self._values.append(self._variable(v.dtype, v.shape, on_host=place in self._seeds))
        self._numbers = {id(v): self._variable(v.dtype.name, v.shape) for v in live.variables}
        self._train = tf.function(self._train_all, autograph=False, reduce_retracing=True)
        self._evaluate = tf.function(self._evaluate_all, autograph=False, reduce_retracing=True)
        self._read = tf.function(self._read_all, autograph=False)

    def _variable(self, dtype: str, shape: Sequence[int], *, on_host: bool = False) -> tf.Variable:
        with tf.device("/cpu:0") if on_host else nullcontext():  # kernels take seeds from there
            return tf.Variable(tf.zeros([self.trials, *shape], dtype), trainable=False)

    # ---- methods for the host

    def put(self, states: Sequence[Arrays], numbers: Sequence[Mapping[int, float]]) -> None:
        """Assign the states and live numbers of all trials, in the order of their places, to the stack's variables.

        Each of ``numbers`` is by the ids of the variables of live numbers. Of several replicas, the first one's values
        are taken.
        """
        for path, variable in zip(self._paths, self._values, strict=True):
            variable.assign(np.stack([arrays[path][0] for arrays in states]))
        for key, variable in self._numbers.items():
            variable.assign([each[key] for each in numbers])

    def arrays(self, place: int) -> Arrays:
        """Return the state of one trial of the stack: for each path a tuple of one array, as in a checkpoint."""
        return {
            path: (value[place].numpy(),)
            for path, value in zip(self._paths, self._values, strict=True)
        }

    def states(self) -> list[Arrays]:
        """Return the states of all trials in the order of their places; each variable is read once."""
        read = [np.array(value.numpy()) for value in self._values]
        states: list[Arrays] = []
        for place in range(self.trials):
            states.append(
                {path: (value[place],) for path, value in zip(self._paths, read, strict=True)}
            )
        return states

    @unregister_with_owner
    def trace(self, train: StackedBatches, validation: StackedBatches | None) -> None:
        """Trace training, evaluation and metrics by running them with zero batches; do nothing if they are traced.

        Without ``validation``, evaluation is not traced. Sets `trace_s` to the seconds that it took. Raises whatever
        the author's code raises while it is traced, and Refused for operations that have no form for several trials.
        """
        if self.trace_s:
            return
        began = time.perf_counter()
        self.train(train, np.zeros((0, self.trials), np.float32), self.zeros(training=True))
        if validation is not None:
            self.evaluate(validation, self.zeros(training=False))
        if any(self.graph.step.counts_metrics(training=training) for training in (True, False)):
            self._read()
        self.trace_s = time.perf_counter() - began

    @unregister_with_owner
    def train(
        self, batches: StackedBatches, rates: np.ndarray[Any, Any], sums: dict[str, tf.Tensor]
    ) -> Any:
        """Train all trials on ``batches``; return ``sums`` with their losses added, and which trials are finite.

        ``rates`` has shape (batches, trials). Each of ``sums``, and the booleans returned, has shape (trials,); a
        batch's mean loss is multiplied by its number of examples before it is added.
        """
        return self._train(batches, pad_rates(rates, batches.orders.shape[1]), sums)

    @unregister_with_owner
    def evaluate(self, batches: StackedBatches, sums: dict[str, tf.Tensor]) -> Any:
        """Evaluate all trials on the same batches and update their metrics; return ``sums`` with their losses added."""
        return self._evaluate(batches, sums)

    def reported(
        self, sums: Mapping[str, Any], examples: int, *, training: bool
    ) -> list[dict[str, Any]]:
        """Return for each trial the losses and metrics of an epoch or a validation of ``examples`` examples.

        ``sums`` has the summed losses of all trials by name, as `train` or `evaluate` returns them. The metrics of all
        trials are reset.
        """
        step = self.graph.step
        if step.counts_metrics(training=training):
            read = self._read()
        else:
            read = {}
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
        """Return zeros of shape (trials,) by name, from which the losses are summed over an epoch or a validation."""
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
        """Train on all batches; return the sums of losses, and which trials are finite."""

        def one(i: tf.Tensor, totals: dict[str, tf.Tensor], before: tf.Tensor) -> tuple[Any, ...]:
            rows = batches.orders[:, i * batches.size : (i + 1) * batches.size]
            values, finite = self._update(batches, rows, rates[i], batches.numbers + i)
            return (
                i + 1,
                self.graph.step.added(totals, values, rows[0]),
                tf.logical_and(before, finite),
            )

        on = tf.ones([self.trials], tf.bool)
        _, totals, finite = tf.while_loop(
            lambda i, *_: i < batches.count, one, (tf.constant(0), sums, on)
        )
        with tf.control_dependencies([finite]):  # read the weights after the loop
            weights = []
            for place in self._trained:
                weights.append(tf.identity(self._values[place]))
        return totals, tf.logical_and(finite, all_finite(weights, by_row=True))

    def _update(
        self, batches: StackedBatches, rows: tf.Tensor, rate: tf.Tensor, number: tf.Tensor
    ) -> Any:
        """Make one update of all trials; return their losses, with shape (trials,), and which trials are finite.

        ``rows`` has the rows of each stream's batch, ``rate`` each trial's learning rate, and ``number`` the number of
        each stream's update.
        """
        own = self._list_own_tensors(batches)
        alike = self._list_shared_tensors(batches, rows, number)
        # several streams: each trial has the rows, the seed and the number of its stream
        if not alike:
            own |= {
                "rows": tf.gather(rows, batches.of),
                "seed": tf.gather(batches.seeds, batches.of),
            }
            own["number"] = tf.gather(number, batches.of)
        with self._drawing_per_stream(batches):
            trained = [own["state"][place] for place in self._trained]
            with (
                recording_lookups() as lookups,
                tf.GradientTape(watch_accessed_variables=False) as tape,
            ):
                tape.watch(trained)
                shares, state = map_over_trials(
                    functools.partial(self._forward, batches, alike), own
                )
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
        self._assign(state)
        return values, finite

    def _gradients(
        self, tape: Any, total: tf.Tensor, trained: Sequence[tf.Tensor], lookups: Sequence[Lookup]
    ) -> Any:
        """Return the gradients of all trials for each trained weight, with the trials as the first axis.

        The gradient of a table such as an embedding is a tuple of the rows that were looked up and their indices.
        Raises Refused if a weight has sparse gradients although no lookup of its rows was found.
        """
        tables = {}
        for place, t in zip(self._trained, trained, strict=True):
            if place in self._tables:
                tables[place] = t
        lookups_by_place: dict[int, list[Lookup]] = {}
        for place, table in tables.items():
            lookups_by_place[place] = [one for one in lookups if _find_origin(one.table) is table]
        if missing := [place for place, found in lookups_by_place.items() if not found]:
            raise Refused(
                f"rows of {self._variables[missing[0]].path} are trained, and not looked up by themselves"
            )
        whole = []
        for place, t in zip(self._trained, trained, strict=True):
            if place not in tables:
                whole.append(t)
        found = [one.found for of_table in lookups_by_place.values() for one in of_table]
        # Of a table, only the rows that were found are differentiated. The gradients come in the order of the sources.
        gradients = iter(tape.gradient(total, [*whole, *found]))
        dense = {id(t): tf.convert_to_tensor(next(gradients)) for t in whole}
        rows = {}
        for place, of_table in lookups_by_place.items():
            rows[place] = [self._rows(one, next(gradients)) for one in of_table]
        joined = {}
        for place, parts in rows.items():
            joined[place] = tuple(tf.concat(part, 1) for part in zip(*parts, strict=True))
        by_weight: list[Any] = []
        for place, t in zip(self._trained, trained, strict=True):
            by_weight.append(joined[place] if place in tables else dense[id(t)])
        return by_weight

    def _rows(self, one: Lookup, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return each trial's gradients of the rows that a lookup has read, and the rows' indices in the table.

        The shapes are (trials, rows, ...) and (trials, rows).
        """
        rows = tf.reshape(gradient, [self.trials, -1, *one.table.shape[2:]])
        places = tf.cast(one.places, tf.int64)
        if not one.alike:
            return rows, tf.reshape(places, [self.trials, -1])
        return rows, tf.repeat(tf.reshape(places, [1, -1]), self.trials, 0)

    def _forward(
        self, batches: StackedBatches, alike: Mapping[str, Any], own: dict[str, Any]
    ) -> Any:
        """Return one trial's losses, and the values of its variables after they were computed.

        ``alike`` has the tensors that all trials share, ``own`` those of this trial. Raises Refused if a trained weight
        is assigned meanwhile.
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
        assigned = []
        for place in self._trained:
            # a variable that was not assigned has the same tensor
            if state[place] is not of_trial["state"][place]:
                assigned.append(place)
        if assigned:
            raise Refused(
                f"{self._variables[assigned[0]].path} is assigned while the loss is computed"
            )
        return shares, state

    def _apply_gradients(self, alike: Mapping[str, Any], own: dict[str, Any]) -> Any:
        """Apply one trial's gradients; return its losses, whether all is finite, and its variables' new values.

        ``alike`` has the tensors that all trials share, ``own`` those of this trial, its gradients and losses among
        them.
        """
        # the states of generators after the forward pass are in "state"
        of_trial = {
            **own,
            **alike,
            "seeds": {},
        }
        parts = [
            part for optimizer in self.graph.optimizers for part in groups.list_parts(optimizer)
        ]
        with self._replacing_variables(of_trial) as scope, _updating_by_value(parts):
            shapes = []
            for place in self._trained:
                shapes.append(tf.constant([*self._variables[place].shape], tf.int64))
            gradients: list[Any] = []
            # The gradient of a table is sparse: values, indices and the table's shape.
            for gradient, shape in zip(of_trial["gradients"], shapes, strict=True):
                gradients.append((*gradient, shape) if isinstance(gradient, tuple) else gradient)

            # Stands in for the forward and backward pass, which are done; so the arguments below are not needed.
            def known(*_: Any, **__: Any) -> Any:
                return [gradients], of_trial["shares"]

            values, finite = self.graph.update(
                None, None, of_trial["rate"], None, None, forward=known
            )
            return values, finite, [scope.get_current_value(v) for v in self._variables]

    def _evaluate_all(
        self, batches: StackedBatches, sums: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Evaluate all batches; return the sums of losses."""

        def one(i: tf.Tensor, totals: dict[str, tf.Tensor]) -> tuple[Any, ...]:
            rows = batches.orders[0, i * batches.size : (i + 1) * batches.size]
            own = self._list_own_tensors(batches)
            alike = self._list_shared_tensors(batches, rows[None], batches.numbers + i)
            if not alike:
                own |= {
                    "seed": tf.gather(batches.seeds, batches.of),
                    "number": tf.gather(batches.numbers + i, batches.of),
                }
            alike = {**alike, "rows": rows}  # all streams evaluate the same rows
            with self._drawing_per_stream(batches):
                values, state = map_over_trials(
                    functools.partial(self._evaluate_one, batches, alike), own
                )
            self._assign(state)
            return i + 1, self.graph.step.added(totals, values, rows)

        totals: dict[str, tf.Tensor] = tf.while_loop(
            lambda i, _: i < batches.count, one, (tf.constant(0), sums)
        )[1]
        return totals

    def _evaluate_one(
        self, batches: StackedBatches, alike: Mapping[str, Any], own: dict[str, Any]
    ) -> Any:
        """Return one trial's losses in evaluation, and the values of its variables afterwards.

        ``alike`` has the tensors that all trials share, ``own`` those of this trial.
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

        def one(values: list[tf.Tensor]) -> dict[str, tf.Tensor]:
            with keras.StatelessScope(
                [(self._variables[p], v) for p, v in zip(self._counts, values, strict=True)]
            ):
                metrics = {}
                for name, value in self.graph.step.metrics().items():
                    metrics[name] = tf.identity(value)
                return metrics

        def anew(values: list[tf.Tensor]) -> list[tf.Tensor]:
            with keras.StatelessScope(
                [(self._variables[p], v) for p, v in zip(self._counts, values, strict=True)]
            ) as scope:
                for metric in self.graph.model.metrics:
                    metric.reset_state()
                counts = []
                for place in self._counts:
                    counts.append(scope.get_current_value(self._variables[place]))
                return counts

        counted = []
        for place in self._counts:
            counted.append(tf.convert_to_tensor(self._values[place]))
        results: dict[str, tf.Tensor] = map_over_trials(one, counted)
        # reset the counts only after they were read
        with tf.control_dependencies(list(results.values())):
            for place, value in zip(self._counts, map_over_trials(anew, counted), strict=True):
                self._values[place].assign(value)
        return results

    # ---- the values of one trial

    @property
    def _shared(self) -> set[int]:
        """The positions of the variables that all trials share: seed states if there is one stream, otherwise none."""
        if self.streams == 1:
            return self._seeds
        return set()

    def _list_own_tensors(self, batches: StackedBatches) -> dict[str, Any]:
        """Return variables ("state") and live numbers ("numbers") of all trials, with the trials as the first axis."""
        state = []
        for value in self._values:
            state.append(tf.convert_to_tensor(value))
        return {
            "state": state,
            "numbers": [tf.convert_to_tensor(v) for v in self._numbers.values()],
        }

    def _list_shared_tensors(
        self, batches: StackedBatches, rows: tf.Tensor, number: tf.Tensor
    ) -> dict[str, Any]:
        """Return the tensors that all trials share if there is one stream; otherwise {}.

        They are "rows", "seed", "number" (of the update) and "seeds", the states of seed generators by position.
        """
        if self.streams > 1:
            return {}
        seeds = {}
        for place in self._shared:
            seeds[place] = tf.convert_to_tensor(self._values[place])[0]
        return {"rows": rows[0], "seed": batches.seeds[0], "number": number[0], "seeds": seeds}

    @contextmanager
    def _drawing_per_stream(self, batches: StackedBatches) -> Iterator[None]:
        """Make trials of one stream share their random numbers inside the block, if there are several streams."""
        if self.streams == 1:
            yield
        else:
            with drawing_per_stream(Streams(self.streams, batches.first, batches.of)):
                yield

    @contextmanager
    def _replacing_variables(self, values: Mapping[str, Any]) -> Iterator[keras.StatelessScope]:
        """Replace all variables and live numbers by one trial's values inside the block.

        ``values`` has the variables under "state", those of them that all trials share under "seeds", and the live
        numbers under "numbers".
        """
        state = []
        for place, value in enumerate(values["state"]):
            state.append(values.get("seeds", {}).get(place, value))
        numbers = dict(zip(self._numbers, values["numbers"], strict=True))
        with (
            _Values(list(zip(self._variables, state, strict=True))) as scope,
            replacing_values(numbers),
        ):
            yield scope

    def _assign(self, state: Sequence[tf.Tensor]) -> None:
        for variable, value in zip(self._values, state, strict=True):
            variable.assign(value)


def _find_origin(tensor: tf.Tensor) -> tf.Tensor:
    """Return the tensor from which this one was made by `Identity` operations; the tensor itself if there are none."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


class _Values(keras.StatelessScope):
    """A scope in which variables have other values; as with variables, no gradient flows through assigned values."""

    def __init__(self, state_mapping: Sequence[tuple[keras.Variable, tf.Tensor]]) -> None:
        super().__init__(state_mapping=state_mapping, collect_losses=True)

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        variable, value = update
        super().add_update((variable, tf.stop_gradient(value)))


@contextmanager
def _updating_by_value(optimizers: Sequence[Any]) -> Iterator[None]:
    """Make Keras's optimizers update variables by `assign` inside the block, as its backend-independent code does.

    Keras's methods for TensorFlow go through `tf.distribute` instead. This changes the class, and so all optimizers,
    because some, such as Nadam, extend these methods.
    """
    methods = vars(keras_private.TFOptimizer)
    distributed = {}
    for name, method in methods.items():
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
