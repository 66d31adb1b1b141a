"""Exact checkpoints: every variable of every replica, bit for bit.

Keras's own formats leave out seed generators and cannot hold values that differ between replicas, so a
trial resumed from them is another trial.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trainables.state.owned import State

About: TypeAlias = "dict[str, Any]"
"""What a checkpoint says beside its variables, as JSON."""
Values: TypeAlias = "dict[str, list[np.ndarray[Any, Any]]]"
"""Variables by path, one for each replica."""

_ARRAYS, _ABOUT = "state.npz", "state.json"


class CheckpointError(Exception):
    """A checkpoint is damaged or belongs to another model."""


def save(folder: Path, state: State, about: About) -> Callable[[], None]:
    """Copy the variables; the function returned writes them and a small JSON into ``folder``, in any thread."""
    values = state.arrays()
    arrays = {f"{i:05d}.{r}": part for i, parts in enumerate(values.values()) for r, part in enumerate(parts)}
    text = json.dumps({**about, "variables": {path: len(parts) for path, parts in values.items()}})

    def write() -> None:
        with (folder / _ARRAYS).open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub takes the names for options
            file.flush()
            os.fsync(file.fileno())
        (folder / _ABOUT).write_text(text)

    return write


def before(folder: Path) -> tuple[int, str | None]:
    """What must be known of a checkpoint before it is restored: its phase, from 0, and the fingerprint of its data.

    The first phase and None where that cannot be read.
    """
    try:
        about = json.loads((folder / _ABOUT).read_text())
        return int(about.get("phase", 0)), about.get("data")
    except (OSError, ValueError, AttributeError, TypeError):
        return 0, None  # `restore` says what is wrong


def restore(folder: Path, state: State) -> About:
    """Assign what `save` wrote, by path, and return its JSON.

    Raises CheckpointError for a damaged file or another model's.
    """
    about, values = read(folder)
    assign(folder, state, values)
    return about


def read(folder: Path) -> tuple[About, Values]:
    """What `save` wrote; raises CheckpointError for a damaged file."""
    try:
        about: About = json.loads((folder / _ABOUT).read_text())
        with np.load(folder / _ARRAYS, allow_pickle=False) as file:
            values = {
                path: [file[f"{i:05d}.{replica}"] for replica in range(count)]
                for i, (path, count) in enumerate(about["variables"].items())
            }
    except (OSError, ValueError, KeyError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(f"{folder}: unreadable ({error})") from error
    return about, values


def assign(folder: Path, state: State, values: Values) -> None:
    """Assign what `read` gave; raises CheckpointError for another model's.

    With another number of replicas all take the first one's values, which is exact only within rounding.
    """
    try:
        state.assign(values)
    except ValueError as error:
        raise CheckpointError(f"{folder}: {error}") from error
