"""An agent that speaks the Model Context Protocol, by its own SDK, runs and judges a sweep."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import processes
import pytest

from sweep.cli import agent_tools
from sweep.documents import schemas

pytest.importorskip("mcp", reason="needs the extra mcp")
from mcp import Client, StdioServerParameters

pytestmark = pytest.mark.usefixtures("default_sighup")

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
Call = Callable[..., Awaitable[Mapping[str, Any]]]


def talk(folder: Path, conversation: Callable[[Client], Awaitable[None]]) -> None:
    """Start the server in a folder, and talk to it."""

    async def connect() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "sweep", "mcp"], cwd=folder
        )
        async with Client(server) as client:
            await conversation(client)

    asyncio.run(connect())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the function and the sweep file of the page."""
    text = PAGE.read_text()
    for name, language in (("idea.py", "python"), ("idea.yaml", "yaml")):
        found = re.search(rf"`{name}`:\n\n```{language}\n(.*?)```", text, re.DOTALL)
        assert found is not None
        (tmp_path / name).write_text(found[1])
    return tmp_path


def test_the_tools_and_their_mistakes(project: Path) -> None:
    async def conversation(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [*agent_tools.READING, *agent_tools.ACTING]
        assert all(tool.description for tool in tools)
        for name, given, code, where in (
            ("plan", {"file": "none.yaml"}, 2, "none.yaml"),
            ("plan", {"fil": "idea.yaml"}, 2, "plan.fil"),
            ("status", {"sweep": "none"}, 3, "none"),
            ("train", {}, 2, "train"),
        ):
            answer = await client.call_tool(name, given)
            assert answer.is_error
            assert answer.structured_content["exit_code"] == code
            document = answer.structured_content["result"]
            jsonschema.validate(document, schemas.find_schema("error"))
            assert document["error"][0]["where"] == where

    talk(project, conversation)


@pytest.mark.slow
@pytest.mark.ray
def test_an_agent_runs_and_judges_a_sweep(project: Path) -> None:
    async def conversation(client: Client) -> None:
        async def call(name: str, **given: Any) -> Any:
            answer = await client.call_tool(name, given)
            assert not answer.is_error, answer
            document = answer.structured_content["result"]
            jsonschema.validate(document, schemas.find_schema(name))
            return document

        assert (await call("plan", file="idea.yaml"))["expected"]
        await call("run", file="idea.yaml", inline=True)
        waited = await call("wait", sweep="idea", until="finished", timeout=300)
        assert waited["state"].startswith("finished")
        assert (await call("status", sweep="idea", trials=True))["each"]
        assert "answer" in await call("compare", sweeps=["idea"], limit=5)

    talk(project, conversation)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_and_the_commands_that_run(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A command is left to itself by nobody, and a terminal gets its prompt back at the first Ctrl-C."""
    file = tmp_path / "idea.yaml"
    os.mkfifo(file)  # `plan` waits to read it
    with subprocess.Popen(
        [sys.executable, "-m", "sweep", "mcp"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def send(method: str, **message: Any) -> None:
            assert server.stdin is not None
            server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **message}) + "\n")
            server.stdin.flush()

        client = {"name": "test", "version": "1"}
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        send("initialize", id=1, params=about)
        send("notifications/initialized")
        send("tools/call", id=2, params={"name": "plan", "arguments": {"file": "idea.yaml"}})
        writer = open_when_read(file)
        commands = processes.below(server.pid)
        server.send_signal(number)
        assert server.wait(30) == 128 + number
    processes.wait_until_gone(commands, 10)
    os.close(writer)


def open_when_read(pipe: Path) -> int:
    """Wait until a process reads a pipe, and open it for writing."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it yet
            assert time.monotonic() < deadline
            time.sleep(0.05)
