"""The entry point of ``python -m sweep`` and of the ``sweep`` command."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 130  # exit code, as of `InterruptedByUser`


def run() -> NoReturn:
    """Run the command line of this process, in the folder's keeper or here, and exit with the command's exit code.

    A command that starts a local Ray runs in the folder's keeper (`sweep.keeper`), if there is one that can run it, or
    if ``--keep-warm`` or an open page of the folder asks for one. Ctrl-C that the command does not handle itself, as
    during the imports, ends it with the exit code 130. The process ends by `os._exit`, because a normal exit would
    spend up to a second on unloading large libraries. Only an error passes through, such as the OSError of
    `run_in_keeper` if the working folder is gone.
    """
    has_begun = False
    try:
        # slow imports, during which Ctrl-C may come
        from sweep import garbage
        from sweep.command import run_command
        from sweep.keeper.client import run_in_keeper, starts_local_ray
        from sweep.read_recorder import recorder

        garbage.collect_rarely()  # the imports that follow make many objects, few of which are garbage
        recorder.pause()  # no code of the author runs before its import, which calls `resume`
        code = run_in_keeper(sys.argv[1:])
        if code is None:  # no keeper has run the command
            has_begun = True
            # a command that starts a local Ray starts workers soon, for which a fork server is prepared
            code = run_command(forks_workers=starts_local_ray(sys.argv[1:]))
    # before the command handles signals, or after one that leaves Ctrl-C to Python
    except KeyboardInterrupt:
        code = _end_interrupted(has_begun=has_begun)
    os._exit(code)


def _end_interrupted(*, has_begun: bool) -> int:
    """Print "interrupted" to standard error and return the exit code 130; ignore further Ctrl-C from now on.

    If the command has not begun (``has_begun`` is False) and was given ``--json``, also print a JSON document with this
    error to standard output. If a stream cannot be written, its text is silently left out.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    text = "interrupted"
    with suppress(OSError):
        os.write(2, f"{text}\n".encode())
    if not has_begun:
        from sweep import output

        with suppress(OSError), output.expecting_document(sys.argv[1:]):
            output.print_missing_document(text, INTERRUPTED)
    return INTERRUPTED


if __name__ == "__main__":
    run()
