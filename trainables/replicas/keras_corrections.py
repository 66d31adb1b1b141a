"""Corrections of Keras 3.15 for training under a strategy with our loop, one function each.

Each uses a private name of Keras, whose behaviour `tests/trainables/replicas/test_keras_corrections.py` checks.
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

from trainables import keras_private, tensorflow_private
from trainables.devices.precision import HALF
from trainables.devices.replicas import stack_over_replicas
from trainables.recipe.refusals import Refused, check_inputs, list_overridden_methods
from trainables.replicas import slices

SEEDS = (1, 1_000_000_000)
"""Range of seeds that Keras draws by Python's `random` (keras/src/random/seed_generator.py, `make_default_seed`)."""


def take_global_gradients(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer apply gradients without summing them over replicas, because the loop has summed them.

    Keras would sum them itself, after clipping each replica's part (keras/src/backend/tensorflow/optimizer.py,
    `_all_reduce_sum_gradients`), and so never use the global norm.
    """
    keras_private.replace_gradient_sum(optimizer, list)


def synchronise_batch_norm(model: keras.Model) -> None:
    """Make all layers of batch normalisation in a model use the statistics of the global batch.

    By default (`BatchNormalization(synchronized=False)`), each replica normalises by its own part, the moving
    statistics differ between replicas, and a checkpoint holds only those of the first. Even with ``synchronized=True``,
    masks are ignored, and an empty batch counts as zeros. With micro-batches, the statistics are those of each
    micro-batch over all replicas.
    """
    for layer in _list_layers(model):
        if isinstance(layer, keras.layers.BatchNormalization):
            keras_private.replace_moments(layer, functools.partial(compute_global_moments, layer))


def compute_global_moments(
    layer: Any, inputs: tf.Tensor, mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return (mean, variance) of a layer's inputs over all replicas, for each channel, with one reduction.

    Masked inputs do not count; if all are masked, returns the layer's moving statistics. Each replica writes the
    moments of its own slice to a separate place, and then combines the moments of all replicas (Chan et al., Updating
    Formulae and a Pairwise Algorithm for Computing Sample Variances). A sum of squares would lose the variance of
    numbers that are far from 0.
    """
    found = _compute_local_moments(inputs, mask, keras_private.reduction_axes(layer))
    count, mean, squares = tf.unstack(stack_over_replicas(tf.stack(found)), axis=1)
    # `count`, `mean` and `squares` have shape (replicas, channels)
    total = tf.reduce_sum(count, 0)
    global_mean = tf.math.divide_no_nan(tf.reduce_sum(count * mean, 0), total)
    # `stop_gradient` here and for the local squares: the sum of deviations from a mean is 0, and so is this gradient.
    between = count * tf.square(mean - tf.stop_gradient(global_mean))
    variance = tf.math.divide_no_nan(tf.reduce_sum(squares + between, 0), total)
    any_counts = (
        total > 0
    )  # if none does, the layer's update of its moving statistics changes nothing
    moving_mean = tf.cast(layer.moving_mean.value, mean.dtype)
    moving_variance = tf.cast(layer.moving_variance.value, mean.dtype)
    return (
        tf.where(any_counts, global_mean, moving_mean),
        tf.where(any_counts, variance, moving_variance),
    )


def _compute_local_moments(
    inputs: tf.Tensor, mask: tf.Tensor | None, axes: Iterable[int]
) -> tuple[tf.Tensor, ...]:
    """Return the count, the mean and the sum of squared deviations of a slice's numbers, for each channel.

    Each is a vector. ``axes`` are all axes of ``inputs`` but that of the channels. Masked numbers do not count, nor
    does a row that stands in for an empty slice.
    """
    cut = slices.get_current_slice()
    axes = list(axes)

    def total(values: tf.Tensor) -> tf.Tensor:
        # otherwise, the gradient asks the host for shapes
        return tf.reduce_sum(values, axes, keepdims=True)

    if mask is None:
        mean = tf.reduce_mean(inputs, axes, keepdims=True)
        squares = total(tf.math.squared_difference(inputs, tf.stop_gradient(mean)))
        shape = tf.shape(inputs)
        per_channel = functools.reduce(operator.mul, (shape[axis] for axis in axes))
        count = tf.fill(mean.shape, tf.cast(per_channel, inputs.dtype))
    else:
        weight = tf.broadcast_to(tf.cast(mask, inputs.dtype)[..., None], tf.shape(inputs))
        count = total(weight)
        mean = tf.math.divide_no_nan(total(inputs * weight), count)
        squares = total(tf.math.squared_difference(inputs, tf.stop_gradient(mean)) * weight)
    # a row that stands in for an empty slice must not count
    if cut is not None and cut.real is not None:
        real = tf.cast(cut.real, inputs.dtype)
        count = count * real
        squares = squares * real
    return tuple(tf.reshape(part, [-1]) for part in (count, mean, squares))


def weight_added_losses(model: keras.Model) -> None:
    """Stop Keras from dividing the losses that layers add by the number of replicas.

    The loop weights them by the slices' fractions of the batch instead. As in Keras, a loss that is an array of numbers
    is summed up, and one that a layer adds in half precision is added in float32.
    """
    keras_private.replace_loss_aggregation(
        model, lambda loss: tf.cast(tf.reduce_sum(loss), keras.config.floatx())
    )


def keep_arithmetic_on_devices() -> None:
    """Make Keras compute with operations that have GPU kernels, without changing results; once per process.

    The gradient of a sum that drops dimensions asks the host for a shape, and the comparison by which Keras's `argmax`
    detects a negative zero (keras/src/backend/tensorflow/numpy.py, `signbit`) runs on the host. Without effect outside
    a slice. Further calls do nothing.
    """
    if isinstance(getattr(keras_private.numpy_module, keras_private.SIGNBIT), functools.partial):
        return
    for name in keras_private.NUMPY_OF_HOST:
        _wrap(name, _kept_dimensions)
    _wrap(keras_private.SIGNBIT, _signbit)


def _wrap(name: str, around: Callable[..., Any]) -> None:
    original = getattr(keras_private.numpy_module, name)
    setattr(keras_private.numpy_module, name, functools.partial(around, original))


def _kept_dimensions(
    original: Callable[..., Any], x: Any, axis: Any = None, keepdims: bool = False, **more: Any
) -> Any:
    """Return what ``original``, such as Keras's `sum`, returns; inside a slice, with a gradient without the host."""
    drops_dimensions = axis not in (None, (), []) and not keepdims
    if not drops_dimensions or not isinstance(x, tf.Tensor) or slices.get_current_slice() is None:
        return original(x, axis=axis, keepdims=keepdims, **more)
    # The gradient of a sum that keeps its dimensions needs no shape from the host, so they are dropped afterwards.
    return tf.squeeze(original(x, axis=axis, keepdims=True, **more), axis)


def _signbit(original: Callable[..., Any], x: Any) -> Any:
    """Return which numbers are negative, also -0.0; inside a slice and for floats, without Keras's ``original``."""
    if (
        not isinstance(x, tf.Tensor)
        or not x.dtype.is_floating
        or slices.get_current_slice() is None
    ):
        return original(x)
    # The bits of a negative number, and of -0.0, are a negative integer. As int64, because int32 is for the host.
    return tf.cast(tf.bitcast(tf.cast(x, tf.float32), tf.int32), tf.int64) < 0


def allow_number_conversion() -> None:
    """Let `float` and `int` convert a variable on several replicas, like any other variable; once per process.

    `float(self.beta)` in an author's hook works on one replica; TensorFlow does not define it under a strategy. Further
    calls do nothing.
    """
    # only these two: TensorFlow itself looks for other conversions while it traces
    for name, kind in (("__float__", float), ("__int__", int)):
        if name not in vars(tensorflow_private.DistributedVariable):
            setattr(
                tensorflow_private.DistributedVariable,
                name,
                functools.partialmethod(_convert_to_number, kind),
            )


def _convert_to_number(variable: Any, kind: Callable[[Any], Any]) -> Any:
    return kind(variable.numpy())


def keep_loss_means() -> None:
    """Stop Keras from dividing the values of its losses by the number of replicas inside a slice; once per process.

    An author calls losses in `compute_loss`, in `add_loss` or as a metric. Keras divides each replica's value
    (keras/src/losses/loss.py, `reduce_values`), because it sums over replicas; our loop weights by the slices'
    fractions instead. Without effect outside a slice and in `Model.fit`. Further calls do nothing.
    """
    # set by `functools.wraps` below: they are replaced already
    if hasattr(getattr(keras_private.loss_module, keras_private.LOSS_SCALING[0]), "__wrapped__"):
        return
    for name in keras_private.LOSS_SCALING:
        original = getattr(keras_private.loss_module, name)

        # The default binds this round's `original`, which the loop replaces.
        @functools.wraps(original)
        def scaled(value: Any, original: Any = original) -> Any:
            cut = slices.get_current_slice()
            if cut is None or cut.in_fit:
                return original(value)
            return value

        setattr(keras_private.loss_module, name, scaled)


def make_loss_names_unique(model: keras.Model) -> None:
    """Make the names of a model's losses unique by adding numbers: mse, mse_1 and so on.

    The losses of several outputs of a subclassed model have the same name, and Keras would report only the mean of the
    last one (keras/src/trainers/trainer.py, `get_metrics_result`). The metrics of the losses' means are renamed alike,
    such as mse_1_loss. The model must have compiled losses that are built.
    """
    compiled = keras_private.compiled_loss(model)
    times = Counter[str]()  # how often each name has come so far
    entries = keras_private.flat_losses(compiled)
    for place, entry in enumerate(entries):
        number = times[entry.name]
        times[entry.name] += 1
        if number:  # there are several losses, so Keras has a metric for each
            entries[place] = entry._replace(name=f"{entry.name}_{number}")
            compiled.metrics[place].name = f"{entry.name}_{number}_loss"


def separate_added_losses(model: keras.Model) -> None:
    """Make a model's layers keep the losses that they add on each replica in separate lists, which are empty at first.

    Layers collect them in one list. If replicas wait for each other inside the model, as for batch normalisation, one
    replica clears what another has added (keras/src/layers/layer.py, `_clear_losses`).
    """
    for layer in _list_layers(model):
        keras_private.replace_layer_losses(layer, _ThreadList())


class _ThreadList(threading.local):
    """A list with separate items for each thread, because TensorFlow traces each replica in a thread."""

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
def keeping_numbering() -> Iterator[None]:
    """Restore Keras's counters of default names after the block, so that it does not change names in a notebook."""
    kept = keras_private.get_global_attribute(keras_private.NAME_COUNTERS)
    numbers = None if kept is None else kept.copy()
    try:
        yield
    finally:
        keras_private.set_global_attribute(keras_private.NAME_COUNTERS, numbers)


def number_layers_anew() -> None:
    """Restart the numbers in the default names of layers (dense, dense_1, ...); to be used inside `keeping_numbering`.

    Keras keeps counting while the process lives (keras/src/utils/naming.py). Names would depend on earlier trials, and
    TensorFlow, which keeps a kernel for every name of a variable, would grow by 0.3 MB per trial.
    """
    keras_private.reset_uids()


class _Seeds:
    """A replacement for Python's `random` in Keras that counts the seeds drawn."""

    given = 0

    def randint(self, low: int, high: int) -> int:
        self.given += 1
        return random.randint(low, high)


@contextmanager
def counting_seeds() -> Iterator[_Seeds]:
    """Count the seeds that Keras draws inside the block, for initializers and random layers.

    Yields an object with the count in its field ``given``. The seeds are those that Keras would draw anyway.
    """
    seeds = _Seeds()
    with keras_private.random_replaced(seeds):
        yield seeds


def set_outputs_to_float32(model: keras.Model) -> None:
    """Make the layers that produce a model's outputs compute in float32 instead of a half precision.

    Their dtype policy becomes float32. Of a model within the model, these are the layers that produce its outputs. A
    subclassed model, whose output layers are unknown, is not changed.
    """
    for output in keras.tree.flatten(getattr(model, "outputs", None) or []):
        layer = keras_private.producer_of(output)
        if isinstance(layer, keras.Model):
            set_outputs_to_float32(layer)
        elif isinstance(layer, keras.layers.Layer) and layer.compute_dtype in HALF:
            layer.dtype_policy = keras.DTypePolicy("float32")


def get_compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Return the optimizer, loss, loss_weights, metrics and weighted_metrics that a model was compiled with, by name.

    A `LossScaleOptimizer` that `compile` has put around the optimizer is left out. Raises AttributeError if the model
    was never compiled.
    """
    given = keras_private.compile_arguments(model)
    optimizer = model.optimizer
    if (
        isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        and given["optimizer"] is not optimizer
    ):
        optimizer = optimizer.inner_optimizer  # wrapped by compile under mixed_float16
    return {
        "optimizer": optimizer,
        **{name: given[name] for name in ("loss", "loss_weights", "metrics", "weighted_metrics")},
    }


def get_asked_jit(model: keras.Model) -> bool | None:
    """Return ``jit_compile`` as the author has given it to a model's `compile`; None if it was not given.

    Call this for models that were made within `keras_private.marking_unasked_jit`; "auto" then counts as not given,
    except with ``run_eagerly``, for which Keras makes False of it. Raises AttributeError if the model was never
    compiled.
    """
    asked = keras_private.compile_arguments(model).get("jit_compile")
    if asked is None or isinstance(asked, keras_private.ChosenByKeras):
        return None
    return bool(asked)


def find_layers_adding_losses(
    model: keras.Model, batch: tuple[Any, ...], training: bool = True
) -> set[int]:
    """Return the ids of the layers that call `add_loss` when the model is called with the inputs of ``batch``.

    ``training`` is passed to the model, which is called symbolically, so that nothing is computed. The losses are not
    added. Errors of the model are passed on.
    """
    found: set[int] = set()
    layers = _list_layers(model)
    for layer in layers:
        layer.add_loss = functools.partial(_record_loss, found, layer)
    try:
        keras_private.compute_output_spec(
            functools.partial(model, training=training), make_symbolic(batch[0])
        )
    finally:
        for layer in layers:
            del layer.add_loss
    return found


def get_added_losses(model: keras.Model) -> dict[str, tf.Tensor]:
    """Return for each layer the sum of the losses that it added in the model's last call.

    The keys are phrases that describe the layers, such as ``'dense' (Dense, model/dense)``; the sums are float32.
    Layers that added none are left out.
    """
    found: dict[str, list[tf.Tensor]] = {}
    for layer in _list_layers(model):
        for loss in keras_private.layer_losses(layer):
            name = f"{layer.name!r} ({type(layer).__name__}, {layer.path})"
            found.setdefault(name, []).append(loss)
    totals: dict[str, tf.Tensor] = {}
    for name, losses in found.items():
        totals[name] = tf.add_n([tf.cast(loss, tf.float32) for loss in losses])
    return totals


def _record_loss(layers: set[int], layer: keras.layers.Layer, loss: Any) -> None:
    layers.add(id(layer))


def call_losses_symbolically(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Call the model and its losses on symbolic tensors like ``batch``, so that the losses create their variables.

    ``batch`` is (x, y, sample_weight) or a beginning of it. Nothing is computed.
    """

    def lose(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return keras_private.compute_loss(
            model, x, y, model(x, training=False), sample_weight, training=False
        )

    keras_private.compute_output_spec(lose, *make_symbolic(batch))


def make_symbolic(batch: Any) -> Any:
    """Return symbolic tensors with the shapes of a batch but any number of examples, from which Keras infers shapes."""
    return keras.tree.map_structure(
        lambda leaf: keras.KerasTensor(
            (None, *leaf.shape[1:]), keras.backend.standardize_dtype(leaf.dtype)
        ),
        batch,
    )


def check_added_losses(
    model: keras.Model, batch: tuple[Any, ...], *, training: bool = True
) -> None:
    """Raise Refused if neither a layer, a regularizer of a weight nor the model's own `compute_loss` gives a loss.

    Call this for a model without a compiled loss. The model is called symbolically, and the message written, for
    training or, with ``training=False``, for validation. ``batch`` is (x, y, sample_weight) or a beginning of it.
    """
    own = list_overridden_methods(model, "compute_loss")
    if (
        own
        or any(weight.regularizer for weight in model.trainable_variables)
        or find_layers_adding_losses(model, batch, training)
    ):
        return
    if training:
        does, step = "train", "train_step"
    else:
        does, step = "validate", "test_step"
    targets = batch[1] if len(batch) > 1 else None
    if targets is None:
        lacks = "the data has no targets, loss() gives None and no layer adds to it"
        give = "return targets (those of an autoencoder are its inputs)"
    else:
        lacks = "there is none in loss() or compile(), and no layer adds to it"
        give = "give one there"
    raise Refused(
        f"nothing gives a loss to {does} by: {lacks}; {give}, call add_loss() in a layer, or define {step}() on the "
        "model or the trainable (docs/unsupervised.md)"
    )


def create_variables(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Create all variables of model, optimizer, loss and metrics before the first trace, without computing anything.

    ``batch`` is (x,), (x, y) or (x, y, sample_weight). Model, loss and metrics are called with batches of any size, as
    in training: a loss that squeezes its targets would make a single number of a batch of one. Raises Refused if
    Keras would pair the data with wrong inputs of the model, see `refusals.check_inputs`.
    """
    check_inputs(model, batch[0])
    keras_private.build_symbolically(model, make_symbolic(batch))


def leave_building_to_steps(model: keras.Model) -> None:
    """Prevent `fit` and `evaluate` from building the model by calling it and its loss; its own steps build it."""
    keras_private.replace_symbolic_build(model, _build_nothing)


def _build_nothing(iterator: Any = None, data_batch: Any = None) -> None:
    return None


def _list_layers(model: keras.Model) -> list[keras.layers.Layer]:
    layers = []
    for layer in keras_private.flatten_layers(model):
        if isinstance(layer, keras.layers.Layer):
            layers.append(layer)
    return layers
