"""Creation of a model's variables by tracing its own `train_step` once and throwing the trace away.

`Model.fit` creates them in the same way: layers, losses and metrics get their variables when the step first calls them.
A compiled model can be built by calling it and its loss with the data, but a model's own step may call neither.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.devices.replicas import Replicas
from trainables.loop.intake import Intake
from trainables.loop.steps import KerasStep, trace_shapes
from trainables.recipe.author import Author


def make_weights(author: Author, hp: Hyperparameters, model: keras.Model) -> None:
    """Create the weights of a compiled model's layers by tracing its own `train_step` once; no numbers are computed.

    Losses and metrics get their variables as well. The optimizer is not built, because groups and weight decay still
    have to be assigned to the weights. Raises Refused if the step cannot take the data or does not return a dictionary.
    """
    intake = Intake(author, lambda: hp, hp)
    _trace(model, _run_in_replica, intake, author.first_example)


def make_variables(model: keras.Model, replicas: Replicas, intake: Intake, example: Any) -> None:
    """Create the variables of a compiled model's layers, losses, metrics and optimizers by tracing its `train_step`.

    An optimizer among the model's attributes is built for the weights that the step would change by it; if there are
    none, or if it is built already, it stays as it is. No numbers are computed. ``example`` is a batch of one. Raises
    Refused if the step cannot take the data or does not return a dictionary.
    """
    trained = _trace(model, replicas.run, intake, example)
    for optimizer, variables in trained:
        if variables and not optimizer.built:
            optimizer.build(variables)


def _trace(
    model: keras.Model, run: Callable[..., Any], intake: Intake, example: Any
) -> list[tuple[keras.optimizers.Optimizer, list[keras.Variable]]]:
    """Trace the model's `train_step` once; return its optimizers, each with the variables that it would change.

    They are the optimizers among the model's attributes, each once, also those that would change nothing. None is
    built, and no numbers are computed; but layers, losses and metrics get their variables. ``run`` calls a function on
    the replicas, and ``example`` is a batch of one. Raises Refused as `make_variables`.
    """
    step = KerasStep(model, "", follows_the_rate=False)  # for a trace, neither argument matters
    found = []
    for value in vars(model).values():
        if isinstance(value, keras.optimizers.Optimizer):
            found.append(value)
    optimizers = list({id(optimizer): optimizer for optimizer in found}.values())
    trained = []
    with ExitStack() as stack:
        for optimizer in optimizers:
            trained.append((optimizer, stack.enter_context(recording_trained(optimizer, model))))
        trace_shapes(functools.partial(step.evaluate, training=True), run, intake, example)
    return trained  # with lists that were filled when the stack was closed


def _run_in_replica(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in the replica context of the present strategy, which is TensorFlow's default if none is set."""
    return tf.distribute.get_strategy().run(function, args=arguments)


@contextmanager
def recording_trained(
    optimizer: keras.optimizers.Optimizer, model: keras.Model
) -> Iterator[list[keras.Variable]]:
    """Replace ``optimizer.apply`` inside the block by a function that only records the variables it is called with.

    If it is called without variables, those are recorded that ``model`` trains. Yields a list that is empty inside the
    block and filled with the variables, each once, at its end. The optimizer is not built inside the trace, where it
    could start with wrong values: ScheduleFreeAdamW would copy symbolic weights.
    """
    variables: dict[int, keras.Variable] = {}  # by id

    # in place of the optimizer's method
    def apply(
        grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        if trainable_variables is None:
            given = model.trainable_variables
        else:
            given = trainable_variables
        for variable in given:
            variables[id(variable)] = variable

    trained: list[keras.Variable] = []
    original: Callable[..., Any] = optimizer.apply
    optimizer.apply = apply
    try:
        yield trained
    finally:
        was_method_of_class = getattr(original, "__func__", None) is type(optimizer).apply
        if was_method_of_class:
            del optimizer.apply  # makes the method of the class visible again
        else:
            optimizer.apply = original  # the function that gradient checkpointing has set
        trained.extend(variables.values())
