"""The processes below one process, found and killed by their ids."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from a later one with the same id by its start."""

    pid: int
    parent: int
    start: str
    title: str

    def is_alive(self) -> bool:
        found = _read(self.pid)
        return found is not None and found.start == self.start

    def kill(self) -> None:
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)


def below(root: int) -> list[Process]:
    """All living descendants of a process."""
    everyone = [
        found
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and (found := _read(int(path.name)))
    ]
    family, found = {root}, []
    while grown := [
        process for process in everyone if process.parent in family and process.pid not in family
    ]:
        family |= {process.pid for process in grown}
        found += grown
    return found


def wait_until_gone(processes: list[Process], timeout_s: float) -> float:
    """Seconds until none of them lives. Raises TimeoutError that names those that stay."""
    began = time.monotonic()
    while left := [process for process in processes if process.is_alive()]:
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(
                f"still alive after {timeout_s} s: {[process.title for process in left]}"
            )
        time.sleep(0.1)
    return time.monotonic() - began


def _read(pid: int) -> Process | None:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        title = (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if after_name[0] == "Z" else Process(pid, int(after_name[1]), after_name[19], title)
