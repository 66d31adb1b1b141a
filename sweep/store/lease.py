"""Who may write into a sweep in an object store: the lease, an object that its holder renews every few seconds."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from sweep.errors import StoreError
from sweep.store.object_store import ObjectStore

LEASE = "lease"
LEASE_S = 20.0
"""A lease that was not renewed for so long is nobody's."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who writes into a sweep."""

    host: str
    process: int
    space: str  # of processes, in which the id means something
    token: str
    renewed: float  # seconds since 1970, by the clock of the holder
    released: bool = False
    once: str = ""  # so that no two leases are the same bytes

    @classmethod
    def own(cls, token: str, *, released: bool = False) -> Lease:
        return cls(socket.gethostname(), os.getpid(), _space(), token, time.time(), released, secrets.token_hex(4))

    @classmethod
    def parse(cls, data: bytes, store: ObjectStore) -> Lease:
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise StoreError(f"{store.url}/{LEASE}: unreadable ({error})") from error

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @property
    def holder(self) -> str:
        return f"process {self.process} on {self.host}"

    @property
    def is_over(self) -> bool:
        """Whether nobody holds it, as far as this machine can tell."""
        if self.released:
            return True
        return self.space == _space() and not _is_alive(self.process)

    @property
    def is_own(self) -> bool:
        """Whether this process held it, in an earlier session: the lock of the copy lets it run one at a time."""
        return self.space == _space() and self.process == os.getpid()


def holder(store: ObjectStore) -> Lease | None:
    """Return who runs a sweep, anywhere; None where nobody seems to."""
    found = store.get(LEASE)
    lease = None if found is None else Lease.parse(found[0], store)
    if lease is None or lease.is_over or time.time() - lease.renewed > 3 * LEASE_S:  # clocks differ
        return None
    return lease


def _space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def now() -> float:
    """Return seconds on a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
