"""Runs command lines of sweep, each in a process that continues after the page has ended, and keeps their output."""

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
SHOWN_BYTES = 100_000  # bytes at the end of an output that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a command line: a sweep, perhaps one of its trials, or the file of a draft."""

    title: str = ""
    sweep: str = ""
    trial: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The state of a command line that the page has started; ``exit_code`` is null while it runs."""

    job: int
    title: str
    command: str
    # success means that something was started in the background, not that it is done
    detaches: bool
    output: str
    exit_code: int | None
    took_s: float


@dataclass(slots=True)
class Job:
    """A process that runs one command line of sweep."""

    number: int
    subject: Subject
    command: str
    detaches: bool
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    is_dismissed: bool = False  # no page shows it any more

    def describe(self) -> JobFacts:
        """Return the job's present state and the last 100,000 bytes of its output.

        The duration is in seconds, rounded to one decimal, and ends when a call first sees that the process has ended.
        Terminal colours are removed from the output, and other unprintable characters escaped.
        """
        code = self.process.poll()
        if code is not None and self.ended is None:
            self.ended = time.monotonic()
        until = time.monotonic() if self.ended is None else self.ended
        return JobFacts(
            job=self.number,
            title=self.subject.title,
            command=self.command,
            detaches=self.detaches,
            output=printable(self._read_output()),
            exit_code=code,
            took_s=round(until - self.began, 1),
        )

    def _read_output(self) -> str:
        """Return the last 100,000 bytes of the job's output as text, with bytes that are not UTF-8 replaced."""
        size = os.fstat(self.output.fileno()).st_size
        start = max(size - SHOWN_BYTES, 0)
        return os.pread(self.output.fileno(), size - start, start).decode("utf-8", "replace")


class Jobs:
    """The command lines that were started since the server began; only the latest ones are kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # the folder in which the command lines run
        self._jobs: dict[int, Job] = {}
        self._last = 0

    def start(
        self,
        subject: Subject,
        arguments: Sequence[str],
        text: str = "",
        shown: Sequence[str] | None = None,
    ) -> Job:
        """Start ``python -m sweep`` with ``arguments``, with ``text`` as standard input, and return the job at once.

        It runs in the folder given to `Jobs`, and continues if the page's server ends. ``subject`` says on which page
        the job is shown. ``shown`` are the arguments in the command line that is shown; by default, they are
        ``arguments``. If more than 100 jobs are kept then, the oldest ones that have ended are forgotten.
        """
        # Files, not pipes: a full or closed pipe would stop the process when the server is busy or has ended.
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
                start_new_session=True,  # the process continues when the page's server ends
            )
        self._last += 1
        # What follows `--` is no option: a note may have the text "--detach".
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        command = show_command(arguments if shown is None else shown)
        # a job of a cluster runs in the background, too
        detaches = "--detach" in options or "--address" in options
        job = Job(self._last, subject, command, detaches, process, output)
        self._jobs[job.number] = job
        self._forget_old()
        return job

    def find(self, number: int) -> Job | None:
        """Return the job with the number ``number``; None if it is not kept any more."""
        return self._jobs.get(number)

    def list_shown(self, subject: Subject) -> list[Job]:
        """Return the jobs that the page of ``subject`` shows, oldest first, without those that were dismissed.

        The page of a sweep also shows the jobs of its trials; other pages show only the jobs of their subject. The
        title of ``subject`` does not matter.
        """
        found = []
        for job in self._jobs.values():
            theirs = job.subject
            is_same = (theirs.sweep, theirs.file) == (subject.sweep, subject.file)
            # With the trial "", it is the page of the sweep, which shows the jobs of all trials.
            if is_same and subject.trial in ("", theirs.trial) and not job.is_dismissed:
                found.append(job)
        return found

    def _forget_old(self) -> None:
        """Remove the oldest jobs that have ended, with their output, until at most 100 jobs are kept.

        Running ones are never removed, so there may be more.
        """
        ended = [job for job in self._jobs.values() if job.process.poll() is not None]
        too_many = max(len(self._jobs) - KEPT, 0)
        for job in ended[:too_many]:  # they are in the order of their starts
            job.output.close()
            del self._jobs[job.number]
