"""Random functions of Keras and TensorFlow inside a slice, which draw the slice's rows of the whole batch's draws.

The kernels (`numbers/draws.py`) draw the rows of a slice; this module provides their seeds. Keras's generators advance
with each draw. Slices of one batch, and repeated passes over it, must draw from the same seeds, so the generators do
not change until the batch is done, and are then advanced. A batch that is one slice with one pass uses Keras's own
draws, including those in loops. Seeds stay in the host's memory, where kernels need them; on a GPU, each would have to
be waited for.

Draws without a seed (`tf.random`, whose kernels have their own state, and `keras.random` without a seed) follow the
trial: inside a slice, and while a model is built, stateless kernels replace them.
"""

from __future__ import annotations

import functools
import inspect
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from trainables import keras_private, tensorflow_private
from trainables.numbers.draws import (
    CannotCompile,
    Draws,
    install_draws,
    is_compiling,
    place_on_host,
)
from trainables.numbers.live import LiveNumber
from trainables.replicas import slices
from trainables.replicas.slices import Slice
from trainables.state import origins

WHOLE = ("categorical", "shuffle", "gamma", "beta", "binomial")
"""Functions of `keras.random` that do not draw per example: their draws depend on all of their inputs."""


class NotPerExample(Exception):
    """Raised if a layer draws random numbers that would differ between a whole batch and its parts."""


_here = threading.local()


def replace_random_functions() -> None:
    """Replace random functions of Keras and TensorFlow by functions that draw the rows of a slice, once per process.

    Outside slices and `replacing_unseeded_draws`, they draw as before. Further calls do nothing.
    """
    install_draws()
    _replace(keras_private.random_module, keras_private.DRAW_SEED, _choose_seed)
    _replace(keras_private.random_module, "dropout", _apply_dropout)
    for name in WHOLE:
        _replace(keras_private.random_module, name, _draw_unsliced)
    for name, stateless in STATELESS.items():
        _replace(
            tensorflow_private.gen_random_ops, name, functools.partial(_draw_stateless, stateless)
        )


@dataclass
class ModelBuilding:
    """The state of random draws while a trial's model is built."""

    drew: bool = False  # True if `keras.random` drew constants of the graph, besides initial values of variables


@contextmanager
def replacing_unseeded_draws() -> Iterator[ModelBuilding]:
    """Seed `tf.random`, and `keras.random` without a seed, from Python's `random` inside the block.

    To be used while a trial's model is built, after Python's generator was seeded; Keras would use a generator that
    lives as long as the process. The yielded object tells whether `keras.random` drew numbers other than initial
    values. Calls `replace_random_functions`, which stays in effect. Such blocks in one thread must not be nested.
    """
    replace_random_functions()
    _here.making = making = ModelBuilding()
    try:
        yield making
    finally:
        _here.making = None


def list_generators(networks: Sequence[keras.Layer]) -> list[Any]:
    """Return the seed generators of all layers of ``networks``, also of layers within layers, each once."""
    found = []
    for network in networks:
        for layer in keras_private.flatten_layers(network):
            found += keras_private.seed_generators(layer)
    return list({id(generator): generator for generator in found}.values())


@contextmanager
def providing_states(seeds: Mapping[int, tf.Tensor]) -> Iterator[None]:
    """Make draws in code that XLA compiles use ``seeds`` inside the block, in this thread.

    ``seeds`` has the states of seed generators by the ids of the generators. Code that XLA compiles cannot read the
    states from the host's memory.
    """
    before = getattr(_here, "seeds", None)
    _here.seeds = seeds
    try:
        yield
    finally:
        _here.seeds = before


def _replace(module: Any, name: str, inside: Callable[..., Any]) -> None:
    """Replace a module's function by one that calls ``inside`` in a slice that draws, or while a model is built.

    It calls ``inside(slice, original, arguments)``: the slice is None outside of slices, and the arguments are by name.
    Otherwise it calls the original. Does nothing if the function has been replaced already.
    """
    original = getattr(module, name)
    # set by `functools.wraps` below: it has been replaced already
    if hasattr(original, "__wrapped__"):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        cut = slices.get_current_slice()
        if cut is not None and cut.draws is None:
            cut = None  # a slice without random draws
        is_building_model = getattr(_here, "making", None) is not None
        if cut is None and not is_building_model:
            return original(*args, **kwargs)
        return inside(cut, original, dict(signature.bind(*args, **kwargs).arguments))

    setattr(module, name, function)


def _choose_seed(cut: Slice | None, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Return the seed with which `keras.random` draws: from the given seed or, if that is None, from the trial.

    Replaces Keras's ``draw_seed`` (``original``); ``arguments`` has its ``seed``: None, a number or a generator. Inside
    a slice, None gives a key of the update, and a generator's seed depends on `Slice.seeds`. Without a slice, while a
    model is built, None gives a number of Python's `random`, and a draw that becomes a constant of the graph is
    recorded in the `ModelBuilding`. Raises NotPerExample or CannotCompile as `_refuse_loops` does; in code for XLA,
    also CannotCompile for a generator that belongs to no layer.
    """
    seed = arguments["seed"]
    if cut is None or cut.draws is None:
        # Eager draws, except those of initial values, become constants.
        _here.making.drew |= tf.executing_eagerly() and not origins.is_initializing()
        return original(random.getrandbits(31) if seed is None else seed)
    if not isinstance(seed, keras.random.SeedGenerator):
        if seed is None:
            return cut.draws.key()
        return original(seed)
    if cut.seeds == "keyed":
        return cut.draws.key()
    with place_on_host():
        return keras_private.cast_seed(
            original(seed) if cut.seeds == "keras" else _draw_counted_seed(cut, cut.draws, seed)
        )


def _draw_counted_seed(
    cut: Slice, draws: Draws, generator: keras.random.SeedGenerator
) -> tf.Tensor:
    """Return the next seed of a generator without changing the generator; its draw is counted in ``draws``.

    Raises NotPerExample or CannotCompile in a loop, and CannotCompile in code for XLA if `providing_states` does not
    provide the generator's state.
    """
    _refuse_loops(cut)
    # the generator's state before this batch
    if is_compiling():
        begun = (getattr(_here, "seeds", None) or {}).get(id(generator))  # see `providing_states`
    else:
        begun = generator.state.value
    if begun is None:
        raise CannotCompile("a keras.random.SeedGenerator belongs to no layer of the model")
    # Counts how often each generator has drawn in this batch, by which it is advanced when the batch is done.
    _, times = draws.seeds.get(id(generator), (None, 0))
    draws.seeds[id(generator)] = generator, times + 1
    # A state is [seed, number of draws]; add those that this batch has made without changing the generator.
    return begun + tf.constant([0, times], begun.dtype)


def _refuse_loops(cut: Slice) -> None:
    """Raise NotPerExample inside a loop, where each iteration would draw the same numbers.

    While code is traced for XLA (`is_compiling`), raises CannotCompile instead. Only loops within the computation of
    the slice ``cut`` count, not one around it.
    """
    graph = tf.compat.v1.get_default_graph()
    # from the innermost function out to the slice's graph
    while graph is not cut.graph and graph is not None:
        if type(graph).__name__ == "WhileBodyFuncGraph":
            if is_compiling():
                raise CannotCompile("random numbers are drawn in a loop")
            raise NotPerExample(
                f"a layer draws random numbers in a loop (over time steps, say), which {cut.parts} parts of a batch, "
                "or two passes over it, cannot do alike; draw them for all steps before it"
            )
        graph = getattr(graph, "outer_graph", None)


def _apply_dropout(
    cut: Slice | None, original: Callable[..., Any], arguments: dict[str, Any]
) -> Any:
    """Return the inputs after dropout, as Keras computes it; the rate may be a `LiveNumber`, which each trial sets.

    With a plain rate, Keras's own function ``original`` is called; ``arguments`` are those of it, and the slice ``cut``
    has no effect. A live rate of 1 or more gives zeros.
    """
    inputs = arguments["inputs"]
    rate = arguments["rate"]
    if not isinstance(rate, LiveNumber):
        return original(**arguments)
    seed = keras_private.cast_seed(keras_private.draw_seed(arguments.get("seed")))
    shape = keras_private.noise_shape(inputs, arguments.get("noise_shape"))
    uniform = tf.random.stateless_uniform(shape, seed, dtype=inputs.dtype)
    given_rate = rate.value
    scale = tf.where(given_rate < 1, 1 / (1 - given_rate), 0)
    is_kept = uniform >= tf.cast(given_rate, inputs.dtype)
    return inputs * tf.where(is_kept, tf.cast(scale, inputs.dtype), 0)


def _draw_unsliced(
    cut: Slice | None, original: Callable[..., Any], arguments: dict[str, Any]
) -> Any:
    if cut is not None and cut.parts > 1:
        raise NotPerExample(_MESSAGE.format(f"keras.random.{original.__name__}", cut.parts))
    return original(**arguments)


def _draw_stateless(
    stateless: Callable[..., Any],
    cut: Slice | None,
    original: Callable[..., Any],
    arguments: dict[str, Any],
) -> Any:
    """Call the kernel ``stateless`` in place of ``original``, which has a state of its own that no seed can set.

    It gets the ``arguments`` of ``original`` without seeds and name, and a key: of the update in the slice ``cut``, or
    drawn from Python's `random` without one. Raises NotPerExample in one of several parts of a batch, if the kernel
    does not draw per example.
    """
    arguments = {k: v for k, v in arguments.items() if k not in ("seed", "seed2", "name")}
    if cut is None or cut.draws is None:
        return stateless(tf.constant([random.getrandbits(31), random.getrandbits(31)]), **arguments)
    if original.__name__ not in BY_EXAMPLE and cut.parts > 1:
        raise NotPerExample(_MESSAGE.format(f"tf.random ({original.__name__})", cut.parts))
    return stateless(cut.draws.key(), **arguments)


def _normal(key: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_normal(shape, key, dtype=dtype)


def _truncated(key: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_truncated_normal(shape, key, dtype=dtype)


def _uniform_float(key: Any, shape: Any, dtype: Any) -> Any:
    return tf.random.stateless_uniform(shape, key, dtype=dtype)


def _uniform_int(key: Any, shape: Any, minval: Any, maxval: Any) -> Any:
    return tf.random.stateless_uniform(
        shape, key, minval, maxval, dtype=tf.convert_to_tensor(minval).dtype
    )


def _shuffle(key: Any, value: Any) -> Any:
    return tf.random.experimental.stateless_shuffle(value, key)


def _categorical(key: Any, logits: Any, num_samples: Any, output_dtype: Any = tf.int64) -> Any:
    return tf.random.stateless_categorical(logits, num_samples, key, dtype=output_dtype)


def _gamma(key: Any, shape: Any, alpha: Any) -> Any:
    alpha = tf.convert_to_tensor(alpha)
    return tf.random.stateless_gamma(
        tf.concat([shape, tf.shape(alpha)], 0), key, alpha, dtype=alpha.dtype
    )


def _poisson(key: Any, shape: Any, rate: Any, dtype: Any = tf.int64) -> Any:
    rate = tf.convert_to_tensor(rate)
    return tf.random.stateless_poisson(
        tf.concat([shape, tf.shape(rate)], 0), key, rate, dtype=dtype
    )


STATELESS: dict[str, Callable[..., Any]] = {
    "random_uniform": _uniform_float,
    "random_uniform_int": _uniform_int,
    "random_standard_normal": _normal,
    "truncated_normal": _truncated,
    "random_shuffle": _shuffle,
    "multinomial": _categorical,
    "random_gamma": _gamma,
    "random_poisson_v2": _poisson,
}
BY_EXAMPLE = ("random_uniform", "random_uniform_int", "random_standard_normal", "truncated_normal")
_MESSAGE = (
    "a layer of the model calls {}, which draws for the batch as a whole: in {} parts it would train another model; "
    "draw per example in augment() instead, or set the parameters mixup and cutmix"
)
