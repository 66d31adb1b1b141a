"""The entry point of ``python -m sweep`` and of the ``sweep`` command."""

from __future__ import annotations

import os
from contextlib import suppress

from sweep import interruption, output

UNWRITTEN = 2  # exit code if standard output cannot be written


def run() -> None:
    """Run the command line, then exit with `os._exit`.

    A normal exit spends up to a second on unloading large libraries.
    """
    output.prepare_streams()
    interruption.start_handling_signals()
    from sweep.cli import main  # a slow import; signals are already handled while it runs

    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    code = code if isinstance(code, int) else int(code is not None)
    output.flush()
    if not code and (failure := output.failure()):
        code = UNWRITTEN
        with suppress(OSError):
            os.write(2, f"error: standard output: {failure.strerror}\n".encode())
    interruption.finish()
    os._exit(code)


if __name__ == "__main__":
    run()
