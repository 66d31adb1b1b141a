"""Real object stores of one's own, to be killed and started again: SeaweedFS for S3, Azurite for Azure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import ClassVar

import pytest

from sweep.errors import StoreAway
from sweep.store.object_store import ObjectStore

KEY, SECRET = "AKTEST123456", "secret1234567890"
ACCOUNT, CONTAINER = "sweeptest", "bucket"
PATIENCE_S = 60.0
PORTS = (
    *("s3.port", "master.port", "volume.port", "filer.port", "admin.port"),
    *("s3.port.grpc", "master.port.grpc", "volume.port.grpc", "filer.port.grpc"),
)
AZURITE = "azurite@3.35.0"
SERVERS = (
    pytest.param("s3_server", id="s3"),
    pytest.param("azure_server", id="azure", marks=pytest.mark.exhaustive),  # npm installs it
)
"""Fixtures, of which tests ask for one after the other."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Server(ABC):
    """The server of a folder; its address stays the same."""

    folder: Path
    process: subprocess.Popen[bytes] | None = field(default=None, kw_only=True)

    bucket: ClassVar[str]  # with something in it: "s3://bucket"
    secret: ClassVar[str]
    secret_name: ClassVar[str]  # of the variables that hold these
    address_name: ClassVar[str]

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""

    @abstractmethod
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """What to start, and what its environment has besides."""

    @abstractmethod
    def _make_bucket(self) -> None: ...

    def start(self) -> None:
        """Start it, and wait until it answers; in this process ``environment`` must be set."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command, settings = self._command()
        with (self.folder.parent / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._make_bucket()
                ObjectStore(self.bucket).put("made", b"")
                return
            except (StoreAway, OSError):
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


@dataclass
class S3(Server):
    """SeaweedFS: what it has acknowledged outlives a kill."""

    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in PORTS})

    bucket = "s3://bucket"
    secret, secret_name, address_name = SECRET, "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            self.secret_name: self.secret,
            self.address_name: f"http://127.0.0.1:{self.ports['s3.port']}",
            "AWS_REGION": "us-east-1",
        }

    def _command(self) -> tuple[list[str], dict[str, str]]:
        ports = [f"-{name}={port}" for name, port in self.ports.items()]
        command = [
            str(Path(sys.executable).with_name("weed")),
            *("mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.folder}", *ports),
            *("-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        ]
        return command, self.environment

    def _make_bucket(self) -> None:
        """Do nothing: whoever puts something into a bucket that is not there makes it."""


@dataclass
class Azure(Server):
    """Azurite: it writes its index every few seconds, so that a kill takes away what came last."""

    program: Path  # of `install_azurite`
    port: int = field(default_factory=free_port)

    bucket = f"az://{CONTAINER}"
    secret = base64.b64encode(SECRET.encode() * 2).decode()
    secret_name, address_name = "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ENDPOINT"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            self.secret_name: self.secret,
            self.address_name: f"http://127.0.0.1:{self.port}/{ACCOUNT}",
        }

    def _command(self) -> tuple[list[str], dict[str, str]]:
        place = (
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            str(self.port),
            "--location",
            str(self.folder),
        )
        command = ["node", str(self.program), *place, "--silent", "--disableTelemetry"]
        return command, {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.secret}"}

    def _make_bucket(self) -> None:
        """Make the container, which obstore cannot: a request that is signed with the account's key."""
        place, headers = (
            f"/{ACCOUNT}/{CONTAINER}",
            {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"},
        )
        signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed += f"/{ACCOUNT}{place}\nrestype:container"
        digest = hmac.new(base64.b64decode(self.secret), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=10)) as link:
            link.request("PUT", f"{place}?restype=container", headers=headers)
            status = link.getresponse().status
        assert status in (201, 409), f"the container was not made: {status}"  # 409: it is there


def install_azurite(folder: Path) -> Path:
    """Install Azurite into a folder, and return its program; a test is skipped where that cannot be."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"Azurite needs {' and '.join(missing)}: not on the PATH")
    command = ["npm", "install", AZURITE, "--no-audit", "--no-fund", "--prefix", str(folder)]
    ran = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-2000:]
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Run a server; the environment has its credentials meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        server.start()
        try:
            yield server
        finally:
            server.kill()
