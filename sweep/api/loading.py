"""``sweep.load``: sweeps by name, by path or by pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from sweep.analysis import frames
from sweep.api.loaded import LoadedSweep
from sweep.errors import InputError
from sweep.store import reading
from sweep.store.folder import ResultsFolder
from sweep.store.tables import Tables

Name: TypeAlias = str | Path

_PATTERN = frozenset("*?[")


def load(name: Name | Sequence[Name], *, results: Name = "results") -> LoadedSweep:
    """Read a sweep, or several as one, as they stand now; also while they run, and then again for what came since.

    Names of the results folder or paths of sweeps' folders; ``*``, ``?`` and ``[...]`` stand for others. Writes
    nothing. Raises `InputError` for what is no sweep and `StoreError` for a damaged one.
    """
    names = [name] if isinstance(name, str | Path) else list(name)
    if not names:
        raise InputError.one("load", "no path is given", "name one sweep or more")
    folders = {folder.path.resolve(): folder for one in names for folder in _folders(Path(results), one)}
    return loaded([*folders.values()])


def loaded(folders: Sequence[ResultsFolder]) -> LoadedSweep:
    """What is in these folders."""
    tables = [reading.read(folder) for folder in folders]
    needed = [_needed(folder, one) for folder, one in zip(folders, tables, strict=True)]
    return LoadedSweep(tuple(folders), frames.trials(tables), frames.metrics(tables), tuple(needed))


def _needed(folder: ResultsFolder, tables: Tables) -> Tables:
    """What a study is made of beside the trials; all else is in the frames."""
    wanted = {"trial", "epoch", *(f"metric.{name}" for name, _ in folder.objectives()[:1])}
    return replace(tables, metrics=tables.metrics.select([n for n in tables.metrics.column_names if n in wanted]))


def _folders(results: Path, name: Name) -> Iterator[ResultsFolder]:
    pattern = Path(name)
    if not _PATTERN & set(pattern.name) or (results / pattern).exists() or pattern.exists():
        yield ResultsFolder.open(results, name)
        return
    places = [results, Path()] if len(pattern.parts) == 1 else [Path()]
    for place in places:
        matching = sorted((place / pattern.parent).glob(pattern.name))
        found = [ResultsFolder(path) for path in matching if (path / "sweep.json").is_file()]
        if found:
            yield from found
            return
    ResultsFolder.open(results, name)  # raises, and names those that there are
