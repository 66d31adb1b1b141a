"""Runs commands that get signals at named points of the code: a process that has imported all, forked for each.

Reads a JSON mapping a line (folder, argv, point, signals, files for both streams, and whether standard output is a
terminal), and answers with the exit code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Any

PRELOADED = (  # what a run imports as it goes
    *(
        "sweep.api.running",
        "sweep.cli",
        "sweep.cli.planning",
        "sweep.export",
        "sweep.render.tables",
    ),
    *("sweep.render.live", "sweep.runner.session", "sweep.analysis.verdict"),
    *("sweep.store.reading", "sweep.store.tables", "pandas", "pyarrow.parquet", "scipy.special"),
)
BOUND_S = 60.0  # however busy the machine: a command that takes longer hangs


def at(point: str, signals: list[int]) -> None:
    """Send this process these signals where a function is called: ``file.py:Qualified.name``, or ``... 3`` times."""
    place, _, times = point.partition(" ")
    path, _, name = place.partition(":")
    left = [int(times or 1)]

    def called(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_qualname == name and code.co_filename.endswith(path):
            left[0] -= 1
            if not left[0]:
                sys.setprofile(None)
                for number in signals:
                    os.kill(os.getpid(), number)

    sys.setprofile(called)


def command(request: dict[str, Any]) -> None:
    """Be ``python -m sweep`` with these arguments, here."""
    if request.get("fresh"):  # of our modules, none is imported yet
        for name in [name for name in sys.modules if name.partition(".")[0] == "sweep"]:
            del sys.modules[name]
    os.chdir(request["folder"])
    sys.argv = ["sweep", *request["argv"]]
    if request.get("point"):
        at(request["point"], request["signals"])
    if request.get("full"):  # standard output is a pipe that nobody reads, and takes no more
        _unread, full = os.pipe()
        os.set_blocking(full, False)
        with suppress(BlockingIOError):
            while True:
                os.write(full, b" " * 4096)
        os.set_blocking(full, True)
        os.dup2(full, 1)
    if "script" in request:
        sys.path.insert(0, request["folder"])
        exec(request["script"], {"__name__": "__main__"})  # as a user's own process, which lives on
        os._exit(0)
    from sweep import __main__

    __main__.run()


def forked(request: dict[str, Any]) -> int:
    """The exit code of the command, which a child runs."""
    files = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for path in request["streams"]]
    screen, terminal = os.openpty() if request["terminal"] else (-1, -1)
    signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # as in a terminal, also if nohup has started the tests
    child = os.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.dup2(files[0] if terminal < 0 else terminal, 1)
        os.dup2(files[1], 2)
        command(request)
    for file in (*files, *([terminal] if request["terminal"] else [])):
        os.close(file)
    try:
        return waited(child, screen)
    finally:
        if screen >= 0:
            os.close(screen)


def waited(child: int, screen: int) -> int:
    """The exit code of a child, the terminal of which somebody reads; -1 if it hangs."""
    if screen >= 0:
        os.set_blocking(screen, False)
    deadline = time.monotonic() + BOUND_S
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -1
        if screen >= 0:
            with suppress(OSError):  # nothing is there, or nobody writes any more
                os.read(screen, 65536)
        time.sleep(0.002)


def serve() -> None:
    """Answer requests until there are none."""
    for name in PRELOADED:
        import_module(name)
    # which a shell's background jobs do not have
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for line in sys.stdin:
        sys.stdout.write(f"{forked(json.loads(line))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
