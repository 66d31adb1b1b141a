"""The log of a sweep that another process writes, read on and on and never twice."""

from __future__ import annotations

from sweep.errors import StoreError
from sweep.events import Event
from sweep.store import log
from sweep.store.folder import ResultsFolder


class Follower:
    """Gives the events of a log as they come."""

    def __init__(self, folder: ResultsFolder) -> None:
        self._path = folder.log
        self._offset = 0

    @property
    def share(self) -> float:
        """How much of the log has been read, of 1."""
        try:
            size = self._path.stat().st_size
        except OSError:
            return 1.0
        return min(self._offset / size, 1.0) if size else 1.0

    def more(self) -> list[Event] | None:
        """The next events, about a megabyte of them at most; none before the log is there.

        None instead where the log is another one than was read so far (repaired, cut, written anew): what was read is
        to be forgotten, and the next call begins at its beginning. Raises `StoreError` for a damaged one.
        """
        if not self._path.exists():
            return []
        try:
            events, self._offset = log.read_from(self._path, self._offset)
        except StoreError:
            if not self._offset:
                raise
            self._offset = 0
            return None
        return events
