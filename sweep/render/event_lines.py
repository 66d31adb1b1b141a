"""Writes the events of a session as lines of JSON, for a program that reads them while the sweep runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import Event, encode
from sweep.store.closing import Closing


class EventLines(Closing):
    """A view that writes each event as a line of JSON, as in the log, and messages to standard error.

    Events of earlier sessions are not written. If the reader has closed the pipe, the sweep continues.
    """

    def __init__(
        self, outline: Outline, file: IO[str] | None = None, messages: IO[str] | None = None
    ) -> None:
        self.standing = Standing(outline)
        self._file: IO[str] | None = file or sys.stdout
        self._messages = messages

    def replay(self, events: Iterable[Event]) -> None:
        """Update the state by the events of earlier sessions without writing them; then count no trial as running."""
        for event in events:
            self.standing.observe(event)
        self.standing.running.clear()

    def on(self, event: Event) -> None:
        """Update the state by an event, and write the event as a line of JSON.

        Nothing is written any more after a write has failed, as when the reader has closed the pipe.
        """
        self.standing.observe(event)
        self._file = _write_line(self._file, encode(event).decode("ascii"))

    def say(self, text: str) -> None:
        """Write a message as a line to the file for messages, if there is one.

        Nothing is written there any more after a write has failed.
        """
        self._messages = _write_line(self._messages, f"{text}\n")

    def step(self, text: str) -> None:
        """Write what the session is doing as a line to the file for messages, as `say` does."""
        self.say(text)

    def close(self) -> None:
        """Do nothing: each line was flushed."""


def _write_line(file: IO[str] | None, line: str) -> IO[str] | None:
    """Write ``line``, which includes its line feed, and flush the file; return None if that fails, else the file.

    If ``file`` is None, do nothing and return None.
    """
    if file is None:
        return None
    try:
        file.write(line)
        file.flush()
    except OSError:
        return None
    return file
