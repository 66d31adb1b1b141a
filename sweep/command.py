"""Runs one command line in this process, whether this process ends with it or runs others after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress

from sweep import forking, interruption, output

UNWRITTEN = 2  # exit code if standard output cannot be written


def run_command(
    arguments: Sequence[str] | None = None,
    program: str | None = None,
    *,
    forks_workers: bool = False,
) -> int:
    """Run a command line, by default the one that started this process, and return its exit code.

    Call it in the main thread. ``arguments`` does not include the program's name; ``program`` is that name in messages.
    With ``forks_workers``, a fork server runs meanwhile, if one can be started.

    The code is 2, with a line on standard error, if the command succeeded but its output could not be written, except
    to a pipe that its reader has closed. Standard output and error are replaced (`output.prepare_streams`) and stay so,
    and from this call on `interruption` handles the signals: the first one may end this process.
    """
    output.prepare_streams()  # first, because the signal handling copies standard error, which may be closed
    with output.expecting_document(sys.argv[1:] if arguments is None else arguments):
        interruption.start_handling_signals()
        with forking.starting_early() if forks_workers else nullcontext():
            code = _call_main(arguments, program)
    output.flush()  # the last buffered text is written only now, which may fail
    if not code and (failure := output.failure()):
        code = UNWRITTEN
        with suppress(OSError):  # standard error may not be writable either
            os.write(2, f"error: standard output: {failure.strerror}\n".encode())
    interruption.finish()
    return code


def _call_main(arguments: Sequence[str] | None, program: str | None) -> int:
    """Call the command line's main function and return its exit code: 0 if it returns, 1 for an exit with a message.

    An exit with a number returns that. Exceptions other than `SystemExit` are raised.
    """
    from sweep.cli import main  # a slow import; signals are already handled while it runs

    try:
        main(None if arguments is None else list(arguments), program)
    except SystemExit as end:
        # as at the end of any Python program: None means success, and a text is a message about a failure
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
