"""The standard streams of a program of this package: all that is printed can be written, or it is known why not."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_failures: list[OSError] = []  # of standard output


class _Recorded(io.FileIO):
    """Standard output, which remembers the error that says it can no longer be written."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            _failures.append(error)
            raise


def failed_by(error: OSError) -> bool:
    """Return whether an error is that of standard output, and not of another file."""
    return any(error is failure for failure in _failures)


def failure() -> OSError | None:
    """Return why standard output can no longer be written; None if it can, or whoever read it has had enough."""
    return next((error for error in _failures if not isinstance(error, BrokenPipeError)), None)


def prepare() -> None:
    """Write what an encoding lacks as an escape, and into nothing what is printed to a stream that is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # else the next file that is opened, such as a log, would get what is printed
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        encoding = "utf-8" if stream is None else stream.encoding
        raw = _Recorded(number, "w", closefd=False) if number == 1 else io.FileIO(number, "w", closefd=False)
        buffered = number == 1 and not raw.isatty()
        made = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=not buffered
        )
        setattr(sys, name, made)


def flush() -> None:
    """Write what is left of the output; a failure is then known."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # of standard error nobody could be told
            stream.flush()
