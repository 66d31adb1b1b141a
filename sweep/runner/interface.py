"""What the callers of a session give it, see of it while it runs, and get from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sweep.events import Event
from sweep.spec import Spec
from sweep.store.folder import ResultsFolder

if TYPE_CHECKING:
    from sweep.analysis.live_status import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a session that are not in the sweep file."""

    address: str | None = None  # of the Ray cluster to join; None: start a local Ray
    max_concurrent: int | None = None
    simulated_gpus: int | None = None  # CPU devices that stand in for GPUs; None: real GPUs
    reuse: bool = True  # a worker trains one trial after another; False: a fresh process for each
    inline: bool = False  # train in this process, without Ray
    memo: bool = True  # use the results of equal trials of earlier sweeps
    retry_failed: bool = False  # when a sweep is resumed
    confirming: bool = False  # the search has ended; only the confirmation is run
    profile: bool = False
    quiet: bool = False  # show no progress
    verbose: bool = False  # print where the output of Ray and TensorFlow goes
    # further readers of the log
    followers: Sequence[Callable[[ResultsFolder], AbstractContextManager[object]]] = ()
    events: bool = False  # write events as lines of JSON instead of progress
    embedded: bool = False  # the process belongs to the user and must survive the sweep

    def limit_concurrent(self, spec: Spec) -> int | None:
        """Return the lower of the limits on concurrent trials (`max_concurrent`) in the sweep file and the options.

        Return None if neither sets a number; ``auto`` in the sweep file is none.
        """
        bounds = (spec.resources.max_concurrent, self.max_concurrent)
        return min((bound for bound in bounds if isinstance(bound, int)), default=None)

    def opening(self, folder: ResultsFolder) -> list[str]:
        """Return the lines that a session prints at its beginning: none, one or two.

        There is one if ``verbose`` is set, and one if there are ``simulated_gpus``. ``folder`` is the sweep's, whose
        debug log the first one names.
        """
        lines = []
        if self.verbose:
            lines.append(f"output of Ray and TensorFlow: {folder.debug_log}")
        gpus = self.simulated_gpus
        if gpus:
            return [*lines, f"rehearsal: {gpus} logical CPU devices stand in for GPUs"]
        return lines


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a session."""

    folder: ResultsFolder
    completed: int
    stopped: str | None  # why it ended before all its trials
    interrupted: bool
    fault: str | None = None  # the problem to solve before it can continue
    is_confirmed: bool = False  # the confirmation has ended, if there is one


class View(Protocol):
    """Receives the events of a session and shows them, as the live view does."""

    @property
    def standing(self) -> Standing:
        """The present state of the sweep, which other threads read; only used with Ray."""

    def replay(self, events: Iterable[Event]) -> None:
        """Receive the events of earlier sessions, before the first one of this session.

        The view must iterate over all ``events``, an iterator that can be used once, because the session processes each
        event when it is taken.
        """

    def on(self, event: Event) -> None:
        """Receive an event of this session."""

    def say(self, text: str) -> None:
        """Receive a line for the user about the session."""

    def step(self, text: str) -> None:
        """Receive in words what the session is doing before its first epoch, such as ``starting Ray``."""

    def close(self) -> None:
        """End the view."""


def say_once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that passes each distinct line to ``say`` only once, although several workers may send it.

    Lines are distinct unless they are equal. All that were passed on are kept as long as the function.
    """
    said: set[str] = set()

    def notice(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return notice
