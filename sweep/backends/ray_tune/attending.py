"""Looks after the processes that serve rank 0: a lost worker is replaced where it was, a lost server is the gang's end.

They are called for nothing but signs of life: what they do, rank 0's TensorFlow asks of theirs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

LOOK_S = 0.2  # between looks at who has answered
PULSE_S = 1.0  # between signs of life
SILENT_S = 20.0  # without one a process is taken for lost, and killed
TIMES = 3  # that a worker is replaced in a row without having come
STUCK_S = 15.0  # for rank 0 to notice what it has lost
STUCK = 75  # exit code


@dataclass(slots=True)
class _Peer:
    actor: Any
    call: Any  # the sign of life that it is asked for; None: not yet again
    since: float
    patience_s: float = SILENT_S
    in_vain: int = 0  # replacements that have not come


class Attendance:
    """Watches peers in a thread, by rank; those up to ``workers`` are replaced by what ``start`` makes for a rank.

    ``start`` gives an actor and the call that it is busy with until it has come, ``cause`` says how one was lost.
    """

    def __init__(
        self,
        peers: Mapping[int, Any],
        workers: int,
        start: Callable[[int], tuple[Any, Any]],
        start_s: float,
        cause: Callable[[str], str],
    ) -> None:
        self.lost: dict[int, str] = {}  # why, of those without which the trial cannot go on
        self.found = threading.Event()  # there is one
        self._told: list[str] = []
        self._workers, self._start, self._start_s, self._cause = workers, start, start_s, cause
        self._peers = {rank: _Peer(peer, peer.pulse.remote(), time.monotonic()) for rank, peer in peers.items()}
        self._busy, self._over = threading.Event(), threading.Event()
        threading.Thread(target=self._watch, name="sweep-attendance", daemon=True).start()

    def told(self) -> tuple[str, ...]:
        """What has happened since the last call, in lines."""
        told, self._told = tuple(self._told), []
        return told

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Rank 0 is in a call, which must not outlive a server for long."""
        self._busy.set()
        try:
            yield
        finally:
            self._busy.clear()

    def close(self) -> None:
        """End them all."""
        self._over.set()
        for peer in self._peers.values():
            _kill(peer.actor)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S) and not self.lost:
            for rank, peer in self._peers.items():
                if reason := self._look(peer):
                    self._replace(rank, peer, reason)
        self.found.set()
        if self.lost and not self._over.wait(STUCK_S) and self._busy.is_set():
            os._exit(STUCK)

    def _look(self, peer: _Peer) -> str:
        """Why a peer is lost; nothing while it lives."""
        waited = time.monotonic() - peer.since
        if peer.call is None:
            if waited > PULSE_S:
                peer.call, peer.since, peer.patience_s = peer.actor.pulse.remote(), time.monotonic(), SILENT_S
            return ""
        try:
            told = ray.get(peer.call, timeout=0)
        except GetTimeoutError:
            return f"no sign of life within {peer.patience_s:g} s" if waited > peer.patience_s else ""
        except RayError as error:
            return self._cause(str(error))
        if told.error:
            return f"{told.error}: {told.text}"
        peer.call, peer.since, peer.in_vain = None, time.monotonic(), 0
        return ""

    def _replace(self, rank: int, peer: _Peer, reason: str) -> None:
        _kill(peer.actor)
        if self._over.is_set():
            return
        if rank > self._workers:
            self.lost[rank] = f"a server, {reason}"
        elif peer.in_vain == TIMES:
            self.lost[rank] = f"a worker, replaced {TIMES} times in vain: {reason}"
        else:
            self._told.append(f"worker {rank} was lost and is replaced, the others train on: {reason}")
            peer.actor, peer.call = self._start(rank)
            peer.since, peer.patience_s, peer.in_vain = time.monotonic(), self._start_s, peer.in_vain + 1


def _kill(actor: Any) -> None:
    with suppress(Exception):  # it is gone already
        ray.kill(actor)
