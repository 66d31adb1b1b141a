"""Exact checkpoints: every variable of every replica, bit for bit.

Keras's own formats leave out seed generators and cannot hold values that differ between replicas, so a
trial resumed from them is another trial.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

About: TypeAlias = "dict[str, Any]"
"""What a checkpoint says beside its variables, as JSON."""

_ARRAYS, _ABOUT = "state.npz", "state.json"


class CheckpointError(Exception):
    """A checkpoint is damaged or belongs to another model."""


def save(
    folder: Path,
    variables: Sequence[keras.Variable | tf.Variable],
    strategy: tf.distribute.Strategy,
    about: About,
) -> Callable[[], None]:
    """Copy the variables; the function returned writes them and a small JSON into ``folder``, in any thread."""
    arrays = {
        f"{i:05d}.{replica}": local.numpy()
        for i, variable in enumerate(variables)
        for replica, local in enumerate(_locals(variable, strategy))
    }
    text = json.dumps({**about, "variables": len(variables), "replicas": strategy.num_replicas_in_sync})

    def write() -> None:
        with (folder / _ARRAYS).open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        (folder / _ABOUT).write_text(text)

    return write


def restore(folder: Path, variables: Sequence[keras.Variable | tf.Variable], strategy: tf.distribute.Strategy) -> About:
    """Assign what `save` wrote and return its JSON.

    With another number of replicas all take the first one's values, which is exact only within rounding.
    Raises CheckpointError for a damaged file or another model's.
    """
    try:
        about: About = json.loads((folder / _ABOUT).read_text())
        with np.load(folder / _ARRAYS, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(f"{folder}: unreadable ({error})") from error
    if about["variables"] != len(variables):
        raise CheckpointError(f"{folder}: {about['variables']} variables, the model has {len(variables)}")
    same = about["replicas"] == strategy.num_replicas_in_sync
    for i, variable in enumerate(variables):
        for replica, local in enumerate(_locals(variable, strategy)):
            value = arrays[f"{i:05d}.{replica if same else 0}"]
            if tuple(local.shape) != value.shape:
                raise CheckpointError(f"{folder}: variable {i} has shape {value.shape}, expected {local.shape}")
            local.assign(value)
    return about


def _locals(variable: Any, strategy: tf.distribute.Strategy) -> tuple[Any, ...]:
    raw = variable.value if isinstance(variable, keras.Variable) else variable
    return tuple(strategy.experimental_local_results(raw))
