"""Sweeps as data frames, for notebooks; the one module that knows pandas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from sweep.analysis.ranking import Ranking, rank
from sweep.analysis.trials import Sweep, of_tables
from sweep.errors import InputError
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.tables import Tables

_Path: TypeAlias = str | Path


@dataclass(frozen=True)
class LoadedSweep:
    """One sweep, or several as one: frames with the columns of results/README.md."""

    folders: tuple[ResultsFolder, ...]
    trials: pd.DataFrame
    metrics: pd.DataFrame
    _tables: tuple[Tables, ...]

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Trial by trial, for a ranking."""
        return tuple(of_tables(folder, one) for folder, one in zip(self.folders, self._tables, strict=True))

    @property
    def info(self) -> dict[str, object]:
        """sweep.json: the resolved sweep file and where it ran; of several sweeps, by name."""
        if len(self.folders) == 1:
            return self.folders[0].read_info()
        return {folder.name: folder.read_info() for folder in self.folders}

    def ranking(self) -> Ranking:
        """All configurations, the best first, with the statistics of their repeats."""
        return rank(self.sweeps)

    def best(self, n: int = 1) -> pd.DataFrame:
        """The trials of the ``n`` best configurations, all repeats of each, with their ``rank`` in front."""
        positions = {id(trial): at for at, trial in enumerate(t for sweep in self.sweeps for t in sweep.trials)}
        best = [(row.rank, positions[id(trial)]) for row in self.ranking().rows[:n] for trial in row.trials]
        frame = self.trials.iloc[[position for _, position in best]].reset_index(drop=True)
        frame.insert(0, "rank", [number for number, _ in best])
        return frame


def load(path: _Path | Sequence[_Path]) -> LoadedSweep:
    """Read a sweep, or several as one, from their results folders; also while they run.

    Paths, or names in ``results/``. Writes nothing. Raises `InputError` for what is no sweep and
    `StoreError` for a damaged one.
    """
    paths = [path] if isinstance(path, str | Path) else list(path)
    if not paths:
        raise InputError.one("load", "no path is given", "name one sweep or more")
    folders = [ResultsFolder.open(Path("results"), one) for one in paths]
    loaded = [reading.read(folder) for folder in folders]
    return LoadedSweep(
        tuple(folders),
        _frame([one.trials.to_pandas() for one in loaded]),
        _frame([one.metrics.to_pandas() for one in loaded]),
        tuple(replace(one, metrics=one.metrics.select([])) for one in loaded),
    )


def _frame(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
