"""Everything that sweep raises on purpose, and what went wrong in an author's code.

    SweepError
    ├── InputError          the user's input is wrong: one line per mistake, exit code 2
    ├── TrainableError      a trainable broke its contract: the sweep ends, exit code 2
    ├── StoreError          a results folder cannot be read or written as it is
    └── Interrupted         a signal came before the first trial, exit code 130
    StoppedAtOnce           a sweep ends now and its process lives on: passes through everything
    WorkerLost              a process of several that train a trial is gone: passes through everything

Exceptions out of a user's model are not in this tree: they end one trial and are kept with it,
the author's own line first, and no frames of the machinery around it.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.author_code import is_author_file, package_of
from sweep.text import counted, printable, shortened


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


def refuse(problems: Iterable[Problem]) -> None:
    """Raise `InputError` where there are any; what is found twice is said once."""
    if found := dict.fromkeys(problems):
        raise InputError(found)


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


def first_line(error: BaseException | str, length: int = 300) -> str:
    """Return the first line of what an error says, or the name of its type where it says nothing."""
    return shortened(_lines(error)[0], length)


def last_line(error: BaseException) -> str:
    """Return the last line, which is the cause in the errors of a remote process, as `first_line`."""
    return shortened(_lines(error)[-1])


def in_short(error: BaseException) -> str:
    """Return ``ValueError: its first line``; the type alone where it says nothing."""
    kind = type(error).__name__
    return f"{kind}: {first_line(error)}" if str(error).strip() else kind


def _lines(error: BaseException | str) -> list[str]:
    lines = printable(str(error)).strip().splitlines()
    return lines or ["" if isinstance(error, str) else type(error).__name__]


WHOLE = "SWEEP_FULL_TRACEBACKS"
_CALLING = re.compile(r"Exception encountered when calling (?:layer )?(.+?)\.?$")  # Keras
_NAMED = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE)
_USER_CODE, _GRAPH = "in user code:", "Graph execution error:"  # TensorFlow
_VALUES = "  Label values: "  # all labels of the batch follow


def reason_of(error: BaseException) -> str:
    """Return what an error says in one line: its type, the author's line, and the cause.

    Keras and TensorFlow wrap the cause in sentences such as "Exception encountered when calling Dense.call()."; the
    cause itself is taken out of them.
    """
    return f"{type(error).__name__}: {said_by(error)}"


def said_by(error: BaseException) -> str:
    """Return `reason_of` without the type."""
    cause = _cause(printable(str(error)).strip(), type(error).__name__)
    is_own = type(error).__module__.startswith(("sweep.", "trainables."))  # whose text says what to change
    place = None if is_own else where_raised(error)
    return shortened(": ".join(part for part in (place, cause) if part))


def where_raised(error: BaseException) -> str | None:
    """Return the author's line nearest to an error, as ``models.py:12 in loss``; None where none takes part."""
    own = [
        (match["file"], int(match["line"]), match["function"])
        for match in _NAMED.finditer(str(error))
        if is_author_file(match["file"])
    ] or [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_author_file(frame.f_code.co_filename)
    ]
    if not own:
        return None
    file, line, function = own[-1]
    return f"{Path(file).name}:{line} in {function}"


def folded_traceback(error: BaseException) -> str:
    """Return the traceback with each run of frames that are not the author's as one line.

    An error in which no line of the author's takes part keeps all of its frames, but for those that TensorFlow writes
    into the message of a graph's error. Nothing is folded where the environment variable ``SWEEP_FULL_TRACEBACKS`` is
    set.
    """
    told = traceback.TracebackException.from_exception(error)
    for one in () if os.environ.get(WHOLE) else _chain(told):
        if any(is_author_file(frame.filename) for frame in one.stack):
            one.stack = _Folded.of(one.stack)
    text = "".join(told.format())
    for message in () if os.environ.get(WHOLE) else map(str, _chain(told)):
        if message.startswith(_GRAPH):
            text = text.replace(message, _without_stack(message))
    return printable(text)


def _cause(text: str, kind: str) -> str:
    """Return the line of a message that says what is wrong."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    first = lines[0].strip()
    if first == _USER_CODE:  # ends with the error itself
        starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(f"{kind}: ")]
        if starts:
            return _cause("\n".join(lines[starts[-1] :]).strip().removeprefix(f"{kind}: "), kind)
        return lines[-1].strip()
    if first == _GRAPH:
        plain = [line for line in lines[1:] if not line.startswith((" ", "\t", "Detected at node", "<stack traces"))]
        return plain[0].strip().partition(_VALUES)[0] if plain else first
    if found := _CALLING.match(first):
        told = text.partition("Arguments received by")[0].splitlines()[1:]
        causes = [line.strip() for line in told if line.strip()]
        if causes:
            # The cause is the last paragraph: Keras adds advice in front of it.
            paragraphs = [part.strip() for part in "\n".join(told).split("\n\n") if part.strip()]
            return f"{found[1]}: {_cause(paragraphs[-1], kind)}"
    return first


def _without_stack(message: str) -> str:
    """Return the message of a graph's error without the frames in it that are not the author's."""
    lines, hidden = list[str](), 0
    for line in [*message.split("\n"), None]:
        named = None if line is None else _NAMED.match(line)
        if line is not None and ((named and not is_author_file(named["file"])) or (hidden and not line.strip())):
            hidden += bool(named)
            continue
        if hidden:
            lines.append(f"  ... {counted(hidden, 'frame')}")
            hidden = 0
        if line is not None:
            lines.append(line.partition(_VALUES)[0])
    return "\n".join(lines)


def _chain(told: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """The error, and those that it came from."""
    one: traceback.TracebackException | None = told
    while one is not None:
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


class _Folded(traceback.StackSummary):
    """A stack in which a frame without a line stands for several."""

    @classmethod
    def of(cls, stack: traceback.StackSummary) -> _Folded:
        """Fold each run of frames that are not the author's."""
        found, hidden = cls(), list[traceback.FrameSummary]()
        for frame in [*stack, None]:
            if frame is not None and not is_author_file(frame.filename):
                hidden.append(frame)
                continue
            if hidden:
                names = dict.fromkeys(package_of(one.filename) for one in hidden)
                found.append(traceback.FrameSummary(", ".join(names), len(hidden), _FOLDED, lookup_line=False))
                hidden = []
            if frame is not None:
                found.append(frame)
        return found

    def format_frame_summary(self, frame_summary: traceback.FrameSummary) -> str:
        """Return the lines of one frame."""
        if frame_summary.name == _FOLDED:
            return f"  ... {counted(frame_summary.lineno or 0, 'frame')} of {frame_summary.filename}\n"
        return super().format_frame_summary(frame_summary)


_FOLDED = "..."
