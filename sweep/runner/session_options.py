"""What a session is asked to do, who watches it, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from sweep.events import Event
from sweep.store.folder import ResultsFolder


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

    def replay(self, events: Iterable[Event]) -> None:
        """See what happened before this session."""

    def on(self, event: Event) -> None:
        """See an event."""

    def say(self, text: str) -> None:
        """See a line about the session itself."""

    def close(self) -> None:
        """See no more."""
