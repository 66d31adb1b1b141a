"""The entry point of ``python -m sweep`` and of the ``sweep`` command."""

from __future__ import annotations

import os
import sys

from sweep import garbage
from sweep.command import run_command
from sweep.keeper.client import run_in_keeper, starts_local_ray
from sweep.read_recorder import recorder


def run() -> None:
    """Run the command line of this process, in the folder's keeper or here, and end the process by `os._exit`.

    A keeper (`sweep.keeper`) runs the command if there is one, or if ``--keep-warm`` or an open page of the folder asks
    for one. Never returns. The exit code is that of the command. A normal exit spends up to a second on unloading large
    libraries.
    """
    garbage.collect_rarely()  # the imports that follow make many objects, few of which are garbage
    recorder.pause()  # no code of the author runs before its import, which calls `resume`
    code = run_in_keeper(sys.argv[1:])
    if code is None:  # no keeper has run the command
        code = run_command(forks_workers=starts_local_ray(sys.argv[1:]))
    os._exit(code)


if __name__ == "__main__":
    run()
