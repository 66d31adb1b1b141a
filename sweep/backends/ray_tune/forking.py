"""The driver's side of the fork server: it starts the server, early if possible, and makes a local Ray use it.

This module does not import Ray, so that the server can import its libraries while the driver checks the sweep and
imports Ray.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

from sweep.backends.ray_tune.ray_settings import LOCAL_SETTINGS, SETTINGS
from sweep.contract import Devices

_HOME = Path(__file__).parents[3]
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from sweep.backends.ray_tune.fork_server import main; main()"
"""Runs the server without the working folder in the search path, where the author may have a module with the name of a
library's. The folder of sweep comes last, in case it is not installed."""


class ForkServer:
    """A fork server that this process has started, to which it names the modules to import; see `fork_server`."""

    def __init__(self, devices: Devices) -> None:
        """Start it. Libraries read their number of threads when they are imported: it is that of a trial's CPUs."""
        self.name = f"sweep-{uuid.uuid4().hex}"
        own = {
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(int(devices.cpus), 1))),
            "CUDA_VISIBLE_DEVICES": "",  # a library that has found a GPU could not use it in a fork, nor may a trial
        }
        self._errors = os.memfd_create("fork-server-errors")  # no pipe, which may be full, nor a file on a disk
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(_HOME), self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**SETTINGS, **LOCAL_SETTINGS, **os.environ, **own},
        )
        self._is_told = False

    def describe_failure(self) -> str:
        """Return in one line why the server has ended by itself; empty if it runs. Without it, workers start slower."""
        if self._process.poll() is None:
            return ""
        written = os.pread(self._errors, os.fstat(self._errors).st_size, 0)
        lines = written.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def import_modules(self, modules: Sequence[str]) -> None:
        """Make the server import these modules too and begin to serve; only the first call has an effect."""
        if self._is_told or self._process.stdin is None:
            return
        self._is_told = True
        with suppress(BrokenPipeError):  # it has failed
            self._process.stdin.write("".join(f"{name}\n" for name in (*modules, "")).encode())
            self._process.stdin.flush()

    def close(self) -> None:
        """End the server; the workers that it has started continue."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        os.close(self._errors)


_early_servers: list[ForkServer] = []
"""The server that `starting_early` has started, if any."""


def can_fork(devices: Devices) -> bool:
    """Return whether workers with these devices may be forked: on Linux, and only without GPUs.

    What TensorFlow does with a GPU while it is imported is not known to survive a fork.
    """
    return sys.platform == "linux" and not devices.real_gpus


@contextmanager
def starting_early(devices: Devices) -> Iterator[None]:
    """Start a fork server now for the local Ray that starts inside the block, if workers may be forked."""
    if not can_fork(devices):
        yield
        return
    server = ForkServer(devices)
    _early_servers.append(server)
    try:
        yield
    finally:
        _early_servers.remove(server)
        server.close()


@contextmanager
def serving(devices: Devices, modules: Sequence[str], say: Callable[[str], None]) -> Iterator[ForkServer | None]:
    """Yield a fork server that imports these modules: the one that was started early, or a new one.

    Yields None if workers cannot be forks. After the block, ``say`` gets a line if the server has failed.
    """
    if not can_fork(devices):
        yield None
        return
    with nullcontext(_early_servers[0]) if _early_servers else closing(ForkServer(devices)) as server:
        server.import_modules(modules)
        try:
            yield server
        finally:
            failure = server.describe_failure()
            if failure:
                say(f"workers have imported their libraries by themselves, which takes longer: {failure}")
