"""Proof that all of a model lives under the strategy: what does not would train on one device, silently."""

from __future__ import annotations

import keras
import tensorflow as tf


class NotInScope(Exception):
    """A model, optimizer or metric was made outside of the strategy's scope."""


def check(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Raise NotInScope naming every variable and object that belongs to another strategy or to none."""
    strays = []
    if model.distribute_strategy is not strategy:
        strays.append(f"model {model.name!r}")
    for variable in model.weights:
        if not _inside(variable, strategy):
            strays.append(f"weight {variable.path!r}")
    optimizer = getattr(model, "optimizer", None)  # there is none before `compile`
    if optimizer is not None:
        if optimizer._distribution_strategy is not strategy:
            strays.append(f"optimizer {optimizer.name!r}")
        strays += [f"optimizer {v.path!r}" for v in optimizer.variables if not _inside(v, strategy)]
    strays += [f"metric {v.path!r}" for v in model.metrics_variables if not _inside(v, strategy)]
    if strays:
        shown = ", ".join(strays[:5]) + (f" and {len(strays) - 5} more" if len(strays) > 5 else "")
        raise NotInScope(
            f"made outside of the strategy's scope: {shown}. Build them inside model(), optimizer(), loss() "
            "and metrics(), which run inside it, anew at each call; of a layer that data() has fitted, keep its "
            "numbers and vocabularies and make it of these in model(), or apply it to the examples in data() "
            "(docs/data.md)"
        )


def _inside(variable: keras.Variable, strategy: tf.distribute.Strategy) -> bool:
    return bool(strategy.extended.variable_created_in_scope(variable.value))
