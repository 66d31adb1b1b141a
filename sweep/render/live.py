"""The live view of a running sweep: lines redrawn on a terminal, or one line per finished trial elsewhere.

A frame is a single write. Each line is overwritten and then cleared to its end, which avoids flicker. The cursor stays
below the frame and visible, and no alternate screen is used, so that a killed process leaves the terminal usable.
"""

from __future__ import annotations

import io
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Self

from rich.console import Console
from rich.text import Text

from sweep.analysis import Outline
from sweep.analysis.live_status import FinishedTrial, Standing, get_error_type
from sweep.events import EpochReported, Event, SessionEnded, SessionStarted, Status, TrialEnded
from sweep.render import STYLES, console
from sweep.render.status import Frame, picture
from sweep.store.closing import Closing
from sweep.text import counted, duration, format_settings, printable, score, trials_named

if TYPE_CHECKING:
    from sweep.runner import Options
    from sweep.spec import Spec

# codes for a terminal: whether long lines continue in the next row
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
# codes that clear what is right of the cursor, and that and all rows below it
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"


class Screen:
    """Draws frames on a terminal, each in the place of the last one. Not thread-safe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._file = console.file
        self._drawn_widths: list[int] = []  # widths in columns of the last frame's lines
        self._drawn_for = 0  # the width of the terminal when that frame was drawn

    def draw(self, above: Sequence[Text], frame: Sequence[Text]) -> None:
        """Write permanent lines, and below them a frame that replaces the last one.

        ``above`` are the permanent lines. With an empty ``frame``, the last frame is erased. The cursor is below the
        frame afterwards. Raises OSError if the terminal is gone.
        """
        old_rows = self._count_rows()
        width = self._console.size.width
        # first to the beginning of the last frame
        parts = [f"\x1b[{old_rows}A" if old_rows else "", "\r"]
        # A frame of the same width is overwritten, which does not flicker. Of another width, it is erased first:
        # wrapped rows would be joined when the terminal becomes wider.
        if above or width != self._drawn_for or not frame:
            parts.append(_erase_rows(old_rows))
            parts += [f"{line}\r\n" for line in self._render_lines(above)]
        parts.append(_NO_WRAP)
        for line, text in zip(self._render_lines(frame), frame, strict=True):
            # After a full line, the cursor is still on its last character, which clearing would delete.
            parts += [line, _CLEAR_LINE if text.cell_len < width else "", "\r\n"]
        parts += [_CLEAR_BELOW if frame else "", _WRAP]
        _write_text(self._file, "".join(parts))
        self._drawn_widths = [line.cell_len for line in frame]
        self._drawn_for = width

    def _count_rows(self) -> int:
        """Return the number of rows of the last frame that are on the screen.

        Its lines may have wrapped if the terminal was made narrower. All rows but one, that of the cursor, can be
        those of the frame.
        """
        width = max(self._console.size.width, 1)
        height = self._console.size.height
        rows = 0
        for line_width in self._drawn_widths:
            rows += max(math.ceil(line_width / width), 1)  # an empty line has a row, too
        return min(rows, max(height - 1, 0))

    def _render_lines(self, lines: Sequence[Text]) -> list[str]:
        """Return lines as texts with the codes of their styles, each without a line feed."""
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, soft_wrap=True)
        return captured.get().split("\n")[:-1]


def _write_text(file: IO[str], text: str) -> None:
    """Write a text and flush the file; characters that the file's encoding lacks become ``?``.

    Raises OSError if the file cannot be written.
    """
    encoding = getattr(file, "encoding", None) or sys.getdefaultencoding()
    file.write(text.encode(encoding, "replace").decode(encoding))
    file.flush()


def _erase_rows(up: int) -> str:
    """Return the codes that clear ``up`` rows from the cursor down and the row below them, without moving the cursor.

    They clear row by row, because some terminals move what is cleared at once from their first row into the scrollback.
    """
    clear_row, down = "\x1b[2K", "\x1b[B"
    back = f"\x1b[{up}A" if up else ""
    return f"{clear_row}{down}" * up + clear_row + back


class Above(io.TextIOBase):
    """Replaces standard output while frames are drawn, so that printed lines appear above the frame."""

    def __init__(self, file: IO[str], tell: Callable[[str], None]) -> None:
        self.rich_proxied_file = file  # Rich's consoles write to this instead
        self._tell = tell  # shows a line above the frame
        self._unfinished = ""  # the line that has not ended yet

    def write(self, text: str) -> int:
        """Show each line that ``text`` ends; of a line that overwrites itself by carriage returns, only the last part.

        What comes after the last line end is kept until its line ends. Return the number of characters of ``text``.
        """
        *lines, self._unfinished = f"{self._unfinished}{text}".split("\n")
        for line in lines:
            self._tell(line.rstrip("\r").rpartition("\r")[2])
        return len(text)

    def flush(self) -> None:
        """Do nothing: an unfinished line is kept until it ends."""

    def isatty(self) -> bool:
        return self.rich_proxied_file.isatty()

    def fileno(self) -> int:
        return self.rich_proxied_file.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # writable in the base class
        return str(getattr(self.rich_proxied_file, "encoding", "utf-8"))

    def take_over(self) -> None:
        """Put this file in the place of `sys.stdout`, if that is the file on which frames are drawn."""
        if sys.stdout is self.rich_proxied_file:
            sys.stdout = self

    def give_back(self) -> None:
        """Restore standard output if this file has replaced it, and show an unfinished line."""
        if sys.stdout is self:
            sys.stdout = self.rich_proxied_file
        if self._unfinished:
            self.write("\n")


def is_plain(encoding: str, environ: dict[str, str]) -> bool:
    """Return whether a terminal shows only ASCII, by its encoding and its locale.

    ``environ`` has the environment variables: ``LC_ALL`` or, if that is not set or empty, ``LANG`` names the locale.
    Every encoding but UTF-8 counts as ASCII. In the locale C, Python uses UTF-8, but its users have asked for ASCII.
    """
    if encoding.lower().replace("-", "").replace("_", "") != "utf8":
        return True
    # Not LC_CTYPE, which Python itself sets if LANG is C.
    locale = environ.get("LC_ALL") or environ.get("LANG") or ""
    return locale in ("C", "POSIX")


DRAW_S = 0.25
PATIENCE_S = 2.0  # seconds to wait for a terminal that does not accept the last frame
ALIKE = 3  # number of failures of one kind that are shown


class LiveView(Closing):
    """Shows the progress of a sweep from its events; a thread draws it, independently of the events.

    With ``quiet``, nothing is shown. The best is chosen among completed trials only.
    """

    def __init__(self, console: Console, outline: Outline, *, quiet: bool = False) -> None:
        self._console = console
        self.standing = Standing(outline)
        self._lock = threading.Lock()  # guards the standing and the lines to be written
        self._queued: list[Text] = []  # lines that the thread writes above the picture next time
        # how often trials failed by each type of error
        self._failures_by_type: Counter[str] = Counter()
        self._closed = threading.Event()  # set when the thread must end
        self._thread: threading.Thread | None = None  # it draws the picture
        can_draw = console.is_terminal and not console.is_dumb_terminal
        self.plain = not can_draw
        self.ascii_only = is_plain(console.encoding, dict(os.environ))
        self.state = ""  # shown in the picture instead of the sweep's own state, if not empty
        # whether there is a line for each ended trial, instead of a picture
        self._prints_lines = not quiet and not can_draw
        self._screen = Screen(console) if can_draw and not quiet else None
        # standard output while the picture is drawn: what is printed then appears above it
        self._own_stdout = Above(console.file, self._tell)

    def __enter__(self) -> Self:
        self.start()
        return self

    def close(self) -> None:
        """Stop drawing, erase the picture and restore standard output, so that later output starts on a clean line.

        Waits at most 2 seconds for the terminal.
        """
        # queues an unfinished line; the thread's last turn, which writes it, may begin once it is told to end
        self._own_stdout.give_back()
        self._closed.set()  # so that a later event does not start the thread again
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(PATIENCE_S)

    def say(self, text: str) -> None:
        """Print a message about the session, above the picture if one is drawn; with ``quiet``, print nothing.

        After `close`, it is printed as a plain line.
        """
        if self._screen is not None and not self._closed.is_set():
            self._tell(text, "dim")
        elif self._prints_lines or self._screen is not None:
            self._write(text)

    def step(self, text: str) -> None:
        """Show what the session is doing: in the picture, or as a line if the view prints lines.

        The picture shows it until an epoch is reported or a trial or the session ends; drawing starts if it has not
        started yet. With ``quiet``, nothing is shown.
        """
        if self._prints_lines:
            self._write(text)
        else:
            self.state = text
            self.start()

    def replay(self, events: Iterable[Event]) -> None:
        """Update the state by the events of earlier sessions without printing lines; then count no trial as running."""
        self.observe(events)
        self.standing.running.clear()

    def observe(self, events: Iterable[Event]) -> None:
        """Update the state by past events without printing lines or starting to draw."""
        with self._lock:
            for event in events:
                self.standing.observe(event)

    def forget(self) -> None:
        """Discard what is known from events, to start again with the first event of a log; the outline stays."""
        with self._lock:
            self.standing = Standing(self.standing.outline)

    def on(self, event: Event) -> None:
        """Update the state by an event; start to draw at the first one that is not of a session's start or end.

        For a trial that has ended, not only paused, print a line if the view prints lines instead of a picture, or if
        the trial failed. Above a picture, only the first `ALIKE` failures with the same type of error are shown. With
        ``quiet``, nothing is printed.
        """
        if self._thread is None and not isinstance(event, SessionStarted | SessionEnded):
            self.start()
        if isinstance(event, EpochReported | TrialEnded | SessionEnded):
            self.state = ""
        with self._lock:
            ended = self.standing.observe(event)
        if ended is None or not isinstance(event, TrialEnded):
            return
        if event.pauses:  # the trial goes on later
            return
        if self._prints_lines:
            self._write(self._line(ended))
        elif self._screen is not None and ended.status is Status.FAILED:
            self._tell_failure(ended)

    @property
    def over(self) -> bool:
        """Whether the last session has ended regularly, according to its events."""
        return self.standing.over is not None

    def lines(self, frame: Frame, *, running: bool = True, state: str = "") -> list[Text]:
        """Return the present picture; for a sweep that is not ``running``, the picture at its last event.

        ``frame`` is the size of the picture. ``state`` replaces the state of the view and of the sweep, if not empty.
        """
        with self._lock:
            last_event = self.standing.last
            if running or last_event is None:
                now = time.time()
            else:
                now = last_event
            return picture(self.standing, now, frame, state=state or self.state, running=running)

    def start(self) -> None:
        """Start the drawing thread, and replace standard output if the picture is drawn on it.

        `on` does this at the first event that is not of a session's start or end. Nothing happens if the output is no
        terminal, or if the view draws already, is closed or was created with ``quiet``.
        """
        if self._screen is None or self._thread is not None or self._closed.is_set():
            return
        self._thread = threading.Thread(
            target=self._draw, args=(self._screen,), name="sweep-view", daemon=True
        )
        self._own_stdout.take_over()
        self._thread.start()

    def _draw(self, screen: Screen) -> None:
        """Draw the picture repeatedly until the view is closed, then erase it; return early if the terminal is gone."""
        try:
            while True:
                # asked first, so that the last turn writes all lines that were queued before the close
                is_last_turn = self._closed.is_set()
                size = self._console.size
                # a row is left for the cursor, which stays below the picture
                frame = Frame(width=size.width, height=size.height - 1, ascii_only=self.ascii_only)
                lines = [] if is_last_turn else self.lines(frame)  # without lines, it is erased
                with self._lock:
                    above, self._queued = self._queued, []
                screen.draw(above, lines)
                if is_last_turn:
                    return
                self._closed.wait(DRAW_S)
        except OSError:  # the terminal is gone; the sweep continues
            return

    def _tell(self, text: str, style: str = "") -> None:
        """Queue a line in a style of Rich, to be written above the picture, and start to draw.

        Unprintable characters are escaped.
        """
        plain = printable(text)
        if self.ascii_only:
            plain = plain.encode("ascii", "replace").decode()
        line = Text(plain, style)
        with self._lock:
            self._queued.append(line)
        if self._thread is None:
            self.start()

    def _tell_failure(self, ended: FinishedTrial) -> None:
        """Queue a line about a failed trial, unless `ALIKE` trials have failed with the same type of error before.

        After the last of these, a line says that further ones are only counted in the picture.
        """
        kind = get_error_type(ended.reason)
        self._failures_by_type[kind] += 1
        if self._failures_by_type[kind] <= ALIKE:
            self._tell(self._line(ended), STYLES[Status.FAILED])
        if self._failures_by_type[kind] == ALIKE:
            self._tell("further failures like this are counted below", "dim")

    def _line(self, ended: FinishedTrial) -> str:
        """Return the line about a trial that has ended: status, time, reason, score, the best so far and parameters.

        The last part is the number of ended trials and, if it is known, that of all, as in ``[3/20]``.
        """
        total = self.standing.total
        best = self.standing.best
        done = self.standing.finished
        outline = self.standing.outline
        if ended.status is Status.COMPLETED:
            after = ""
        else:
            after = f" after {counted(ended.epochs, 'epoch')}"
        took = f" in {duration(ended.took_s)}"
        parts = []
        if ended.reason:
            parts.append(f"{' '.join(ended.reason.split())};")
        if ended.value is not None:
            parts.append(f"{outline.metric} {score(ended.value)}")
        if best is not None:
            parts.append(f"(best {score(best.value)}, {trials_named(best.trials)})")
        settings = format_settings(ended.params, outline.varying)
        if settings:
            parts.append(settings)
        of_total = f"{done}" if total is None else f"{done}/{total}"
        parts.append(f" [{of_total}]")
        return f"trial {ended.trial} {ended.status}{after}{took}: {' '.join(parts)}"

    def _write(self, line: str) -> None:
        """Write a line, with unprintable characters escaped; if that fails, print no more lines about trials."""
        try:
            _write_text(self._console.file, f"{printable(line)}\n")
        except OSError:  # the pipe is closed or the terminal is gone; the sweep continues
            self._prints_lines = False


def on_terminal(spec: Spec, how: Options) -> LiveView:
    """Return the view of a session on this terminal; with the quiet option it shows nothing.

    It prints lines instead of a picture if the model is trained in this process with ``run_eagerly``, because a
    debugger may use the terminal.
    """
    debugging = how.inline and spec.training.get("run_eagerly")
    return LiveView(console(draws=not debugging), Outline.of(spec), quiet=how.quiet)
