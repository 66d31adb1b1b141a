"""The ports that a raylet's agents get beforehand, with stand-ins for Ray's node and its library."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import _raylet
from ray._private.node import Node

from sweep.backends.ray_tune import agents

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="raylets start in this way on Linux alone"
)


@pytest.fixture(autouse=True)
def reservations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    monkeypatch.setattr(agents, "reservations", found)
    yield found
    agents.release_ports()


def test_a_raylet_finds_the_ports_of_its_agents_where_they_would_write_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: dict[str, int] = {}
    asked: dict[str, Any] = {}
    lowered: list[int] = []

    def start_raylet(node: Any, *arguments: Any, **options: Any) -> None:
        asked.update(
            vars(node._ray_params), arguments=arguments, options=options, written=dict(written)
        )

    monkeypatch.setattr(Node, "start_raylet", start_raylet)
    monkeypatch.setattr(
        _raylet, "persist_port", lambda folder, node, name, port: written.update({name: port})
    )
    monkeypatch.setattr(agents, "lower_priority", lowered.append)
    raylet = SimpleNamespace(process=SimpleNamespace(pid=7))
    node: Any = SimpleNamespace(
        _ray_params=SimpleNamespace(),
        _node_id="ab",
        all_processes={"raylet": [raylet]},
        get_session_dir_path=lambda: "/session",
    )
    with agents.starting_later(print):
        Node.start_raylet(node, "plasma", fallback=True)
    assert Node.start_raylet is start_raylet
    assert asked["arguments"] == ("plasma",)
    assert asked["options"] == {"fallback": True}
    names = (
        "metrics_agent_port",
        "metrics_export_port",
        "dashboard_agent_listen_port",
        "runtime_env_agent_port",
    )
    ports = [asked[name] for name in names]
    assert len(set(ports)) == 4
    assert set(ports) <= set(agents.PORTS)
    assert sorted(asked["written"].values()) == sorted(ports)  # before the raylet has started


def test_a_port_that_is_reserved_or_used_is_not_given_again(
    monkeypatch: pytest.MonkeyPatch, reservations: list[socket.socket]
) -> None:
    with socket.socket() as used:
        used.bind(("", 0))
        used.listen()
        port = used.getsockname()[1]
        monkeypatch.setattr(agents, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="no port is free"):
            agents.reserve_port()
    assert reservations == []
    assert agents.reserve_port() == port
    with pytest.raises(OSError, match="no port is free"):
        agents.reserve_port()
    agents.release_ports()
    assert agents.reserve_port() == port


def test_the_agents_alone_get_a_lower_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: dict[int, int] = {}
    monkeypatch.setattr(
        agents.os, "setpriority", lambda kind, process, value: lowered.update({process: value})
    )
    agent = b"python\0-u\0/ray/dashboard/agent.py\0--node-ip-address=127.0.0.1"
    lines = {
        3: b"raylet\0--dashboard_agent_command=python -u /ray/dashboard/agent.py --x",
        4: agent,
    }
    lines |= {5: b"ray::RuntimeEnvAgent", 6: b"python\0fork_client.py"}
    children = tmp_path / "2" / "task" / "2" / "children"
    children.parent.mkdir(parents=True)
    children.write_text(" ".join(map(str, lines)) + " 99 ")
    for process, line in lines.items():
        (tmp_path / str(process)).mkdir()
        (tmp_path / str(process) / "cmdline").write_bytes(line)
    monkeypatch.setattr(agents, "PROC", tmp_path)
    agents.lower_priority(2)
    assert lowered == {4: agents.NICENESS, 5: agents.NICENESS}


def test_a_raylet_that_has_ended_has_no_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    monkeypatch.setattr(agents, "WATCH_S", 0.1)
    agents.lower_priority(process.pid)
    assert agents.list_agents(process.pid) == []
