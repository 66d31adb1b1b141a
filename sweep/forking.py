"""The driver's side of the fork server: starts the server, early if possible, and names the modules that it imports.

The server takes seconds to import what workers need, so a command starts it first of all. This module must therefore
not import anything that takes time: neither Ray nor NumPy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path

from sweep import interruption
from sweep.ray_settings import LOCAL_SETTINGS, SETTINGS

_HOME = Path(__file__).parents[1]
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from sweep.backends.ray_tune.fork_server import main; main()"
"""Code that runs the server. The working folder is not in its search path, because a module of the author may have the
same name as a library there. The folder that contains sweep comes last, in case sweep is not installed."""


USUAL_CPUS = 1.0
"""CPU cores of a trial, if the sweep file does not say otherwise."""


class ForkServer:
    """A fork server that this process has started, to which it names the modules to import; see `fork_server`."""

    def __init__(self, cpus: float) -> None:
        """Start a server for trials with ``cpus`` CPU cores each, without waiting for it. Raises OSError if that fails.

        Libraries get a number of threads that follows from ``cpus``, or is that of ``OMP_NUM_THREADS`` if it is set;
        they read it when they are imported. The server and its workers see no GPU.
        """
        self.name = f"sweep-{uuid.uuid4().hex}"
        self.threads = _count_threads(cpus)
        own = {
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(self.threads)),
            "CUDA_VISIBLE_DEVICES": "",  # a library that has found a GPU could not use it in a fork, nor may a trial
        }
        # in memory, because a pipe or a disk may be full
        self._errors = os.memfd_create("fork-server-errors")
        # The user's variables take precedence over sweep's settings, but not over ``own``.
        try:
            with interruption.blocking_sighup():
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, str(_HOME), self.name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env={**SETTINGS, **LOCAL_SETTINGS, **os.environ, **own},
                )
        except BaseException:
            os.close(self._errors)
            raise
        self._serves = False

    def describe_failure(self) -> str:
        """Return in one line why the server has ended by itself; "" if it still runs. Not to be called after `close`.

        It is the last line that the server has written to standard error, or else its exit code.
        """
        if self._process.poll() is None:
            return ""
        written = os.pread(self._errors, os.fstat(self._errors).st_size, 0)
        # a traceback ends with the error
        lines = written.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def import_modules(self, modules: Sequence[str]) -> None:
        """Make the server import ``modules`` too; do nothing after `serve`, or if the server has ended.

        Does not wait for the imports.
        """
        if not self._serves:
            self._send(modules)

    def serve(self) -> None:
        """Make the server start workers once it has imported all named modules; further calls do nothing."""
        if not self._serves:
            self._send([""])  # an empty line ends the list of modules
        self._serves = True

    def _send(self, lines: Sequence[str]) -> None:
        """Write lines to the standard input of the server; do nothing if the server has ended."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # the server has ended
                self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
                self._process.stdin.flush()

    def close(self) -> None:
        """End the server at once; the workers that it has started continue. To be called once, and last."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # closing writes what is still buffered
                self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        os.close(self._errors)


_early_servers: list[ForkServer] = []
"""The server that `starting_early` has started, if any."""


def can_fork(gpus: float) -> bool:
    """Return whether workers with ``gpus`` GPUs each may be forked: only on Linux, and only if ``gpus`` is 0.

    What TensorFlow does with a GPU while it is imported is not known to survive a fork.
    """
    return sys.platform == "linux" and not gpus


@contextmanager
def starting_early(cpus: float = USUAL_CPUS, gpus: float = 0.0) -> Iterator[None]:
    """Start a fork server now for the local Ray that starts inside the block, and end it after the block.

    ``cpus`` and ``gpus`` are those of a trial. No server is started if workers cannot be forked, or if its start fails.
    Inside another such block with a server, that server stays if it suits these trials. Otherwise it is ended, and a
    server that suits them replaces it until the end of the outer block, if one can be started.
    """
    if _early_servers:
        # an early server only saves time: `serving` tries again, and lets it be reported
        with suppress(OSError):
            _correct_early_server(cpus, gpus)
        yield
        return
    if can_fork(gpus):
        with suppress(OSError):  # `serving` tries again here, too
            _early_servers.append(ForkServer(cpus))
    try:
        yield
    finally:
        _end_early_server()


def _correct_early_server(cpus: float, gpus: float) -> None:
    """End the server that was started early unless it suits trials with ``cpus`` and ``gpus``, and start one that does.

    A server suits them if workers with ``gpus`` can be forked, and libraries get the same number of threads. Does
    nothing if no server was started early, and starts none if workers with ``gpus`` cannot be forked. Raises OSError if
    the start fails; then there is no server any more.
    """
    if not _early_servers or (can_fork(gpus) and _early_servers[0].threads == _count_threads(cpus)):
        return
    _end_early_server()
    if can_fork(gpus):
        _early_servers.append(ForkServer(cpus))


def import_early(modules: Sequence[str]) -> None:
    """Make the server that was started early import ``modules``; do nothing if there is none, or if it serves."""
    for server in _early_servers:
        server.import_modules(modules)


def _end_early_server() -> None:
    """End the server that was started early, if there is one."""
    if _early_servers:
        _early_servers.pop().close()


def _count_threads(cpus: float) -> int:
    """Return the number of threads that libraries use for a trial with ``cpus`` CPU cores: rounded down, at least 1."""
    return max(int(cpus), 1)


@contextmanager
def serving(
    cpus: float, gpus: float, modules: Sequence[str], say: Callable[[str], None]
) -> Iterator[ForkServer | None]:
    """Yield a fork server that imports ``modules`` and then starts workers: the one started early, or a new one.

    ``cpus`` and ``gpus`` are those of a trial. Yields None if workers cannot be forked. A server started early is
    replaced if it does not suit the trials; it, or its replacement, stays until the end of the `starting_early` block.
    If it already starts workers, for an earlier sweep, it does not import ``modules`` any more. Without a server
    started early, a new one is started, which ends with this block. If the server has failed by the end of the block,
    ``say`` is called with a line for the user. Raises OSError if a server cannot be started.
    """
    if not can_fork(gpus):
        yield None
        return
    _correct_early_server(cpus, gpus)
    serving_block: AbstractContextManager[ForkServer]
    if _early_servers:
        # left running here: the block of `starting_early` ends it
        serving_block = nullcontext(_early_servers[0])
    else:
        serving_block = closing(ForkServer(cpus))
    with serving_block as server:
        server.import_modules(modules)
        server.serve()
        try:
            yield server
        finally:
            failure = server.describe_failure()
            if failure:
                say(
                    f"workers have imported their libraries by themselves, which takes longer: {failure}"
                )
