"""A terminal of a few sequences: those that we write. It wraps, scrolls and reflows as real ones do."""

from __future__ import annotations

import io
import re

from rich.cells import cell_len

SEQUENCE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])")


class Terminal(io.StringIO):
    """Lines of text on a screen of ``width`` x ``height``; what leaves it at the top is in ``history``."""

    encoding = "utf-8"

    def __init__(self, width: int = 80, height: int = 24) -> None:
        super().__init__()
        self.width, self.height = width, height
        self.rows: list[list[str]] = [[]]  # of cells, with "" behind a wide character
        self.continued: list[bool] = [False]  # whether a row is the rest of the one before
        self.history: list[str] = []
        self.row = self.column = 0
        self.wraps = True
        self.writes = 0

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]

    def write(self, text: str) -> int:
        self.writes += bool(text)
        at = 0
        while at < len(text):
            if found := SEQUENCE.match(text, at):
                self._obey(found[1], found[2], found[3])
                at = found.end()
                continue
            match text[at]:
                case "\r":
                    self.column = 0
                case "\n":
                    self._down(continued=False)
                case "\x1b":
                    raise ValueError(f"not a sequence that we write: {text[at : at + 10]!r}")
                case character:
                    self._put(character)
            at += 1
        return len(text)

    def resize(self, width: int, height: int) -> None:
        """Wrap lines anew, and let go of rows at the top; the cursor stays below the last line."""
        joined: list[list[str]] = []
        for row, continued in zip(self.rows[: self.row], self.continued, strict=False):
            cells = list(row)
            if continued and joined:
                joined[-1] += cells
            else:
                joined.append(cells)
        self.width, self.height = width, height
        self.rows, self.continued = [], []
        for cells in joined:
            while cells and cells[-1] == " ":
                cells.pop()
            parts = [cells[at : at + width] for at in range(0, len(cells), width)] or [[]]
            self.rows += parts
            self.continued += [False] + [True] * (len(parts) - 1)
        self.rows.append([])
        self.continued.append(False)
        self.row, self.column = len(self.rows) - 1, 0
        self._scroll()

    def _obey(self, private: str, number: str, letter: str) -> None:
        match private, letter:
            case "", "A":
                self.row = max(self.row - int(number or 1), 0)
            case "", "B":
                self.row = min(self.row + int(number or 1), len(self.rows) - 1)
            case "", "K":
                del self.rows[self.row][0 if number == "2" else self.column :]
                if number == "2" and self.row + 1 < len(self.rows):
                    self.continued[self.row + 1] = False
            case "", "J":
                if self.row == self.column == 0:  # as tmux does
                    self.history += self.lines
                del self.rows[self.row][self.column :]
                del self.rows[self.row + 1 :], self.continued[self.row + 1 :]
            case "", "m":
                pass
            case "?", "l" | "h" if number == "7":
                self.wraps = letter == "h"
            case _:
                raise ValueError(f"not a sequence that we write: {private}{number}{letter}")

    def _put(self, character: str) -> None:
        width = cell_len(character)
        if self.column + width > self.width:
            if self.wraps:
                self._down(continued=True)
                self.column = 0
            else:
                self.column = self.width - width
        row = self.rows[self.row]
        row += [" "] * (self.column - len(row))
        row[self.column : self.column + width] = [character, *[""] * (width - 1)]
        self.column += width

    def _down(self, *, continued: bool) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])
            self.continued.append(continued)
        self._scroll()

    def _scroll(self) -> None:
        while len(self.rows) > self.height:
            self.history.append("".join(self.rows.pop(0)).rstrip())
            self.continued.pop(0)
            self.row -= 1
