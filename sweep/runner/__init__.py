"""Options, view and outcome of a session, and the file that receives the output of Ray and TensorFlow."""

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
    """Options for running a sweep that are not part of its file."""

    address: str | None = None
    max_concurrent: int | None = None
    simulated_gpus: int | None = None
    reuse: bool = True
    inline: bool = False
    memo: bool = True
    retry_failed: bool = False  # when a sweep is resumed
    confirming: bool = False  # the search has ended; only the confirmation is run
    profile: bool = False
    quiet: bool = False  # show no progress
    verbose: bool = False  # print where the output of Ray and TensorFlow goes
    followers: Sequence[Callable[[ResultsFolder], AbstractContextManager[object]]] = ()  # further readers of the log
    embedded: bool = False  # the process belongs to the user and must survive the sweep

    def opening(self, folder: ResultsFolder) -> list[str]:
        """Return the lines that a session prints at its start."""
        lines = [f"output of Ray and TensorFlow: {folder.debug_log}"] if self.verbose else []
        gpus = self.simulated_gpus
        return [*lines, f"rehearsal: {gpus} logical CPU devices stand in for GPUs"] if gpus else lines


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a session."""

    folder: ResultsFolder
    completed: int
    stopped: str | None  # why it ended before all its trials
    interrupted: bool
    fault: str | None = None  # the problem to solve before it can continue


class View(Protocol):
    """Observer of a session, such as the live view."""

    @property
    def standing(self) -> Standing:
        """State of the sweep, for the thread that displays it; only used with Ray."""

    def replay(self, events: Iterable[Event]) -> None:
        """Receive the events of earlier sessions."""

    def on(self, event: Event) -> None:
        """Receive an event."""

    def say(self, text: str) -> None:
        """Receive a line about the session itself."""

    def close(self) -> None:
        """Stop observing."""


@contextmanager
def redirected(path: Path) -> Iterator[TextIO]:
    """Append standard error to ``path`` inside the block: file descriptor 2, also of child processes, and Python's own.

    Yields the original standard error of the terminal, for output meant for the user.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    encoding = getattr(sys.stderr, "encoding", None)  # what it cannot encode is escaped, as Python does
    terminal = os.fdopen(os.dup(kept), "w", buffering=1, encoding=encoding, errors="backslashreplace")
    with path.open("a", encoding="utf-8") as log, redirect_stderr(_to_file_descriptor_2()):
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        finally:
            with suppress(OSError):  # the disk is full: this output is lost, the sweep is not
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            terminal.close()


@contextmanager
def quiet() -> Iterator[None]:
    """Discard what Ray and TensorFlow print inside the block."""
    with TemporaryDirectory() as folder, redirected(Path(folder) / "debug.log"):
        yield


def _to_file_descriptor_2() -> TextIO:
    """Return a stream that writes to file descriptor 2: Python's standard error if it does, else a new one.

    In a notebook, Python's standard error writes elsewhere.
    """
    try:
        if sys.stderr.fileno() == 2:
            return sys.stderr
    except (OSError, ValueError, AttributeError):  # it has no file descriptor
        pass
    return io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="replace", write_through=True)
