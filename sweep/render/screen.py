"""The last lines of a terminal, drawn over and over: what is to stay is written above them.

A frame is one write: each line is overwritten and then cleared to its end, so that nothing flickers. The cursor waits
below it and is never hidden, and no other screen is used: whatever kills this process leaves a terminal that works.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import IO

from rich.console import Console
from rich.text import Text

_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"


class Screen:
    """Draws frames on a terminal. Not for several threads at once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._file = console.file
        self._drawn: list[int] = []  # the width of each line of the last frame
        self._width = 0  # of the terminal at that time

    def draw(self, above: Sequence[Text], frame: Sequence[Text]) -> None:
        """Write lines that stay, and below them a frame in the place of the last one.

        Raises OSError where nobody reads any more.
        """
        up, width = self._rows(), self._console.size.width
        parts = [f"\x1b[{up}A" if up else "", "\r"]
        if (
            above or width != self._width or not frame
        ):  # rows that were wrapped would be joined when there is more room again
            parts += [_erased(up), *(f"{line}\r\n" for line in self._rendered(above))]
        parts.append(_NO_WRAP)
        for line, text in zip(self._rendered(frame), frame, strict=True):
            # After a full line the cursor is still on its last character, which would be cleared.
            parts += [line, _CLEAR_LINE if text.cell_len < width else "", "\r\n"]
        parts += [_CLEAR_BELOW if frame else "", _WRAP]
        self._write("".join(parts))
        self._drawn, self._width = [line.cell_len for line in frame], width

    def _rows(self) -> int:
        """How many rows the last frame takes: a terminal that became narrower may have wrapped its lines."""
        width, height = max(self._console.size.width, 1), self._console.size.height
        return min(sum(max(-(-cells // width), 1) for cells in self._drawn), max(height - 1, 0))

    def _rendered(self, lines: Sequence[Text]) -> list[str]:
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, soft_wrap=True)
        return captured.get().split("\n")[:-1]

    def _write(self, text: str) -> None:
        encoding = self._console.encoding
        self._file.write(text.encode(encoding, "replace").decode(encoding))
        self._file.flush()


def _erased(up: int) -> str:
    """Clears ``up`` rows from the cursor on, and the one below them, without moving it.

    Row by row: terminals keep what a clearing from their first row on takes away, as if it had scrolled off.
    """
    return "\x1b[2K\x1b[B" * up + "\x1b[2K" + (f"\x1b[{up}A" if up else "")


class Above(io.TextIOBase):
    """Stands in for standard output while frames are drawn: its lines are told, to be written above them."""

    def __init__(self, file: IO[str], tell: Callable[[str], None]) -> None:
        self.rich_proxied_file = file  # what Rich's consoles take instead
        self._tell = tell
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = f"{self._begun}{text}".split("\n")
        for line in lines:
            self._tell(line.rstrip("\r").rpartition("\r")[2])
        return len(text)

    def flush(self) -> None:
        """A line that has only begun waits for its end."""

    def isatty(self) -> bool:
        return self.rich_proxied_file.isatty()

    def fileno(self) -> int:
        return self.rich_proxied_file.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # that of the base is writable
        return str(getattr(self.rich_proxied_file, "encoding", "utf-8"))

    def take_over(self) -> None:
        """Be standard output, if that is what frames are drawn on."""
        if sys.stdout is self.rich_proxied_file:
            sys.stdout = self

    def give_back(self) -> None:
        """Let standard output be what it was; tell a line that never ended."""
        if sys.stdout is self:
            sys.stdout = self.rich_proxied_file
        if self._begun:
            self.write("\n")


def is_plain(encoding: str, environ: dict[str, str]) -> bool:
    """Whether a terminal shows nothing but ASCII, by what its encoding and its locale say.

    Python takes UTF-8 in the locale C, whose users have asked for ASCII.
    """
    if encoding.lower().replace("-", "").replace("_", "") != "utf8":
        return True
    # Python itself sets LC_CTYPE where LANG is C.
    said = environ.get("LC_ALL") or environ.get("LANG") or ""
    return said in ("C", "POSIX")
