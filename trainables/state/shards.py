"""Checkpoints of what lies on servers: each writes and reads its own rows, however many servers there are then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainables.state.checkpoint import CheckpointError

FOLDER = "tables"
_UNREADABLE = (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.DataLossError)


@dataclass(frozen=True)
class Shard:
    """Rows ``start`` to ``stop`` of a table of so many ``rows``, as a variable on one server."""

    variable: Any
    device: str
    start: int
    stop: int
    rows: int

    def name_of(self, start: int, stop: int) -> str:
        """Some of its rows, as TensorFlow's files name them."""
        width = int(self.variable.shape[1])
        return f"{self.rows} {width} {start},{stop - start}:0,{width}"


def save(folder: Path, tables: Mapping[str, Sequence[Shard]]) -> dict[str, Any]:
    """Let each server write its parts below ``folder``, which it sees as well; what `restore` must be told of them."""
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


def restore(folder: Path, tables: Mapping[str, Sequence[Shard]], about: Mapping[str, Any]) -> None:
    """Let each server read the rows that it has now; raises CheckpointError for another model's or damaged ones."""
    if set(about) != set(tables):
        named = ", ".join(sorted(set(about) ^ set(tables)))
        raise CheckpointError(f"{folder}: another model's tables: {named}")
    for number, (path, written) in enumerate(about.items()):
        for part in tables[path]:
            for start, stop, first in _overlaps(part, written):
                try:
                    with tf.device(part.device):
                        (rows,) = tf.raw_ops.RestoreV2(
                            prefix=_prefix(folder, number, first),
                            tensor_names=[path],
                            shape_and_slices=[part.name_of(start, stop)],
                            dtypes=[part.variable.dtype],
                        )
                        part.variable[start - part.start : stop - part.start].assign(rows)
                except _UNREADABLE as error:
                    raise CheckpointError(f"{folder}: {path}: {str(error).splitlines()[0]}") from error


def whole(folder: Path, number: int, path: str, written: Sequence[Sequence[int]], width: int) -> np.ndarray[Any, Any]:
    """All rows of a saved table, the ``number``-th of its checkpoint, in this process; raises CheckpointError."""
    rows, parts = max(stop for _, stop in written), []
    for start, stop in written:
        try:
            with tf.device("/cpu:0"):
                read = tf.raw_ops.RestoreV2(
                    prefix=_prefix(folder, number, start),
                    tensor_names=[path],
                    shape_and_slices=[f"{rows} {width} {start},{stop - start}:0,{width}"],
                    dtypes=[tf.float32],
                )
        except _UNREADABLE as error:
            raise CheckpointError(f"{folder}: {path}: {str(error).splitlines()[0]}") from error
        parts.append(read[0].numpy())
    return np.concatenate(parts)


def _overlaps(part: Shard, written: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, int]]:
    """The rows of a part in each of the files, and where that file begins; raises CheckpointError for missing ones."""
    found = 0
    for first, last in written:
        start, stop = max(first, part.start), min(last, part.stop)
        if start < stop:
            found += stop - start
            yield start, stop, first
    if found != part.stop - part.start:
        raise CheckpointError(f"rows {part.start} to {part.stop} of a table were not all saved")


def _prefix(folder: Path, table: int, start: int) -> str:
    return str((folder / FOLDER / f"{table:03d}-{start}").resolve())
