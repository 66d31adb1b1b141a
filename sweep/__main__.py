"""The entry point of ``python -m sweep`` and of the ``sweep`` command."""

from __future__ import annotations

import gc
import os
import sys

from sweep.command import run_command
from sweep.keeper.client import run_in_keeper

NEW_OBJECTS = 50_000
"""Number of new objects after which Python looks for garbage, in place of its 700 or 2,000.

Imports make hundreds of thousands of objects that stay, and each full collection goes through all of them.
"""


def run() -> None:
    """Run the command line, then exit with `os._exit`.

    A normal exit spends up to a second on unloading large libraries.
    """
    gc.set_threshold(NEW_OBJECTS)
    code = run_in_keeper(sys.argv[1:])
    if code is None:
        code = run_command()
    os._exit(code)


if __name__ == "__main__":
    run()
