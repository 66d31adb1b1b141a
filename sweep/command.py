"""Runs one command line in this process, whether this process ends with it or runs others after it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from sweep import interruption, output

UNWRITTEN = 2  # exit code if standard output cannot be written


def run_command(arguments: Sequence[str] | None = None, program: str | None = None) -> int:
    """Run a command line, by default the one that started this process, and return its exit code.

    ``program`` is the name of the program in messages. From this call on, `interruption` handles the signals.
    """
    output.prepare_streams()
    interruption.start_handling_signals()
    from sweep.cli import main  # a slow import; signals are already handled while it runs

    code: object = 0
    try:
        main(None if arguments is None else list(arguments), program)
    except SystemExit as end:
        code = end.code
    code = code if isinstance(code, int) else int(code is not None)
    output.flush()
    if not code and (failure := output.failure()):
        code = UNWRITTEN
        with suppress(OSError):
            os.write(2, f"error: standard output: {failure.strerror}\n".encode())
    interruption.finish()
    return code
