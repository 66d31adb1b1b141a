"""The fork server: a process that imports what all workers need once, and starts each worker as a fork of itself.

A worker of Ray that starts by itself imports Ray, Ray Tune and TensorFlow, which takes a core for seconds, and all
workers of a machine do so at the same time. Python's ``multiprocessing`` has the same under the name *forkserver*.

Ray starts `fork_client.py` in place of its worker. It connects to the socket of this process and passes on what the
worker is to have: arguments, environment, working folder, standard output and error, process group and blocked signals.
The worker ends as any other, and `fork_client.py` with it.

`sweep.forking` runs `main` in a process of its own; its argument is the name of an abstract socket. Only processes of
the same user are served. Standard input gives the names of further modules to import, one a line, up to an empty line;
the server ends when standard input is closed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.backends.ray_tune.fork_client import LENGTH, STARTED, run_worker
from sweep.read_recorder import recorder

ALWAYS = ("sweep.backends.ray_tune.trial_actor",)
"""Modules that every worker needs."""

_PEER = struct.Struct("3i")  # process, user and group
# of pyarrow's memory allocator, which prepares for forks
_QUIET_THREADS = frozenset({"jemalloc_bg_thd"})
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """The properties that a worker takes over from the process that Ray has started in its place."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    blocked_signals: list[int]
    process_group: int
    open_files: tuple[int, int]  # soft and hard limit
    descriptors: list[int]  # standard output and error


def main() -> None:
    """Import the modules of `ALWAYS` and those named by standard input, then fork workers until that is closed.

    In a fork, run Ray's worker. Return without forking if standard input is closed before an empty line has ended the
    names. Exit with a message if libraries have started threads, which a fork would lack.
    """
    gc.disable()  # until a worker is forked, see `sweep.garbage`
    recorder.pause()  # what is read while libraries are imported is no input of a trial
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the driver
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0{sys.argv[1]}")
    listener.listen(_BACKLOG)  # whoever connects from now on waits for the imports
    os.environ.update(get_worker_identity())  # before Ray is imported, which reads them
    import_modules(ALWAYS)
    while (line := sys.stdin.buffer.readline()) != b"\n":
        if not line:  # the driver has ended before it named all
            return
        import_modules([line.decode().strip()])
    threads = list_lasting_threads()
    if threads:
        sys.exit(
            f"libraries have started threads, which a fork would not have: {', '.join(threads)}"
        )
    gc.freeze()  # otherwise each collection in a worker would copy all pages
    request = serve(listener)
    if request is not None:
        gc.enable()
        recorder.resume()
        take_over(request)  # this process is now like the one that Ray has started
        sys.path.insert(0, "")  # `run_worker` replaces this entry by the folder of Ray's program
        run_worker(request.arguments)


def get_worker_identity() -> dict[str, str]:
    """Return environment variables that Ray reads only when it is imported, with values that suit all workers.

    With them, a worker belongs to no job until it gets work, like the workers that Ray starts in advance, and takes
    this process for its raylet, so that it ends when this process ends. If Ray ends, `fork_client.py` ends, and this
    process then kills the worker.
    """
    return {"RAY_JOB_ID": "ffffffff", "RAY_RAYLET_PID": str(os.getpid())}


def import_modules(names: Sequence[str]) -> None:
    """Import modules by their names; ignore one that fails, since the worker imports it again and reports the error."""
    for name in names:
        with suppress(Exception):
            importlib.import_module(name)


def list_lasting_threads() -> list[str]:
    """Return the names of this process's other threads that would be missing in a fork.

    The process is forked once before they are listed, because OpenBLAS ends its threads before a fork and starts new
    ones only when needed. Threads that are known to be harmless are left out.
    """
    child = os.fork()  # only for what libraries do before a fork
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    names: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != os.getpid():  # the main thread has the number of the process
            with suppress(OSError):  # it has ended
                names.append((task / "comm").read_text().strip())
    return [name for name in names if name not in _QUIET_THREADS]


def serve(listener: socket.socket) -> ForkRequest | None:
    """Fork a worker for each request that comes to ``listener``, until standard input is closed.

    Nothing more may be written to standard input. Returns the request in each worker, and None in the server. The
    server sends workers' exit codes to their clients, and kills the worker of a client that has ended.
    """
    # When a worker ends, SIGCHLD makes Python write to `wakes`, so that `select` returns. Python does this only for
    # signals that have a handler, and the descriptor must not block.
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    clients: dict[int, socket.socket] = {}  # by worker
    with selectors.DefaultSelector() as selector:
        for source in (0, listener, woken):  # 0 is standard input
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if 0 in ready:
                return None  # the driver has closed it, or has died
            if woken in ready:
                # one byte for each signal; the next line finds all workers that have ended
                woken.recv(4096)
                _report_ended_workers(clients, selector)
            # A client sends nothing after its request, so there is only something to read once it has ended.
            for client in [one for one in clients.values() if one in ready]:
                _end_worker_of(client, clients, selector)
            if listener in ready:
                connection = listener.accept()[0]
                request = receive_request(connection)
                if request is None:
                    connection.close()
                # in the worker, which serves nobody
                elif _fork_worker(connection, request, clients, selector):
                    for other in (listener, woken, wakes):
                        other.close()
                    return request


def _fork_worker(
    connection: socket.socket,
    request: ForkRequest,
    clients: dict[int, socket.socket],
    selector: selectors.BaseSelector,
) -> bool:
    """Fork a worker for a request; return True in the worker and False in the server, which adds it to ``clients``.

    The worker closes the connections of all clients. The server closes the descriptors of the request, and tells the
    client of ``connection`` that its worker has started.
    """
    worker = os.fork()
    if worker == 0:
        # A client learns that the server has ended by the end of its connection, which no worker must keep open.
        for other in (connection, *clients.values()):
            other.close()
        return True
    for descriptor in request.descriptors:  # the worker has copies
        os.close(descriptor)
    clients[worker] = connection
    selector.register(connection, selectors.EVENT_READ)
    with suppress(OSError):  # the client has ended, which the next turn sees
        connection.send(STARTED)
    return False


def receive_request(connection: socket.socket) -> ForkRequest | None:
    """Return the request on a connection; None if another user sends it or it is incomplete.

    Waits until it has been received.
    """
    sender = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, user, _ = _PEER.unpack(sender)  # process, user and group
    if user != os.getuid():
        return None
    # the length of the request, and two open files: the client's standard output and error
    head, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, 2)
    body = _receive_body(connection, head)
    if body is None:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    fields: dict[str, Any] = json.loads(body)
    fields["open_files"] = tuple(fields["open_files"])  # JSON has only lists
    return ForkRequest(**fields, descriptors=list(descriptors))


def _receive_body(connection: socket.socket, head: bytes) -> bytes | None:
    """Return the rest of a request, whose length is in ``head``; None if either is incomplete.

    That happens if the client was killed meanwhile. Waits for the rest.
    """
    if len(head) < LENGTH.size:
        return None
    (missing,) = LENGTH.unpack(head)  # bytes that are still to come
    parts: list[bytes] = []
    while missing:
        part = connection.recv(min(missing, 65536))
        if not part:
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _report_ended_workers(
    clients: dict[int, socket.socket], selector: selectors.BaseSelector
) -> None:
    """Send the exit codes of workers that have ended to their clients, and remove these from ``clients``.

    The code is 128 + N if signal N has ended a worker.
    """
    while clients:  # without children, `os.waitpid` would raise an error
        worker, status = os.waitpid(-1, os.WNOHANG)
        if not worker:  # the others still run
            return
        client = clients.pop(worker, None)
        if client is None:  # a process that a library started when it was imported
            continue
        with suppress(KeyError):  # `_end_worker_of` has ended it
            selector.unregister(client)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:  # minus the number of the signal
            code = 128 - code
        with client, suppress(OSError):  # closes the client, which may be gone
            client.send(str(code).encode())


def _end_worker_of(
    client: Any, clients: dict[int, socket.socket], selector: selectors.BaseSelector
) -> None:
    """Kill the worker of ``client``, if it still runs, because the client has ended.

    Ray ends the client in place of an unregistered worker. The worker stays in ``clients`` until
    `_report_ended_workers` finds that it has ended.
    """
    workers = [worker for worker, one in clients.items() if one is client]
    if workers:  # otherwise it has just ended
        selector.unregister(client)
        os.kill(workers[0], signal.SIGKILL)  # it exists until `os.waitpid` has returned it


def take_over(request: ForkRequest) -> None:
    """Give this process the environment, folder, outputs, process group, limits and blocked signals of ``request``.

    Standard input becomes empty, and signal handlers and NumPy's random generator are reset. The descriptors of the
    request are closed. The process group stays as it is if that of the request is gone or in another session. Raises
    OSError if the folder is gone.
    """
    signal.set_wakeup_fd(-1)  # the server's, see `serve`
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    # become standard input, output and error
    for descriptor, number in zip((nothing, *request.descriptors), (0, 1, 2), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    with suppress(OSError):  # it has ended, or is in another session
        os.setpgid(0, request.process_group)
    resource.setrlimit(resource.RLIMIT_NOFILE, request.open_files)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    _read_ray_settings()
    import numpy as np

    np.random.seed()  # Python's own generator does this by itself; otherwise all workers would draw the same numbers
    signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked_signals)


def _read_ray_settings() -> None:
    """Make Ray read its environment variables again, because it was imported before the worker's were set."""
    from sweep.backends.ray_tune.ray_private_api import import_private

    raylet: Any = import_private("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
