"""Who watches a sweep that is run from Python: a notebook's cell, or the terminal as for the command line.

The one module that knows IPython.
"""

from __future__ import annotations

import io
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rich.console import Console
from rich.text import Text

from sweep.errors import printable
from sweep.events import Event
from sweep.render.progress import Frame
from sweep.spec import Spec
from sweep.store.folder import ResultsFolder

if TYPE_CHECKING:
    from sweep.render.live import LiveView
    from sweep.runner.session import MakeView
    from sweep.runner.session_options import Options, View


DRAW_S = 0.5
SAID = 20  # lines that stay
WIDTH, HEIGHT = 100, 24  # characters, lines


class Drawing(Protocol):
    """What counts a sweep's events and can be drawn."""

    def replay(self, events: Iterable[Event]) -> None: ...

    def on(self, event: Event) -> None: ...

    def close(self) -> None: ...

    def lines(self, frame: Frame) -> list[Text]: ...


def is_here() -> bool:
    """Return whether this process is a notebook's kernel."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def display() -> Callable[[str], None]:
    """Return a new place in the output of the present cell, and how to put HTML there in place of what it shows."""
    from IPython.display import HTML
    from IPython.display import display as show

    handle: Any = show(HTML(""), display_id=True)  # type: ignore[no-untyped-call]  # IPython is untyped there
    return lambda html: handle.update(HTML(html))  # type: ignore[no-untyped-call]  # IPython is untyped there


class NotebookView:
    """Shows a sweep in one place of a cell's output, drawn anew by a thread of its own."""

    def __init__(self, watching: Drawing, draw: Callable[[str], None]) -> None:
        self._watching, self._draw = watching, draw
        self._said: deque[str] = deque(maxlen=SAID)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def replay(self, events: Iterable[Event]) -> None:
        """See what happened before this session."""
        self._watching.replay(events)

    def on(self, event: Event) -> None:
        """See an event."""
        with self._lock:
            self._watching.on(event)
        if self._thread is None and not self._over.is_set():
            self._thread = threading.Thread(target=self._redraw, name="sweep-notebook", daemon=True)
            self._thread.start()

    def say(self, text: str) -> None:
        """A line about the session itself; it stays."""
        self._said.append(text)
        if self._thread is None:
            self._show()

    def close(self) -> None:
        """Show how it ended, and no more."""
        if self._over.is_set():
            return
        self._over.set()
        if self._thread is not None:
            self._thread.join(DRAW_S * 4)
        self._watching.close()
        self._show()

    def _redraw(self) -> None:
        while not self._over.wait(DRAW_S):
            self._show()

    def _show(self) -> None:
        lines = [printable(text) for text in self._said]
        with self._lock:
            picture = (
                as_html(self._watching.lines(Frame(width=WIDTH, height=HEIGHT))) if self._thread is not None else ""
            )
        self._draw(f'<pre style="opacity:.7">{escape(chr(10).join(lines))}</pre>{picture}' if lines else picture)


def as_html(lines: Sequence[Text]) -> str:
    """Lines of a terminal as HTML."""
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, force_jupyter=False, color_system="256"
    )
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis")
    style = "line-height:normal;font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace"
    return console.export_html(inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>')


def viewer(spec: Spec, notes: Sequence[str], how: Options) -> MakeView:
    """Makes the view of a session, which begins with these notes."""

    def made(folder: ResultsFolder, terminal: TextIO) -> View:
        view: View = _live(spec, quiet=how.quiet)
        if not how.quiet and is_here():
            view = NotebookView(drawing(spec), display())
        for note in () if how.quiet else notes:
            view.say(note)
        if how.verbose and not how.quiet:
            view.say(f"output of Ray and TensorFlow: {folder.debug_log}")
        return view

    return made


def drawing(spec: Spec) -> Drawing:
    """Return what counts a sweep's events and is drawn elsewhere."""
    return _live(spec, quiet=True)


def _live(spec: Spec, *, quiet: bool) -> LiveView:
    from sweep.analysis.outline import Outline
    from sweep.render.formatting import console
    from sweep.render.live import LiveView

    return LiveView(console(), Outline.of(spec), quiet=quiet)
