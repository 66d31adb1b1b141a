"""Checks and corrections of networks and optimizers before their graph is made."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from trainables.loop.program import AuthorParts, ProgramOptions
from trainables.recipe import groups, optimizers, refusals
from trainables.replicas import keras_corrections, random_layers
from trainables.state import program_variables


def correct_networks(
    networks: Sequence[keras.Layer], options: ProgramOptions, *, fit: bool
) -> None:
    """Check ``networks`` and change them so that a batch gives the same numbers in one part and in several.

    Of the networks, only those that are models are checked, and get float32 outputs. If ``options`` cut a batch into
    parts, batch normalisation uses the whole batch, and layers collect the losses that they add separately on each
    replica; this holds for all networks. Keras's random functions, losses and some operations are replaced for the
    whole process. ``fit`` is True if Keras's own steps or the models' own steps train, for which less is refused.
    Raises Refused for a model that cannot be trained in this way, and NotInScope for one made outside of the strategy's
    scope.
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
    optimizer: keras.optimizers.Optimizer,
    weights: Sequence[keras.Variable],
    parts: AuthorParts,
    *,
    fit: bool,
) -> None:
    """Stop an optimizer, and those inside it, from summing gradients over replicas, because the loop has done so.

    Raises Refused if one of them is not supported. With ``fit``, which says that steps of Keras or of the model train,
    none is changed in this respect, and only an own `finalize_variable_values` is refused. In any case, biases and
    other variables among ``weights`` with fewer than two dimensions are exempted from weight decay if ``optimizer`` is
    the trial's, as held by ``parts``, and not made by the author.
    """
    for part in groups.list_parts(optimizer):
        refusals.check_finalizing(part)
        if not fit:
            refusals.check_optimizer(part)
            keras_corrections.take_global_gradients(part)
    if optimizer is parts.parts.optimizer and not parts.own_optimizer:
        optimizers.exclude_from_decay(optimizer, weights)
