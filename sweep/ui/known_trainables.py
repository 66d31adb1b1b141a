"""What the page knows of trainables: what they read and report, by their source, which is not run.

Reading the source of a `KerasTrainable` takes seconds, and proposals are asked for at each key. So proposals take what
has been read, and it is read anew when a file of the author has changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sweep.errors import InputError
from sweep.inspection import Source, inspect
from sweep.inspection.source import OURS, get_top_package
from sweep.runner import sweep_files
from sweep.spec.sweep_file import TARGET
from sweep.ui.completion import NOTHING, Known
from sweep.ui.trainable_finder import TrainableFinder

KEPT = 20  # trainables
AGAIN_S = 5.0  # after which a trainable that was not found is looked for again


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a trainable, and the author's files as they were then."""

    known: Known
    stamps: Mapping[Path, int]  # times of the last changes, in nanoseconds
    at: float = field(default_factory=time.monotonic)

    @property
    def is_fresh(self) -> bool:
        if not self.stamps:
            return time.monotonic() - self.at < AGAIN_S
        return all(_find_stamp(path) == stamp for path, stamp in self.stamps.items())


def _find_stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class KnownTrainables:
    """The trainables that drafts have named, for one results folder. Several threads may use it."""

    def __init__(self) -> None:
        self._read: dict[str, _Read] = {}
        self._reading: set[str] = set()
        self._seeker = TrainableFinder()
        self.found: Mapping[str, str] | None = None
        """The trainables that a sweep file may name, each with where it was found; None before the first look."""

    def find(self, trainable: str) -> tuple[Known, bool]:
        """Return what is known of ``module:Name``, and whether its source has to be read for more."""
        found = self._read.get(trainable)
        if found is None:
            return NOTHING, re.fullmatch(TARGET, trainable) is not None
        return found.known, not found.is_fresh

    def look_around(self, folder: Path) -> None:
        """Look for trainables in a folder and among those of this package; it may take seconds."""
        self.found = self._seeker.list_trainables(folder)

    def read(self, trainable: str, file: str) -> None:
        """Read the source of a trainable that a file names, unless another thread does; it may take seconds."""
        if trainable in self._reading:
            return
        self._reading.add(trainable)
        try:
            self._read[trainable] = _read_source(trainable, file)
        finally:
            self._reading.discard(trainable)
        for oldest in [*self._read][:-KEPT]:
            del self._read[oldest]


def _read_source(trainable: str, file: str) -> _Read:
    try:
        source = inspect(trainable, sweep_files.import_folders(Path(file)))
    except InputError:  # the check of the draft says so
        return _Read(NOTHING, {})
    return _Read(Known(parameters=source.reads, metrics=source.reported_metrics()), _stamp_files(source))


def _stamp_files(source: Source) -> dict[Path, int]:
    theirs = [path for name, path in source.files.items() if get_top_package(name) not in OURS]
    return {path: _find_stamp(path) for path in theirs or [*source.files.values()][:1]}
