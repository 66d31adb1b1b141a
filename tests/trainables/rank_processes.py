"""Processes that train together, outside of Ray: each holds its trainables and does what all are told."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sweep.contract import Assignment, Devices, Ranks

# A fork of the fork server is a fresh process without the seconds of importing TensorFlow.
_FRESH = multiprocessing.get_context("forkserver")
_FRESH.set_forkserver_preload(["zoo_entries", "rank_sums"])

HEARTBEAT_S = 120.0
"""On a busy machine a process that lives may be silent for long."""


@dataclass
class Here:
    """What one of the processes has."""

    devices: Devices
    kept: dict[str, Any] = field(default_factory=dict)  # between calls

    def of(self, assignment: Assignment) -> Assignment:
        """The assignment of this process."""
        return replace(assignment, devices=self.devices)


@dataclass
class Together:
    """As many processes as there are ranks, rank 0 first."""

    pids: list[int]
    pipes: list[Any]

    def call(self, function: Callable[..., Any], *given: Any, timeout: float = 600.0) -> list[Any]:
        """What a function of a module, given `Here`, returns in each process; an error in the place of a value."""
        for pipe in self.pipes:
            pipe.send((function, given))
        return self.answers(timeout)

    def answers(self, timeout: float, ranks: Sequence[int] | None = None) -> list[Any]:
        """Of all processes, or of some; TimeoutError in the place of one that gives none, EOFError of a dead one."""
        found: list[Any] = []
        for pipe in self.pipes if ranks is None else [self.pipes[rank] for rank in ranks]:
            try:
                found.append(
                    pipe.recv() if pipe.poll(timeout) else TimeoutError(f"no answer in {timeout} s")
                )
            except (EOFError, ConnectionError):
                found.append(EOFError("dead"))
        return found


@contextmanager
def together(count: int, gpus: int = 0, **bounds: float) -> Iterator[Together]:
    """Processes with as many simulated GPUs each, which have met; ``bounds`` as in `Ranks`."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
    addresses = tuple(f"127.0.0.1:{one.getsockname()[1]}" for one in held)
    pipes, processes = [], []
    for rank in range(count):
        mine, theirs = _FRESH.Pipe()
        met = Ranks(addresses, rank, **{"heartbeat_s": HEARTBEAT_S, "register_s": 600.0, **bounds})
        ranks = met if count > 1 else None
        process = _FRESH.Process(
            target=_serve, args=(theirs, Devices(1, gpus, simulated=True, ranks=ranks))
        )
        process.start()
        theirs.close()
        pipes.append(mine)
        processes.append(process)
    try:
        yield Together([process.pid or 0 for process in processes], pipes)
    finally:
        for process in processes:
            process.kill()
            process.join()
        for one in held:
            one.close()


def _serve(pipe: Any, devices: Devices) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    here = Here(devices)
    while True:
        try:
            function, given = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(function(here, *given))
        except Exception as error:
            pipe.send(RuntimeError("".join(traceback.format_exception(error))))
