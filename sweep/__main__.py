"""The entry point of ``python -m sweep`` and of the ``sweep`` command."""

from __future__ import annotations

import os
import sys

from sweep import garbage
from sweep.command import run_command
from sweep.keeper.client import run_in_keeper, starts_local_ray
from sweep.read_recorder import recorder


def run() -> None:
    """Run the command line of this process, in the folder's keeper or here, and exit with the command's exit code.

    A keeper (`sweep.keeper`) runs the command if there is one, or if ``--keep-warm`` or an open page of the folder asks
    for one. Never returns: the process ends by `os._exit`, because a normal exit would spend up to a second on
    unloading large libraries.
    """
    garbage.collect_rarely()  # the imports that follow make many objects, few of which are garbage
    recorder.pause()  # no code of the author runs before its import, which calls `resume`
    code = run_in_keeper(sys.argv[1:])
    if code is None:  # no keeper has run the command
        code = run_command(forks_workers=starts_local_ray(sys.argv[1:]))
    os._exit(code)


if __name__ == "__main__":
    run()
