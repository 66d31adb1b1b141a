"""Starts a command that trains in the background: as a process of its own session, which outlives the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sweep.errors import EXPECTED, InputError, Problem
from sweep.store.disk import get_process_name, storing
from sweep.store.folder import ResultsFolder

LOOK_S = 0.1


class NotStarted(InputError):
    """The error that a process in the background has ended before its session began, with that process's errors.

    ``exit_code`` is that of the process, or 2 if it was 0 or if a signal has killed the process.
    """

    def __init__(self, problems: Iterable[Problem], exit_code: int) -> None:
        super().__init__(problems)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Detached:
    """A driver in the background: its process id, and the file with its output."""

    process: int
    output: Path


def start_detached(folder: ResultsFolder, arguments: Sequence[str]) -> Detached:
    """Run ``python -m sweep`` with ``arguments`` in the background; return once its session is in the log.

    ``arguments`` are a command and its options. ``folder`` is that of the sweep, which the process may still have to
    create. There is no time limit. The output of the process goes into ``driver.log`` in that folder, in place of an
    earlier one. If this function is interrupted or fails, the process is ended and its output deleted.

    The process gets the path of a file, into which it writes a line of JSON: what `describe_start` returns or, if it
    fails, the document of its error. This file is deleted in the end. A growing log alone would not show that the
    process has begun, because the session of another process may be running.

    Raises:
        NotStarted: if the process ends before its session has begun.
        StoreError: if one of the files cannot be created, or that with its output cannot be moved.
    """
    # beside the sweep's folder, which the process may still have to create; it is moved there in the end
    output = folder.path.parent / f".{folder.name}.{get_process_name()}.driver.log"
    start = output.with_suffix(".json")
    driver = None
    try:
        with storing(start):
            start.parent.mkdir(parents=True, exist_ok=True)
            start.touch()  # only this process creates and deletes it
        with storing(output):
            stream = output.open("wb")
        driver = start_process(arguments, start, stream)
        while not _has_begun(start, folder):
            code = driver.poll()  # None while it runs
            # a short session may have begun and ended since that was read above, so it is read again
            if code is not None and not _has_begun(start, folder):
                # below 0: a signal has killed it; 0: it has ended without a session, which is an error here
                code = code if code > 0 else 2
                raise NotStarted(_read_problems(start, output, code), code)
            time.sleep(LOOK_S)
        kept = folder.path / "driver.log"
        with storing(kept):
            output.rename(kept)  # the process goes on writing into it
    except BaseException:  # also Ctrl-C
        if driver is not None and driver.poll() is None:
            driver.terminate()
            driver.wait()
        with suppress(OSError):  # it may not have been created
            output.unlink()
        raise
    finally:
        with suppress(OSError):
            start.unlink()
    # it is meant to outlive this process, which must not wait for it or warn about it
    driver.returncode = 0
    return Detached(driver.pid, kept)


def start_process(
    arguments: Sequence[str], start: Path, output: BinaryIO
) -> subprocess.Popen[bytes]:
    """Start ``python -m sweep`` in a session of its own and return the process without waiting for it.

    ``arguments`` are a command and its options; at least the command. The process writes what `describe_start` returns,
    or its error, into the file ``start``. Its standard input is empty. Its standard output and standard error go into
    ``output``, which is closed here.
    """
    command, *rest = arguments
    with output:
        return subprocess.Popen(
            [sys.executable, "-m", "sweep", command, "--start-file", os.fspath(start), *rest],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def describe_start(folder: ResultsFolder) -> str:
    """Return the present size of a sweep's log as JSON, ``{"log_bytes": N}``; 0 if there is no log.

    Once the log is larger, the session of this process has begun. So call this when the process has the lock of the
    sweep, and before the session is in the log.
    """
    return json.dumps({"log_bytes": _find_size(folder.log)})


def _has_begun(start: Path, folder: ResultsFolder) -> bool:
    """Return whether the process that writes the file ``start`` has begun its session.

    It has if the log is larger than the size in the file's first line. Return False if the file cannot be read, or if
    its first line is not such a size but nothing or an error.
    """
    with suppress(OSError, ValueError, KeyError):  # it has written nothing yet, or an error
        first = start.read_text(encoding="utf-8").partition("\n")[0]
        return bool(_find_size(folder.log) > json.loads(first)["log_bytes"])
    return False


def _read_problems(start: Path, output: Path, exit_code: int) -> list[Problem]:
    """Return why a process has ended: the error document at the end of the file ``start`` or, without one, its output.

    Of the file ``output``, that is each line that begins with ``error:``, without this prefix, or else the last line. A
    process that was killed may have printed nothing; then it is ``exit_code``.
    """
    with suppress(OSError, ValueError, KeyError):  # no file, or its last line is no error document
        last = start.read_text(encoding="utf-8").rstrip("\n").rpartition("\n")[2]
        mistakes = json.loads(last)["error"]
        return [
            Problem(
                mistake["where"],
                # "IS, expected THAT", or the one that the document has
                EXPECTED.join(filter(None, (mistake["is"], mistake["expected"]))),
                mistake["hint"],
            )
            for mistake in mistakes
        ]
    text = output.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    # the last line of a traceback says what has happened
    lines = (
        lines or text.strip().splitlines()[-1:] or [f"the driver ended with exit code {exit_code}"]
    )
    return [Problem("", line.removeprefix("error: ")) for line in lines]


def _find_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist or its size cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
