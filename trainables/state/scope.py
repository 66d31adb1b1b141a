"""Proof that all of a model lives under the strategy: what does not would train on one device, silently."""

from __future__ import annotations

import keras

from trainables.devices.replicas import Replicas


class NotInScope(Exception):
    """A model, optimizer or metric was made outside of the strategy's scope."""


def check(model: keras.Model, replicas: Replicas) -> None:
    """Raise NotInScope naming every variable and object that belongs to another strategy or to none."""
    strays = []
    if model.distribute_strategy is not replicas.strategy:
        strays.append(f"model {model.name!r}")
    for variable in model.weights:
        if not replicas.hold(variable):
            strays.append(f"weight {variable.path!r}")
    optimizer = getattr(model, "optimizer", None)  # there is none before `compile`
    if optimizer is not None:
        if optimizer._distribution_strategy is not replicas.strategy:
            strays.append(f"optimizer {optimizer.name!r}")
        strays += [f"optimizer {v.path!r}" for v in optimizer.variables if not replicas.hold(v)]
    strays += [f"metric {v.path!r}" for v in model.metrics_variables if not replicas.hold(v)]
    if strays:
        shown = ", ".join(strays[:5]) + (f" and {len(strays) - 5} more" if len(strays) > 5 else "")
        raise NotInScope(
            f"made outside of the strategy's scope: {shown}. Build them inside model(), optimizer(), loss() "
            "and metrics(), which run inside it, anew at each call; of a layer that data() has fitted, keep its "
            "numbers and vocabularies and make it of these in model(), or apply it to the examples in data() "
            "(docs/data.md)"
        )
