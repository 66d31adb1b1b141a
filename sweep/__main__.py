"""``python -m sweep``."""

from __future__ import annotations

import os
from contextlib import suppress

from sweep import interruption, output

UNWRITTEN = 2  # exit code where the output cannot be written


def run() -> None:
    """Run the command, and leave at once: taking large libraries down piece by piece takes up to a second."""
    output.prepare()
    interruption.begin()
    from sweep.cli import main  # takes its time, in which a signal is heard already

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
