"""The program that Ray starts as a worker: it lets the fork server start the worker and ends when that has ended.

Without a fork server it is Ray's own worker. It imports nothing of sweep, so that it starts at once.
"""

from __future__ import annotations

import array
import json
import os
import resource
import runpy
import signal
import socket
import struct
import sys

SERVER_VARIABLE = "SWEEP_FORK_SERVER"
"""Environment variable with the name of the fork server's socket, an abstract one of Linux."""

PROGRAM_VARIABLE = "SWEEP_RAY_WORKER"
"""Environment variable with the path of Ray's own worker."""

LENGTH = struct.Struct("!Q")
"""The header of a request: its length in bytes, sent together with the descriptors of standard output and error."""


LOOK_S = 1.0
"""Seconds between checks that Ray still runs."""

STARTED = b"started "
"""The first answer to a request. The second one is the exit code of the worker."""


def main() -> None:
    """Let the fork server start a worker with this program's arguments, wait for its end and exit with its code.

    If there is no fork server, or it does not start one, run the worker in this process.
    """
    connection = _connect(os.environ.get(SERVER_VARIABLE, ""))
    if connection is not None and _request_worker(connection):
        sys.exit(_wait_for_end(connection))
    run_worker(sys.argv[1:])


def run_worker(arguments: list[str]) -> None:
    """Run the program of Ray's own worker in this process, as if Python had started it with these arguments.

    `PROGRAM_VARIABLE` has the path of the program. It and `SERVER_VARIABLE` are removed from the environment, and
    ``sys.argv`` and the first entry of ``sys.path`` are replaced. Raises KeyError if `PROGRAM_VARIABLE` is not set.
    """
    program = os.environ.pop(PROGRAM_VARIABLE)
    os.environ.pop(SERVER_VARIABLE, None)  # the author's code must not see it
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(program)  # noqa: PTH120  # as Python does for a program
    runpy.run_path(program, run_name="__main__")


def _connect(name: str) -> socket.socket | None:
    """Return a connection to the fork server with this socket name; None if it does not run or the name is ``""``."""
    if not name:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(f"\0{name}")
    except OSError:  # it has ended
        connection.close()
        return None
    return connection


def _request_worker(connection: socket.socket) -> bool:
    """Ask the fork server to start a worker in place of this process; return False if it does not.

    The request has this process's arguments, environment, folder, output streams, process group, blocked signals and
    limit of open files. Waits for the server's answer.
    """
    request = {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109  # pathlib would take longer to import than all of this
        # Blocks no further signal, and returns those that are blocked.
        "blocked_signals": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "process_group": os.getpgrp(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    content = json.dumps(request).encode()
    descriptors = array.array("i", [1, 2])  # of standard output and error
    try:
        connection.sendmsg(
            [LENGTH.pack(len(content))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        )
        connection.sendall(content)
        return connection.recv(len(STARTED)) == STARTED
    except OSError:
        return False


def _wait_for_end(connection: socket.socket) -> int:
    """Wait until the worker ends, and return its exit code; 1 if the fork server or Ray ends before."""
    connection.settimeout(LOOK_S)
    parent = os.getppid()  # Ray; once it has ended, this process has another parent
    while os.getppid() == parent:
        try:
            return int(connection.recv(64) or 1)  # nothing is received if the fork server has ended
        except TimeoutError:  # the worker still runs
            continue
        except OSError:  # the fork server has ended
            break
    return 1


if __name__ == "__main__":
    main()
