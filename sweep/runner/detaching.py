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

from sweep.errors import EXPECTED, InputError, Problem
from sweep.store.disk import get_process_name, storing
from sweep.store.folder import ResultsFolder

LOOK_S = 0.1


class NotStarted(InputError):
    """The error that a process in the background has ended before its session began, with the errors of that."""

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

    ``folder`` is that of the sweep, which the process may still have to create. There is no time limit. The output of
    the process goes into ``driver.log`` in that folder, in place of an earlier one. If this function is interrupted,
    the process is ended and its output deleted.

    The process writes into a file, whose path it gets, the line of `describe_start` and the document of an error. That
    the log grows is not enough, because the session of another process may run.

    Raises:
        NotStarted: if the process ends before its session has begun.
        StoreError: if the file for its output cannot be created.
    """
    # beside the sweep's folder, which the process may still have to create; it is moved there in the end
    output = folder.path.parent / f".{folder.name}.{get_process_name()}.driver.log"
    told = output.with_suffix(".json")
    with storing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        stream = output.open("wb")
        told.touch()  # only this process creates and deletes it
    command, *rest = arguments
    with stream:
        driver = subprocess.Popen(
            [sys.executable, "-m", "sweep", command, "--tell", os.fspath(told), *rest],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        while not _has_begun(told, folder):
            code = driver.poll()
            # a short session may have begun and ended since that was read above, so it is read again
            if code is not None and not _has_begun(told, folder):
                # below 0: a signal has killed it; 0: it has ended without a session, which is an error here
                code = code if code > 0 else 2
                raise NotStarted(_read_problems(told, output, code), code)
            time.sleep(LOOK_S)
    except BaseException:  # also Ctrl-C
        if driver.poll() is None:
            driver.terminate()
            driver.wait()
        output.unlink(missing_ok=True)
        raise
    finally:
        told.unlink(missing_ok=True)
    kept = folder.path / "driver.log"
    output.rename(kept)  # the process goes on writing into it
    # it is meant to outlive this process, which must not wait for it or warn about it
    driver.returncode = 0
    return Detached(driver.pid, kept)


def describe_start(folder: ResultsFolder) -> str:
    """Return JSON that says that this process has the lock of a sweep, with the size of its log before the session."""
    return json.dumps({"log_bytes": _find_size(folder.log)})


def _has_begun(told: Path, folder: ResultsFolder) -> bool:
    """Return whether the process that writes the file ``told`` has begun its session, which is in the log."""
    with suppress(OSError, ValueError, KeyError):  # it has written nothing yet, or an error
        first = told.read_text(encoding="utf-8").partition("\n")[0]
        return bool(_find_size(folder.log) > json.loads(first)["log_bytes"])
    return False


def _read_problems(told: Path, output: Path, exit_code: int) -> list[Problem]:
    """Return why a process has ended: the error document that ends the file ``told`` or, without one, its output.

    Of the output, that is the lines that begin with ``error:``, or the last line. A process that was killed may have
    printed nothing; then it is the exit code.
    """
    with suppress(OSError, ValueError, KeyError):
        last = told.read_text(encoding="utf-8").rstrip("\n").rpartition("\n")[2]
        mistakes = json.loads(last)["error"]
        return [
            Problem(
                mistake["where"],
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
