"""`mcp`: offers the commands as tools of the Model Context Protocol, for agents without a shell.

Each call of a tool runs a command line in its own process, whose output is the answer: the same documents, errors and
exit codes as on the command line. No other module imports the SDK.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import agent_tools
from sweep.errors import InputError
from sweep.store.sweep_info import VERSION

if TYPE_CHECKING:
    import mcp_types as types

INSTRUCTIONS = """
Write a model or a training function and a sweep file with a budget. Call plan until it reports no error: each one has
where, is, expected and hint. Then run it, which goes on in the background, and wait until it is finished. Judge by the
verdict of compare, not by the best score: "ties" and "undecided" are no progress. A result has the exit code of its
command; codes other than 0 say what to do next: 1 correct the code, 2 correct the file or the call, 3 use a name that
list has, 4 use another name, or resume. Files are relative to the folder in which this server was started.
"""
NO_TRIAL_COMPLETED = 1  # exit code of a command whose result is no error of the call


@click.command(short_help="Serve the commands as tools to agents, over the Model Context Protocol.")
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """Serve the commands as tools to agents, over the Model Context Protocol.

    An agent starts it and talks to it by standard input and output; it works in the current folder, like the commands
    themselves. It needs the extra mcp.
    """
    from sweep.export.runs import import_extra

    # for its error, which says how to install the extra
    import_extra("mcp.server.lowlevel", "mcp", "mcp")
    import anyio

    group = ctx.find_root().command
    if not isinstance(group, click.Group):
        raise TypeError(f"expected the group of commands, got {type(group).__name__}")
    anyio.run(_serve, list_tools(group))


def list_tools(group: click.Group) -> dict[str, click.Command]:
    """Return the commands of the group that are offered as tools, by name: those that read, then those that act."""
    names = (*agent_tools.READING, *agent_tools.ACTING)
    return {name: group.commands[name] for name in names}


async def _serve(commands: Mapping[str, click.Command]) -> None:
    """Answer the requests of an agent with the tools ``commands``, by name, until standard input ends.

    Ctrl-C, SIGTERM or SIGHUP ends the commands that run, and then this process, with 128 plus the signal's number as
    exit code.
    """
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    from sweep.documents.mistakes import describe_error
    from sweep.render import document

    async def answer_list(context: Any, request: Any) -> types.ListToolsResult:
        """Answer a request for the list of tools."""
        return types.ListToolsResult(
            tools=[_describe_tool(command) for command in commands.values()]
        )

    async def call(context: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        """Answer a call of a tool with the result of its command.

        If the tool or a parameter does not exist, the answer is a document of the error, and nothing is run.
        """
        try:
            if request.name not in commands:
                raise InputError.one(
                    request.name, "no such tool", f"there are {', '.join(commands)}"
                )
            words = agent_tools.build_command_line(commands[request.name], request.arguments or {})
        except InputError as error:
            return _make_tool_result(document(describe_error(error)), code=error.exit_code)
        return await _run_command_line(words)

    server: Server[Any] = Server(
        "sweep",
        version=VERSION,
        instructions=INSTRUCTIONS.strip(),
        on_list_tools=answer_list,
        on_call_tool=call,
    )
    async with stdio_server() as (requests, answers):
        options = server.create_initialization_options()
        number = await _run_until_signal(partial(server.run, requests, answers, options))
        if number:
            # a usual end would wait for the thread that reads standard input
            os._exit(128 + number)


async def _run_until_signal(serve: Callable[[], Awaitable[None]]) -> int:
    """Await ``serve()``, and cancel it at Ctrl-C, SIGTERM or SIGHUP.

    Return the number of the signal, or 0 if it has ended by itself. On Windows, signals are left to Python. An
    exception of ``serve`` is raised in an exception group.
    """
    import anyio

    number = 0

    async def cancel_at_signal() -> None:
        """Wait for a signal, store its number, and cancel the task group ``tasks``, which is created below."""
        nonlocal number
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            number = await anext(aiter(signals))
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        if sys.platform != "win32":  # whose event loop receives no signals
            tasks.start_soon(cancel_at_signal)
        await serve()
        tasks.cancel_scope.cancel()
    return number


def _describe_tool(command: click.Command) -> types.Tool:
    """Return the description of a command as a tool: its name, help, the schema of its parameters, if it only reads."""
    import mcp_types as types

    name = str(command.name)
    return types.Tool(
        name=name,
        description=command.help or command.get_short_help_str(limit=200),
        input_schema=agent_tools.describe_input(command),
        annotations=types.ToolAnnotations(read_only_hint=name in agent_tools.READING),
    )


async def _run_command_line(words: Sequence[str]) -> types.CallToolResult:
    """Run a sweep command in its own process, and return its output and exit code.

    ``words`` are the arguments of ``python -m sweep``. Standard error is returned if standard output is empty, and
    otherwise dropped. If the call is cancelled, the process is ended.
    """
    import anyio

    # Not our standard input: it has the requests.
    command = [sys.executable, "-m", "sweep", *words]
    ran = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    output = ran.stdout.decode(errors="replace").strip()
    complaints = ran.stderr.decode(errors="replace").strip()
    return _make_tool_result(output or complaints, code=ran.returncode)


def _make_tool_result(text: str, *, code: int) -> types.CallToolResult:
    """Return the result of a call, an object with the keys ``exit_code`` and ``result``.

    ``result`` is ``text`` as JSON, usually the document that the command has printed, or ``{"text": text}`` if that is
    no JSON. It is marked as an error of the call unless the code is 0 or 1.
    """
    import mcp_types as types

    try:
        document = json.loads(text)
    except ValueError:
        document = {"text": text}
    content = {"exit_code": code, "result": document}
    is_error = code not in (0, NO_TRIAL_COMPLETED)
    block = types.TextContent(type="text", text=json.dumps(content))
    return types.CallToolResult(content=[block], structured_content=content, is_error=is_error)
