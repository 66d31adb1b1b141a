"""Keeps what a worker's process prints while it trains: the trial itself, and the libraries that it uses.

File descriptors 1 and 2 are redirected, since what TensorFlow's C++ code prints (`tf.print` in a graph, for instance)
never passes through Python's streams. They point to a file in the results folder, from which the driver still reads
what a killed worker has printed. After each step, its content goes to the driver with the step's progress, and to the
log file of Ray's worker, where it would have gone otherwise.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sweep.text import printable

KEPT_BYTES = 32 * 1024
"""How much is kept of what a trial prints in one worker, from the beginning."""
LAST_BYTES = 4 * 1024
"""How much is kept of the end of a longer output, unless the driver ends the trial, as a stopping rule does."""
LARGE_BYTES = 4 * 1024 * 1024  # the file is emptied during a step if it is larger
LOOK_S = 1.0  # pause between two looks at its size
_BLOCK_BYTES = 64 * 1024
_OUTPUTS = (1, 2)  # standard output and standard error
# for Ray's monitor of the log files
_OF_RAY = re.compile(r"^:(?:actor|task)_name:.*\n", re.MULTILINE)


def clean_output(printed: bytes) -> str:
    """Return printed bytes as text, without escape sequences, and with only the last state of each line.

    A program that writes a line again, such as a progress bar, begins each state of it with a carriage return.
    Characters after a backspace overwrite those before it. Bytes that are not UTF-8 are replaced, and lines that Ray
    adds for its log monitor are left out.
    """
    lines = []
    for line in printed.decode("utf-8", "replace").split("\n"):
        _, _, last = line.rstrip("\r").rpartition("\r")  # a line may end in \r\n
        lines.append(_apply_backspaces(last))
    return printable(_OF_RAY.sub("", "\n".join(lines)))


def _apply_backspaces(line: str) -> str:
    """Return a line as a terminal shows it if characters after a backspace overwrite those before it."""
    if "\b" not in line:
        return line
    shown: list[str] = []
    column = 0
    for character in line:
        if character == "\b":
            column = max(column - 1, 0)
        else:
            # overwrites one character, or is appended at the end
            shown[column : column + 1] = [character]
            column += 1
    return "".join(shown)


def take_unsent_output(path: Path) -> str:
    """Return what is in the output file of a lost worker, cleaned as by `clean_output`, and delete the file.

    The result is ``""`` if the file is empty or cannot be read or deleted. Of a long output, only the first 32 KiB and
    the last 4 KiB are returned, with a line between them that says how many bytes are left out.
    """
    printed = _Excerpt()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                printed.add(block)
        path.unlink()
    except OSError:
        return ""
    return clean_output(printed.first + printed.describe_end())


@dataclass(slots=True)
class _Excerpt:
    """The beginning and the end of what was printed, and its size."""

    first: bytes = b""
    last: bytes = b""  # the end of what follows `first`
    size: int = 0  # number of bytes printed

    def add(self, data: bytes) -> None:
        """Add what was printed next; of everything added, only the first 32 KiB and the last 4 KiB are kept."""
        room = KEPT_BYTES - len(self.first)
        self.first += data[:room]
        self.last = (self.last + data[room:])[-LAST_BYTES:]
        self.size += len(data)

    def describe_end(self) -> bytes:
        """Return what is kept of the end: what follows the first 32 KiB, ``b""`` if there is nothing.

        If bytes before it are left out, a line that says how many precedes it.
        """
        left_out = self.size - len(self.first) - len(self.last)
        if left_out:
            return f"\n[{left_out:,} bytes are left out]\n".encode() + self.last
        return self.last


class OutputCapture:
    """Collects in a file what this process writes to standard output and standard error, until it is closed.

    Raises OSError if the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._printed = _Excerpt()  # by the present trials, as far as it was read from the file
        self._sent = 0  # bytes of its beginning that `take` has returned
        self._lock = threading.Lock()
        self._closed = threading.Event()
        _flush_streams()  # what was printed before goes where it would have gone
        # With O_APPEND, writing goes on at the beginning of the file after `_move_printed` has truncated it.
        self._file = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._originals = [os.dup(output) for output in _OUTPUTS]
        for output in _OUTPUTS:
            os.dup2(self._file, output)
        threading.Thread(target=self._limit_size, name="output", daemon=True).start()

    def begin_trial(self) -> None:
        """Discard what was collected of earlier trials, and collect the output of the next trials from now on.

        What is discarded is still written to the original standard output.
        """
        with self._lock:
            self._move_printed()  # what the file still has is of the earlier trials
            self._printed = _Excerpt()
            self._sent = 0

    def take(self, *, trial_ends: bool) -> str:
        """Return the lines printed since the last call, cleaned, within the first 32 KiB of the present trials.

        An incomplete last line is left to a later call. Once more than 32 KiB are printed, a line says so at the end of
        them, and later calls return ``""``. With ``trial_ends``, an incomplete last line is returned too, and the last
        4 KiB of a longer output follow, after a line with the number of bytes left out. Everything printed is also
        written to the original standard output.
        """
        with self._lock:
            self._move_printed()
            printed = self._printed  # all that the present trials have printed, shortened
        first = printed.first
        begin = self._sent  # what comes before was returned by earlier calls
        is_longer = printed.size > len(first)
        if trial_ends or is_longer:
            self._sent = len(first)
        else:  # up to the last line break: a progress bar may still write over the line after it
            self._sent = max(first.rfind(b"\n") + 1, begin)
        text = first[begin : self._sent]
        if trial_ends:
            return clean_output(text + printed.describe_end())
        if text and is_longer:  # said once: later calls find no more text within the limit
            text += b"\n[what follows is kept only if the trial ends by itself, and then only its end]\n"
        return clean_output(text)

    def close(self) -> None:
        """Restore the process's standard output and standard error, and delete the file; call it once.

        Output that was not taken is written to the original standard output only.
        """
        with self._lock:
            self._move_printed()
            # Before the lock is released, for which the thread may wait: it must not use the closed file.
            self._closed.set()
        for original, output in zip(self._originals, _OUTPUTS, strict=True):
            os.dup2(original, output)
            os.close(original)
        os.close(self._file)
        with suppress(OSError):  # the folder of the files may have been deleted
            self._path.unlink()

    def _limit_size(self) -> None:
        """Move the output out of the file whenever it is larger than 4 MiB, until `close`; runs in a thread."""
        while not self._closed.wait(LOOK_S):
            with self._lock:
                if not self._closed.is_set() and os.fstat(self._file).st_size > LARGE_BYTES:
                    self._move_printed()

    def _move_printed(self) -> None:
        """Empty the file: write its content to the original standard output, and add it to the trials' excerpt.

        Errors of that writing are ignored. The caller must hold the lock.
        """
        _flush_streams()
        at = 0
        while block := os.pread(self._file, _BLOCK_BYTES, at):
            at += len(block)
            self._printed.add(block)
            with suppress(OSError):  # the disk is full, or nobody reads it
                os.write(self._originals[0], block)
        if at:
            os.ftruncate(self._file, 0)


def _flush_streams() -> None:
    """Flush Python's standard output and standard error; errors are ignored."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError, AttributeError):  # closed, or replaced by something else
            stream.flush()
