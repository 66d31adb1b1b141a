"""Random numbers per example that do not depend on replicas or micro-batches, nor on XLA.

This module replaces TensorFlow's stateless random kernels, which all of `keras.random` and `tf.random.stateless_*` use.
A replica or a micro-batch draws its rows of what the whole batch would draw. XLA's kernels draw the same random bits
(Philox) but make other real numbers of them, so inside `tracing_for_xla` the bits are converted here, as TensorFlow's
kernels do it. Nothing changes for a whole batch outside XLA. The rows to draw for are thread-local, because TensorFlow
traces each replica in a thread.
"""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from sweep.contract import Incompatible
from trainables import tensorflow_private

HOST = "on_host"
"""Name scope of the operations that compute random keys from integers which the host has.

They run on the host, because a GPU would have to receive the integers and return the result.
"""

_present = threading.local()


RANDOM = (
    "RandomUniform", "RandomStandardNormal", "TruncatedNormal", "ParameterizedTruncatedNormal", "RandomUniformInt",
    "RandomShuffle", "Multinomial", "RandomGamma", "RandomPoissonV2", "UniformCandidateSampler",
    "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler", "FixedUnigramCandidateSampler",
    "SampleDistortedBoundingBoxV2",
)  # fmt: skip
"""Types of operations that draw from generators of their own, which do not follow a trial's seed."""


def list_operations(graph: Any) -> Iterator[tuple[str, str]]:
    """Yield the type and the name of each operation of a graph and of all functions in the graph's library."""
    definition = graph.as_graph_def()
    for nodes in (
        definition.node,
        *(function.node_def for function in definition.library.function),
    ):
        yield from ((node.op, node.name) for node in nodes)


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """The rows of a batch of ``size`` examples for which random numbers are drawn.

    They are the rows from ``start`` to ``start + count``, or the rows ``places`` if that is set.
    """

    size: tf.Tensor
    start: tf.Tensor
    count: tf.Tensor
    places: tf.Tensor | None = None


@contextmanager
def drawing_rows(rows: DrawnRows | None) -> Iterator[None]:
    """Draw random numbers only for ``rows`` of a batch inside the block, in this thread.

    This holds for `keras.random` and `tf.random.stateless_*` after `install_draws`, if the shape begins with the batch.
    With None, exactly the requested numbers are drawn.
    """
    before = get_current_rows()
    _present.rows = rows
    try:
        yield
    finally:
        _present.rows = before


def get_current_rows() -> DrawnRows | None:
    """Return the rows for which random numbers are drawn at present in this thread; None for all rows."""
    return getattr(_present, "rows", None)


@contextmanager
def marked_as_xla() -> Iterator[None]:
    """Mark code that is traced inside the block, in this thread, as code that XLA compiles."""
    before = is_compiling()
    _present.xla = True
    try:
        yield
    finally:
        _present.xla = before


def is_compiling() -> bool:
    """Return whether the code that is being traced in this thread will be compiled by XLA."""
    return getattr(_present, "xla", False)


@contextmanager
def place_on_host() -> Iterator[None]:
    """Place operations that compute random keys on the host inside the block; for XLA, only give them the name."""
    # An XLA program cannot place single operations elsewhere.
    with nullcontext() if is_compiling() else tf.device("/cpu:0"), tf.name_scope(HOST):
        yield


def begins_with_batch(shape: tf.Tensor) -> bool:
    """Return whether a shape begins with the batch dimension: its size is unknown while the graph is traced.

    False for the shape of a scalar, and for one whose number of axes is unknown. Draws without a batch dimension are
    the same for all parts of a batch.
    """
    static = tensorflow_private.constant_value_as_shape(shape)
    return bool(static.rank) and static[0] is None


def draw_rows_of_batch(
    rows: DrawnRows,
    draw: Callable[..., tf.Tensor],
    arguments: Mapping[str, Any],
    *,
    group: int | None,
) -> tf.Tensor:
    """Return the rows of one part of a batch from what a stateless kernel draws for the whole batch.

    ``draw`` is the kernel, called with its ``arguments`` by name; their ``shape`` is that of the part. In a reshaped
    batch (time steps, heads) each example has several rows, one after the other. ``group`` is how many numbers the
    kernel makes from one step of its counter; with it, only the rows of the part are drawn. It is None for a kernel
    that cannot begin at a later row. Then the whole batch is drawn and cut, as for rows at ``places``.
    """
    shape = tf.convert_to_tensor(arguments["shape"])
    static_shape = tensorflow_private.constant_value_as_shape(shape)
    rows_per_example = shape[0] // tf.maximum(rows.count, 1)  # a part may be empty
    with drawing_rows(None):  # the shapes below are final: `draw` must not cut them again
        if rows.places is not None or group is None:
            cut = _draw_and_cut_batch(rows, draw, arguments, shape, rows_per_example)
            return tf.ensure_shape(cut, static_shape)
        with place_on_host():
            numbers_per_row = tf.cast(tf.reduce_prod(shape[1:]), tf.int64)
            numbers_before = tf.cast(rows.start * rows_per_example, tf.int64) * numbers_per_row
            # The part may begin in the middle of a step, whose first numbers are then drawn as well and cut off.
            surplus = tf.cast(numbers_before % group, tf.int32)
            counter = _advance_counter(arguments["counter"], numbers_before // group)
            count = tf.reshape(surplus + tf.reduce_prod(shape), [1])
        drawn = draw(**{**arguments, "shape": count, "counter": counter})
    return tf.ensure_shape(tf.reshape(drawn[surplus:], shape), static_shape)


def _draw_and_cut_batch(
    rows: DrawnRows,
    draw: Callable[..., tf.Tensor],
    arguments: Mapping[str, Any],
    shape: tf.Tensor,
    rows_per_example: tf.Tensor,
) -> tf.Tensor:
    """Call ``draw`` for the whole batch and return the rows of the examples ``rows``, of the shape ``shape``."""
    whole_shape = tf.concat([[rows.size * rows_per_example], shape[1:]], 0)
    whole = draw(**{**arguments, "shape": whole_shape})
    if rows.places is None:
        start = rows.start * rows_per_example
        stop = (rows.start + rows.count) * rows_per_example
        return whole[start:stop]
    by_example = tf.reshape(whole, tf.concat([[rows.size, rows_per_example], shape[1:]], 0))
    return tf.reshape(tf.gather(by_example, rows.places), shape)


def _advance_counter(counter: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """Return a 128-bit counter, two words of type uint64 with the lower one first, advanced by ``steps``."""
    low = counter[0] + tf.cast(steps, tf.uint64)
    carry = tf.cast(low < counter[0], tf.uint64)  # 1 if the lower word has overflowed
    return tf.stack([low, counter[1] + carry])


PHILOX = 1
"""TensorFlow's number for the Philox algorithm, which gives the same bits on every device, with XLA and without."""
SMALLEST = 1.0e-7  # lower bound of a uniform number before its logarithm is taken, as in TensorFlow's kernel


class CannotCompile(Incompatible):
    """Raised if XLA cannot compile part of an update, or would compute other numbers."""


@contextmanager
def tracing_for_xla() -> Iterator[None]:
    """Trace code for XLA inside the block, in this thread, so that it draws the numbers of TensorFlow's kernels.

    This also calls `install_draws`, which stays in effect after the block.
    """
    install_draws()
    with marked_as_xla():
        yield


def install_draws() -> None:
    """Replace TensorFlow's stateless random kernels, so that an example's draws do not depend on how a batch is cut.

    They are replaced for the whole process. In XLA, kernels whose numbers cannot be reproduced raise CannotCompile. The
    numbers that are drawn for a whole batch outside XLA do not change. Further calls have no effect.
    """
    v2 = tensorflow_private.gen_stateless_random_ops_v2
    _replace_draw(tensorflow_private.random_ops_util, "get_key_counter_alg", _draw_by_philox)
    _replace_draw(v2, "stateless_random_uniform_v2", _draw_uniform, rows="counted")
    _replace_draw(v2, "stateless_random_normal_v2", _draw_normal, rows="counted")
    _replace_draw(v2, "stateless_random_uniform_int_v2", _draw_unchanged, rows="counted")
    _replace_draw(v2, "stateless_random_uniform_full_int_v2", _draw_unchanged, rows="counted")
    # A truncated number is drawn again until it is within the bounds, so a row begins at no certain counter.
    _replace_draw(v2, "stateless_truncated_normal_v2", _fail_in_xla, rows="cut")
    # The others do not draw per example, so a part of a batch has no rows of its own in them.
    for name in ("stateless_random_gamma_v3", "stateless_shuffle"):
        _replace_draw(v2, name, _fail_in_xla)
    for name in (
        "stateless_multinomial",
        "stateless_random_binomial",
        "stateless_random_poisson",
        "stateless_parameterized_truncated_normal",
    ):
        _replace_draw(tensorflow_private.gen_stateless_random_ops, name, _fail_in_xla)


def _replace_draw(
    module: Any, name: str, inside: Callable[..., Any], *, rows: Literal["", "counted", "cut"] = ""
) -> None:
    """Replace a kernel in a TensorFlow module by one that supports XLA and parts of a batch, unless that has been done.

    Inside XLA, ``inside`` is called with the original kernel and its arguments. ``rows`` says how a part of a batch is
    drawn: ``counted`` draws its rows alone, ``cut`` draws the whole batch and cuts it, and an empty text draws what is
    asked for. A part is drawn so only if the shape begins with the batch; other draws are as asked for.
    """
    original = getattr(module, name)
    # set by `functools.wraps` below: it has been replaced already
    if hasattr(original, "__wrapped__"):
        return
    signature = inspect.signature(original)

    def draw(**arguments: Any) -> Any:
        if is_compiling():
            return inside(original, arguments)
        return original(**arguments)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        part = get_current_rows() if rows else None
        # the usual case, for which arguments need not be bound
        if part is None and not is_compiling():
            return original(*args, **kwargs)
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        if part is None or not begins_with_batch(tf.convert_to_tensor(arguments["shape"])):
            return draw(**arguments)
        group = _count_numbers_per_step(arguments) if rows == "counted" else None
        return draw_rows_of_batch(part, draw, arguments, group=group)

    setattr(module, name, function)


def _count_numbers_per_step(arguments: Mapping[str, Any]) -> int:
    """Return how many numbers TensorFlow's kernel makes from one step of its counter.

    It makes 4 numbers of up to 4 bytes, or 2 of 8 bytes. ``arguments`` are those of the kernel; the type of the numbers
    is that of ``minval`` or, without it, ``dtype``, by default float32.
    """
    if "minval" in arguments:
        kind = tf.convert_to_tensor(arguments["minval"]).dtype
    else:
        kind = arguments.get("dtype", tf.float32)
    return 4 if tf.as_dtype(kind).size <= 4 else 2


def _draw_unchanged(original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return what ``original`` draws: in XLA, it draws the same numbers."""
    return original(**arguments)


def _draw_by_philox(original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call ``original``, TensorFlow's `get_key_counter_alg`, with Philox; return key, counter and algorithm.

    Otherwise, XLA would choose another algorithm on some devices.
    """
    return original(**{**arguments, "alg": "philox"})


def _fail_in_xla(original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Raise CannotCompile, whatever the arguments; called instead of ``original`` inside code that XLA compiles.

    XLA would draw other numbers than ``original``, which is an operation of TensorFlow.
    """
    raise CannotCompile(f"XLA would not draw the numbers of {original.__name__}")


def _draw_words(arguments: dict[str, Any], count: tf.Tensor) -> tf.Tensor:
    """Draw ``count`` random words of 32 bits; ``arguments`` are the key and the counter of Philox, as tensors."""
    return tensorflow_private.draw_words(
        tf.reshape(count, [1]),
        key=arguments["key"],
        counter=arguments["counter"],
        dtype=tf.uint32,
        alg=PHILOX,
    )


def _draw_uniform(original: Callable[..., Any], arguments: dict[str, Any]) -> tf.Tensor:
    """Draw uniform numbers in [0, 1) from the low bits of each word, as TensorFlow's kernel does.

    The bits become the mantissa of a number in [1, 2), from which 1 is subtracted. ``arguments`` are those of the
    kernel ``original``, which is not called. Raises CannotCompile for another type than those in `_MANTISSA`.
    """
    dtype = tf.as_dtype(arguments.get("dtype", tf.float32))
    shape = tf.convert_to_tensor(arguments["shape"])
    words = _draw_words(arguments, tf.reduce_prod(shape))
    return tf.reshape(_convert_to_fraction(words, dtype, original.__name__), shape)


def _convert_to_fraction(words: tf.Tensor, dtype: tf.DType, name: str) -> tf.Tensor:
    """Return numbers in [0, 1) from the low bits of random words, as the kernel ``name`` draws them.

    Raises CannotCompile for another type than those in `_MANTISSA`.
    """
    if dtype not in _MANTISSA:
        raise CannotCompile(f"XLA would not draw the numbers of {name} in {dtype.name}")
    bits, exponent, unsigned = _MANTISSA[dtype]  # numbers in [1, 2) all have this exponent
    mantissa = tf.cast(words & tf.constant((1 << bits) - 1, tf.uint32), unsigned)
    from_1_to_2 = tf.bitcast(mantissa | tf.constant(exponent << bits, unsigned), dtype)
    return from_1_to_2 - tf.constant(1, dtype)


# By type: the bits of its mantissa, its stored exponent of 1, and the integers of its size.
_MANTISSA = {
    tf.float32: (23, 127, tf.uint32),
    tf.float16: (10, 15, tf.uint16),
    tf.bfloat16: (7, 127, tf.uint16),
}


def _draw_normal(original: Callable[..., Any], arguments: dict[str, Any]) -> tf.Tensor:
    """Draw normal numbers as TensorFlow's kernel does: by the Box-Muller transform, two from each pair of random words.

    ``arguments`` are those of the kernel ``original``, which is not called. Raises CannotCompile for another type than
    those in `_MANTISSA`.
    """
    dtype = tf.as_dtype(arguments.get("dtype", tf.float32))
    if dtype not in _MANTISSA:
        raise CannotCompile(
            f"XLA would not draw the numbers of {original.__name__} in {dtype.name}"
        )
    shape = tf.convert_to_tensor(arguments["shape"])
    count = tf.reduce_prod(shape)
    # an even number; the last result is cut off if `count` is odd
    words = _draw_words(arguments, (count + 1) // 2 * 2)
    pairs = tf.reshape(words, [-1, 2])
    # The kernel computes in float32 for the 16-bit types as well, and casts the results.
    uniform = _convert_to_fraction(pairs, tf.float32, original.__name__)
    angle = 2 * math.pi * uniform[:, 1]
    radius = tf.sqrt(-2.0 * tf.math.log(tf.maximum(uniform[:, 0], SMALLEST)))
    both = tf.stack([tf.sin(angle) * radius, tf.cos(angle) * radius], axis=1)
    return tf.cast(tf.reshape(tf.reshape(both, [-1])[:count], shape), dtype)


EVALUATION = 2**20
"""Number of the first call in an evaluation, so that its draws differ from those of training."""
Kind: TypeAlias = Literal["uniform", "normal"]


class Draws:
    """Counter-based random numbers for one slice of a batch.

    A slice is the part of a batch that one replica or micro-batch computes. The key is (trial seed, update), the
    counter (call, row of the whole batch, element). So an example's numbers do not depend on how the batch is cut, and
    a slice draws its own rows alone (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3). Calls are counted
    while the graph is traced: inside a `tf.while_loop`, a call gives the same numbers in each iteration.
    """

    def __init__(
        self,
        seed: tf.Tensor,
        update: tf.Tensor,
        size: tf.Tensor,
        start: tf.Tensor,
        stop: tf.Tensor,
        calls: int = 0,
        places: tf.Tensor | None = None,
    ) -> None:
        """Draw for rows ``start`` to ``stop`` (exclusive) of a batch of ``size``, or for the rows ``places`` if given.

        ``seed`` is the trial's, ``update`` the number of the update, from 0. ``calls`` is the number of calls that were
        already made for this batch.
        """
        self._seed = tf.cast(seed, tf.int32)
        self.update = tf.cast(update, tf.int32)
        """The number of the update, from 0; a scalar."""
        self._size = size
        self._start = start
        self._stop = stop
        self.calls = calls
        self.places = places
        # generators that were drawn from and how many times, by their ids
        self.seeds: dict[int, tuple[Any, int]] = {}

    def uniform(
        self, shape: tuple[int, ...] = (), low: float = 0.0, high: float = 1.0
    ) -> tf.Tensor:
        """Return new uniform float32 numbers in [low, high), of shape ``(examples of the slice, *shape)``.

        Each call while the graph is traced counts, so the next call returns other numbers.
        """
        return self.rows("uniform", shape) * (high - low) + low

    def normal(self, shape: tuple[int, ...] = (), stddev: float = 1.0) -> tf.Tensor:
        """Return new normal float32 numbers with mean 0, of shape ``(examples of the slice, *shape)``.

        Each call while the graph is traced counts, so the next call returns other numbers.
        """
        return self.rows("normal", shape) * stddev

    def rows(
        self,
        kind: Kind,
        shape: Sequence[Any],
        dtype: tf.DType = tf.float32,
        times: int | tf.Tensor = 1,
    ) -> tf.Tensor:
        """Return new uniform numbers in [0, 1) or standard normal ones, of shape ``(examples * times, *shape)``.

        Each example of the slice has ``times`` rows, one after the other. Sizes in ``shape`` may be tensors. This is
        one call in the count of calls.
        """
        self.calls += 1
        if self.places is None:
            return self._draw_batch_rows(
                kind, self._start * times, (self._stop - self._start) * times, shape, dtype
            )
        # Rows at any places are no range of counters, so the whole batch is drawn.
        whole = self._draw_batch_rows(kind, tf.constant(0), self._size * times, shape, dtype)
        by_example = tf.reshape(whole, [self._size, times, *shape])
        return tf.reshape(
            tf.gather(by_example, self.places), [tf.size(self.places) * times, *shape]
        )

    def _draw_batch_rows(
        self, kind: Kind, first: tf.Tensor, count: tf.Tensor, shape: Sequence[Any], dtype: tf.DType
    ) -> tf.Tensor:
        """Draw ``count`` rows of the whole batch from row ``first`` on, each of the shape ``shape``.

        Each row begins at a new step of the counter (16 bytes), so rows can be drawn independently. The numbers follow
        from the seed, the update and the present count of calls.
        """
        elements = 1  # numbers of a row; a tensor if a size is one
        for size in shape:
            elements = elements * size
        numbers_per_step = 4 if dtype.size <= 4 else 2
        steps_per_row = -(-elements // numbers_per_step)  # rounded up
        with place_on_host():
            # two numbers of 32 bits as one of 64
            key = tf.bitcast(tf.stack([[self.update, self._seed]]), tf.uint64)
            skipped = tf.cast(
                tf.cast(first, tf.int64) * tf.cast(steps_per_row, tf.int64), tf.uint64
            )
            # the lower word counts steps, the upper one calls
            counter = tf.stack([skipped, tf.constant(self.calls, tf.uint64)])
        draw = getattr(
            tensorflow_private.gen_stateless_random_ops_v2, f"stateless_random_{kind}_v2"
        )
        with drawing_rows(None):  # `count` is already that of the part
            drawn = draw([count, steps_per_row * numbers_per_step], key, counter, PHILOX, dtype)
        # A row's last step may give more numbers than it needs. A size that is a tensor is unknown here.
        if not isinstance(elements, int) or elements != steps_per_row * numbers_per_step:
            drawn = drawn[:, :elements]
        if len(shape) == 1:
            return drawn
        return tf.reshape(drawn, [count, *shape])

    def beta(self, alpha: Any) -> tf.Tensor:
        """Return float32 draws from Beta(alpha, alpha), of shape ``(examples,)``, for any alpha above 0.

        A draw is a ratio of two Gamma(alpha) draws, and each of these is Gamma(alpha + 1) times a power of a uniform
        draw (Marsaglia and Tsang, A Simple Method for Generating Gamma Variables, section 6). They are computed as
        logarithms, because Gamma(alpha) underflows for a small alpha. ``alpha`` may be a tensor.
        """
        alpha = tf.convert_to_tensor(alpha, tf.float32)

        def log_gamma() -> tf.Tensor:  # the logarithm of a new draw from Gamma(alpha)
            gamma = tf.random.stateless_gamma([self._size], self.key(), alpha + 1.0)
            uniform = tf.random.stateless_uniform([self._size], self.key())
            # `uniform` may be 0, but never is 1
            return tf.math.log(gamma) + tf.math.log(1.0 - uniform) / alpha

        # draws for the whole batch, of which `_select_rows` takes the slice
        with drawing_rows(None):
            # a / (a + b), from log(a) - log(b)
            return self._select_rows(tf.sigmoid(log_gamma() - log_gamma()))

    def partners(self) -> tf.Tensor:
        """Return for each example of the slice the row of its mixing partner in the whole batch, as int64.

        Over all slices, the partners are a random permutation of the batch; an example may be its own partner.
        """
        with drawing_rows(None):
            uniform = tf.random.stateless_uniform([self._size], self.key(), alg="philox")
        # The order of random numbers is a random permutation. int64, because kernels for int32 would take and return
        # host memory.
        return self._select_rows(tf.cast(tf.argsort(uniform, stable=True), tf.int64))

    def key(self) -> tf.Tensor:
        """Return the seed of the next draw, two int32 numbers, for `tf.random.stateless_*`; each call returns another.

        Seeds depend on the trial's seed, the update and the number of calls so far, so all slices get the same ones.
        """
        self.calls += 1
        with place_on_host():
            of_call = tf.random.fold_in(tf.stack([self._seed, self.calls]), 0, alg="philox")[0]
            return tf.stack([of_call, self.update])

    def follow(self, other: Draws) -> None:
        """Take over the counts of calls from ``other``, to draw next what it would draw next on the same batch."""
        self.calls = other.calls
        self.seeds = dict(other.seeds)

    def from_call(self, calls: int) -> Draws:
        """Return new draws for the same examples, with calls counted from ``calls`` on.

        They have no record of draws from generators; this object is not changed.
        """
        return Draws(
            self._seed, self.update, self._size, self._start, self._stop, calls, self.places
        )

    def at(self, places: tf.Tensor) -> Draws:
        """Return new draws for the rows at ``places`` of the whole batch, which continue the present count of calls.

        They have no record of draws from generators, and what they draw does not count here.
        """
        return Draws(
            self._seed, self.update, self._size, self._start, self._stop, self.calls, places
        )

    def _select_rows(self, full: tf.Tensor) -> tf.Tensor:
        """Return the slice's rows of what was drawn for the whole batch."""
        if self.places is None:
            return full[self._start : self._stop]
        return tf.gather(full, self.places)


class UsedGenerators:
    """The seed generators from which one step draws, with the number of draws per batch.

    Draws for a part of a batch do not advance Keras's generators. After each batch, `advance` advances them by what
    Keras would have drawn.
    """

    def __init__(self) -> None:
        # by the id of a generator: the generator, and how often a batch draws from it
        self._draws_per_batch: dict[int, tuple[Any, int]] = {}

    def record(self, draws: Draws) -> None:
        """Record how often a slice has drawn from each generator; all slices of a batch draw equally often.

        Of several records of a generator, the largest number counts.
        """
        for key, (generator, times) in draws.seeds.items():  # the key is the generator's id
            self._draws_per_batch[key] = generator, max(times, self.get_draws_per_batch(key))

    def get_draws_per_batch(self, key: int) -> int:
        """Return how many times a batch draws from the generator with the id ``key``; 0 if none was recorded."""
        return self._draws_per_batch.get(key, (None, 0))[1]

    def advance(self) -> None:
        """Advance the generators' states by the draws of one batch; must be called in cross-replica context."""
        for generator, times in self._draws_per_batch.values():
            with place_on_host():
                # A state is [seed, number of draws so far].
                generator.state.value.assign_add(tf.constant([0, times], generator.state.dtype))
