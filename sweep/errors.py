"""Everything that sweep raises on purpose.

    SweepError
    ├── InputError          the user's input is wrong: one line per mistake, exit code 2
    ├── TrainableError      a trainable broke its contract: the sweep ends, exit code 2
    ├── StoreError          a results folder cannot be read or written as it is
    └── Interrupted         a signal came before the first trial, exit code 130
    StoppedAtOnce           a sweep ends now and its process lives on: passes through everything
    WorkerLost              a process of several that train a trial is gone: passes through everything

Exceptions out of a user's model are not in this tree: they end one trial and are kept with it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[@-Z\\^_]|\x9b[0-?]*[ -/]*[@-~]")


class SweepError(Exception):
    """Base of all errors that are shown as one line and never as a traceback."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the place, what is there and what was expected, and a way out."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}; {self.hint}" if self.hint else line


class InputError(SweepError):
    """All mistakes of one input at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def one(cls, where: str, what: str, hint: str = "") -> InputError:
        """Return the common case of a single mistake."""
        return cls([Problem(where, what, hint)])


class TrainableError(SweepError):
    """A trainable broke its contract, for example it never reported the metric of the sweep."""


class StoreError(SweepError):
    """A results folder is damaged, locked, or not a results folder."""


class Interrupted(SweepError):
    """Somebody ended a command before it had anything to save."""


class StoppedAtOnce(BaseException):
    """A sweep is to end now, in a process that lives on; no trial's failure, and nobody's to catch on its way."""


class WorkerLost(BaseException):
    """A worker is of no use any more, for one of its processes is gone: its trial goes on with another worker."""


def printable(text: str) -> str:
    """Return a text of others without what would move a terminal's cursor, change its colours or its title."""
    plain = _ESCAPES.sub("", text)
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in plain)


def plural(noun: str, count: int) -> str:
    """Return the noun as it stands after a number: ``epoch`` after 1, ``epochs`` after others."""
    return noun if count == 1 else f"{noun}s"


def shortened(text: str, length: int = 300) -> str:
    """Return a text of at most so many characters: one that is longer ends after a word, in ``...``."""
    if len(text) <= length:
        return text
    room = length - len("...")
    words = text[: room + 1].rpartition(" ")[0].rstrip()
    return f"{words if len(words) > room // 2 else text[:room]}..."  # a word may be longer than all there is room for


def first_line(error: BaseException, length: int = 300) -> str:
    """Return the first line of what an error says."""
    lines = printable(str(error)).strip().splitlines() or [""]
    return shortened(lines[0], length)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a name; None where none is."""
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the nearest known name, or else all of them."""
    known = sorted(known)
    near = nearest(name, known)
    if near:
        return f"did you mean {near!r}?"
    return f"known: {', '.join(known)}" if known else ""
