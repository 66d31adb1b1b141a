"""Checks and corrections of networks and optimizers before their graph is made."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from trainables.loop.program import AuthorParts, ProgramOptions
from trainables.recipe import groups, optimizers, refusals
from trainables.replicas import keras_corrections, random_layers
from trainables.state import program_variables


def correct_networks(networks: Sequence[keras.Layer], options: ProgramOptions, *, fit: bool) -> None:
    """Check ``networks`` and change them so that a batch gives the same numbers in one part and in several.

    Outputs of models are set to float32. If a batch has several parts, batch normalisation uses the whole batch, and
    layers collect the losses that they add separately on each replica. Keras's random functions, losses and some
    operations are replaced for the whole process. ``fit`` is True if Keras's own steps train the networks. Raises
    Refused for a model that cannot be trained in this way.
    """
    random_layers.replace_random_functions()
    keras_corrections.keep_loss_means()
    keras_corrections.keep_arithmetic_on_devices()
    for network in networks:
        if isinstance(network, keras.Model):
            refusals.check_model(network, fit=fit)
            program_variables.check_scope(network, options.placement.replicas)
            keras_corrections.set_outputs_to_float32(network)
        if not options.whole:
            keras_corrections.synchronise_batch_norm(network)
            keras_corrections.separate_added_losses(network)


def correct_optimizer(
    optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable], parts: AuthorParts, *, fit: bool
) -> None:
    """Stop an optimizer from summing gradients over replicas, because the loop has done so.

    Raises Refused if the optimizer is not supported. With ``fit``, it is neither checked nor changed in this respect.
    Biases and other weights with fewer than two dimensions are exempt from weight decay if the optimizer is the trial's
    and not made by the author.
    """
    for part in () if fit else groups.list_parts(optimizer):
        refusals.check_optimizer(part)
        keras_corrections.take_global_gradients(part)
    if optimizer is parts.parts.optimizer and not parts.own_optimizer:
        optimizers.exclude_from_decay(optimizer, weights)
