"""A running sweep, watched: a picture on a terminal that is drawn over, a line per finished trial elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.text import Text

from sweep.analysis.outline import Outline
from sweep.analysis.seen import Ended
from sweep.analysis.standing import Standing
from sweep.errors import printable
from sweep.events import Event, SessionEnded, SessionStarted, Status, TrialEnded
from sweep.render.figures import duration, score, settings
from sweep.render.picture import Frame, count_of_epochs, picture
from sweep.render.screen import Above, Screen, is_plain
from sweep.render.terminal import STYLES

DRAW_S = 0.25
PATIENCE_S = 2.0  # with a terminal that does not take the last frame
ALIKE = 3  # failures of one kind that leave a line each


class LiveView:
    """Observes the events of a sweep and shows where it stands; drawn by a thread of its own, not by events.

    ``quiet`` shows nothing. Best is said of completed trials only.
    """

    def __init__(self, console: Console, outline: Outline, *, quiet: bool = False) -> None:
        self._console = console
        self._outline = outline
        self._standing = Standing(outline)
        self._lock = threading.Lock()  # of the standing and of the lines to come
        self._above: list[Text] = []
        self._alike: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        drawn = console.is_terminal and not console.is_dumb_terminal
        self.plain = not drawn
        self.ascii_only = is_plain(console.encoding, dict(os.environ))
        self.state = ""  # stands in the picture instead of what became of the sweep
        self._lines = not quiet and not drawn
        self._screen = Screen(console) if drawn and not quiet else None
        self._stdout = Above(console.file, self._tell)

    def __enter__(self) -> LiveView:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Clear the picture, so that what follows begins on a clean line."""
        self._over.set()  # an event that comes later does not start it again
        thread, self._thread = self._thread, None
        self._stdout.give_back()
        if thread is not None:
            thread.join(PATIENCE_S)

    def say(self, text: str) -> None:
        """A line about the session itself."""
        if self._screen is not None and not self._over.is_set():
            self._tell(text, "dim")
        elif self._lines or self._screen is not None:
            self._write(text)

    def replay(self, events: Iterable[Event]) -> None:
        """Observe what happened in earlier sessions without telling it in lines."""
        self.observe(events)
        self._standing.running.clear()

    def observe(self, events: Iterable[Event]) -> None:
        """Observe what has happened already, without telling it in lines."""
        with self._lock:
            for event in events:
                self._standing.observe(event)

    def forget(self) -> None:
        """Begin with the first event once more."""
        with self._lock:
            self._standing = Standing(self._outline)

    def on(self, event: Event) -> None:
        """Observe an event; a trial that ended may be told in a line."""
        if self._thread is None and not isinstance(event, SessionStarted | SessionEnded):
            self.start()
        with self._lock:
            ended = self._standing.observe(event)
        if ended is None or not isinstance(event, TrialEnded):
            return
        if self._lines:
            self._write(self._line(ended))
        elif self._screen is not None and ended.status is Status.FAILED:
            self._tell_failure(ended)

    @property
    def over(self) -> bool:
        """Whether the last session has ended in order."""
        return self._standing.over is not None

    def lines(self, frame: Frame, *, running: bool = True, state: str = "") -> list[Text]:
        """The picture as it is now; of a sweep that does not run any more, as it was at its last event."""
        with self._lock:
            last = self._standing.last
            now = time.time() if running or last is None else last
            return picture(self._standing, now, frame, state=state or self.state, running=running)

    def start(self) -> None:
        """Begin to draw, where there is a terminal for it; the first event does as well."""
        if self._screen is None or self._thread is not None or self._over.is_set():
            return
        self._thread = threading.Thread(target=self._draw, args=(self._screen,), name="sweep-view", daemon=True)
        self._stdout.take_over()
        self._thread.start()

    def _draw(self, screen: Screen) -> None:
        try:
            while True:
                over = self._over.is_set()
                size = self._console.size
                frame = Frame(width=size.width, height=size.height - 1, ascii_only=self.ascii_only)
                lines = [] if over else self.lines(frame)
                with self._lock:
                    above, self._above = self._above, []
                screen.draw(above, lines)
                if over:
                    return
                self._over.wait(DRAW_S)
        except OSError:  # nobody reads any more (a lost terminal): the sweep goes on
            return

    def _tell(self, text: str, style: str = "") -> None:
        """Have a line written above the picture."""
        plain = printable(text)
        line = Text(plain.encode("ascii", "replace").decode() if self.ascii_only else plain, style)
        with self._lock:
            self._above.append(line)
        if self._thread is None:
            self.start()

    def _tell_failure(self, ended: Ended) -> None:
        kind = ended.reason.partition(":")[0]
        self._alike[kind] += 1
        if self._alike[kind] <= ALIKE:
            self._tell(self._line(ended), STYLES[Status.FAILED])
        if self._alike[kind] == ALIKE:
            self._tell("further failures like this are counted below", "dim")

    def _line(self, ended: Ended) -> str:
        total, best, done = self._standing.total, self._standing.best, self._standing.finished
        after = "" if ended.status is Status.COMPLETED else f" after {count_of_epochs(ended.epochs)}"
        took = f" in {duration(ended.took_s)}"
        told = "" if ended.value is None else f"{self._outline.metric} {score(ended.value)}"
        whose = "" if best is None else f"trial{'s' * (len(best.trials) > 1)} {', '.join(map(str, best.trials))}"
        best_so_far = "" if best is None else f"(best {score(best.value)}, {whose})"
        of_total = f"{done}" if total is None else f"{done}/{total}"
        reason = f"{' '.join(ended.reason.split())};" if ended.reason else ""
        parts = (reason, told, best_so_far, settings(ended.params, self._outline.varying), f" [{of_total}]")
        return f"trial {ended.trial} {ended.status}{after}{took}: {' '.join(part for part in parts if part)}"

    def _write(self, line: str) -> None:
        file = self._console.file
        encoding = getattr(file, "encoding", None) or sys.getdefaultencoding()
        try:
            file.write(printable(line).encode(encoding, "replace").decode(encoding) + "\n")
            file.flush()
        except OSError:  # nobody reads any more (a closed pipe, a lost terminal): the sweep goes on
            self._lines = False
