"""Runs command lines of sweep, each in a process of its own that outlives the page, and keeps what they print."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sweep.text import printable
from sweep.ui.acts import show_command

KEPT = 100  # jobs that are remembered
SHOWN_BYTES = 100_000  # of the end of an output


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A command line that the page has started; ``exit_code`` is null while it runs."""

    job: int
    command: str
    output: str
    exit_code: int | None
    took_s: float


@dataclass(slots=True)
class Job:
    """A process that runs a command line of sweep."""

    number: int
    command: str
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    def look(self) -> JobFacts:
        """Return how far it is."""
        code = self.process.poll()
        if code is not None and self.ended is None:
            self.ended = time.monotonic()
        until = time.monotonic() if self.ended is None else self.ended
        return JobFacts(
            job=self.number,
            command=self.command,
            output=printable(self._read_output()),
            exit_code=code,
            took_s=round(until - self.began, 1),
        )

    def _read_output(self) -> str:
        size = os.fstat(self.output.fileno()).st_size
        start = max(size - SHOWN_BYTES, 0)
        return os.pread(self.output.fileno(), size - start, start).decode("utf-8", "replace")


class Jobs:
    """The command lines that were started since the server began."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # in which they run
        self._jobs: dict[int, Job] = {}
        self._last = 0

    def start(self, arguments: Sequence[str], text: str = "", shown: Sequence[str] | None = None) -> Job:
        """Run ``python -m sweep`` with these arguments; ``text`` is its standard input.

        The command line is shown as ``shown`` if that is given.
        """
        output = tempfile.TemporaryFile()  # noqa: SIM115  # it is open as long as the job is remembered
        with tempfile.TemporaryFile() as given:
            given.write(text.encode("utf-8", "replace"))
            given.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-m", "sweep", *arguments],
                cwd=self._folder,
                env={**os.environ, "NO_COLOR": "1", "COLUMNS": "110"},
                stdin=given,
                stdout=output,
                stderr=output,
                start_new_session=True,  # it goes on when the page's server ends
            )
        self._last += 1
        job = Job(self._last, show_command(arguments if shown is None else shown), process, output)
        self._jobs[job.number] = job
        self._forget_old()
        return job

    def find(self, number: int) -> Job | None:
        """Return the job of this number, if it is remembered."""
        return self._jobs.get(number)

    def _forget_old(self) -> None:
        ended = [job for job in self._jobs.values() if job.process.poll() is not None]
        for job in ended[: max(len(self._jobs) - KEPT, 0)]:
            job.output.close()
            del self._jobs[job.number]
