"""Exact checkpoints: every variable of every replica, bit for bit.

Keras's own formats omit seed generators and cannot hold values that differ between replicas, so a trial that resumes
from them would continue differently. Each server writes and reads its own rows of tables on servers; their number may
change in between.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from sweep.errors import first_line
from trainables.state.program_variables import State

About: TypeAlias = "dict[str, Any]"
"""The JSON of a checkpoint, besides its variables."""
Values: TypeAlias = "dict[str, list[np.ndarray[Any, Any]]]"
"""Variables by path, one value per replica."""

_ARRAYS, _ABOUT = "state.npz", "state.json"
_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)


class CheckpointError(Exception):
    """Raised if a checkpoint is damaged or belongs to another model."""


def save(folder: Path, state: State, about: About) -> Callable[[], None]:
    """Copy the values of a program's variables, and return a function that writes them to ``folder``, in any thread.

    It writes one file of arrays, and a JSON file with ``about`` and the variables' paths, over files of the same names.
    The folder must exist by then. Raises TypeError at once if ``about`` cannot be represented in JSON.
    """
    values = state.copy_all()
    arrays = {}
    for i, parts in enumerate(values.values()):
        for replica, part in enumerate(parts):
            arrays[f"{i:05d}.{replica}"] = part
    text = json.dumps({**about, "variables": {path: len(parts) for path, parts in values.items()}})

    def write() -> None:
        with (folder / _ARRAYS).open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub takes the names for options
            file.flush()
            os.fsync(file.fileno())
        (folder / _ABOUT).write_text(text)

    return write


def read_phase_and_data(folder: Path) -> tuple[int, str | None]:
    """Return a checkpoint's phase (from 0) and the fingerprint of its data, which are needed before it is restored.

    Returns (0, None) if the file cannot be read. The fingerprint may be None.
    """
    try:
        about = json.loads((folder / _ABOUT).read_text())
        return int(about.get("phase", 0)), about.get("data")
    except (OSError, ValueError, AttributeError, TypeError):
        return 0, None  # `restore` reports the error


def restore(folder: Path, state: State) -> About:
    """Read a checkpoint and assign its values to the variables with the same paths; return its JSON.

    If it was saved with another number of replicas, see `assign`.
    Raises: CheckpointError: if one of its files is missing or damaged, or it belongs to another model.
    """
    about, values = read(folder)
    assign(folder, state, values)
    return about


def read(folder: Path) -> tuple[About, Values]:
    """Read a checkpoint; return (its JSON, values of its variables by path).

    The JSON is ``about`` of `save`, with the number of each variable's values by path as ``variables``.
    Raises: CheckpointError: if one of its files is missing or damaged.
    """
    try:
        about: About = json.loads((folder / _ABOUT).read_text())
        with np.load(folder / _ARRAYS, allow_pickle=False) as file:
            values: Values = {}
            for i, (path, count) in enumerate(about["variables"].items()):
                values[path] = [file[f"{i:05d}.{replica}"] for replica in range(count)]
    except _DAMAGE as error:
        raise CheckpointError(f"{folder}: unreadable ({error})") from error
    return about, values


def assign(folder: Path, state: State, values: Values) -> None:
    """Assign the values of a checkpoint to the variables with the same paths.

    If the checkpoint was saved with another number of replicas, all replicas get the first replica's values, which is
    exact only within rounding.
    Raises: CheckpointError: if the variables are those of another model.
    """
    try:
        state.assign(values)
    except ValueError as error:
        raise CheckpointError(f"{folder}: {error}") from error


FOLDER = "tables"
_UNREADABLE = (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.DataLossError)


@dataclass(frozen=True)
class Shard:
    """One server's variable with the rows from ``start`` to ``stop`` of a table of ``rows`` rows."""

    variable: Any
    device: str
    start: int
    stop: int
    rows: int

    def name_of(self, start: int, stop: int) -> str:
        """Return the name in TensorFlow's checkpoint files of the table's rows from ``start`` to ``stop``."""
        return _name_rows(self.rows, int(self.variable.shape[1]), start, stop)


def save_tables(folder: Path, tables: Mapping[str, Sequence[Shard]]) -> dict[str, Any]:
    """Make each server write its rows of the tables to a new folder below ``folder``.

    All servers must be able to reach the folder. Returns, by the path of each table, a list of [first row, row after
    the last one] for each file, for `restore_tables`. Raises FileExistsError if the folder has tables.
    """
    (folder / FOLDER).mkdir()
    about: dict[str, Any] = {}
    for number, (path, parts) in enumerate(tables.items()):
        for part in parts:
            with tf.device(part.device):
                tf.raw_ops.SaveV2(
                    prefix=_prefix(folder, number, part.start),
                    tensor_names=[path],
                    shape_and_slices=[part.name_of(part.start, part.stop)],
                    tensors=[part.variable.read_value()],
                )
        about[path] = [[part.start, part.stop] for part in parts]
    return about


def restore_tables(
    folder: Path, tables: Mapping[str, Sequence[Shard]], about: Mapping[str, Any]
) -> None:
    """Make each server read its present rows of the tables from files that `save_tables` wrote.

    ``about`` is the result of `save_tables`. ``tables`` has the present shards by the tables' paths; servers may be
    more or fewer than before.
    Raises: CheckpointError: if tables are damaged, or belong to another model; some rows may be assigned by then.
    """
    if set(about) != set(tables):
        named = ", ".join(sorted(set(about) ^ set(tables)))
        raise CheckpointError(f"{folder}: another model's tables: {named}")
    # files are numbered in the order of saving
    for number, (path, written) in enumerate(about.items()):
        for part in tables[path]:
            # which rows are in which file, that is named after its first row
            for start, stop, first in _overlaps(part, written):
                with _reading_table(folder, path), tf.device(part.device):
                    rows = _restore_rows(
                        _prefix(folder, number, first), path, part.name_of(start, stop)
                    )
                    part.variable[start - part.start : stop - part.start].assign(rows)


def read_whole_table(
    folder: Path, number: int, path: str, written: Sequence[Sequence[int]], width: int
) -> np.ndarray[Any, Any]:
    """Return all rows of a saved table as one array, read in this process.

    The table is number ``number`` (from 0) of its checkpoint and has ``width`` columns; ``written`` is its entry in the
    result of `save_tables`.
    Raises: CheckpointError: if the table cannot be read.
    """
    rows = max(stop for _, stop in written)
    parts = []
    for start, stop in written:
        with _reading_table(folder, path), tf.device("/cpu:0"):
            parts.append(
                _restore_rows(
                    _prefix(folder, number, start), path, _name_rows(rows, width, start, stop)
                ).numpy()
            )
    return np.concatenate(parts)


@contextmanager
def _reading_table(folder: Path, path: str) -> Iterator[None]:
    """Turn TensorFlow's errors about missing or damaged files inside the block into CheckpointError."""
    try:
        yield
    except _UNREADABLE as error:
        raise CheckpointError(f"{folder}: {path}: {first_line(error)}") from error


def _restore_rows(prefix: str, path: str, rows: str) -> tf.Tensor:
    read = tf.raw_ops.RestoreV2(
        prefix=prefix, tensor_names=[path], shape_and_slices=[rows], dtypes=[tf.float32]
    )
    return read[0]


def _name_rows(rows: int, width: int, start: int, stop: int) -> str:
    """Return the name under which TensorFlow's checkpoint files hold the rows ``start`` to ``stop`` of a table.

    The table has ``rows`` rows of ``width`` numbers.
    """
    return f"{rows} {width} {start},{stop - start}:0,{width}"


def _overlaps(part: Shard, written: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, stop, first row of the file) for the rows of a shard that each written file holds.

    ``start`` and ``stop`` (exclusive) count the rows of the whole table. ``written`` has [first row, row after the last
    one] for each file; those without rows of the shard are left out.
    Raises: CheckpointError: at the end, if rows are missing.
    """
    count = 0
    for first, last in written:
        start = max(first, part.start)
        stop = min(last, part.stop)
        if start < stop:
            count += stop - start
            yield start, stop, first
    if count != part.stop - part.start:
        raise CheckpointError(f"rows {part.start} to {part.stop} of a table were not all saved")


def _prefix(folder: Path, table: int, start: int) -> str:
    return str((folder / FOLDER / f"{table:03d}-{start}").resolve())
