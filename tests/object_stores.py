"""A real S3 server of one's own: SeaweedFS on this machine, to be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from sweep.store.object_store import ObjectStore, StoreAway

KEY, SECRET = "AKTEST123456", "secret1234567890"
PATIENCE_S = 60.0
PORTS = (
    *("s3.port", "master.port", "volume.port", "filer.port", "admin.port"),
    *("s3.port.grpc", "master.port.grpc", "volume.port.grpc", "filer.port.grpc"),
)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class S3:
    """The server of a folder; its address stays the same."""

    folder: Path
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in PORTS})
    process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.ports['s3.port']}",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it, and wait until it answers; in this process ``environment`` must be set."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = [f"-{name}={port}" for name, port in self.ports.items()]
        command = [
            str(Path(sys.executable).with_name("weed")),
            *("mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.folder}", *ports),
            *("-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        ]
        with (self.folder.parent / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **self.environment}, stdout=log, stderr=log, start_new_session=True
            )
        probe, until = ObjectStore("s3://probe"), time.monotonic() + PATIENCE_S
        while True:
            try:
                probe.put("probe", b"")
                return
            except StoreAway:
                if time.monotonic() > until or self.process.poll() is not None:
                    self.kill()
                    raise
                time.sleep(0.1)

    def kill(self) -> None:
        """End it as a loss of power would."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
