"""From an author's trainable to a program that is ready to train."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from sweep.contract import OutOfMemory
from sweep.hyperparameters import Hyperparameters
from trainables import global_losses, keras_corrections, optimizers, random_layers, recomputation, scope
from trainables.author import Author
from trainables.devices import Placement
from trainables.draws import Draws
from trainables.fit_program import FitProgram
from trainables.graph import Graph, Recipe
from trainables.program import Program


def build_model(author: Author, hp: Hyperparameters, seed: int) -> keras.Model:
    """The author's model with the initial weights of a trial."""
    # Keras draws the seeds of initialisers and random layers from `random`. Seeding TensorFlow as well
    # would empty its kernel cache and cost seconds per trial; an author's own draws come from these two.
    random.seed(seed)
    np.random.seed(seed)
    keras_corrections.number_layers_anew()
    model = author.model(hp)
    if not isinstance(model, keras.Model):
        raise TypeError(f"model() returned {type(model).__name__}, expected a keras.Model")
    if not model.built:
        model(keras.tree.map_structure(_symbolic, author.example[0]))
    _freeze(model, hp)
    return model


def recipe(hp: Hyperparameters, dtype: str, accumulate: int, *, batch_size: int, replicas: int) -> Recipe:
    """What of a trial is fixed in its graph; raises OutOfMemory when its batch cannot be cut further."""
    micro_batches = hp.integer("micro_batches", 1)
    if accumulate > 1 and micro_batches * accumulate * replicas > batch_size:
        raise OutOfMemory(f"a batch of {batch_size} on {replicas} replicas does not fit in micro-batches of 1 either")
    return Recipe(
        clipping=optimizers.clipping(hp),
        micro_batches=micro_batches * accumulate,
        scale_loss=dtype == "mixed_float16",
        average="ema_momentum" in hp,
    )


def build(
    author: Author,
    hp: Hyperparameters,
    placement: Placement,
    recipe: Recipe,
    seed: int,
    augment: Callable[[Any, Draws], Any],
    *,
    fit: bool,
) -> Program | FitProgram:
    """Build, compile and correct a model; called inside the strategy's scope, under the trial's precision."""
    model = build_model(author, hp, seed)
    if not fit and type(model).train_step is not keras.Model.train_step:
        raise TypeError(
            f"{type(model).__name__} has its own train_step, which only Model.fit calls; "
            "set `training: {loop: fit}` in the sweep file"
        )
    scope.check(model, placement.strategy)
    keras_corrections.outputs_in_float32(model)
    optimizer = author.optimizer(hp)
    optimizers.exclude_from_decay(optimizer, model)
    recomputation.finish_before_updates(optimizer)
    compiled = {"optimizer": optimizer, "loss": author.loss(hp, model), "metrics": author.metrics(hp, model)}
    weights = author.loss_weights(hp)
    random_layers.install()
    keras_corrections.synchronise_batch_norm(model)
    keras_corrections.part_losses(model)
    if hp.flag("gradient_checkpointing", default=False):
        recomputation.install(model)
    if fit:
        return FitProgram(model, compiled, weights, placement.strategy, hp, recipe, augment, author.example, seed)
    keras_corrections.take_global_gradients(optimizer)
    keras_corrections.take_whole_losses(model)
    model.compile(**compiled, auto_scale_loss=False)
    keras_corrections.build_symbolically(model, author.example)
    losses = global_losses.install(model, weights)
    keras_corrections.build_symbolically(model, author.example)
    scope.check(model, placement.strategy)
    program = Program(Graph(model, placement.strategy, author.live, recipe, losses, augment))
    program.reset(None)
    return program


def _freeze(model: keras.Model, hp: Hyperparameters) -> None:
    """Freeze the layers that ``frozen_layers`` says: the first n with weights, or names with wildcards."""
    frozen = hp.get("frozen_layers", 0)
    layers = [layer for layer in model.layers if layer.weights]
    if isinstance(frozen, int) and not isinstance(frozen, bool):
        if not 0 <= frozen <= len(layers):
            raise ValueError(f"frozen_layers is {frozen}, expected 0 to {len(layers)}, the layers with weights")
        chosen = layers[:frozen]
    else:
        patterns = frozen if isinstance(frozen, list) else [frozen]
        chosen = [layer for layer in layers if any(fnmatch.fnmatch(layer.name, str(p)) for p in patterns)]
        for pattern in patterns:
            if not any(fnmatch.fnmatch(layer.name, str(pattern)) for layer in layers):
                names = ", ".join(layer.name for layer in layers)
                raise ValueError(f"frozen_layers names {pattern!r}, expected a number or names among {names}")
    for layer in chosen:
        layer.trainable = False


def _symbolic(leaf: Any) -> keras.KerasTensor:
    return keras.KerasTensor((None, *leaf.shape[1:]), dtype=str(leaf.dtype))
