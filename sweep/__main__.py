"""``python -m sweep``."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from sweep import interruption


def run() -> None:
    """Run the command, and leave at once: taking large libraries down piece by piece takes up to a second."""
    interruption.begin()
    from sweep.cli import main  # takes its time, in which a signal is heard already

    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):  # nobody reads on
            stream.flush()
    interruption.finish()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    run()
