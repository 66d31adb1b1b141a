"""A running sweep, watched: a live view on a terminal, a line per finished trial elsewhere."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweep.errors import printable
from sweep.events import EpochReported, Event, Params, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.render.figures import duration, figure, score, settings
from sweep.render.terminal import STYLES

RATE_WINDOW_S = 10.0
REFRESH_PER_S = 4


@dataclass(slots=True)
class _Open:
    """A trial that has not ended for good."""

    params: Params
    started: float
    epochs: int = 0
    value: float | None = None  # of the objective, as last reported


class LiveView:
    """Counts the events of a sweep and shows where it stands; drawn by a thread of its own, not by events.

    ``total`` is the number of trials where known, ``objective`` a metric and its goal, ``varying`` the
    parameters worth showing. ``quiet`` shows nothing. Best is said of completed trials only.
    """

    def __init__(
        self,
        console: Console,
        total: int | None,
        objective: tuple[str, str] | None,
        varying: tuple[str, ...],
        *,
        quiet: bool = False,
    ) -> None:
        self._console = console
        self._total = total
        self._metric, goal = objective or ("", "")
        self._sign = 1.0 if goal == "maximize" else -1.0
        self._varying = varying
        self._open: dict[int, _Open] = {}
        self._failed: dict[int, _Open] = {}  # which may be tried again
        self._running: set[int] = set()
        self._ended: dict[Status, int] = dict.fromkeys(Status, 0)
        self._best: tuple[float, int, Params] | None = None
        self._latest = ""
        self._epochs = 0
        self._since: float | None = None  # when this session's first trial began, and with how many ended
        self._ended_before = 0
        self._rates: deque[tuple[float, int]] = deque()
        self._lines = not quiet and not console.is_terminal
        self._live: Live | None = None
        if not quiet and console.is_terminal:
            self._live = Live(self, console=console, refresh_per_second=REFRESH_PER_S, transient=True)

    def __enter__(self) -> LiveView:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        if self._live is not None and not self._live.is_started:
            self._live.start()

    def close(self) -> None:
        """Clear the live view, so that what follows begins on a clean line."""
        live, self._live = self._live, None  # an event that comes later does not start it again
        if live is not None:
            live.stop()

    def say(self, text: str) -> None:
        """A line about the session itself."""
        if self._live is not None:
            self._console.print(Text(printable(text), "dim"))
        elif self._lines:
            self._write(text)

    def replay(self, events: Iterable[Event]) -> None:
        """Count what happened in earlier sessions without showing it."""
        for event in events:
            self._count(event)
        self._running.clear()
        self._ended_before = self._finished

    def on(self, event: Event) -> None:
        """Count an event; a trial that ended may be told in a line."""
        if self._since is None and isinstance(event, TrialStarted | EpochReported):
            self._since = time.monotonic()
        self._start()
        trial = self._count(event)
        if trial is None or not isinstance(event, TrialEnded):
            return
        if self._lines:
            self._write(self._line(event, trial))
        elif self._live is not None and event.status is Status.FAILED:
            self._console.print(Text(printable(self._line(event, trial)), STYLES[Status.FAILED]))

    def __rich__(self) -> Group:
        """The live view as it is now."""
        ended = "  ".join(f"{count} {status}" for status, count in self._ended.items() if count)
        lines = (
            (f"{len(self._running)} running  {ended}  {figure(self._epochs_per_s())} epochs/s", ""),
            (f"best    {self._best_line()}", "bold"),
            (f"latest  {self._latest}", "dim"),
        )
        texts = (Text(printable(line), style, no_wrap=True, overflow="ellipsis") for line, style in lines)
        return Group(self._progress(), *texts)

    @property
    def _finished(self) -> int:
        return sum(self._ended.values())

    def _count(self, event: Event) -> _Open | None:
        """The trial that the event ended or interrupted, if it did."""
        match event:
            case EpochReported():
                trial = self._open.get(event.trial)
                self._epochs += 1
                if trial is not None:
                    self._running.add(event.trial)
                    trial.epochs = event.epoch
                    trial.value = event.metrics.get(self._metric, trial.value)
                    self._latest = f"trial {event.trial} epoch {event.epoch} {self._told(trial.value)}"
            case TrialStarted():
                self._open.setdefault(event.trial, _Open(event.params, event.time))
                self._running.add(event.trial)
            case TrialEnded():
                self._running.discard(event.trial)
                if event.again and event.trial in self._failed:
                    self._open[event.trial] = self._failed.pop(event.trial)
                    self._ended[Status.FAILED] -= 1
                if event.status is Status.INTERRUPTED:
                    return self._open.get(event.trial)
                trial = self._open.pop(event.trial, None)
                if trial is not None:
                    if event.status is Status.FAILED:
                        self._failed[event.trial] = trial
                    self._ended[event.status] += 1
                    self._compare(event, trial)
                return trial
            case SessionStarted():
                self._running.clear()
        return None

    def _compare(self, event: TrialEnded, trial: _Open) -> None:
        if event.status is not Status.COMPLETED or trial.value is None or not math.isfinite(trial.value):
            return
        if self._best is None or self._sign * trial.value > self._sign * self._best[0]:
            self._best = trial.value, event.trial, trial.params

    def _line(self, event: TrialEnded, trial: _Open) -> str:
        started = trial.started if event.facts.started is None else event.facts.started
        after = "" if event.status is Status.COMPLETED else f" after {_epochs(trial.epochs)}"
        took = f" in {duration(max(0.0, event.time - started))}"
        best = "" if self._best is None else f"(best {score(self._best[0])}, trial {self._best[1]})"
        of_total = f"{self._finished}" if self._total is None else f"{self._finished}/{self._total}"
        reason = f"{' '.join(event.reason.split())};" if event.reason else ""
        parts = (reason, self._told(trial.value), best, settings(trial.params, self._varying), f" [{of_total}]")
        return f"trial {event.trial} {event.status}{after}{took}: {' '.join(part for part in parts if part)}"

    def _told(self, value: float | None) -> str:
        return "" if value is None else f"{self._metric} {score(value)}"

    def _write(self, line: str) -> None:
        try:
            self._console.file.write(printable(line) + "\n")
            self._console.file.flush()
        except OSError:  # nobody reads any more (a closed pipe, a lost terminal): the sweep goes on
            self._lines = False

    def _progress(self) -> Table:
        done = self._finished
        row = Table.grid(padding=(0, 1))
        elapsed = 0.0 if self._since is None else time.monotonic() - self._since
        if self._total is None:
            row.add_row(f"{done} trials", duration(elapsed))
            return row
        left, pace = max(0, self._total - done), done - self._ended_before
        remaining = f"about {duration(elapsed / pace * left)} left" if pace else ""
        bar = ProgressBar(total=max(1, self._total), completed=done, width=max(8, self._console.width // 3))
        row.add_row(bar, f"{done}/{self._total} trials", duration(elapsed), remaining)
        return row

    def _best_line(self) -> str:
        if self._best is None:
            return "no trial completed yet"
        value, trial, params = self._best
        return f"{self._metric} {score(value)}  trial {trial}  {settings(params, self._varying)}"

    def _epochs_per_s(self) -> float:
        """Over the last ten seconds of drawing."""
        now = time.monotonic()
        self._rates.append((now, self._epochs))
        while now - self._rates[0][0] > RATE_WINDOW_S:
            self._rates.popleft()
        since, before = self._rates[0]
        return (self._epochs - before) / (now - since) if now > since else 0.0


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"
