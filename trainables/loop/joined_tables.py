"""Restoring of checkpoints that were written on parameter servers in a trial without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trainables.loop.trial import ReadyTrial
from trainables.replicas.sharded_embedding import list_sharded_embeddings
from trainables.state import checkpoint
from trainables.state.checkpoint import About, CheckpointError


def assign_joined_tables(
    folder: Path, trial: ReadyTrial, about: About, values: checkpoint.Values
) -> None:
    """Assign a checkpoint written on parameter servers to the model's variables, with each table's shards joined.

    ``about`` and ``values`` are what `checkpoint.read` returned for ``folder``, in which the tables' files are read.
    All replicas get the same values. Optimizer variables, and those of other networks, are not assigned. Raises
    CheckpointError if a variable is missing or has another shape, or if a table's file cannot be read; then nothing is
    assigned.
    """
    state = trial.program.state
    model = trial.program.model
    layers = {}
    for layer in list_sharded_embeddings(model):
        layers[layer.path] = layer
    arrays: dict[int, np.ndarray[Any, Any]] = {}  # by the id of the variable
    # The keys are the layers of tables and, below these, the slots of the optimizer, which are left out. The files are
    # numbered in this order.
    for number, (path, written) in enumerate(about["tables"].items()):
        if path in layers:
            arrays[id(layers[path].embeddings.value)] = checkpoint.read_whole_table(
                folder, number, path, written, layers[path].output_dim
            )
    for variable in model.variables:
        if variable.path in values:  # a table is not: it was on the servers
            arrays[id(variable.value)] = values[variable.path][0]
        array = arrays.get(id(variable.value))
        if array is None or array.shape != tuple(variable.shape):
            raise CheckpointError(
                f"{folder}: it holds no {variable.path} of shape {tuple(variable.shape)}"
            )
    state.will_train()
    for variable in model.variables:
        replicas = len(state.read(variable.value) or ())
        state.set_values(variable.value, [arrays[id(variable.value)]] * replicas)
