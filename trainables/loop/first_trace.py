"""Make the variables of a model that trains itself, by a trace of its own `train_step` that is thrown away.

`Model.fit` makes them in the same way: layers, losses and metrics get their variables from what the step calls them
with. A compiled model is built by calling it and its loss with the data; steps of a model's own may do neither.
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
from trainables.loop.steps import KerasStep, shapes_of
from trainables.recipe import refusals
from trainables.recipe.author import Author
from trainables.recipe.mixing import Mixing


def trains_itself(model: keras.Model) -> bool:
    """Return whether the model has a `train_step` of its own."""
    return bool(refusals.own_methods(model, "train_step"))


def lacks_weights(model: keras.Model) -> bool:
    """Return whether the model trains itself and has layers that only a step of its own can build."""
    if not trains_itself(model):
        return False
    if refusals.own_methods(model, "build") and not model.built:
        return True
    return any(not layer.built for layer in model._flatten_layers(include_self=False))


def make_weights(author: Author, hp: Hyperparameters, model: keras.Model) -> None:
    """Build the layers of a compiled model.

    Its optimizer is not built: groups and decay are still to be said of the weights.
    """
    intake = Intake(author, lambda: hp, Mixing.of(hp, author.live))
    _trace(model, _run, intake, author.first_example)


def make_variables(model: keras.Model, replicas: Replicas, intake: Intake, example: Any) -> None:
    """Build all of a compiled model: layers, losses, metrics, and the optimizer for what the step trains with it."""
    trained = _trace(model, replicas.run, intake, example)
    for optimizer, variables in trained:
        if variables and not optimizer.built:
            optimizer.build(variables)


def _trace(
    model: keras.Model, run: Callable[..., Any], intake: Intake, example: Any
) -> list[tuple[keras.optimizers.Optimizer, list[keras.Variable]]]:
    """Trace the model's `train_step` once; return its optimizers, each with the variables that it would change."""
    step = KerasStep(model, "", follows_the_rate=False)
    found = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    optimizers = list({id(optimizer): optimizer for optimizer in found}.values())
    with ExitStack() as stack:
        trained = [(optimizer, stack.enter_context(_noting(optimizer, model))) for optimizer in optimizers]
        shapes_of(functools.partial(step.evaluate, training=True), run, intake, example)
    return trained


def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function on the replica of the present strategy, or without one, as while a model is exported."""
    return tf.distribute.get_strategy().run(function, args=arguments)


@contextmanager
def _noting(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> Iterator[list[keras.Variable]]:
    """Inside the block, let the optimizer change nothing; give the variables that it is to change.

    One that is built inside of a trace may begin otherwise: ScheduleFreeAdamW with the weights' symbols.
    """
    variables: dict[int, keras.Variable] = {}

    def apply(grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        given = model.trainable_variables if trainable_variables is None else trainable_variables
        variables.update({id(variable): variable for variable in given})

    trained: list[keras.Variable] = []
    original: Callable[..., Any] = optimizer.apply
    optimizer.apply = apply
    try:
        yield trained
    finally:
        if getattr(original, "__func__", None) is type(optimizer).apply:
            del optimizer.apply
        else:
            optimizer.apply = original  # as gradient checkpointing has set it
        trained.extend(variables.values())
