"""The file that receives what Ray and TensorFlow print."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO


@contextmanager
def redirected(path: Path) -> Iterator[TextIO]:
    """Append standard error to a file inside the block: ``sys.stderr`` and file descriptor 2, also of child processes.

    Yields a stream to the original standard error, for output meant for the user; it is closed after the block. The
    file is created if it does not exist. What cannot be written into it at the end, as on a full disk, is lost without
    an error. Raises OSError if the file cannot be opened, as when its folder is missing.
    """
    sys.stderr.flush()  # what was written before the block does not belong in the file
    with path.open("a", encoding="utf-8") as log, ExitStack() as undoing:
        kept = os.dup(2)  # the original standard error
        undoing.callback(os.close, kept)
        # a notebook's stream may have none; what the encoding lacks is escaped, as Python does
        encoding = getattr(sys.stderr, "encoding", None)
        # a duplicate of its own, because closing the stream closes its descriptor, and ``kept`` is restored at the end
        terminal = os.fdopen(
            os.dup(kept), "w", buffering=1, encoding=encoding, errors="backslashreplace"
        )
        undoing.callback(_close, terminal)
        undoing.enter_context(redirect_stderr(_to_file_descriptor_2()))
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        finally:
            with suppress(OSError):  # the disk is full: this output is lost, the sweep is not
                sys.stderr.flush()
            # What could not be written then is still in the buffer of `sys.stderr`. It is written to the null device,
            # or it would reach the terminal once file descriptor 2 is the original standard error again.
            with Path(os.devnull).open("wb") as null:
                os.dup2(null.fileno(), 2)
            sys.stderr.flush()
            os.dup2(kept, 2)


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Discard all that is written to standard error inside the block, as by Ray and TensorFlow; not standard output.

    Output of child processes is discarded as well.
    """
    with TemporaryDirectory() as folder, redirected(Path(folder) / "debug.log"):
        yield


def _close(stream: TextIO) -> None:
    """Close a stream; what it could not write, as to a terminal that was closed, is lost."""
    with suppress(OSError):  # raised after the descriptor was closed
        stream.close()


def _to_file_descriptor_2() -> TextIO:
    """Return a stream that writes to file descriptor 2: ``sys.stderr``, or a new one if that writes elsewhere.

    Closing the new one leaves the descriptor open.
    """
    try:
        if sys.stderr.fileno() == 2:
            return sys.stderr
    except (OSError, ValueError, AttributeError):  # it has no file descriptor, as in a notebook
        pass
    return io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="replace", write_through=True)
