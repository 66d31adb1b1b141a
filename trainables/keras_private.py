"""All private and undocumented names of Keras that the training uses, each in one place.

Everybody else in `trainables` imports them from here. `docs/private_names.md` lists them, with the test that notices a
change of each. If a module or a method that every trial needs is missing, importing this module raises ImportError.
A missing attribute of an object raises AttributeError at its use, unless the function says what it returns then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from trainables import tensorflow_private

try:
    from keras.src.backend import compute_output_spec
    from keras.src.backend.common import global_state as _global_state
    from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute
    from keras.src.backend.common.variables import AutocastScope, get_autocast_scope
    from keras.src.backend.tensorflow import numpy as numpy_module
    from keras.src.backend.tensorflow import random as random_module
    from keras.src.backend.tensorflow.optimizer import TFOptimizer
    from keras.src.export.tf2onnx_lib import patch_tf2onnx
    from keras.src.losses import loss as loss_module
    from keras.src.losses.loss import (
        apply_mask,
        squeeze_or_expand_to_same_rank,
        standardize_reduction,
    )
    from keras.src.models.functional import Functional
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.random import seed_generator as _seed_generator
    from keras.src.trainers import trainer as _trainer
    from keras.src.utils.naming import reset_uids
except ImportError as error:
    raise ImportError(
        f"Keras {keras.__version__} lacks a private name that the training needs: {error}; "
        "install a version that `pip install sweep-keras` would choose"
    ) from error

__all__ = [
    "AutocastScope",
    "BaseOptimizer",
    "Functional",
    "TFOptimizer",
    "apply_mask",
    "compute_output_spec",
    "get_autocast_scope",
    "get_global_attribute",
    "has_functional_call",
    "loss_module",
    "numpy_module",
    "patch_tf2onnx",
    "random_module",
    "reset_uids",
    "set_global_attribute",
    "squeeze_or_expand_to_same_rank",
    "standardize_reduction",
]

_METHODS = (
    (keras.Layer, "_flatten_layers"),
    (keras.Model, "_compute_loss"),
    (keras.Model, "_symbolic_build"),
    (keras.Model, "_aggregate_additional_loss"),
    (keras.Model, "_resolve_auto_jit_compile"),
    (keras.optimizers.Optimizer, "_all_reduce_sum_gradients"),
    (keras.optimizers.Optimizer, "_clip_gradients"),
    (keras.layers.BatchNormalization, "_moments"),
)
"""Methods that are called, or replaced on an object: without them a replacement would have no effect."""

for _owner, _name in _METHODS:
    if not hasattr(_owner, _name):
        raise ImportError(
            f"Keras {keras.__version__} lacks {_owner.__name__}.{_name}, which the training needs; "
            "install a version that `pip install sweep-keras` would choose"
        )

CALLBACK_ATTRIBUTES = frozenset({"_model", "params"})
"""Attributes of a callback that Keras sets by `set_model` and `set_params`."""

NAME_COUNTERS = "object_name_uids"
"""Global attribute under which Keras counts the names of objects (keras/src/utils/naming.py)."""

GLOBAL_SEEDS = ("global_seed_generator", "global_random_seed")
"""Global attributes of the generator of `keras.random`: first itself, then the seed that it is made from."""

NUMPY_OF_HOST = ("mean", "sum", "max", "min")
"""Functions of `numpy_module` whose gradient asks the host for a shape."""

SIGNBIT = "signbit"
"""The function of `numpy_module` by which `argmax` detects a negative zero, on the host."""

LOSS_SCALING = ("scale_loss_for_distribution", "unscale_loss_for_distribution")
"""Functions of `loss_module` that divide a loss by the number of replicas, and multiply it again."""

DRAW_SEED = "draw_seed"
"""The function of `random_module` that takes the next seed of a generator."""

DISTRIBUTED_METHODS = (
    "_backend_update_step",
    "_apply_weight_decay",
    "_overwrite_model_variables_with_average_value",
    "assign",
    "assign_add",
    "assign_sub",
)
"""Methods of `TFOptimizer` that go through `tf.distribute`; `BaseOptimizer` has those of Keras's other backends."""


# Layers and models


def flatten_layers(layer: Any, *, include_self: bool = True, recursive: bool = True) -> list[Any]:
    """Return the layers within a layer or model, each once and outer ones first, beginning with itself.

    A layer that contains others is followed by all of these. Without ``include_self``, ``layer`` itself is left out.
    Without ``recursive``, only the layers that it directly contains are returned.
    """
    layers: list[Any] = layer._flatten_layers(include_self, recursive)
    return layers


def has_functional_call(model: Any) -> bool:
    """Return whether a model is functional, and its class does not override `call`; False for a Sequential model."""
    return isinstance(model, Functional) and type(model).call is Functional.call


def seed_generators(layer: Any) -> list[Any]:
    """Return the seed generators that a layer itself (not the layers inside it) draws from."""
    generators: list[Any] = layer._seed_generators
    return generators


def nodes_by_depth(model: Any) -> dict[int, list[Any]]:
    """Return the calls that a functional model consists of, by their depth: those of the outputs have depth 0."""
    nodes: dict[int, list[Any]] = model._nodes_by_depth
    return nodes


def producer_of(tensor: Any) -> Any:
    """Return the operation or layer that a symbolic tensor comes from; a Keras input's is its `InputLayer`."""
    return tensor._keras_history.operation


def mask_of(tensor: Any) -> Any:
    """Return the mask that Keras keeps on a tensor; None if it has none."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: Any, mask: Any) -> None:
    """Put a mask on a tensor where Keras looks for it."""
    tensor._keras_mask = mask


def layer_losses(layer: Any) -> Iterable[Any]:
    """Return the losses that a layer itself (not the layers inside it) has added since Keras last cleared them.

    Keras clears the losses of a model and of all its layers whenever the model is called. The result is Keras's own
    list, not a copy.
    """
    losses: Iterable[Any] = layer._losses
    return losses


def replace_layer_losses(layer: Any, losses: Any) -> None:
    """Make ``losses`` the list in which a layer itself (not the layers inside it) collects what it adds to the loss."""
    layer._losses = losses


def moments_of(layer: Any) -> Callable[..., Any]:
    """Return the method by which a layer of batch normalization computes mean and variance.

    It is the replacement if `replace_moments` was called.
    """
    moments: Callable[..., Any] = layer._moments
    return moments


def replace_moments(layer: Any, moments: Callable[..., Any]) -> None:
    """Make ``moments`` the method by which this layer of batch normalization computes mean and variance."""
    layer._moments = moments


def reduction_axes(layer: Any) -> Any:
    """Return the axes over which a built layer of batch normalization takes its statistics, as a list."""
    return layer._reduction_axes


# Compiled models


def compute_loss(
    model: Any, x: Any, y: Any, predicted: Any, sample_weight: Any, *, training: bool
) -> Any:
    """Return the total loss of a batch as the model's `compute_loss` returns it, with what layers add to the loss.

    An author's own `compute_loss` is called without ``training`` if it has no such argument.
    """
    return model._compute_loss(x, y, predicted, sample_weight, training=training)


def compiled_loss(model: Any) -> Any:
    """Return the container of a model's compiled losses; None if it was compiled without, or never."""
    return model._compile_loss


def flat_losses(compiled: Any) -> Any:
    """Return the entries of compiled losses: for each output, one for each of its losses; None before they are built.

    Each is a named tuple of ``path`` (of the output), ``loss``, ``loss_weight`` and ``name``. ``compiled`` is what
    `compiled_loss` has returned. Outputs without a loss have no entry.
    """
    return compiled._flat_losses


def set_flat_losses(compiled: Any, entries: list[Any]) -> None:
    """Replace the entries of compiled losses, which are tuples as `flat_losses` returns them."""
    compiled._flat_losses = entries


def has_compiled_metrics(model: Any) -> bool:
    """Return whether a model was compiled with metrics, weighted or not; the loss is none of them."""
    return model._compile_metrics is not None


def compile_arguments(model: Any) -> dict[str, Any]:
    """Return the arguments of a model's last `compile` by name; AttributeError is raised if it was never compiled."""
    arguments: dict[str, Any] = model._compile_config.config
    return arguments


class ChosenByKeras(int):
    """The value of a model's ``jit_compile`` if its `compile` was told none: 0."""


@contextmanager
def marking_unasked_jit() -> Iterator[None]:
    """Make `ChosenByKeras` the ``jit_compile`` of models that are compiled inside the block without a choice of it.

    The value "auto", Keras's default, is no choice. Nor is the value in the file of a model that is loaded, which may
    come from another machine. Outside the block, such values cannot be told from those that an author wrote. This
    changes Keras's class of all models, and so holds in all threads.
    """
    from_config = keras.Model.compile_from_config

    # In place of Keras's method, which compiles a loaded model as its file says.
    def compile_unasked(self: Any, config: dict[str, Any]) -> None:
        from_config(self, {name: value for name, value in config.items() if name != "jit_compile"})

    trainer_class: Any = _trainer.Trainer
    # Keras calls this method only for "auto"
    resolve = trainer_class._resolve_auto_jit_compile
    trainer_class._resolve_auto_jit_compile = lambda self: ChosenByKeras()
    trainer_class.compile_from_config = compile_unasked
    try:
        yield
    finally:
        trainer_class._resolve_auto_jit_compile = resolve
        trainer_class.compile_from_config = from_config


def mark_uncompiled(model: Any) -> None:
    """Make Keras's `fit` and `evaluate` take a model for one that was never compiled; what `compile` has set stays."""
    model.compiled = False


def build_symbolically(model: Any, batch: tuple[Any, ...]) -> None:
    """Create the variables of model, optimizer, loss and metrics that do not exist yet, without computing anything.

    ``batch`` is (x,), (x, y) or (x, y, sample_weight), of which only shapes and types matter. If the model's `call`
    raises an error, ValueError is passed on, and RuntimeError is raised for any other.
    """
    model._symbolic_build(data_batch=batch)


def replace_symbolic_build(model: Any, build: Callable[..., None]) -> None:
    """Replace the method by which `fit` and `evaluate` build this model; see `build_symbolically`."""
    model._symbolic_build = build


def replace_loss_aggregation(model: Any, aggregate: Callable[[Any], Any]) -> None:
    """Replace the method by which a model makes one number of what a layer has added to the loss.

    ``aggregate`` is called with the tensor that was added. Keras's own method sums it, and divides it by the number of
    replicas.
    """
    model._aggregate_additional_loss = aggregate


# Optimizers


def replace_gradient_sum(optimizer: Any, summed: Callable[..., Any]) -> None:
    """Replace the method by which this optimizer sums gradients over replicas.

    ``summed`` is called with pairs of gradient and variable, and returns such pairs.
    """
    optimizer._all_reduce_sum_gradients = summed


def clip_gradients(optimizer: Any, gradients: list[Any]) -> Any:
    """Return gradients as an optimizer's own settings clip them; the same list if it has none.

    The settings are ``clipnorm``, ``global_clipnorm`` and ``clipvalue``. A gradient that is None stays None.
    """
    return optimizer._clip_gradients(gradients)


def given_learning_rate(optimizer: Any) -> Any:
    """Return the learning rate that an optimizer was given, before any schedule is evaluated.

    It is the schedule or function itself. In place of a number, it is the Keras variable that has the present rate.
    """
    return optimizer._learning_rate


def decay_rule(optimizer: Any) -> Callable[[Any], bool]:
    """Return the method by which an optimizer decides whether a weight decays."""
    rule: Callable[[Any], bool] = optimizer._use_weight_decay
    return rule


def optimizer_variables(optimizer: Any) -> Sequence[Any]:
    """Return the trainable weights that an optimizer was built for, not its own variables; empty before."""
    variables: Sequence[Any] = getattr(optimizer, "_trainable_variables", ())
    return variables


def optimizer_choice(optimizer: Any) -> Callable[[Any], Any]:
    """Return the method by which Keras's MultiOptimizer chooses the optimizer of a weight."""
    choose: Callable[[Any], Any] = optimizer._optimizer_map
    return choose


def strategy_of(optimizer: Any) -> Any:
    """Return the `tf.distribute` strategy in whose scope an optimizer was created."""
    return optimizer._distribution_strategy


def fix_variable_keys(optimizer: Any) -> None:
    """Make an optimizer know the keys of its Keras variables even where a `keras.StatelessScope` replaces their values.

    The key of a variable is that under which the optimizer keeps what belongs to it. The optimizer then knows only the
    variables that it has now, the trained weights and its own. Any other object raises KeyError in its `_var_key`, and
    so does the TensorFlow variable within one of them; hence a second call raises KeyError unless
    `restore_variable_keys` came between. Raises AttributeError if the optimizer is not built.
    """
    variables = (*optimizer._trainable_variables, *optimizer.variables)
    keys = {}
    for variable in variables:
        # Keras's key of a variable is computed from its value, which a `keras.StatelessScope` replaces.
        keys[id(variable)] = optimizer._var_key(variable._value)
    # not by `setattr`, which Keras overrides to track attributes
    object.__setattr__(optimizer, "_var_key", lambda variable: keys[id(variable)])


def restore_variable_keys(optimizer: Any) -> None:
    """Undo `fix_variable_keys`; AttributeError is raised if that was not called."""
    object.__delattr__(optimizer, "_var_key")


# Random numbers


def cast_seed(seed: Any) -> Any:
    """Return a seed of any integer type as int32, which TensorFlow's stateless kernels take; int32 stays the same."""
    return random_module._cast_seed(seed)


def draw_seed(generator: Any) -> Any:
    """Return the next seed of a generator, by the function that Keras's module has at present.

    Keras's own function also moves the generator on, or makes a seed of an integer. The function may be the one with
    which `random_layers.replace_random_functions` has replaced Keras's own.
    """
    return random_module.draw_seed(generator)


def noise_shape(inputs: Any, shape: Any) -> Any:
    """Return the shape of the random numbers that dropout draws.

    It is that of ``inputs`` where ``shape``, or one of its entries, is None.
    """
    return random_module._get_concrete_noise_shape(inputs, shape)


@contextmanager
def random_replaced(generator: Any) -> Iterator[None]:
    """Let Keras draw the seeds of initializers and layers from ``generator`` inside the block.

    It takes the place of Python's module `random`, of which Keras calls `randint`, in all threads. Only seeds that the
    author does not give are drawn.
    """
    before = _seed_generator.python_random
    _seed_generator.python_random = generator
    try:
        yield
    finally:
        _seed_generator.python_random = before


# The process


@contextmanager
def clearing_names_alone() -> Iterator[None]:
    """Restrict Keras's `clear_session` to resetting the names of layers inside the block.

    Its full effect would drop the strategy's scope, the trial's dtype policy and generators, and the kernels of earlier
    trials. As an author may have imported it by name, this replaces the functions that it looks up at each call, for
    all threads. So `tf.compat.v1.reset_default_graph` by itself has no effect inside the block, either.
    """
    graphs: Any = tf.compat.v1
    eager = tensorflow_private.eager_context()
    # where Keras keeps all that is global, among it the names of layers
    trackers = _global_state.GLOBAL_STATE_TRACKER, _global_state.GLOBAL_SETTINGS_TRACKER
    reset_graph = graphs.reset_default_graph
    # None, if no outer block has replaced the class's method
    own_method = vars(eager).get("clear_kernel_cache")

    def put_trackers_back() -> None:
        # `clear_session` has made new trackers before it calls this. After another call, there is nothing to put back.
        if _global_state.GLOBAL_STATE_TRACKER is not trackers[0]:
            _global_state.GLOBAL_STATE_TRACKER, _global_state.GLOBAL_SETTINGS_TRACKER = trackers
            reset_uids()

    def keep_kernels() -> None:
        pass

    # `clear_session` calls these two, one after the other
    graphs.reset_default_graph = put_trackers_back
    eager.clear_kernel_cache = keep_kernels
    try:
        yield
    finally:
        graphs.reset_default_graph = reset_graph
        if own_method is None:
            del eager.clear_kernel_cache
        else:
            eager.clear_kernel_cache = own_method
