"""The exceptions of sweep, and short descriptions of errors in an author's code.

    SweepError
    ├── InputError          the user's input is wrong: one line per mistake, exit code 2
    │   ├── UnknownNameError    it names a sweep, trial, example or job that does not exist, exit code 3
    │   └── RefusedError        what exists does not allow it, such as a sweep that has begun, exit code 4
    ├── TrainableError      a trainable broke its contract: the sweep ends, exit code 2
    ├── StoreError          a results folder cannot be read or written as it is
    │   └── StoreAway           an object store does not answer
    └── InterruptedByUser   a signal came before the first trial, exit code 130
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
from typing import Any, Self

from sweep.author_code import get_package_name, is_author_file
from sweep.text import counted, printable, shortened


class SweepError(Exception):
    """Base of all errors that are shown as one line and never as a traceback."""

    exit_code = 2  # of the command that it ends


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the input: its place, what is wrong, and a hint."""

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
        """The part of `what` before ", expected": what the input contains; all of `what` if it lacks that word."""
        return self.what.partition(EXPECTED)[0]

    @property
    def expected(self) -> str:
        """The part of `what` after ", expected": what should be there; "" if the message does not say it."""
        return self.what.partition(EXPECTED)[2]


EXPECTED = ", expected "
"""Separates what is there from what was expected in the message of a mistake."""


class InputError(SweepError):
    """The user's input is wrong; lists all mistakes."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def one(cls, where: str, what: str, hint: str = "") -> Self:
        """Create an error with a single mistake; the arguments are the fields of `Problem`."""
        return cls([Problem(where, what, hint)])


class UnknownNameError(InputError):
    """The input names a sweep, trial, example or job that does not exist."""

    exit_code = 3


class RefusedError(InputError):
    """The command cannot be carried out in the present state of the sweep or of its folder.

    For example, the sweep has already begun, runs or does not run; a name is taken; no trial has completed yet.
    """

    exit_code = 4


def refuse(problems: Iterable[Problem], error: type[InputError] = InputError) -> None:
    """Raise an error of the class ``error`` with ``problems``, equal ones listed once; do nothing if there are none."""
    distinct = dict.fromkeys(problems)
    if distinct:
        raise error(distinct)


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
    """The sweep must end now, but its process continues.

    It derives from BaseException so that no code in between handles it as the failure of a trial.
    """


class WorkerLost(BaseException):
    """One of the processes of a worker is gone, so its trial continues on another worker.

    It derives from BaseException so that no code in between handles it as the failure of a trial.
    """


def first_line(error: BaseException | str, length: int = 300) -> str:
    """Return the first line of a message that is not empty; of an error without a message, the name of its type.

    For an empty text, return "". Escape sequences are removed and control characters escaped. A line of more than
    ``length`` characters is cut and ends in ``...``.
    """
    return shortened(_split_message(error)[0], length)


def last_line(error: BaseException) -> str:
    """Return the last line of an error's message that is not empty; the name of its type if there is no message.

    In errors of remote processes, the last line states the cause. It is made printable, and cut to 300 characters.
    """
    return shortened(_split_message(error)[-1])


def in_short(error: BaseException) -> str:
    """Return an error's type and first line, as ``ValueError: no such file``; only the type if it has no message.

    The line is cut to 300 characters, as `first_line` does.
    """
    kind = type(error).__name__
    if str(error).strip():
        return f"{kind}: {first_line(error)}"
    return kind


def _split_message(error: BaseException | str) -> list[str]:
    """Return the printable lines of a message, without empty ones at its beginning and end.

    Of an empty message, return one item: the name of the error's type, or "" if ``error`` is a text.
    """
    lines = printable(str(error)).strip().splitlines()
    return lines or ["" if isinstance(error, str) else type(error).__name__]


WHOLE = "SWEEP_FULL_TRACEBACKS"
_CALLING = re.compile(r"Exception encountered when calling (?:layer )?(.+?)\.?$")  # Keras
_NAMED = re.compile(
    r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE
)
_USER_CODE, _GRAPH = "in user code:", "Graph execution error:"  # TensorFlow
_VALUES = "  Label values: "  # all labels of the batch follow


def reason_of(error: BaseException) -> str:
    """Return an error in one line, such as ``ValueError: models.py:12 in loss: no such file``.

    That is its type, the author's line that raised it, if there is one, and the cause; errors of sweep's own have no
    such line. The cause is a line of the message, made printable; Keras and TensorFlow wrap it in sentences such as
    "Exception encountered when calling Dense.call().", which are left out. What follows the type is cut to 300
    characters. Only the type is returned if neither a line nor a cause is known.
    """
    kind = type(error).__name__
    description = describe_without_type(error)
    if description:
        return f"{kind}: {description}"
    return kind


def describe_without_type(error: BaseException) -> str:
    """Describe an error in one line as `reason_of` does, but without its type, in at most 300 characters.

    The text is "" if nothing but the type is known.
    """
    cause = _find_cause(printable(str(error)).strip(), type(error).__name__)
    is_of_sweep = type(error).__module__.startswith(("sweep.", "trainables."))
    if is_of_sweep:  # its message already says what to change
        place = None
    else:
        place = where_raised(error)
    return shortened(": ".join(part for part in (place, cause) if part))


def where_raised(error: BaseException) -> str | None:
    """Return the author's line nearest to the origin of an error, such as ``models.py:12 in loss``.

    Lines in the error's message, as TensorFlow writes them, take precedence over its traceback; the errors that have
    caused it are not searched. Return None if no line is in a file of the author's.
    """
    author_calls = []  # (file, line, function)
    for match in _NAMED.finditer(str(error)):
        if is_author_file(match["file"]):
            author_calls.append((match["file"], int(match["line"]), match["function"]))
    if not author_calls:
        for frame, line in traceback.walk_tb(error.__traceback__):
            if is_author_file(frame.f_code.co_filename):
                author_calls.append((frame.f_code.co_filename, line, frame.f_code.co_name))
    if not author_calls:
        return None
    # the innermost call, with which both the message and the traceback end
    file, line, function = author_calls[-1]
    return f"{Path(file).name}:{line} in {function}"


def folded_traceback(error: BaseException) -> str:
    """Return the traceback of an error and its causes, with each run of library frames folded into one line.

    An error in this chain keeps all its frames if none is the author's. In the message of a graph execution error, the
    library frames that TensorFlow lists are folded in any case, and the values of labels left out. Nothing is folded
    if the environment variable ``SWEEP_FULL_TRACEBACKS`` is set and not empty. ``error`` itself is not changed.
    """
    summary = traceback.TracebackException.from_exception(error)
    if os.environ.get(WHOLE):
        return printable("".join(summary.format()))
    chained_errors = list(_list_chained_errors(summary))
    for chained in chained_errors:
        # otherwise no line of code would be left
        if any(is_author_file(frame.filename) for frame in chained.stack):
            chained.stack = _Folded.fold(chained.stack)
    text = "".join(summary.format())
    for message in map(str, chained_errors):
        # its frames are part of the message, so they are not in the stack
        if message.startswith(_GRAPH):
            text = text.replace(message, _remove_library_frames(message))
    return printable(text)


def _find_cause(text: str, kind: str) -> str:
    """Return the line of the message ``text`` that states the cause, without what Keras and TensorFlow add.

    That is the first line of a message to which they have added nothing; a cause within a layer's call begins with the
    name of the layer. ``kind`` is the name of the error's type. Return "" for an empty message.
    """
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    first = lines[0].strip()
    # frames of the traced code follow, and then the error itself as "TYPE: message"
    if first == _USER_CODE:
        starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(f"{kind}: ")]
        if not starts:
            return lines[-1].strip()
        message = "\n".join(lines[starts[-1] :]).strip().removeprefix(f"{kind}: ")
        return _find_cause(message, kind)  # it may begin with a sentence of Keras in turn
    if first == _GRAPH:  # frames of the graph's nodes follow, and then the cause
        for line in lines[1:]:
            is_of_frame = line.startswith((" ", "\t", "Detected at node", "<stack traces"))
            if not is_of_frame:
                return line.strip().partition(_VALUES)[0]
    calling = _CALLING.match(first)
    if calling:
        # a sentence of Keras about the layer, advice, the cause as the last paragraph, and the arguments of the call
        following_lines = text.partition("Arguments received by")[0].splitlines()[1:]
        paragraphs = [
            part.strip() for part in "\n".join(following_lines).split("\n\n") if part.strip()
        ]
        if paragraphs:  # otherwise Keras has written only its sentence and the arguments
            return f"{calling[1]}: {_find_cause(paragraphs[-1], kind)}"
    return first


def _remove_library_frames(message: str) -> str:
    """Return the message of a graph execution error with each run of library frames replaced by their number.

    The label values that TensorFlow appends to a line are removed, too.
    """
    lines = list[str]()
    hidden = 0  # number of library frames since the last line that was kept
    for line in [*message.split("\n"), None]:  # None ends the last run of frames
        if line is not None:
            frame = _NAMED.match(line)
            if frame and not is_author_file(frame["file"]):
                hidden += 1
                continue
            if hidden and not line.strip():  # the empty line after a hidden frame
                continue
        if hidden:
            lines.append(f"  ... {counted(hidden, 'frame')}")
            hidden = 0
        if line is not None:
            lines.append(line.partition(_VALUES)[0])
    return "\n".join(lines)


def _list_chained_errors(
    told: traceback.TracebackException,
) -> Iterator[traceback.TracebackException]:
    """Yield the error ``told`` and then, one after another, the errors that caused it and that a traceback shows.

    An error that was being handled when another was raised counts as its cause, unless ``from None`` hides it.
    """
    one: traceback.TracebackException | None = told
    while one is not None:
        yield one
        if one.__cause__ is not None:
            one = one.__cause__
        elif one.__suppress_context__:  # by `raise ... from None`
            one = None
        else:
            one = one.__context__


class _Folded(traceback.StackSummary):
    """The frames of a traceback, in which one frame without a source line may stand for several library frames."""

    @classmethod
    def fold(cls, stack: traceback.StackSummary) -> _Folded:
        """Return the frames of a stack with each run of library frames replaced by one, which names their packages.

        Frames in files of the author's are kept. ``stack`` is not changed.
        """
        found = cls()
        # the library frames since the last frame that was kept
        hidden = list[traceback.FrameSummary]()
        for frame in [*stack, None]:  # None ends the last run of library frames
            if frame is not None and not is_author_file(frame.filename):
                hidden.append(frame)
                continue
            if hidden:
                packages = dict.fromkeys(get_package_name(one.filename) for one in hidden)
                # in place of a file name and a line number: the packages, and how many frames are hidden
                found.append(
                    traceback.FrameSummary(
                        ", ".join(packages), len(hidden), _FOLDED, lookup_line=False
                    )
                )
                hidden = []
            if frame is not None:
                found.append(frame)
        return found

    def format_frame_summary(self, frame_summary: traceback.FrameSummary, **options: Any) -> str:
        """Return the text of one frame, which ends with a line feed; Python's `traceback` calls this for each frame.

        A frame that stands for several library frames becomes ``... 5 frames of keras``. ``options`` are those that
        `traceback` adds from Python 3.13 on, such as ``colorize``.
        """
        if frame_summary.name == _FOLDED:
            # `fold` has put the packages and the number of frames in place of the file and the line
            packages = frame_summary.filename
            count = frame_summary.lineno or 0
            return f"  ... {counted(count, 'frame')} of {packages}\n"
        return super().format_frame_summary(frame_summary, **options)


_FOLDED = "..."
