"""What hooks and callbacks set on Keras's objects between epochs, honoured from the next epoch on.

These are the learning rate of the trial's optimizer, which holds until it is set again, `model.stop_training`, and
which layers are trainable. A program whose layers were changed serves no other trial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from trainables.recipe.refusals import Refused


@dataclass(frozen=True)
class Wheel:
    """What could be set, as it is at present."""

    rates: tuple[float | None, ...]  # of each optimizer, the trial's first; None: a schedule
    layers: tuple[bool, ...]  # which are trainable
    weights: tuple[bool, ...]

    @classmethod
    def of(cls, program: Any) -> Wheel:
        """Those of a program's networks and optimizers."""
        layers = [layer for network in program.networks for layer in network._flatten_layers()]
        weights = [variable for network in program.networks for variable in network.variables]
        return cls(
            tuple(map(_rate, program.optimizers)),
            tuple(bool(layer.trainable) for layer in layers),
            tuple(bool(variable.trainable) for variable in weights),
        )


def rate_set(program: Any, before: Wheel) -> float | None:
    """The trial's learning rate, where it was set since; raises Refused for one that would have no effect."""
    found = None
    for optimizer, was in zip(program.optimizers, before.rates, strict=True):
        now = _rate(optimizer)
        if now == was or optimizer not in program.rated:
            continue
        if now is None:
            raise Refused(
                "a learning-rate schedule was set on the optimizer of a built program; give it to optimizer()"
            )
        if optimizer is not program.model.optimizer:
            raise Refused(
                f"the learning rate of {optimizer.name!r} was set, which follows the trial's by Update(rate=...); set "
                "that of model.optimizer, or call scale_rate()"
            )
        if program.sets_no_rate:
            raise Refused("model.optimizer.learning_rate was set, and its parts bring rates or schedules of their own")
        found = now
    return found


def show_rate(program: Any, rate: float) -> None:
    """Let the optimizer have the rate that an epoch begins with, as callbacks expect to find it."""
    optimizer = getattr(program.model, "optimizer", None)
    variable = getattr(optimizer, "_learning_rate", None)
    if isinstance(variable, keras.Variable) and optimizer in program.rated and not math.isnan(rate):
        variable.assign(rate)


def were_frozen(program: Any, before: Wheel) -> bool:
    """Whether other layers are trainable since; raises Refused for what could not be trained or saved."""
    now = Wheel.of(program)
    if (now.layers, now.weights) == (before.layers, before.weights):
        return False
    if now.layers == before.layers:
        raise Refused("`trainable` of single weights was set; set it on their layer, which checkpoints remember")
    known = {id(v) for optimizer in program.optimizers for v in getattr(optimizer, "_trainable_variables", ())}
    weights = [variable for network in program.networks for variable in network.variables]
    for variable, trainable, was in zip(weights, now.weights, before.weights, strict=True):
        if trainable and not was and id(variable) not in known:
            raise Refused(
                f"{variable.path} was made trainable, for which the optimizer has no moments; let phases(hp) of the "
                "trainable say what is frozen when (docs/optimizers.md)"
            )
    return True


def spoils(program: Any, before: Wheel) -> bool:
    """Whether something was set that would stay in the next trial."""
    now = Wheel.of(program)
    return (now.layers, now.weights) != (before.layers, before.weights) or any(
        rate is None and was is not None for rate, was in zip(now.rates, before.rates, strict=True)
    )


def freeze(program: Any, layers: Sequence[bool]) -> None:
    """Let these layers be trainable or not, outer ones first, as `Wheel.layers` has them."""
    flat = [layer for network in program.networks for layer in network._flatten_layers()]
    for layer, trainable in zip(flat, layers, strict=True):
        layer.trainable = trainable


def _rate(optimizer: Any) -> float | None:
    rate = optimizer._learning_rate
    return float(rate.numpy()) if isinstance(rate, keras.Variable) else None
