"""Keeps Ray's and TensorFlow's own words off the user's terminal: they go to a file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def redirected(path: Path) -> Iterator[TextIO]:
    """Append file descriptor 2 to ``path`` inside the block, child processes included, and Python's standard error.

    Gives the terminal's real standard error, for what the user is to see.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    terminal = os.fdopen(os.dup(kept), "w", buffering=1)
    with path.open("a") as log, redirect_stderr(_to_file_descriptor_2()):
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        finally:
            with suppress(OSError):  # the disk is full: the words are lost, the sweep is not
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            terminal.close()


def _to_file_descriptor_2() -> TextIO:
    """Python's standard error, or, where that goes elsewhere, as a notebook's does, one that does not."""
    try:
        if sys.stderr.fileno() == 2:
            return sys.stderr
    except (OSError, ValueError, AttributeError):  # it has none
        pass
    return io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="replace", write_through=True)
