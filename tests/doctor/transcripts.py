"""Machines that are not here: programs answered from a file of ``$ command``, output, ``stderr: ``, ``exit: ``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.cli.doctor import CheckInputs, examine
from sweep.doctor.findings import Finding
from sweep.doctor.programs import MISSING, CommandResult

RECORDED = Path(__file__).parent / "recorded"


class Transcript:
    """Stands in for `commands.run`; a program that the file does not have is missing."""

    def __init__(self, name: str) -> None:
        text = (RECORDED / f"{name}.txt").read_text()
        self.asked: list[str] = []
        self._answers = {}
        for section in text.split("\n$ ")[1:]:
            command, _, rest = section.partition("\n")
            self._answers[command] = _ran(rest.splitlines())

    def __call__(self, command: Sequence[str], timeout_s: float) -> CommandResult:
        line = " ".join("python" if part == sys.executable else part for part in command)
        self.asked.append(line)
        return self._answers.get(line, CommandResult(MISSING, ""))


def _ran(lines: Sequence[str]) -> CommandResult:
    code: int | None = 0
    out, err = [], []
    for line in lines:
        if line.startswith("stderr: "):
            err.append(line.removeprefix("stderr: "))
        elif line.startswith("exit: "):
            end = line.removeprefix("exit: ")
            code = None if end == "timeout" else int(end)
        else:
            out.append(line)
    return CommandResult(code, "\n".join(out), "\n".join(err))


def findings(name: str, folder: Path, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """The doctor's findings about a recorded machine."""
    given = CheckInputs(Transcript(name), environ or {}, folder, 1.0)
    return list(examine(given))
