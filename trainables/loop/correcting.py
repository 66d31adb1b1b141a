"""Networks and optimizers before their graph is made: checked, and set right where Keras would get them wrong."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from trainables.loop.program import Made, Wanted
from trainables.recipe import groups, optimizers, refusals
from trainables.replicas import keras_corrections, random_layers
from trainables.state import owned


def correct_networks(networks: Sequence[keras.Layer], wanted: Wanted, *, fit: bool) -> None:
    """Let networks compute what they do in one piece; ``fit``: Keras's own steps train them."""
    random_layers.install()
    keras_corrections.leave_losses_whole()
    keras_corrections.keep_arithmetic_on_devices()
    for network in networks:
        if isinstance(network, keras.Model):
            refusals.check_model(network, fit=fit)
            owned.check_scope(network, wanted.placement.replicas)
            keras_corrections.outputs_in_float32(network)
        if not wanted.whole:
            keras_corrections.synchronise_batch_norm(network)
            keras_corrections.part_losses(network)


def correct_optimizer(
    optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable], made: Made, *, fit: bool
) -> None:
    """Let an optimizer apply gradients as they are given, unless in ``fit``; what the author says of decay stands."""
    for part in () if fit else groups.parts(optimizer):
        refusals.check_optimizer(part)
        keras_corrections.take_global_gradients(part)
    if optimizer is made.parts.optimizer and not made.own_optimizer:
        optimizers.exclude_from_decay(optimizer, weights)
