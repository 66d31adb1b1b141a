"""What the page knows of trainables: the hyperparameters and metrics in their source, which is not executed.

Reading the source of a `KerasTrainable` takes seconds, and completions are asked for at each key. So they use what has
been read before; a source is read again when one of the author's files has changed.
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

KEPT = 20  # maximum number of trainables whose facts are kept
AGAIN_S = 5.0  # time after which a trainable that was not found is looked for again


@dataclass(frozen=True, slots=True)
class _Read:
    """The facts read from a trainable's source, and the state of the author's files at that time."""

    known: Known
    stamps: Mapping[Path, int]  # times of the last changes, in nanoseconds
    at: float = field(default_factory=time.monotonic)

    @property
    def is_fresh(self) -> bool:
        """Whether the author's files have not changed since the source was read; a missing file has changed.

        If no files are known, as the trainable was not found, whether it was looked for less than 5 seconds ago.
        """
        if not self.stamps:
            return time.monotonic() - self.at < AGAIN_S
        return all(_get_change_time(path) == stamp for path, stamp in self.stamps.items())


def _get_change_time(path: Path) -> int:
    """Return the time of a file's last change in nanoseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class KnownTrainables:
    """The facts about the trainables that drafts have named, for one results folder. Thread-safe."""

    def __init__(self) -> None:
        self._read: dict[str, _Read] = {}  # by trainable
        self._reading: set[str] = set()  # trainables that a thread is reading now
        self._finder = TrainableFinder()
        self.found: Mapping[str, str] | None = None
        """The trainables that a sweep file may name, each with where it was found; None before the first look."""

    def find(self, trainable: str) -> tuple[Known, bool]:
        """Return the known facts about ``module:Name``, and whether its source should be read (again).

        It should if it has not been read or one of the author's files has changed since, of which only the times are
        looked at; the facts are the old ones then. Unknown facts are `NOTHING`. A text that can be no trainable should
        not be read.
        """
        found = self._read.get(trainable)
        if found is None:
            may_be_trainable = re.fullmatch(TARGET, trainable) is not None
            return NOTHING, may_be_trainable
        return found.known, not found.is_fresh

    def search_folder(self, folder: Path) -> None:
        """Search a folder and sweep's own package for trainables and store them in `found`; may take seconds."""
        self.found = self._finder.list_trainables(folder)

    def read(self, trainable: str, file: str) -> None:
        """Read the source of ``trainable``, which the sweep file ``file`` names, and keep its facts; may take seconds.

        Returns at once if another thread is reading it. If it cannot be found, it is kept without facts. The facts of
        at most 20 trainables are kept; those that were first read the longest ago are dropped.
        """
        if trainable in self._reading:  # each key that is pressed may ask for it again
            return
        self._reading.add(trainable)
        try:
            self._read[trainable] = _read_source(trainable, file)
        finally:
            self._reading.discard(trainable)
        for oldest in [*self._read][:-KEPT]:
            self._read.pop(oldest, None)  # another thread may have removed it


def _read_source(trainable: str, file: str) -> _Read:
    """Return the facts in a trainable's source; no facts if it cannot be found or understood.

    It is searched in the current folder, in that of the sweep file ``file``, and among the installed modules. The
    source is not executed.
    """
    try:
        source = inspect(trainable, sweep_files.import_folders(Path(file)))
    except InputError:  # the check of the draft reports it
        return _Read(NOTHING, {})
    return _Read(
        Known(parameters=source.reads, metrics=source.reported_metrics()), _get_change_times(source)
    )


def _get_change_times(source: Source) -> dict[Path, int]:
    """Return the time of the last change, in nanoseconds, of each of the author's files by path.

    Files of sweep are left out. If all files are sweep's, the first of them is returned alone.
    """
    # Without any file, the facts would be read again every 5 seconds (`_Read.is_fresh`), so one of sweep's is taken.
    theirs = [path for name, path in source.files.items() if get_top_package(name) not in OURS]
    return {path: _get_change_time(path) for path in theirs or [*source.files.values()][:1]}
