"""What other processes ask of the one that runs a sweep: files in ``requests/``, which it takes away as it obeys."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sweep.store.disk import storing
from sweep.store.folder import ResultsFolder

_NAME = re.compile(r"stop(?:-trial-(\d+))?(-now)?")


@dataclass(frozen=True, slots=True)
class StopRequest:
    """End the sweep, or one trial of it: after the present epoch, or at once."""

    trial: int | None = None  # None: all of the sweep
    now: bool = False

    @property
    def file_name(self) -> str:
        which = "" if self.trial is None else f"-trial-{self.trial}"
        return f"stop{which}{'-now' if self.now else ''}"


def ask(folder: ResultsFolder, request: StopRequest) -> None:
    """Leave a request for the process that runs the sweep. Raises `StoreError`."""
    with storing(folder.requests):
        folder.requests.mkdir(exist_ok=True)
        (folder.requests / request.file_name).touch()


def withdraw(folder: ResultsFolder, request: StopRequest) -> None:
    """Ask no more."""
    with suppress(OSError):
        (folder.requests / request.file_name).unlink()


def take(folder: ResultsFolder) -> list[StopRequest]:
    """The requests that are there, no more of them afterwards."""
    return [request for path in _files(folder) if (request := _taken(path))]


def clear(folder: ResultsFolder) -> None:
    """Forget what was asked of a process that has ended."""
    take(folder)


def _files(folder: ResultsFolder) -> list[Path]:
    try:
        return sorted(folder.requests.iterdir())
    except OSError:  # nobody has asked for anything yet
        return []


def _taken(path: Path) -> StopRequest | None:
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    with suppress(OSError):
        path.unlink()
        return StopRequest(int(match[1]) if match[1] else None, match[2] is not None)
    return None
