"""``sweep.load``: finds the folders of sweeps by name, path or pattern, and loads their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from sweep.api.loaded_sweep import LoadedSweep, join_frames
from sweep.errors import InputError
from sweep.store import reading
from sweep.store.features import find_local_folder, is_url, store_of
from sweep.store.folder import ResultsFolder, folders, is_any_file, name_uniquely
from sweep.store.tables import Tables

Name: TypeAlias = str | Path

_PATTERN = frozenset("*?[")


def load(name: Name | Sequence[Name], *, results: Name = "results") -> LoadedSweep:
    """Load the results of one sweep, or of several together; also while they run.

    ``name`` is a name in the folder ``results``, the path or URL of a sweep's folder, or a list of these; ``*``, ``?``
    and ``[...]`` in the last part are wildcards. A pattern without a folder is looked up in ``results`` and, if nothing
    matches there, in the current folder. A sweep that is named twice is loaded once. The object shows the sweep as it
    is now; load it again to get newer results. Nothing is written to the sweeps; of those in an object store, the local
    copies are updated. Raises `InputError` if a name or pattern matches no sweep or the list is empty, and `StoreError`
    if a sweep is damaged or its object store is unavailable.
    """
    names = [name] if isinstance(name, str | Path) else list(name)
    if not names:
        raise InputError.one("load", "no path is given", "name one sweep or more")
    found = (
        folder for one in names for folder in _find_results_folders(find_local_folder(results), one)
    )
    return load_folders([*name_uniquely(found).values()])


def load_folders(folders: Sequence[ResultsFolder]) -> LoadedSweep:
    """Load the results in ``folders``, at least one, as one object.

    The column ``sweep`` of the frames has the name of a row's sweep or, if several sweeps have that name, its path or
    URL. Raises `StoreError` if a sweep is damaged.
    """
    tables = [reading.read_tables(folder) for folder in folders]
    # what the result keeps besides the frames, for `LoadedSweep.sweeps` and `LoadedSweep.study`
    needed = [
        _drop_unneeded_metrics(folder, one) for folder, one in zip(folders, tables, strict=True)
    ]
    trials = [one.trials.to_pandas() for one in tables]
    metrics = [one.metrics.to_pandas() for one in tables]
    if len(folders) > 1:  # only then is the column needed
        # the names come twice: first for the frames of trials, then for those of metrics
        for frame, name in zip((*trials, *metrics), [*name_uniquely(folders)] * 2, strict=True):
            frame["sweep"] = pd.Series(name, frame.index, "str")
    return LoadedSweep(tuple(folders), join_frames(trials), join_frames(metrics), tuple(needed))


def _drop_unneeded_metrics(folder: ResultsFolder, tables: Tables) -> Tables:
    """Return the tables with only those columns of the metrics that a study needs, to save memory.

    They are trial, epoch and the first objective, if there is one. Raises `StoreError` if sweep.json cannot be read.
    """
    wanted = {
        "trial",
        "epoch",
        *(f"metric.{name}" for name, _ in folder.read_info().objectives[:1]),
    }
    return replace(
        tables,
        metrics=tables.metrics.select([n for n in tables.metrics.column_names if n in wanted]),
    )


def _find_results_folders(results: Path, name: Name) -> Iterator[ResultsFolder]:
    """Yield the sweeps' folders that match a name, path, URL or pattern, those of a pattern sorted by path.

    A pattern has wildcards (``*``, ``?`` or ``[``) in its last part; those in other parts, or in a URL, are taken
    literally, as is a text with wildcards that is itself the name of an existing folder. A pattern matches only folders
    with a sweep.json. If it has a single part, it is looked up in ``results`` and, only if nothing matches there, in
    the current folder; any other pattern is relative to the current folder. ``results`` is the results folder or the
    local copy of an object store, which is updated. Raises InputError if nothing matches, and StoreError if a store is
    unavailable.
    """
    if is_url(name):
        yield ResultsFolder.open(results, str(name))
        return
    pattern = Path(name)
    # a folder's own name may have brackets, so it is no pattern if there is such a folder
    if not _PATTERN & set(pattern.name) or (results / pattern).exists() or pattern.exists():
        yield ResultsFolder.open(results, name)
        return
    if store_of(results) is not None:
        folders(results)  # updates the local copies
    # a pattern without a folder has a single part
    places = [results, Path()] if len(pattern.parts) == 1 else [Path()]
    for place in places:
        matching = sorted((place / pattern.parent).glob(pattern.name))
        found = [ResultsFolder(path) for path in matching if is_any_file(path / "sweep.json")]
        if found:
            yield from found
            return
    ResultsFolder.open(results, name)  # raises InputError, which lists the sweeps that exist
