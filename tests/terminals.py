"""A terminal with a shell in it, as a person has one, which can be closed."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import termios
import threading
from pathlib import Path
from types import TracebackType
from typing import Self


class Terminal:
    """An interactive bash in a pseudo-terminal, which is closed after the block; its output is read and dropped."""

    def __init__(self, folder: Path) -> None:
        self._screen, terminal = os.openpty()
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            cwd=folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # as a login does
        )
        os.close(terminal)
        self._is_closed = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if not self._is_closed.is_set():
            self.close()

    @property
    def process(self) -> int:
        """The process id of the shell."""
        return self._shell.pid

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._screen, f"{line}\n".encode())

    def close(self) -> None:
        """Close the terminal: the shell sends SIGHUP to its jobs and ends, and the kernel sends it once more."""
        self._is_closed.set()
        self._reader.join()  # which would keep it open
        os.close(self._screen)
        self._shell.wait(60)

    def _read(self) -> None:
        """Read what is shown, so that nobody waits for the screen; runs in a thread."""
        while not self._is_closed.is_set():
            if select.select([self._screen], [], [], 0.05)[0]:
                os.read(self._screen, 65536)
