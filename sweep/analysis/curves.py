"""The metrics of all trials by epoch, as arrays: what curves are drawn of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

POINTS = 600_000
"""Points kept at most of all curves together: objectives first, then what room is left for other metrics."""

LEAST = 8  # epochs of a trial, whatever the room


@dataclass(frozen=True, slots=True)
class Curves:
    """Trial after trial: rows ``starts[i]`` to ``starts[i + 1]`` are the epochs of the i-th."""

    starts: npt.NDArray[np.int64]  # (trials + 1,)
    epochs: npt.NDArray[np.int32]  # (rows,)
    values: Mapping[str, npt.NDArray[np.float32]]  # by metric, each (rows,); NaN where there is none
    thinned: int | None  # epochs that are kept of a trial at most, where that is not all
    left_out: tuple[str, ...]  # metrics for which there was no room


def of_table(metrics: pa.Table, trials: Sequence[int], objectives: Sequence[str], points: int = POINTS) -> Curves:
    """The curves of ``trials``, in this order; of each objective all, or at most ``points`` of all together.

    The first, the last and the best epoch of the first objective are kept whatever the others.
    """
    from sweep.store import reading

    row, epoch = _ordered(metrics, trials)
    order = np.lexsort((epoch, row))
    order = order[row[order] >= 0]
    row, epoch = row[order], epoch[order]
    named = [name for name in metrics.column_names if name.startswith("metric.")]
    first = [f"metric.{name}" for name in objectives if f"metric.{name}" in named]
    names = first + [name for name in named if name not in first]
    kept = len(first) or 1
    room = points // max(len(row), 1)
    names, left_out = names[: max(kept, room)], names[max(kept, room) :]
    columns = {name: reading.numbers(metrics, name, missing=np.nan)[order] for name in names}
    thinned = None
    if len(row) * len(names) > points:
        thinned = max(points // (len(names) * max(len(trials), 1)), LEAST)
        chosen = _thinned(row, columns[names[0]], len(trials), thinned)
        row, epoch = row[chosen], epoch[chosen]
        columns = {name: column[chosen] for name, column in columns.items()}
    return Curves(
        np.searchsorted(row, np.arange(len(trials) + 1)),
        epoch.astype(np.int32),
        {name.removeprefix("metric."): column.astype(np.float32) for name, column in columns.items()},
        thinned,
        tuple(name.removeprefix("metric.") for name in left_out),
    )


def _ordered(metrics: pa.Table, trials: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For each row of the table which of ``trials`` it is of (-1: none), and its epoch."""
    from sweep.store import reading

    known = np.asarray(trials, dtype=np.int64)
    by_number = np.argsort(known)
    number = reading.numbers(metrics, "trial").astype(np.int64)
    if not len(known):
        return np.full(len(number), -1), np.zeros(len(number))
    place = np.minimum(np.searchsorted(known[by_number], number), len(known) - 1)
    row = by_number[place]
    return np.where(known[row] == number, row, -1), reading.numbers(metrics, "epoch")


def _thinned(
    row: npt.NDArray[np.int64], values: npt.NDArray[np.float64], trials: int, most: int
) -> npt.NDArray[np.bool_]:
    """Which rows to keep so that about ``most`` stay of each trial: evenly spaced, and its extremes."""
    starts = np.searchsorted(row, np.arange(trials + 1))
    length = np.diff(starts)[row]
    place = np.arange(len(row)) - starts[row]
    step = np.maximum(length / most, 1.0)
    chosen: npt.NDArray[np.bool_] = np.floor(place / step) != np.floor((place - 1) / step)
    chosen[place == length - 1] = True
    order = np.lexsort((np.nan_to_num(values, nan=0.0), row))
    ends = starts[1:][np.diff(starts) > 0] - 1
    chosen[order[ends]] = True
    chosen[order[starts[:-1][np.diff(starts) > 0]]] = True
    return chosen
