"""Checks that what a program computes for a batch follows from its parts, as training in several parts requires.

Before the first update, some examples are computed in training and in evaluation: once whole, by each replica, and once
cut as a batch is cut. Losses, losses added by layers, metrics, and all variables that the graphs write must agree.
Random draws that do not follow the examples cause differences, too. A program with a difference would train another
model, and is refused with the name of what differs.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from trainables import keras_private
from trainables.data.passes import Examples, get_batch_specs
from trainables.data.share import compute_bounds, fill_bounds
from trainables.devices.precision import HALF, RELATIVE_OF_TF32, uses_tf32
from trainables.devices.replicas import Replicas, get_replica_index
from trainables.numbers.live import Live
from trainables.recipe.refusals import Refused
from trainables.replicas import slices
from trainables.replicas.slices import Mode, Slice
from trainables.state.program_variables import State, StateVariable, unwrap_variable

EXAMPLES = 31
"""Number of examples: odd, so that the parts have different sizes."""
RELATIVE, RELATIVE_OF_HALF = 1e-4, 5e-2
"""Tolerances relative to a value, larger than rounding, as sums over a batch are computed in another order.

For the change of a variable, the tolerance is ten times as large.
"""
ABSOLUTE = 1e-6
ROUNDED = 1e-2
"""Fraction of these tolerances by which weights are perturbed, to test whether rounding explains a difference."""
ON = 0.5
"""Value that replaces a number that is 0 for now, so that its effect is tested."""
TOGETHER = 2
"""Number of micro-batches that are tested; more of them do not add a case."""
ANOTHER = "replicas and micro-batches, which each compute a part, would train another model"
OVER_REPLICAS = (
    "Let it sum up over replicas what it takes of a batch (tf.distribute.get_replica_context().all_reduce), as "
    "keras.layers.BatchNormalization does here, or train on one device in one part"
)


Values: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = list[tuple[int, int, int]]
"""For each replica: first row, end, and the number of these rows that count."""


@dataclass(frozen=True)
class ProgramUnderTest:
    """The parts of a program that `check_parts` needs."""

    replicas: Replicas
    state: State
    networks: Sequence[keras.Layer]
    metrics: Callable[[bool], Values]  # the metrics of training or evaluation since the last call
    live: Live | None = None
    micro_batches: int = 1

    @property
    def parts(self) -> int:
        """The number of parts of a batch in the test: one for each replica or, with micro-batches, two for each."""
        return int(self.replicas.number) * min(self.micro_batches, TOGETHER)

    @property
    def counters(self) -> list[Any]:
        """The variables in which the metrics of the networks that are models are counted, each once."""
        found = [
            v
            for one in self.networks
            if isinstance(one, keras.Model)
            for v in one.metrics_variables
        ]
        return list({id(v): v for v in found}.values())

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """All layers of the networks, each once."""
        return list(
            {
                id(part): part
                for one in self.networks
                for part in keras_private.flatten_layers(one)
            }.values()
        )


@dataclass(frozen=True)
class ExampleResults:
    """Results for some examples: mean values, metrics, and the written variables by path, one array per replica."""

    values: Values
    metrics: Values
    state: Mapping[str, tuple[np.ndarray[Any, Any], ...]]


def check_parts(
    tried: ProgramUnderTest,
    modes: Sequence[Mode],
    data: Examples,
    validation: Examples | None = None,
) -> None:
    """Raise Refused if a loss, metric or variable has another value when a batch is computed in parts.

    Each of ``modes`` is computed for some examples of ``data`` (31, or more if there are many parts), whole and in
    parts, and once more with other live numbers and with features turned on that are off at first. Evaluation is
    computed for examples of ``validation`` if they have targets or weights and those of ``data`` have none, or the
    other way round. With fewer than 2 examples, nothing is checked. Differences that rounding can explain are allowed.
    The message names what differs. Call it before the first update, because the variables that are changed get their
    initial values afterwards, not their present ones.
    """
    count = max(EXAMPLES, 2 * tried.parts + 1)  # odd, and at least two for each part
    evaluated = data
    # an example is (x,), (x, y) or (x, y, sample_weight)
    if validation is not None and len(validation.example()) != len(data.example()):
        evaluated = validation
    for mode in modes:
        of_mode = data if mode.training else evaluated
        first_examples = of_mode.examples(count)
        spread_examples = of_mode.spread_examples(count)
        if _count_examples(first_examples) < 2:
            continue
        test = _ModeTest(tried, mode, first_examples)
        # Each comparison also resets the variables that the mode writes to their initial values.
        test.compare(first_examples)
        # The second one takes examples from all over the data, since the first ones may be alike, as in sorted data.
        # `bold`: TensorFlow may fail with settings that no trial has asked for, which is then no reason to refuse.
        with test.all_turned_on():
            test.compare(spread_examples, bold=True)


class _ModeTest:
    """Tests one mode, which is traced once for parts of any size."""

    def __init__(self, tried: ProgramUnderTest, mode: Mode, examples: Any) -> None:
        """Trace ``mode`` with ``examples``, find the variables that it writes, and choose the tolerance."""
        self._tried = tried
        self._mode = mode
        self._run, graph, uses_half_precision = _trace_in_float32(tried, mode, examples)
        written_by_path = tried.state.find_written(graph)
        # ids of all variables that the mode writes, which are reset after each computation
        self._written_ids = {id(variable.raw) for variable in written_by_path.values()}
        # Those of them that are compared. What counts metrics is left out, because the metrics themselves are compared.
        ids_of_counters = {id(counter.value) for counter in tried.counters}
        self._compared = {
            path: variable
            for path, variable in written_by_path.items()
            if id(variable.raw) not in ids_of_counters
        }
        # The less precise the numbers are, the more a sum differs if it is computed in another order.
        rounds_to_tf32 = uses_tf32(tried.replicas)
        if uses_half_precision:
            self._relative = RELATIVE_OF_HALF
        elif rounds_to_tf32:
            self._relative = RELATIVE_OF_TF32
        else:
            self._relative = RELATIVE

    def compare(self, examples: Any, *, bold: bool = False) -> None:
        """Raise Refused if ``examples`` give different results when they are computed in parts.

        Differences that rounding can explain are allowed. With ``bold``, an error of TensorFlow in computing all at
        once is ignored, because the test runs with settings that no trial has asked for.
        """
        size = _count_examples(examples)
        try:
            whole = self._compute_results(examples, size)
        except tf.errors.OpError:
            if bold:
                return
            raise
        for edges in _choose_cuts(size, self._tried.parts):
            parts = self._compute_results(examples, size, edges)
            for find_differing in (
                self._find_differing_state,
                self._find_differing_values,
                self._find_differing_metrics,
            ):
                differing = find_differing(whole, parts, size)
                if not differing:
                    continue
                # What also differs at once, with slightly changed weights, may differ by rounding, which is allowed.
                with_noise = self._compute_with_noise(examples, size)
                differing_by_noise = find_differing(whole, with_noise, size)
                for what, reason in differing.items():
                    if what not in differing_by_noise:
                        layer = _find_differing_layer(
                            self._tried, self._mode, examples, size, edges, self._relative
                        )
                        raise Refused(layer or reason)

    @contextmanager
    def all_turned_on(self) -> Iterator[None]:
        """Turn on features inside the block that another trial or a hook may turn on later, so that they are tested.

        Live numbers get other values, and floating-point scalar variables that start at 0 and that the mode does not
        write become 0.5. Afterwards, live numbers get their previous values, and these variables their initial 0.
        """
        state = self._tried.state
        unwritten = []
        for path in state:
            if id(state[path].raw) not in self._written_ids:
                unwritten.append(state[path])
        turned_off = []
        for v in unwritten:
            if v.raw.shape.rank == 0 and v.raw.dtype.is_floating and not v.initial[0]:
                turned_off.append(v.raw)
        live = self._tried.live
        with nullcontext() if live is None else live.all_turned_on():
            try:
                for raw in turned_off:
                    number = np.asarray(ON, raw.dtype.as_numpy_dtype)
                    state.set_values(raw, [number] * len(state.read(raw) or ()))
                yield
            finally:
                state.reset({id(raw) for raw in turned_off})

    # ---- one computation

    def _compute_results(
        self, examples: Any, size: int, edges: Sequence[int] | None = None
    ) -> ExampleResults:
        """Return the results for all ``size`` examples at once or, given ``edges``, in parts.

        ``edges`` has the first row of each part and, last, ``size``. The variables that the mode writes get their
        initial values afterwards.
        """
        replicas = self._tried.replicas.number
        # for each call of the traced function, the rows of each replica
        calls: list[Rows] = []
        if edges is None:
            # At once: all replicas compute all examples, because each must compute something, and those of one count.
            calls.append([(0, size, size)] + [(0, size, 0)] * (replicas - 1))
        else:
            part_rows = []
            for start, stop in itertools.pairwise(edges):
                part_rows.append((*fill_bounds(start, stop, size), stop - start))
            for i in range(0, len(part_rows), replicas):  # one part for each replica
                calls.append(part_rows[i : i + replicas])
        totals: Values = dict.fromkeys(self._mode.totals, 1.0)
        try:
            if totals:  # the divisors of these losses are sums over all parts: a first pass only counts them
                _, totals = self._sum_over_parts(examples, size, calls, totals)
                self._reset_state()
            values, _ = self._sum_over_parts(examples, size, calls, totals)
            metrics = self._tried.metrics(self._mode.training)
            state = {}
            for path, held in self._compared.items():
                state[path] = tuple(part.numpy() for part in held.components)  # of each replica
        finally:
            self._reset_state()
        return ExampleResults(values, metrics, state)

    def _sum_over_parts(
        self, examples: Any, size: int, calls: list[Rows], totals: Values
    ) -> tuple[Values, Values]:
        """Call the traced function once for each of ``calls``; return (mean values, counts for `Mode.totals`).

        Both are sums over all calls, by name. ``totals`` has the divisors of the losses that need them, by the loss's
        name. ``size`` is the number of ``examples``, of which each call computes the given rows. Variables are changed.
        """
        shares: dict[str, Any] = {}
        counts: dict[str, Any] = {}
        for rows in calls:
            starts_stops_counts = []  # each with one number for each replica
            for numbers in zip(*rows, strict=True):
                starts_stops_counts.append(tf.constant(numbers))
            given = {}
            for name, total in totals.items():
                given[name] = tf.constant(total)
            found, counted = self._run(examples, tf.constant(size), *starts_stops_counts, given)
            shares = {name: shares.get(name, 0.0) + value.numpy() for name, value in found.items()}
            counts = {
                name: counts.get(name, 0.0) + value.numpy() for name, value in counted.items()
            }
        return shares, counts

    def _reset_state(self) -> None:
        """Set all variables that the mode writes to their initial values."""
        self._tried.state.reset(self._written_ids)

    # ---- differences

    def _find_differing_values(
        self, whole: ExampleResults, parts: ExampleResults, size: int
    ) -> dict[str, str]:
        """Return a message for each mean value, such as a loss, that differs by more than the tolerance, by name.

        ``size`` is the number of examples, for the messages. A value that is not finite for all at once is left out.
        One that is NaN only in parts differs.
        """
        differing: dict[str, str] = {}
        largest = max(
            (abs(value) for value in whole.values.values() if np.isfinite(value)), default=0.0
        )
        floor = ABSOLUTE * max(1.0, largest)  # a value near 0 may be a difference of larger ones
        for name, value in whole.values.items():
            bound = self._relative * abs(value) + floor
            # `not ... <=`, so that NaN in parts differs as well
            if np.isfinite(value) and not abs(value - parts.values[name]) <= bound:
                told = self._mode.told.format(
                    what=name,
                    whole=value,
                    parts=parts.values[name],
                    size=size,
                    count=self._tried.parts,
                    mode=self._mode.name,
                )
                differing[name] = f"{told}; {ANOTHER}. {self._mode.hint}"
        return differing

    def _find_differing_state(
        self, whole: ExampleResults, parts: ExampleResults, size: int
    ) -> dict[str, str]:
        """Return a message for each variable that differs by more than the tolerance on any replica, by path.

        ``size`` is the number of examples, for the messages. The tolerance is for the change from the initial value;
        whole numbers must be equal. A variable that is not finite for all at once is left out.
        """
        differing: dict[str, str] = {}
        for path, held in self._compared.items():
            before = held.initial[0]
            one = whole.state[path][0]  # of the first replica, whose examples count
            floats = np.issubdtype(one.dtype, np.inexact)
            if floats and not np.all(np.isfinite(one)):  # nothing to compare with
                continue
            bound: Any = 0  # whole numbers must be equal
            if floats:  # the change may differ by the tolerance, and the value by rounding, even if it changes little
                moved = float(np.abs(np.asarray(one, np.float64) - before).max(initial=0.0))
                rounding = 4 * np.finfo(one.dtype).eps * np.abs(one).max(initial=0.0)
                bound = 10 * self._relative * moved + rounding
            for other in parts.state[path]:
                apart = np.abs(np.asarray(other, np.float64) - np.asarray(one, np.float64))
                if apart.size and not np.all(apart <= bound):
                    place = np.unravel_index(int(np.nanargmax(apart)), apart.shape)
                    owner = self._describe_owner(held, path)
                    differing[path] = (
                        f"{owner} becomes {float(one[place]):.6g} in {self._mode.name} with {size} examples at once, "
                        f"and {float(other[place]):.6g} with the same in {self._tried.parts} parts; {ANOTHER}. "
                        f"{OVER_REPLICAS}"
                    )
        return differing

    def _find_differing_metrics(
        self, whole: ExampleResults, parts: ExampleResults, size: int
    ) -> dict[str, str]:
        """Return a message for each metric that differs by more than the tolerance, by name.

        A metric may be an array of numbers; the message is about the first that differs. ``size`` is the number of
        examples, for the messages. A number that is not finite for all at once is left out.
        """
        differing: dict[str, str] = {}
        for name, value in whole.metrics.items():
            one = np.ravel(np.asarray(value, np.float64))
            other = np.ravel(np.asarray(parts.metrics[name], np.float64))
            bound = self._relative * np.abs(one) + ABSOLUTE
            apart = np.isfinite(one) & ~(np.abs(one - other) <= bound)
            if (
                apart.any()
            ):  # there may be several numbers, such as one per class: name the first that differs
                place = int(np.argmax(apart))
                differing[name] = (
                    f"metric {name!r} is {one[place]:.6g} for {size} examples in {self._mode.name} and "
                    f"{other[place]:.6g} for {self._tried.parts} parts of them: replicas and micro-batches, "
                    "which each count a part, would report another number; use a metric object that sums up over "
                    "examples, such as keras.metrics.RootMeanSquaredError"
                )
        return differing

    def _describe_owner(self, variable: StateVariable, path: str) -> str:
        """Return the name of a variable in messages: its path and, if a layer has it, the innermost such layer."""
        for layer in reversed(self._tried.layers):  # inner layers first
            # attributes as well: a `tf.Variable` is none of Keras's variables
            for held in (*layer.variables, *vars(layer).values()):
                if unwrap_variable(held) is variable.raw:
                    return f"variable {path!r} of layer {layer.name!r} ({type(layer).__name__}, {layer.path})"
        return f"variable {path!r}"

    def _compute_with_noise(self, examples: Any, size: int) -> ExampleResults:
        """Return the results for all examples at once, with the trainable weights multiplied by small random factors.

        The factors differ from 1 by about a hundredth of the tolerance, and are the same in each call. A difference
        that these factors also cause is considered to be rounding. The weights are restored afterwards.
        """
        state = self._tried.state
        random = np.random.default_rng(0)
        weights = [w.value for one in self._tried.networks for w in one.trainable_weights]
        before = {
            id(raw): (raw, values) for raw in weights if (values := state.read(raw)) is not None
        }
        try:
            for raw, values in before.values():
                noise = 1 + self._relative * ROUNDED * random.standard_normal(values[0].shape)
                state.set_values(raw, [(value * noise).astype(value.dtype) for value in values])
            return self._compute_results(examples, size)
        finally:
            for raw, values in before.values():
                state.set_values(raw, values)


def _count_examples(examples: Any) -> int:
    """Return the number of examples, which is the length of each array in ``examples``."""
    return len(tf.nest.flatten(examples)[0])


def _choose_cuts(size: int, parts: int) -> list[list[int]]:
    """Return two ways to cut the examples into parts, as lists of the parts' first rows and, last, ``size``.

    One is even, as a batch is cut. The other has one example in each part but the last, which has all others. With
    fewer examples than ``parts``, some parts are empty.
    """
    even = []
    for i in range(parts + 1):
        even.append(compute_bounds(size, i, parts)[0])
    return [even, [*(min(i, size) for i in range(parts)), size]]


def _trace_in_float32(tried: ProgramUnderTest, mode: Mode, examples: Any) -> tuple[Any, Any, bool]:
    """Trace a mode in float32 if its layers support that; return (function, graph, whether half precision is used).

    Half precision is avoided, because its rounding hides small differences, but a layer may not support another type,
    which an error in tracing shows. Only layers that keep their variables in float32 are changed, and only meanwhile.
    See `_trace_mode` for the function. Errors in tracing the layers as they are are passed on.
    """
    mixed = []
    for layer in tried.layers:
        if _is_mixed(layer):
            mixed.append(layer)
    try:
        with _computing_in_float32(mixed):
            run, graph = _trace_mode(tried, mode, examples)
    except (TypeError, ValueError, tf.errors.OpError):
        if not mixed:
            raise
        # as the layers are: some compute in half precision
        return *_trace_mode(tried, mode, examples), True
    return (
        run,
        graph,
        any(layer.compute_dtype in HALF for layer in tried.layers if layer not in mixed),
    )


def _is_mixed(layer: keras.layers.Layer) -> bool:
    """Return whether a layer computes in half precision and keeps its variables in float32."""
    policy = layer.dtype_policy
    return (
        type(policy) is keras.DTypePolicy
        and policy.compute_dtype in HALF
        and policy.variable_dtype == "float32"
    )


@contextmanager
def _computing_in_float32(layers: Sequence[keras.layers.Layer]) -> Iterator[None]:
    """Make ``layers`` compute in float32 inside the block; their dtype policies are put back afterwards."""
    before = [layer.dtype_policy for layer in layers]
    try:
        for layer in layers:
            layer.dtype_policy = keras.DTypePolicy("float32")
        yield
    finally:
        for layer, policy in zip(layers, before, strict=True):
            layer.dtype_policy = policy


def _trace_mode(tried: ProgramUnderTest, mode: Mode, examples: Any) -> tuple[Any, Any]:
    """Return (a function that computes one part of the examples on each replica, its graph).

    It is called with the examples, their number, and three vectors with a number for each replica: the first row of its
    part, the end, and how many of the rows count (0 if they stand in for an empty part); then with the totals by name.
    It returns the sums over replicas of the parts' contributions to mean values, and of the counts for `mode.totals`,
    each by name. As in training, sizes are unknown when it is traced.
    """
    one_number = tf.TensorSpec([], tf.int32)
    number_of_each_replica = tf.TensorSpec([None], tf.int32)
    signature = [
        get_batch_specs(examples),
        one_number,
        *[number_of_each_replica] * 3,
        {name: tf.TensorSpec([], tf.float32) for name in mode.totals},
    ]
    # The same numbers in each call, so that the examples get the same random draws at once and in parts.
    seed, update = 0, 0

    def compute_parts(
        given: Any, size: Any, starts: Any, stops: Any, counts: Any, totals: Any
    ) -> Any:
        def compute_on_replica(given: Any) -> Any:
            _, replica = get_replica_index()
            count = counts[replica]
            # The part of this replica. If none of its rows count, they stand in for an empty part (`real` is False).
            cut = Slice(
                size,
                starts[replica],
                stops[replica],
                parts=tried.parts,
                real=count > 0,
                own=count,
            )
            cut.totals = {name: totals[name] for name in mode.totals} or None
            cut.draw(tf.constant(seed), tf.constant(update), mode.calls)
            # A metric that a layer tracks counts all rows that the layer gets, also those that stand in. Its variables
            # have a value of their own on each replica ("on_read"), which is set back where no row counts.
            counters = [v for v in tried.counters if v.synchronization == "on_read"]
            before = [tf.identity(v) for v in counters]
            with slices.entering(cut):
                shares = dict(mode.compute(given, tf.range(size), cut))
            for variable, value in zip(counters, before, strict=True):
                variable.assign(tf.where(cut.real, variable, value))
            return shares, {name: cut.counts.get(name, tf.constant(0.0)) for name in mode.totals}

        shares, counted = tried.replicas.run(compute_on_replica, given)
        return tried.replicas.sum_values(shares), tried.replicas.sum_values(counted)

    # With micro-batches, batch normalization takes its statistics from each of them, as is known and accepted. That
    # difference would hide all others, so the test uses the moving statistics.
    statistics: AbstractContextManager[None] = nullcontext()
    if tried.micro_batches > 1:
        statistics = _use_moving_statistics(tried.layers)
    with statistics:
        run = tf.function(compute_parts, input_signature=signature, autograph=False)
        return run, run.get_concrete_function().graph


@contextmanager
def _use_moving_statistics(layers: Sequence[keras.layers.Layer]) -> Iterator[None]:
    """Make those of ``layers`` that are batch normalisation use their moving statistics inside the block.

    The statistics of micro-batches would differ.
    """
    with ExitStack() as stack:
        for layer in layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                before = keras_private.moments_of(layer)
                keras_private.replace_moments(
                    layer, functools.partial(_get_moving_statistics, layer)
                )
                stack.callback(keras_private.replace_moments, layer, before)
        yield


def _get_moving_statistics(
    layer: Any, inputs: tf.Tensor, mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return (moving mean, moving variance) of a layer in the type of ``inputs``, in place of those of ``inputs``.

    ``mask`` has no effect.
    """
    return tf.cast(layer.moving_mean.value, inputs.dtype), tf.cast(
        layer.moving_variance.value, inputs.dtype
    )


# ---- the layer that causes a difference


def _find_differing_layer(
    tried: ProgramUnderTest,
    mode: Mode,
    examples: Any,
    size: int,
    edges: Sequence[int],
    relative: float,
) -> str:
    """Return a message about the first layer that gives an example other outputs in parts; "" if there is none.

    The first is the one that finishes first in the computation. ``examples`` are ``size`` in number, and ``edges`` are
    the parts' first rows and, last, ``size``. ``relative`` is a tenth of the allowed difference, as a fraction of the
    layer's largest output. Layers whose outputs have not one row for each example are left out.
    """
    # (layer, outputs averaged for each example, flag of other rows) for each call, by the id of the slice
    called: dict[int, list[tuple[keras.layers.Layer, tf.Tensor, tf.Tensor]]] = {}
    layers: list[keras.layers.Layer] = []  # of the calls, in order; filled while the mode is traced

    # In place of `mode.compute`: returns what the layers give as if these were the mean values to be compared.
    def compute(given: Any, rows: tf.Tensor, cut: Slice) -> dict[str, tf.Tensor]:
        called[id(cut)] = []
        mode.compute(given, rows, cut)
        layers[:] = [layer for layer, *_ in called[id(cut)]]
        outputs = {}
        # The test sums these values over the parts. A part has 0 for the rows of others, so the sum has all rows.
        for place, (_, output, _) in enumerate(called[id(cut)]):
            outputs[str(place)] = output
        return outputs | {
            f"{place} has other rows": other for place, (*_, other) in enumerate(called[id(cut)])
        }

    with _recording_outputs(tried.layers, called):
        test = _ModeTest(tried, dataclasses.replace(mode, compute=compute), examples)
    whole = test._compute_results(examples, size).values
    parts = test._compute_results(examples, size, edges).values
    for place, layer in enumerate(layers):
        if whole[f"{place} has other rows"] or parts[f"{place} has other rows"]:
            continue  # such as a table of positions, which may by chance have as many rows as one part has examples
        value = np.asarray(whole[str(place)])
        other = np.asarray(parts[str(place)])
        apart = np.abs(value - other)
        bound = 10 * relative * np.abs(value).max(initial=0.0)
        if np.all(np.isfinite(value)) and not np.all(apart <= bound):
            example = int(np.nanargmax(apart))
            return (
                f"layer {layer.name!r} ({type(layer).__name__}, {layer.path}) gives the same examples other outputs in "
                f"{mode.name} when they are computed in {tried.parts} parts: {value[example]:.6g} for one of {size} at "
                f"once, {other[example]:.6g} for the same in parts, as a weighted mean; {ANOTHER}. {OVER_REPLICAS}. "
                "Noise of keras.random and tf.random follows the examples where its shape begins with that of the batch"
            )
    return ""


@contextmanager
def _recording_outputs(
    layers: Sequence[keras.layers.Layer], called: dict[int, list[Any]]
) -> Iterator[None]:
    """Append each layer's floating-point outputs to ``called``, by the id of the slice, when it is called in the block.

    Calls outside of a slice, and inside loops and branches, are left out. Outputs are appended in the order in which
    layers finish, as (layer, *`_average_outputs`). ``called`` must have a list for each slice. The methods ``call`` of
    the layers are replaced meanwhile.
    """

    # in place of a layer's `call`, which is ``original``
    def call(
        layer: keras.layers.Layer, original: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        outputs = original(*args, **kwargs)
        cut = slices.get_current_slice()
        for output in tf.nest.flatten(outputs):
            # Inside a loop or branch, tensors belong to another graph, from which they cannot be returned.
            if cut is None or not tf.is_tensor(output) or output.graph is not cut.size.graph:
                continue
            if output.dtype.is_floating and output.shape.rank:
                called[id(cut)].append((layer, *_average_outputs(output, cut)))
        return outputs

    with ExitStack() as stack:
        for layer in layers:
            # Restores the present state afterwards: a `call` on the object, such as to recompute activations, or none.
            if "call" in vars(layer):
                stack.callback(setattr, layer, "call", layer.call)
            else:
                stack.callback(delattr, layer, "call")
            layer.call = functools.partial(call, layer, layer.call)
        yield


def _average_outputs(output: tf.Tensor, cut: Slice) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a weighted mean of each example's outputs, with shape (examples of the batch,), and a flag, as floats.

    Examples of other slices get 0. The flag is 1, and all means are 0, if the output has not one row for each example
    of the slice; otherwise it is 0. Both are 0 for a row that stands in for an empty slice.
    """
    rows = cut.stop - cut.start

    def weighed() -> tf.Tensor:
        each = tf.reshape(tf.cast(output, tf.float32), [rows, -1])
        # Each output of an example has a weight of its own, so that differences do not cancel out in the mean.
        weights = tf.cos(tf.cast(tf.range(tf.shape(each)[1]), tf.float32))
        return tf.pad(tf.reduce_mean(each * weights, 1), [[cut.start, cut.size - cut.stop]])

    alike = tf.equal(tf.shape(output)[0], rows)
    counts = cut.count > 0
    found = tf.cond(tf.logical_and(alike, counts), weighed, lambda: tf.zeros([cut.size]))
    return found, tf.cast(tf.logical_and(counts, tf.logical_not(alike)), tf.float32)
