"""A trial's checkpoint, whether its weights lie in this process or on servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trainables.loop.trial import Trial
from trainables.replicas import sharded_embedding
from trainables.state import checkpoint, shards
from trainables.state.checkpoint import About, CheckpointError


def save(folder: Path, trial: Trial, memory: dict[str, Any], data: str | None) -> Callable[[], None]:
    """Copy all that `restore` needs; the function returned writes it. What lies on servers they write at once.

    ``data``: the fingerprint of the data that it is trained on.
    """
    about = {**trial.state(), "memory": memory, "data": data}
    if trial.program.served:
        about["tables"] = shards.save(folder, trial.program.tables)
    return checkpoint.save(folder, trial.program.state, about)


def restore(folder: Path, trial: Trial) -> About:
    """Go on from what `save` wrote, on any number of servers; raises CheckpointError.

    In one process a table that lay on servers is put together, to be evaluated and exported; training on from there
    begins with new moments.
    """
    if trial.program.served:
        about = checkpoint.restore(folder, trial.program.state)
        shards.restore(folder, trial.program.tables, about.get("tables", {}))
    else:
        about, values = checkpoint.read(folder)
        if "tables" in about:
            _put_together(folder, trial, about, values)
        else:
            checkpoint.assign(folder, trial.program.state, values)
    trial.restore(about)
    return about


def _put_together(folder: Path, trial: Trial, about: About, values: checkpoint.Values) -> None:
    state, model = trial.program.state, trial.program.model
    layers = {layer.path: layer for layer in sharded_embedding.layers_of(model)}
    found: dict[int, np.ndarray[Any, Any]] = {}
    for number, (path, written) in enumerate(about["tables"].items()):
        if path in layers:
            found[id(layers[path].embeddings.value)] = shards.whole(
                folder, number, path, written, layers[path].output_dim
            )
    for variable in model.variables:
        if variable.path in values:
            found[id(variable.value)] = values[variable.path][0]
        raw = found.get(id(variable.value))
        if raw is None or raw.shape != tuple(variable.shape):
            raise CheckpointError(f"{folder}: it holds no {variable.path} of shape {tuple(variable.shape)}")
    state.will_train()
    for variable in model.variables:
        state.put(variable.value, [found[id(variable.value)]])
