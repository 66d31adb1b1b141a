"""``ui``: opens the live page in a browser; also starts it for a command that runs a sweep."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import webbrowser
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep import interruption
from sweep.cli import options
from sweep.errors import InputError
from sweep.keeper.place import opening_page

if TYPE_CHECKING:
    from sweep.ui.acts import Commands

PORT = 8421


@click.command()
@click.argument("sweep", default="")
@options.results
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="N",
    help=f"Port of 127.0.0.1; 0 picks a free one.  [default: {PORT}, or the next that is free]",
)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--read-only", is_flag=True, help="Only show: nothing can be done from the page.")
@click.option(
    "--beside",
    type=click.IntRange(min=1),
    metavar="PID",
    help="End when this process has ended and no page has been open for a minute.",
)
# the process of a notebook, which started this one
@click.option("--within", type=click.IntRange(min=1), hidden=True)
@options.as_json
def ui(
    sweep: str,
    results: Path,
    port: int | None,
    no_open: bool,
    read_only: bool,
    beside: int | None,
    within: int | None,
    as_json: bool,
) -> None:
    """Show sweeps in a browser while they run, and act on them, until Ctrl-C.

    It reads the results folder from a process of its own, which no sweep waits for.
    """
    from sweep.ui import address
    from sweep.ui.access import Access, Frames
    from sweep.ui.places import find_folder

    # Beside a process, the sweep may not have begun, so that its folder does not exist yet.
    if sweep and beside is None:
        name = find_folder(results, sweep, update=True).name
    else:
        name = sweep
    # Only the page in a notebook is shown in a frame of another page.
    secrets = Access(read_only=read_only, frames=None if within is None else Frames())
    # A port that was asked for is not replaced by another one.
    listening = address.listen(PORT if port is None else port, or_next=port is None)
    url = address.find_address(listening, secrets, name)
    interruption.treat_as_ctrl_c()
    # Such a page starts commands in this folder, for which Ray is kept warm while it is open.
    is_for_a_person = beside is None and within is None and not read_only
    with suppress(KeyboardInterrupt):
        _print_address(url, as_json=as_json)
        if not (no_open or as_json):
            _open_browser(url)
        from sweep.ui import server  # imports that take seconds; a browser waits meanwhile

        page = server.Page(results, secrets, _list_commands(), expected=name)
        with opening_page(Path.cwd()) if is_for_a_person else nullcontext():
            server.serve(page, listening, beside, within)


def _print_address(url: str, *, as_json: bool) -> None:
    """Print the address of the page, as text or as JSON, and flush standard output."""
    if as_json:
        # as `PageDocument` describes it
        click.echo(json.dumps({"version": 1, "url": url}, indent=2))
    else:
        click.echo(
            f"page     {url}\nend it with Ctrl-C; whoever has this address can do what you can do with sweep"
        )
    sys.stdout.flush()


def _list_commands() -> Commands:
    """Return the option names of each command, such as ``--json``, by the command's name; call it inside a command.

    The names of arguments are included. The mapping is empty if `ui` is not called as a command of the group.
    """
    group = click.get_current_context().find_root().command
    if isinstance(group, click.Group):  # always, unless `ui` is called by itself
        commands = group.commands
    else:
        commands = {}
    found = {}
    for name, command in commands.items():
        found[name] = frozenset(option for param in command.params for option in param.opts)
    return found


def _open_browser(url: str) -> None:
    """Open ``url`` in a browser, if this machine has a screen and standard output is a terminal; else do nothing.

    The browser is passed a temporary file that leads to the address, because the address contains the token and other
    users of this machine can see command lines. The file is not deleted.
    """
    has_screen = (
        sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if not (has_screen and sys.stdout.isatty()):
        return
    with tempfile.NamedTemporaryFile("w", prefix="sweep-", suffix=".html", delete=False) as file:
        file.write(
            f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={url}"><a href="{url}">sweep</a>\n'
        )
    webbrowser.open(Path(file.name).as_uri())


def start_page_beside(results: Path, sweep: str, process: int) -> None:
    """Start the live page, in a process of its own, for a sweep that ``process`` runs.

    ``process`` is a process id. Waits for the address and prints it to standard error. The page's process ends when
    ``process`` has ended and, for a minute, no page has shown a sweep, a trial or the list of sweeps. Raises
    `InputError` if it does not start.
    """
    from sweep.ui import address

    options = ["--results", str(results), "--beside", str(process), "--", sweep]
    page_process, url = address.start_process(options)
    # as if it had ended: it outlives this process, which must not wait for it or warn about it
    page_process.returncode = 0
    if not url:
        raise InputError.one("--ui", "the page's process did not start", "see python -m sweep ui")
    click.echo(f"page     {url}", err=True)
