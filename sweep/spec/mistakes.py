"""What was read from a file, where each part of it stands, and the mistakes found in it so far."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from sweep.errors import InputError, Problem, shortened
from sweep.events import Value

KeyPath: TypeAlias = tuple[str | int, ...]
"""The way from the top of a file to a value: keys of mappings, indices of lists."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a text, counted from 1 as editors do."""

    line: int
    column: int


_WORDS = {"null", "true", "false"}
_LONG = 500
_LAST = Mark(2**31, 0)  # what is wrong outside of the text comes last


@dataclass(slots=True)
class Document:
    """Plain data with places, and a list of mistakes that grows while the data are understood."""

    source: str
    data: dict[str, Value] = field(default_factory=dict)
    keys: dict[KeyPath, Mark] = field(default_factory=dict)
    values: dict[KeyPath, Mark] = field(default_factory=dict)
    overrides: dict[KeyPath, str] = field(default_factory=dict)  # as typed: "--set a.b=1"
    mistakes: list[tuple[Mark, Problem]] = field(default_factory=list)
    found: int = 0  # mistakes so far, also those that are not told
    faulty: set[Mark] = field(default_factory=set)  # where the text itself is wrong

    def where(self, mark: Mark) -> str:
        """Return a place as compilers print it."""
        return f"{self.source}:{mark.line}:{mark.column}"

    def fault(self, mark: Mark, what: str, hint: str = "") -> None:
        """Note a mistake in the text at a place; what follows from it there is not told."""
        self.faulty.add(mark)
        self._add(mark, self.where(mark), what, hint)

    def mistake(self, path: KeyPath, what: str, hint: str = "", *, at_key: bool = False) -> None:
        """Note a mistake in the value at ``path``, or in its key; what is missing stands at its parent."""
        mark, where = self._place(path, at_key=at_key)
        if mark in self.faulty:
            self.found += 1
            return
        self._add(mark, where, f"{dotted(path)}: {what}" if path else what, hint)

    def outside(self, where: str, what: str, hint: str = "") -> None:
        """Note a mistake that is not in the text."""
        self._add(_LAST, where, what, hint)

    def check(self) -> None:
        """Raise InputError when there are mistakes, in the order of the file."""
        if self.mistakes:
            raise InputError(dict.fromkeys(problem for _, problem in sorted(self.mistakes, key=_mark)))

    def override(self, path: KeyPath, typed: str) -> None:
        """Note that the value at ``path`` did not come from the text."""
        self.overrides[path] = typed
        for marks in (self.keys, self.values):
            for inner in [inner for inner in marks if inner[: len(path)] == path]:
                del marks[inner]

    def _add(self, mark: Mark, where: str, what: str, hint: str) -> None:
        self.found += 1
        self.mistakes.append((mark, Problem(one_line(where), one_line(what), one_line(hint))))

    def place(self, path: KeyPath, *, at_key: bool = False) -> str:
        """Return where the value at ``path`` stands, or its key, as `mistake` says it."""
        return f"{self._place(path, at_key=at_key)[1]}: {dotted(path)}"

    def _place(self, path: KeyPath, *, at_key: bool) -> tuple[Mark, str]:
        for length in range(len(path), -1, -1):
            prefix = path[:length]
            if prefix in self.overrides:
                return _LAST, self.overrides[prefix]
            marks = self.keys if at_key and prefix in self.keys else self.values
            if prefix in marks:
                return marks[prefix], self.where(marks[prefix])
        return _LAST, self.source


def dotted(path: KeyPath) -> str:
    """Return a path as people write it: ``metrics[1].goal``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def one_line(text: str) -> str:
    """Return a text out of a file as it can be printed: nothing that ends the line, and of bounded length."""
    text = shortened(text, _LONG)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show(value: Value) -> str:
    """Return what a value is, in a few words of one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"number {value!r}"
        case str():
            return f"text {shortened(value, 60)!r}"
        case list():
            return f"a list of {len(value)}" if value else "an empty list"
        case _:
            return "a mapping" if value else "an empty mapping"


def flow(value: Value) -> str:
    """Return a value as it is written in YAML on one line."""
    match value:
        case str() if re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", value) and value.lower() not in _WORDS:
            return value
        case list():
            return f"[{', '.join(map(flow, value))}]"
        case dict():
            return f"{{{', '.join(f'{flow(key)}: {flow(inner)}' for key, inner in value.items())}}}"
        case str():
            quoted = json.dumps(value, ensure_ascii=False)  # U+0085 and its kin are line breaks to some readers
            return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
        case _:
            return json.dumps(value)


def _mark(entry: tuple[Mark, Problem]) -> Mark:
    return entry[0]
