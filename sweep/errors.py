"""The exceptions of sweep, and short descriptions of errors in an author's code.

    SweepError
    ├── InputError          the user's input is wrong: one line per mistake, exit code 2
    │   ├── UnknownNameError    it names a sweep, trial, example or job that does not exist, exit code 3
    │   └── RefusedError        what exists does not allow it, such as a sweep that has begun, exit code 4
    ├── TrainableError      a trainable broke its contract: the sweep ends, exit code 2
    ├── StoreError          a results folder cannot be read or written as it is
    │   └── StoreAway           an object store does not answer
    └── Interrupted         a signal came before the first trial, exit code 130
    StoppedAtOnce           the sweep ends now, but not its process; nothing on the way catches it
    WorkerLost              one of several processes of a trial is gone; nothing on the way catches it

Exceptions from a user's model are not in this tree. They end one trial and are stored with it: the author's own line
comes first, and frames of libraries are left out.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sweep.author_code import is_author_file, package_of
from sweep.text import counted, printable, shortened


class SweepError(Exception):
    """Base of all errors that are shown as one line and never as a traceback."""

    exit_code = 2  # of the command that it ends


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is, what is wrong and what was expected, and a hint."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        if self.where:
            line = f"{self.where}: {self.what}"
        else:
            line = self.what
        if self.hint:
            return f"{line}; {self.hint}"
        return line

    @property
    def found(self) -> str:
        """What is there: `what` without what was expected."""
        return self.what.partition(EXPECTED)[0]

    @property
    def expected(self) -> str:
        """What was expected; "" if the message does not say it."""
        return self.what.partition(EXPECTED)[2]


EXPECTED = ", expected "
"""Separates what is there from what was expected in the message of a mistake."""


class InputError(SweepError):
    """All mistakes of one input."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def one(cls, where: str, what: str, hint: str = "") -> Self:
        """Return an error with a single mistake."""
        return cls([Problem(where, what, hint)])


class UnknownNameError(InputError):
    """The input names a sweep, trial, example or job that does not exist."""

    exit_code = 3


class RefusedError(InputError):
    """What exists does not allow what was asked for.

    A sweep has begun, runs or does not run; a name is taken; no trial has completed yet.
    """

    exit_code = 4


def refuse(problems: Iterable[Problem], error: type[InputError] = InputError) -> None:
    """Raise an error of this type if there are problems; duplicates are listed once."""
    if found := dict.fromkeys(problems):
        raise error(found)


class TrainableError(SweepError):
    """A trainable broke its contract, for example it never reported the metric of the sweep."""


class StoreError(SweepError):
    """A results folder is damaged, locked, or not a results folder."""


class StoreAway(StoreError):
    """An object store does not answer, or refuses to."""


class InterruptedByUser(SweepError):
    """The user ended a command before it had anything to save."""

    exit_code = 130


class StoppedAtOnce(BaseException):
    """The sweep must end now while its process lives on. Not a failure of a trial, and not to be caught on the way."""


class WorkerLost(BaseException):
    """A worker is unusable because one of its processes is gone; its trial continues on another worker."""


def first_line(error: BaseException | str, length: int = 300) -> str:
    """Return the first line of an error's message, or the name of its type if the message is empty."""
    return shortened(_split_message(error)[0], length)


def last_line(error: BaseException) -> str:
    """Return the last line of an error's message, which in the errors of a remote process is the cause."""
    return shortened(_split_message(error)[-1])


def in_short(error: BaseException) -> str:
    """Return ``ValueError: first line of its message``, or the type alone if the message is empty."""
    kind = type(error).__name__
    if str(error).strip():
        return f"{kind}: {first_line(error)}"
    return kind


def _split_message(error: BaseException | str) -> list[str]:
    lines = printable(str(error)).strip().splitlines()
    return lines or ["" if isinstance(error, str) else type(error).__name__]


WHOLE = "SWEEP_FULL_TRACEBACKS"
_CALLING = re.compile(r"Exception encountered when calling (?:layer )?(.+?)\.?$")  # Keras
_NAMED = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE)
_USER_CODE, _GRAPH = "in user code:", "Graph execution error:"  # TensorFlow
_VALUES = "  Label values: "  # all labels of the batch follow


def reason_of(error: BaseException) -> str:
    """Describe an error in one line: its type, the author's line, and the cause.

    Keras and TensorFlow wrap the cause in sentences such as "Exception encountered when calling Dense.call()."; the
    cause is extracted from them.
    """
    return f"{type(error).__name__}: {said_by(error)}"


def said_by(error: BaseException) -> str:
    """Describe an error as `reason_of` does, without its type."""
    cause = _cause(printable(str(error)).strip(), type(error).__name__)
    is_own = type(error).__module__.startswith(("sweep.", "trainables."))  # its message already says what to change
    place = None if is_own else where_raised(error)
    return shortened(": ".join(part for part in (place, cause) if part))


def where_raised(error: BaseException) -> str | None:
    """Return the author's line nearest to an error, as ``models.py:12 in loss``; None if the traceback has none."""
    own = []
    for match in _NAMED.finditer(str(error)):
        if is_author_file(match["file"]):
            own.append((match["file"], int(match["line"]), match["function"]))
    if not own:
        for frame, line in traceback.walk_tb(error.__traceback__):
            if is_author_file(frame.f_code.co_filename):
                own.append((frame.f_code.co_filename, line, frame.f_code.co_name))
    if not own:
        return None
    file, line, function = own[-1]
    return f"{Path(file).name}:{line} in {function}"


def folded_traceback(error: BaseException) -> str:
    """Format a traceback with each run of library frames folded into one line.

    If no line of the author's is in the traceback, all frames are kept, except those that TensorFlow writes into the
    message of a graph execution error. The environment variable ``SWEEP_FULL_TRACEBACKS`` turns folding off.
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
    """Return the line of a message that states the cause."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    first = lines[0].strip()
    if first == _USER_CODE:  # this message ends with the error itself
        starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(f"{kind}: ")]
        if starts:
            return _cause("\n".join(lines[starts[-1] :]).strip().removeprefix(f"{kind}: "), kind)
        return lines[-1].strip()
    if first == _GRAPH:
        plain = [line for line in lines[1:] if not line.startswith((" ", "\t", "Detected at node", "<stack traces"))]
        if plain:
            return plain[0].strip().partition(_VALUES)[0]
        return first
    if found := _CALLING.match(first):
        told = text.partition("Arguments received by")[0].splitlines()[1:]
        causes = [line.strip() for line in told if line.strip()]
        if causes:
            # The cause is the last paragraph: Keras puts advice before it.
            paragraphs = [part.strip() for part in "\n".join(told).split("\n\n") if part.strip()]
            return f"{found[1]}: {_cause(paragraphs[-1], kind)}"
    return first


def _without_stack(message: str) -> str:
    """Return the message of a graph execution error without its library frames."""
    lines = list[str]()
    hidden = 0
    for line in [*message.split("\n"), None]:
        if line is None:
            named = None
        else:
            named = _NAMED.match(line)
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
    """Yield the error and then its causes, as Python chains them."""
    one: traceback.TracebackException | None = told
    while one is not None:
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


class _Folded(traceback.StackSummary):
    """A stack in which one frame without a line may stand for several folded ones."""

    @classmethod
    def of(cls, stack: traceback.StackSummary) -> _Folded:
        """Fold each run of library frames."""
        found = cls()
        hidden = list[traceback.FrameSummary]()
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
        """Format one frame, or the line that stands for a folded run."""
        if frame_summary.name == _FOLDED:
            return f"  ... {counted(frame_summary.lineno or 0, 'frame')} of {frame_summary.filename}\n"
        return super().format_frame_summary(frame_summary)


_FOLDED = "..."
