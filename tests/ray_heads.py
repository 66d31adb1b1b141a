"""A Ray cluster of one node on this machine, to which sweeps are submitted; under a token, on ports that are free."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import until

OWN_PROCESSES = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
"""Whatever the cluster has started ends with it."""
PORTS = (
    *(
        "port",
        "dashboard-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "metrics-export-port",
    ),
    *(
        "runtime-env-agent-port",
        "ray-client-server-port",
        "node-manager-port",
        "object-manager-port",
    ),
)
STARTED = "Ray runtime started."
STARTS = 5
"""Ray gives a node 30 seconds to start, which may be too few on a machine that does ten other things."""


@dataclass(frozen=True)
class Cluster:
    """A cluster, and the environment in which commands reach it."""

    address: str
    environment: Mapping[str, str]

    def call(self, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of sweep with the address of the cluster."""
        command = [sys.executable, "-m", "sweep", *arguments, "--address", self.address]
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=600
        )


@contextmanager
def started_head(folder: Path) -> Iterator[Cluster]:
    """Start a cluster, and end it after the block; skip the test where it cannot have processes of its own."""
    if subprocess.run([*OWN_PROCESSES, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to give processes a namespace of their own")
    ports = _find_free_ports()
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    found = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # its node is at 127.0.0.1, which nothing else can reach
        "RAY_USAGE_STATS_ENABLED": "0",
        "SWEEP_USER": "ann",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # of the drivers as well
    }
    start = (
        "start --head --block --node-ip-address=127.0.0.1 --dashboard-host=127.0.0.1 --num-cpus=2"
    )
    start += " --object-store-memory=200000000 --min-worker-port=0 --max-worker-port=0"
    options = [*start.split(), *(f"--{name}={port}" for name, port in ports.items())]
    place = f"--temp-dir=/tmp/{folder.name[-20:]}-{os.getpid()}"
    command = [*OWN_PROCESSES, sys.executable, "-m", "ray.scripts.scripts", *options, place]
    cluster = Cluster(f"http://127.0.0.1:{ports['dashboard-port']}", found)
    log = folder / "head.log"
    for _ in range(STARTS):
        with log.open("w") as output:
            head = subprocess.Popen(
                command, env={**os.environ, **found}, stdout=output, stderr=subprocess.STDOUT
            )
        with head:
            try:
                until(lambda: head.poll() is not None or STARTED in log.read_text(), every_s=0.5)  # noqa: B023 - called at once
                if head.poll() is None:
                    yield cluster
                    return
            finally:
                head.kill()
    raise AssertionError(log.read_text())


def _find_free_ports() -> dict[str, int]:
    """Find a free port for each option; all are held until the last one is found."""
    with ExitStack() as held:
        found = {}
        for name in PORTS:
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found[name] = int(one.getsockname()[1])
        return found
