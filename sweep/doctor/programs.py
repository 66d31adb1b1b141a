"""Runs programs for the doctor in separate processes, because they may fail, abort or hang."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

MISSING = 127  # exit code of a shell for a missing program
_TELLING = re.compile(r"error|fail|fatal|abort|cannot|could not|unable|mismatch", re.IGNORECASE)
# of log lines of TensorFlow and Ray
_PREFIX = re.compile(r"^([IWEF]\d{4} [\d:.]+ +\d+ \S+\]|\[[\d-]+ [\d:,]+ \w \d+ \d+\] \S+:) ")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a program; ``code`` is None after a timeout, and negative after a signal."""

    code: int | None
    out: str
    err: str = ""

    @property
    def reason(self) -> str:
        """Why the program gave no answer, in one line: how it ended, in which step, and its last relevant output.

        The step is what the last line after ``probe: `` names, if there is one. The relevant output is the last line
        with a word such as "error" or, without one, the last line. Times and source files of log lines are left out.
        """
        if self.code is None:
            how = "no answer in time"
        elif self.code < 0:
            how = f"aborted by {signal.Signals(-self.code).name}"
        else:
            how = f"exit code {self.code}"
        lines = []
        for line in f"{self.out}\n{self.err}".splitlines():
            if line.strip():
                lines.append(_PREFIX.sub("", line).strip())
        # a probe prints a line when it begins a step; all other lines are output of the program
        steps = []
        for line in lines:
            if line.startswith("probe: "):
                steps.append(line.removeprefix("probe: "))
        if steps:
            how += f" during {steps[-1]}"
        telling = [
            line for line in lines if _TELLING.search(line) and not line.startswith("probe: ")
        ]
        if telling:
            return f"{how}; {telling[-1]}"
        # the last line is not repeated if it is that of the step, which is named already
        if lines and not lines[-1].startswith("probe: "):
            return f"{how}; {lines[-1]}"
        return how

    def logged(self, pattern: str) -> str | None:
        """Return the last line of the log that matches a pattern, without time, process and source file.

        The log is the program's standard error. ``pattern`` is a regular expression that may match anywhere in a line,
        and in which case does not matter. Returns None if no line matches.
        """
        lines = []
        for line in self.err.splitlines():
            if re.search(pattern, line, re.IGNORECASE):
                lines.append(line)
        if not lines:
            return None
        return _PREFIX.sub("", lines[-1]).strip()


Run: TypeAlias = Callable[[Sequence[str], float], CommandResult]
"""Runs a program with a timeout in seconds."""


def run_command(command: Sequence[str], timeout_s: float) -> CommandResult:
    """Run a program and return its result; after ``timeout_s`` seconds, kill it with all processes that it has started.

    The code is then None, and the result has the output up to then, or none if the program does not even end within
    5 more seconds. A program that cannot be started raises no error: the code is `MISSING` (127) if it does not exist,
    otherwise 126. The program has this process's environment, but writes all messages of TensorFlow's log.
    """
    # TensorFlow's log explains why it sees no GPU
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "0",
    }
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,  # a process group of its own, which `_kill_process` ends as a whole
        )
    except FileNotFoundError:
        return CommandResult(MISSING, "")
    except OSError as error:
        return CommandResult(MISSING - 1, "", str(error))
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        out, err = _kill_process(process)
        return CommandResult(None, out, err)
    finally:
        if process.poll() is None:  # Ctrl-C, which this process gets alone
            _kill_process(process)
    return CommandResult(process.returncode, out, err)


def _kill_process(process: subprocess.Popen[str]) -> tuple[str, str]:
    os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:  # it hangs in the driver and ignores signals
        return "", ""
