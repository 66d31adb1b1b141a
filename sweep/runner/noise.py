"""Keeps Ray's and TensorFlow's own words off the user's terminal: they go to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def redirected(path: Path) -> Iterator[TextIO]:
    """Append file descriptor 2 to ``path`` inside the block, child processes included.

    Gives the terminal's real standard error, for what the user is to see.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    terminal = os.fdopen(os.dup(kept), "w", buffering=1)
    with path.open("a") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        finally:
            with suppress(OSError):  # the disk is full: the words are lost, the sweep is not
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            terminal.close()
