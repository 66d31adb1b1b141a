"""What Keras 3.15 gets wrong under a strategy and our loop sets right; one function each.

Each uses a private name of Keras, which `tests/trainables/replicas/test_keras_corrections.py` holds to its contract.
"""

from __future__ import annotations

import functools
import operator
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow import numpy as keras_numpy
from keras.src.losses import loss as loss_module
from keras.src.random import seed_generator
from keras.src.utils import naming
from tensorflow.python.distribute import values

from trainables.devices.precision import HALF
from trainables.devices.replicas import of_each_replica
from trainables.recipe.refusals import Refused, own_methods
from trainables.replicas import slices

SEEDS = (1, 1_000_000_000)
"""Between which Keras asks Python's `random` for a seed (keras/src/random/seed_generator.py, `make_default_seed`)."""


_UIDS = "object_name_uids"
"""Where Keras counts the names that it has given (keras/src/utils/naming.py)."""


def take_global_gradients(optimizer: keras.optimizers.Optimizer) -> None:
    """Let the optimizer apply gradients as they are given: they are sums over all replicas already.

    Keras sums them itself, after clipping each replica's share (keras/src/backend/tensorflow/optimizer.py,
    `_all_reduce_sum_gradients`): the global norm is then never seen.
    """
    optimizer._all_reduce_sum_gradients = list


def synchronise_batch_norm(model: keras.Model) -> None:
    """Let batch normalisation use the statistics of the global batch.

    Otherwise each replica normalises by its own share, the moving statistics differ between replicas and a
    checkpoint holds only the first's (`BatchNormalization(synchronized=False)`, the default); with
    ``synchronized=True`` masks are still left out, and an empty batch counts as zeros.
    """
    for layer in _layers(model):
        if isinstance(layer, keras.layers.BatchNormalization):
            layer._moments = functools.partial(_global_moments, layer)


def _global_moments(layer: Any, inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance over all replicas, in one sum.

    Each replica gives those of its own slice, in a place of its own, and puts those of all together (Chan et al.,
    Updating Formulae and a Pairwise Algorithm for Computing Sample Variances): a sum of squares would lose the variance
    of numbers that are far from 0.
    """
    found = _own_moments(inputs, mask, layer._reduction_axes)
    count, mean, squares = tf.unstack(of_each_replica(tf.stack(found)), axis=1)
    total = tf.reduce_sum(count, 0)
    middle = tf.math.divide_no_nan(tf.reduce_sum(count * mean, 0), total)
    between = count * tf.square(mean - tf.stop_gradient(middle))
    variance = tf.math.divide_no_nan(tf.reduce_sum(squares + between, 0), total)
    some = total > 0  # none: the moving statistics stay as they are
    moving = (tf.cast(layer.moving_mean.value, mean.dtype), tf.cast(layer.moving_variance.value, mean.dtype))
    return tf.where(some, middle, moving[0]), tf.where(some, variance, moving[1])


def _own_moments(inputs: tf.Tensor, mask: tf.Tensor | None, axes: Iterable[int]) -> tuple[tf.Tensor, ...]:
    """How many numbers a slice has of each channel, their mean, and the sum of their squared distances from it."""
    cut, axes = slices.current(), list(axes)

    def total(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(values, axes, keepdims=True)  # without, a gradient would ask the host for shapes

    if mask is None:
        mean = tf.reduce_mean(inputs, axes, keepdims=True)
        squares = total(tf.math.squared_difference(inputs, tf.stop_gradient(mean)))
        shape = tf.shape(inputs)
        numbers = functools.reduce(operator.mul, (shape[axis] for axis in axes))
        count = tf.fill(mean.shape, tf.cast(numbers, inputs.dtype))
    else:
        weight = tf.broadcast_to(tf.cast(mask, inputs.dtype)[..., None], tf.shape(inputs))
        count = total(weight)
        mean = tf.math.divide_no_nan(total(inputs * weight), count)
        squares = total(tf.math.squared_difference(inputs, tf.stop_gradient(mean)) * weight)
    if cut is not None and cut.real is not None:
        real = tf.cast(cut.real, inputs.dtype)
        count, squares = count * real, squares * real
    return tuple(tf.reshape(part, [-1]) for part in (count, mean, squares))


def take_whole_losses(model: keras.Model) -> None:
    """Let what layers add to the loss be averaged by the slices' shares, not divided by the number of replicas.

    As in Keras, a loss that a layer adds in half precision counts in float32 beside the others.
    """
    model._aggregate_additional_loss = lambda loss: tf.cast(tf.reduce_sum(loss), keras.config.floatx())


def keep_arithmetic_on_devices() -> None:
    """Let Keras compute with what GPUs have kernels for; the numbers stay what they are. Once per process.

    A sum that drops dimensions asks the host for a shape in its gradient, and the comparison by which Keras's `argmax`
    tells a negative zero (keras/src/backend/tensorflow/numpy.py, `signbit`) takes place on the host.
    """
    if isinstance(keras_numpy.signbit, functools.partial):
        return
    for name in ("mean", "sum", "max", "min"):
        _wrap(name, _kept_dimensions)
    _wrap("signbit", _signbit)


def _wrap(name: str, around: Callable[..., Any]) -> None:
    original = getattr(keras_numpy, name)
    setattr(keras_numpy, name, functools.partial(around, original))


def _kept_dimensions(
    original: Callable[..., Any], x: Any, axis: Any = None, keepdims: bool = False, **more: Any
) -> Any:
    if axis in (None, (), []) or keepdims or not isinstance(x, tf.Tensor) or slices.current() is None:
        return original(x, axis=axis, keepdims=keepdims, **more)
    return tf.squeeze(original(x, axis=axis, keepdims=True, **more), axis)


def _signbit(original: Callable[..., Any], x: Any) -> Any:
    if not isinstance(x, tf.Tensor) or not x.dtype.is_floating or slices.current() is None:
        return original(x)
    return tf.cast(tf.bitcast(tf.cast(x, tf.float32), tf.int32), tf.int64) < 0


def let_variables_be_numbers() -> None:
    """Let Python make a number of a variable that lies on several replicas, as of any other. Once per process.

    `float(self.beta)` in a hook of an author's is what works on one; TensorFlow leaves it out under a strategy.
    """
    for name, kind in (("__float__", float), ("__int__", int)):  # others TensorFlow itself asks for while it traces
        if name not in vars(values.DistributedVariable):
            setattr(values.DistributedVariable, name, functools.partialmethod(_as_number, kind))


def _as_number(variable: Any, kind: Callable[[Any], Any]) -> Any:
    return kind(variable.numpy())


def leave_losses_whole() -> None:
    """Let a Keras loss that an author calls (in `compute_loss`, `add_loss`, as a metric) be the mean over its slice.

    Keras divides what each replica computes by their number (keras/src/losses/loss.py, `reduce_values`), for its own
    sum over replicas; in our loop the shares of the slices do that. Once per process, without effect elsewhere.
    """
    if hasattr(loss_module.scale_loss_for_distribution, "__wrapped__"):
        return
    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
        original = getattr(loss_module, name)

        @functools.wraps(original)
        def scaled(value: Any, original: Any = original) -> Any:
            cut = slices.current()
            return original(value) if cut is None or cut.in_fit else value

        setattr(loss_module, name, scaled)


def number_losses(model: keras.Model) -> None:
    """Let losses of several outputs with one name, as those of a subclassed model have, be mse, mse_1 and so on.

    Keras tells the last one's mean alone (keras/src/trainers/trainer.py, `get_metrics_result`).
    """
    compiled, times = model._compile_loss, Counter[str]()
    for place, entry in enumerate(compiled._flat_losses):
        number, times[entry.name] = times[entry.name], times[entry.name] + 1
        if number:
            compiled._flat_losses[place] = entry._replace(name=f"{entry.name}_{number}")
            compiled.metrics[place].name = f"{entry.name}_{number}_loss"


def part_losses(model: keras.Model) -> None:
    """Keep what layers add to the loss apart for each replica.

    Layers collect it in one list; where replicas meet inside the model (batch normalisation does), one clears
    what another has added (keras/src/layers/layer.py, `_clear_losses`).
    """
    for layer in _layers(model):
        layer._losses = _ThreadList()


class _ThreadList(threading.local):
    """A list that each thread has for itself: TensorFlow traces each replica in a thread."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def append(self, item: Any) -> None:
        self._items.append(item)

    def extend(self, items: Iterable[Any]) -> None:
        self._items.extend(items)

    def clear(self) -> None:
        self._items.clear()

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@contextmanager
def numbering_kept() -> Iterator[None]:
    """Number what is made after the block as if nothing had been made inside: a notebook goes on with its own names."""
    kept = global_state.get_global_attribute(_UIDS)
    numbers = None if kept is None else kept.copy()
    try:
        yield
    finally:
        global_state.set_global_attribute(_UIDS, numbers)


def number_layers_anew() -> None:
    """Let the next model's layers be named as if it were the first: dense, dense_1, ...; inside of `numbering_kept`.

    Keras counts on for as long as a process lives (keras/src/utils/naming.py). Names would depend on the trials
    before, and TensorFlow, which keeps a kernel for every name of a variable, would grow by 0.3 MB a trial.
    """
    naming.reset_uids()


class _Seeds:
    """Python's `random`, as Keras knows it."""

    given = 0

    def randint(self, low: int, high: int) -> int:
        self.given += 1
        return random.randint(low, high)


@contextmanager
def seeds_counted() -> Iterator[_Seeds]:
    """Count the seeds that Keras draws in the block, for initialisers and random layers: all else the author draws."""
    seeds, before = _Seeds(), seed_generator.python_random
    seed_generator.python_random = seeds
    try:
        yield seeds
    finally:
        seed_generator.python_random = before


def outputs_in_float32(model: keras.Model) -> None:
    """Let the layers that a model's outputs come from compute in float32 under a mixed policy."""
    for output in keras.tree.flatten(getattr(model, "outputs", None) or []):
        layer = output._keras_history.operation
        if isinstance(layer, keras.Model):
            outputs_in_float32(layer)
        elif isinstance(layer, keras.layers.Layer) and layer.compute_dtype in HALF:
            layer.dtype_policy = keras.DTypePolicy("float32")


def compiled_with(model: keras.Model) -> dict[str, Any]:
    """What a model's `compile` was given."""
    given = model._compile_config.config
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) and given["optimizer"] is not optimizer:
        optimizer = optimizer.inner_optimizer  # wrapped by compile under mixed_float16
    return {
        "optimizer": optimizer,
        **{name: given[name] for name in ("loss", "loss_weights", "metrics", "weighted_metrics")},
    }


def adding_losses(model: keras.Model, batch: tuple[Any, ...], training: bool = True) -> set[int]:
    """The layers, by identity, whose `call` adds to the loss."""
    found: set[int] = set()
    layers = _layers(model)
    for layer in layers:
        layer.add_loss = functools.partial(_note, found, layer)
    try:
        backend.compute_output_spec(functools.partial(model, training=training), symbolic(batch[0]))
    finally:
        for layer in layers:
            del layer.add_loss
    return found


def added_losses(model: keras.Model) -> dict[str, tf.Tensor]:
    """What layers have added to the loss in the call that was traced last, each by the name of its layer."""
    found: dict[str, list[tf.Tensor]] = {}
    for layer in _layers(model):
        for loss in layer._losses:
            found.setdefault(f"{layer.name!r} ({type(layer).__name__}, {layer.path})", []).append(loss)
    return {name: tf.add_n([tf.cast(loss, tf.float32) for loss in losses]) for name, losses in found.items()}


def _note(found: set[int], layer: keras.layers.Layer, loss: Any) -> None:
    found.add(id(layer))


def lose_symbolically(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Call the losses without computing."""

    def lose(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return model._compute_loss(x, y, model(x, training=False), sample_weight, training=False)

    backend.compute_output_spec(lose, *symbolic(batch))


def symbolic(batch: Any) -> Any:
    """Stand-ins for a batch, of any size, by which Keras computes shapes alone."""
    return keras.tree.map_structure(
        lambda leaf: keras.KerasTensor((None, *leaf.shape[1:]), keras.backend.standardize_dtype(leaf.dtype)), batch
    )


def check_added_losses(model: keras.Model, batch: tuple[Any, ...], *, training: bool = True) -> None:
    """Without a compiled loss: raise Refused unless the model's layers, weights or `compute_loss` give one."""
    own = own_methods(model, "compute_loss")
    if own or any(weight.regularizer for weight in model.trainable_variables) or adding_losses(model, batch, training):
        return
    does, step = ("train", "train_step") if training else ("validate", "test_step")
    raise Refused(
        f"nothing gives a loss to {does} by: the data has no targets, loss() gives None and no layer adds to it; "
        "return targets (those of an autoencoder are its inputs), call add_loss() in a layer, or define "
        f"{step}() on the model or the trainable (docs/unsupervised.md)"
    )


def build_symbolically(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Create all variables of model, optimizer, loss and metrics before the first trace, without computing."""
    model._symbolic_build(data_batch=batch)


def leave_building_to_steps(model: keras.Model) -> None:
    """Let `fit` and `evaluate` not call the model and its loss with the data to build them: its own steps have."""
    model._symbolic_build = _build_nothing


def _build_nothing(iterator: Any = None, data_batch: Any = None) -> None:
    return None


def _layers(model: keras.Model) -> list[keras.layers.Layer]:
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Layer)]
