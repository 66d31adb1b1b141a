"""Standard output and error of the command line: escape what cannot be encoded, and remember failed writes."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

_failures: list[OSError] = []  # of standard output
# a copy of standard output while a command with --json has not printed its document; -1 at other times
_missing_document = -1


class _Recorded(io.TextIOWrapper):
    """A text stream for standard output that keeps the errors of failed writes in `_failures`.

    It also raises them, unless ``ignores_errors`` is set.

    The streams below it are Python's own: if Ctrl-C came within a raw stream's method that is written in Python, the
    buffer would not know what was written, and would write it once more.
    """

    ignores_errors = False

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            _failures.append(error)
            if not self.ignores_errors:
                raise
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            _failures.append(error)
            if not self.ignores_errors:
                raise


class _IgnoringErrors(io.TextIOWrapper):
    """A text stream for standard error that ignores failed writes, because there is no place to report them."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def failed_by(error: OSError) -> bool:
    """Return whether an error is one of writing to standard output since `prepare_streams`, rather than to a file.

    It is if the stream has raised or ignored this same object.
    """
    return any(error is failure for failure in _failures)


def failure() -> OSError | None:
    """Return the first error of writing to standard output since `prepare_streams`; None if there is none.

    Errors because of a closed pipe do not count.
    """
    return next((error for error in _failures if not isinstance(error, BrokenPipeError)), None)


def prepare_streams() -> None:
    """Replace standard output and error by streams that escape characters that cannot be encoded.

    Failed writes to standard output are kept for `failure` and raised, those to standard error are ignored. Closed
    standard streams are opened on the null device, and earlier failures are forgotten.
    """
    _failures.clear()
    open_closed_streams()
    for name, number in (("stdout", 1), ("stderr", 2)):
        replaced = getattr(sys, name)
        if replaced is None:  # it was closed when Python started
            encoding = "utf-8"
        else:
            encoding = replaced.encoding
        raw = io.FileIO(number, "w", closefd=False)
        # as in Python: people see each line at once, pipes get blocks
        writes_blocks = number == 1 and not raw.isatty()
        stream_class = _Recorded if number == 1 else _IgnoringErrors
        stream = stream_class(
            io.BufferedWriter(raw),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=not writes_blocks,
        )
        setattr(sys, name, stream)


def asks_for_json(words: Sequence[str]) -> bool:
    """Return whether a command line contains ``--json`` before any ``--``, even if it cannot be parsed."""
    words = list(words)
    if "--" in words:
        words = words[: words.index("--")]
    return "--json" in words


@contextmanager
def expecting_document(words: Sequence[str]) -> Iterator[None]:
    """Expect one JSON document on standard output inside the block, if the command line ``words`` has ``--json``.

    Until `document_follows` is called, `print_missing_document` prints an error document. Without ``--json`` it prints
    nothing. The end of the block counts as a call of `document_follows`.
    """
    global _missing_document
    if not asks_for_json(words):
        yield
        return
    _missing_document = copy = os.dup(1)  # the session may redirect the original
    try:
        yield
    finally:
        document_follows()
        os.close(copy)


def document_follows() -> None:
    """Declare that the command prints its JSON document now, so that `print_missing_document` prints none."""
    global _missing_document
    _missing_document = -1


def print_missing_document(text: str, code: int) -> None:
    """Print a JSON document with the error ``text`` and the exit code, if the command has not printed its own.

    Does nothing unless one is expected (`expecting_document`). It is for commands that end at once: the document is
    written without importing anything, in the form that `sweep.documents.mistakes` gives to errors. Raises OSError if
    standard output fails.
    """
    if _missing_document >= 0:
        mistake = {"where": "", "is": text, "expected": "", "hint": ""}
        content = {"version": 1, "exit_code": code, "error": [mistake]}
        os.write(_missing_document, f"{json.dumps(content, indent=2)}\n".encode())


@contextmanager
def ignoring_write_errors(*, redirects: bool) -> Iterator[IO[str]]:
    """Ignore failed writes to standard output inside the block, so that trials in this process can print in any case.

    They fail if the reader has closed its end, as ``head`` does, or if the disk is full; `failure` has their errors
    nevertheless. Yields a stream to standard output for the results of the session. With ``redirects``, only this
    stream writes there inside the block, and its own writes raise errors; what this process and its child processes
    print goes to standard error. If `prepare_streams` was not called, yields `sys.stdout` and changes nothing.
    """
    stream = sys.stdout
    if not isinstance(stream, _Recorded):  # not one of `prepare_streams`
        yield stream
        return
    stream.ignores_errors = True
    try:
        if not redirects:
            yield stream
            return
        stream.flush()  # what was printed before the block goes to standard output
        original = os.dup(1)
        results = _Recorded(
            io.BufferedWriter(io.FileIO(original, "w")),
            encoding=stream.encoding,
            errors="backslashreplace",
        )
        os.dup2(2, 1)  # from here on, descriptor 1 is standard error
        try:
            yield results
        finally:
            stream.flush()  # what was printed in the block goes to standard error
            os.dup2(original, 1)
            with suppress(OSError):  # it is kept in `_failures`
                results.close()
    finally:
        stream.ignores_errors = False


def open_closed_streams() -> None:
    """Redirect those of the descriptors 0, 1 and 2 that are closed to the null device."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # it is closed
            # otherwise the next opened file, such as a log, would receive what is printed
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


def flush() -> None:
    """Flush standard output and error and ignore errors of doing so; afterwards `failure` does not change any more."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # failures of standard error cannot be reported anywhere
            stream.flush()
