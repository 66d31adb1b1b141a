"""Keeps what browsers show up to date, and wakes the requests that wait for a change.

Nothing is read without a browser. Threads do all reading, so that the server can answer meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sweep.errors import SweepError, in_short
from sweep.events import convert_to_json_types
from sweep.render import as_plain
from sweep.store.folder import ResultsFolder
from sweep.ui.following import FollowedSweep
from sweep.ui.shelf import Shelf

LOOK_S = 0.5
"""Pause between two looks at the log of a sweep that is running."""
IDLE_LOOK_S = 2.0
"""Pause between two looks at the log of a sweep that is not running, and between two looks at the results folder."""
AFAR_LOOK_S = 5.0  # pause between two looks at a sweep in an object store that is not running
TICK_S = 5.0  # time after which the facts of a running sweep are sent again, for its time left
FORGET_S = 120.0  # time after which a sweep is forgotten when its last browser has gone
REST = 5  # least pause between two reports, as a multiple of the CPU time that the last one took
SETTLE_S = 1.0  # least pause between two reports
# a log up to this size is read before the first report, a larger one after it
SMALL_BYTES = 4_000_000

Made = TypeVar("Made")


def encode_line(value: object) -> str:
    """Return a record or any other value as one line of JSON; NaN and infinities become texts, as in all documents.

    Raises TypeError for values that JSON would lose or change.
    """
    return json.dumps(convert_to_json_types(as_plain(value)), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class LiveReport:
    """A report on a sweep as JSON, and the number of lines of the log that it covers."""

    line: int
    content: bytes
    cost_s: float  # CPU time that making the report took
    running: bool  # whether a driver ran the sweep before the report was made, as the report says
    replaced: int  # how often the log had been replaced before

    @property
    def key(self) -> tuple[int, int, bool]:
        """The tuple (replacements of the log, lines covered, whether the sweep ran); equal for equal reports."""
        return self.replaced, self.line, self.running


class News:
    """Lets several tasks wait for the next change."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake_all(self) -> None:
        """Wake all tasks that are waiting; a task that begins to wait later waits for the next call."""
        self._changed.set()
        self._changed = asyncio.Event()  # not yet set, for later tasks

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next change; return whether one came within ``timeout_s`` seconds."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return False
        return True


class Reading:
    """The threads that read sweeps.

    The libraries are imported in one thread first, so that two threads never import the same one at once.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="sweep ui")
        self._ready: asyncio.Future[None] | None = None
        self._is_closed = False

    async def prepare(self) -> None:
        """Call `import_libraries` in a thread, at the first call; wait until that is done.

        If it fails, its exception is raised, also by all later calls.
        """
        if self._ready is None:
            self._ready = asyncio.get_running_loop().run_in_executor(
                self._threads, import_libraries
            )
        # a request that is given up must not cancel it for the others
        await asyncio.shield(self._ready)

    async def run(self, work: Callable[..., Made], *arguments: Any) -> Made:
        """Call ``work`` with ``arguments`` in a thread, after `prepare`; return its result or raise its exception.

        Raises CancelledError after `close`, because the server ends and no thread is left.
        """
        if not self._is_closed:
            await self.prepare()
        if self._is_closed:
            raise asyncio.CancelledError
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: work(*arguments)
        )

    def close(self) -> None:
        """End the threads without waiting for their work; work that has not begun is never done."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def import_libraries() -> None:
    """Import the packages that reading needs, which takes seconds at the first call."""
    import sweep.render.report
    import sweep.searchers.optuna_study
    import sweep.store.reading  # noqa: F401  # imported for what comes later


class KeptUpToDate(ABC):
    """Base class of states that are read repeatedly while at least one browser shows them."""

    def __init__(self, name: str) -> None:
        self.news = News()
        self.problem = ""  # why the state cannot be read
        self.browsers = 0
        self._name = name  # name in the server's log
        self._left = time.monotonic()  # when the last browser went away
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def keep_up_to_date(self) -> AsyncIterator[None]:
        """Count a browser inside the block; while there is one, the state is read repeatedly in a task.

        The block begins at once, before the state is read. Errors of reading are not raised here: `problem` says why it
        fails. After the last block, the task ends when its pause is over.
        """
        self.browsers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read_repeatedly())
        try:
            yield
        finally:
            self.browsers -= 1
            self._left = time.monotonic()

    @property
    def is_forgotten(self) -> bool:
        """Whether no browser has shown this state for two minutes, so that it can be dropped."""
        return self.browsers == 0 and time.monotonic() - self._left > FORGET_S

    async def _read_repeatedly(self) -> None:
        """Read the state and pause, until no browser is left; show errors to the browsers and go on.

        After an error, the pause is `IDLE_LOOK_S`.
        """
        while self.browsers:
            pause_s = IDLE_LOOK_S
            try:
                pause_s = await self._read_once()
            except SweepError as error:
                self._show_problem(str(error))
            except Exception as error:  # the page shows it, and the next look may succeed
                logging.getLogger(__name__).exception("%s could not be read", self._name)
                self._show_problem(in_short(error))
            await asyncio.sleep(pause_s)

    @abstractmethod
    async def _read_once(self) -> float:
        """Read the state once; return the seconds to pause before the next time."""

    def _show_problem(self, problem: str) -> None:
        """Show the browsers why reading has failed, unless they have been told the same before."""
        if problem != self.problem:
            self.problem = problem
            self._wake_browsers()

    def _wake_browsers(self) -> None:
        """Wake the requests that wait for a change of the state or its problem."""
        self.news.wake_all()


class Watch(KeptUpToDate):
    """The state and the report of a sweep that at least one browser shows."""

    def __init__(self, folder: ResultsFolder, reading: Reading) -> None:
        super().__init__(folder.name)
        self.folder = folder
        self.sweep: FollowedSweep | None = None
        self.facts = ""  # as JSON; "" before the first look
        self.facts_version = 0
        self.report: LiveReport | None = None
        self.report_problem = ""  # why the latest report could not be made
        self._reading = reading
        self._report_task: asyncio.Task[None] | None = None
        # times by the monotonic clock: when a report may begin again, and when the facts were last sent
        self._report_due = 0.0
        self._facts_sent = 0.0

    async def _read_once(self) -> float:
        """Read the next part of the log, update the state, and start a report if one is due.

        Returns the seconds to pause before the next call, which are nearly 0 as long as there is more to read. Browsers
        are woken if something has changed, and every 5 seconds while the sweep runs.
        """
        if self.sweep is None:
            self.sweep = await self._reading.run(FollowedSweep, self.folder)
        sweep = self.sweep
        was_running, was_replaced = sweep.running, sweep.replaced
        changed = await self._reading.run(sweep.read_on)
        now = time.monotonic()
        if sweep.running != was_running:
            self._report_due = now  # at once: its report says something else from now on
        if sweep.replaced != was_replaced:
            self.report = None  # it is about another log
        # the time left changes without any event
        is_due = sweep.running and now - self._facts_sent > TICK_S
        # a problem is over if the look has succeeded
        if changed or not self.facts or is_due or self.problem:
            self._facts_sent = now
            self.facts = encode_line(await self._reading.run(sweep.describe))
            self.facts_version += 1
            self.problem = ""
            self._wake_browsers()
        self._renew_report()
        if sweep.is_behind:
            if self.report is not None or sweep.lines.end < SMALL_BYTES:
                return 0.01  # nothing else waits: read the next part at once
            # of a large log, the report comes first
            return IDLE_LOOK_S if self._is_reporting else LOOK_S
        if sweep.running:
            return LOOK_S
        return IDLE_LOOK_S if self.folder.store is None else AFAR_LOOK_S

    @property
    def _is_reporting(self) -> bool:
        """Whether a report is being made."""
        return self._report_task is not None and not self._report_task.done()

    def _renew_report(self) -> None:
        """Start a task that makes a new report if the last one is outdated and the least pause has passed.

        While a log of less than 4 megabytes has not been read to its end, or a report is being made, do nothing.
        """
        sweep = self.sweep
        if sweep is None or self._is_reporting:
            return
        # soon read, and the report would be outdated then
        if sweep.is_behind and sweep.lines.end < SMALL_BYTES:
            return
        is_outdated = self.report is None or self.report.key != (
            sweep.replaced,
            sweep.lines.lines,
            sweep.running,
        )
        if is_outdated and time.monotonic() >= self._report_due:
            self._report_task = asyncio.create_task(self._make_report())

    async def _make_report(self) -> None:
        """Make a report in a thread and wake the requests that wait for it; an error becomes `report_problem`.

        After an error, the last report stays. The next report is due after 5 times the CPU time that this one took, but
        at least a second.
        """
        cost_s = 0.0
        try:
            self.report = await self._reading.run(make_report, self.folder, self.sweep)
            cost_s = self.report.cost_s
            self.report_problem = ""
        except SweepError as error:
            self.report_problem = str(error)
        except Exception as error:  # the page shows it, and the next report may succeed
            logging.getLogger(__name__).exception(
                "the report on %s could not be made", self.folder.name
            )
            self.report_problem = in_short(error)
        self._report_due = time.monotonic() + max(REST * cost_s, SETTLE_S)
        self._wake_browsers()


def make_report(folder: ResultsFolder, sweep: FollowedSweep | None) -> LiveReport:
    """Return a report on the present state of a sweep. Raises `StoreError` if it cannot be read.

    ``sweep`` knows the lines of the log; without it, or without a log, the report is said to cover 0 lines.
    """
    from sweep.render import report  # the first import takes seconds

    began = time.thread_time()
    # before it is made: if the driver ends meanwhile, another report follows
    running = folder.is_running()
    replaced = 0 if sweep is None else sweep.replaced
    found = report.sections([folder])
    line = 0
    if sweep is not None and folder.log.exists():
        line = sweep.lines.find_line(found.log_bytes)
    content = encode_report(line, found)
    cost_s = time.thread_time() - began
    return LiveReport(line=line, content=content, cost_s=cost_s, running=running, replaced=replaced)


def make_comparison(folders: Sequence[ResultsFolder]) -> bytes:
    """Return a report on several sweeps in the form of `encode_report`, with 0 as ``line``.

    Raises `InputError` if their objectives differ, and `StoreError` if one of them cannot be read.
    """
    from sweep.render import report

    return encode_report(0, report.sections(folders))


def encode_report(line: int, found: Any) -> bytes:
    """Return a report as JSON in ASCII; ``line`` is the number of lines of the log that it covers.

    The keys are ``line``, ``html`` and ``data``. ``found`` is what `report.sections` returns, whose ``html`` and
    ``data`` are taken.
    """
    from sweep.render.report.page_data import as_json

    return as_json({"line": line, "html": found.html, "data": found.data}).encode("ascii")


class ShelfWatch(KeptUpToDate):
    """The list of sweeps, kept up to date while at least one browser shows it."""

    def __init__(self, results: Path, reading: Reading) -> None:
        super().__init__("the results folder")
        self.content = ""  # as JSON; "" before the first look
        self.version = 0  # grows with each change of the content or the problem
        self._shelf = Shelf(results)
        self._reading = reading

    async def _read_once(self) -> float:
        """Read the list, wake the browsers if it has changed, and return the seconds to pause.

        They are at least 2, and 5 times as long as the reading took.
        """
        began = time.monotonic()
        content = encode_line(await self._reading.run(self._shelf.list_rows))
        if content != self.content or self.problem:
            self.content, self.problem = content, ""
            self._wake_browsers()
        # A long list may take seconds to read, and must not occupy the machine while sweeps train.
        return max(IDLE_LOOK_S, REST * (time.monotonic() - began))

    def _wake_browsers(self) -> None:
        """Increase `version` and wake the requests that wait for a change."""
        self.version += 1
        super()._wake_browsers()


class Watches:
    """The sweeps that browsers show, by name."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._watches: dict[str, Watch] = {}

    def find(self, folder: ResultsFolder) -> Watch:
        """Return the watch of the sweep with the folder's name, which is created if necessary; it reads nothing yet.

        Before, all watches that no browser has shown for two minutes are dropped.
        """
        # The names are listed first, because a mapping must not change while it is gone through.
        for name in [name for name, watch in self._watches.items() if watch.is_forgotten]:
            del self._watches[name]
        if folder.name not in self._watches:
            self._watches[folder.name] = Watch(folder, self._reading)
        return self._watches[folder.name]

    @property
    def browsers(self) -> int:
        """Number of open pages that show a sweep or a trial, counted by their event streams.

        A request for a report also counts while it waits.
        """
        return sum(watch.browsers for watch in self._watches.values())
