"""What a session is asked to do, who watches it, how it ended, and the file for what Ray and TensorFlow print."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol, TextIO

from sweep.events import Event
from sweep.store.folder import ResultsFolder

if TYPE_CHECKING:
    from sweep.analysis.live_status import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, whatever the sweep."""

    address: str | None = None
    max_concurrent: int | None = None
    simulated_gpus: int | None = None
    reuse: bool = True
    inline: bool = False
    memo: bool = True
    retry_failed: bool = False  # in a sweep that is resumed
    confirming: bool = False  # the search has ended: fresh seeds alone
    profile: bool = False
    quiet: bool = False  # show no progress
    verbose: bool = False  # say where the output of Ray and TensorFlow goes
    followers: Sequence[Callable[[ResultsFolder], AbstractContextManager[object]]] = ()  # what else follows the log
    embedded: bool = False  # in a process that is not the sweep's own: it lives on whatever happens

    def opening(self, folder: ResultsFolder) -> list[str]:
        """Return what a session says of itself at its beginning."""
        lines = [f"output of Ray and TensorFlow: {folder.debug_log}"] if self.verbose else []
        gpus = self.simulated_gpus
        return [*lines, f"rehearsal: {gpus} logical CPU devices stand in for GPUs"] if gpus else lines


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended."""

    folder: ResultsFolder
    completed: int
    stopped: str | None  # why it ended before its trials did
    interrupted: bool
    fault: str | None = None  # what has to be mended before it can go on


class View(Protocol):
    """Who watches a session."""

    @property
    def standing(self) -> Standing:
        """Where the sweep stands, for the thread that shows the events; asked for with Ray alone."""

    def replay(self, events: Iterable[Event]) -> None:
        """See what happened before this session."""

    def on(self, event: Event) -> None:
        """See an event."""

    def say(self, text: str) -> None:
        """See a line about the session itself."""

    def close(self) -> None:
        """See no more."""


@contextmanager
def redirected(path: Path) -> Iterator[TextIO]:
    """Append file descriptor 2 to ``path`` inside the block, child processes included, and Python's standard error.

    Gives the terminal's real standard error, for what the user is to see.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    encoding = getattr(sys.stderr, "encoding", None)  # what it lacks is written as an escape, as Python does there
    terminal = os.fdopen(os.dup(kept), "w", buffering=1, encoding=encoding, errors="backslashreplace")
    with path.open("a", encoding="utf-8") as log, redirect_stderr(_to_file_descriptor_2()):
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        finally:
            with suppress(OSError):  # the disk is full: the words are lost, the sweep is not
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            terminal.close()


@contextmanager
def quiet() -> Iterator[None]:
    """Let nobody hear what Ray and TensorFlow print inside the block."""
    with TemporaryDirectory() as folder, redirected(Path(folder) / "debug.log"):
        yield


def _to_file_descriptor_2() -> TextIO:
    """Python's standard error, or, where that goes elsewhere, as a notebook's does, one that does not."""
    try:
        if sys.stderr.fileno() == 2:
            return sys.stderr
    except (OSError, ValueError, AttributeError):  # it has none
        pass
    return io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="replace", write_through=True)
