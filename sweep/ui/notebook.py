"""``sweep.show``: the live page in the output of a notebook's cell.

The page's server is a process of this machine, which ends with the kernel. The browser may be on another machine, so a
script in the output tries which way leads to the server: through Jupyter, where jupyter-server-proxy is installed, or
straight to this machine. `sweep.ui.access` says who gets in.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import subprocess
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sweep.api import running
from sweep.errors import InputError
from sweep.store.features import find_local_folder, is_url
from sweep.store.folder import ResultsFolder
from sweep.ui import address, shells
from sweep.ui.access import make_pass

END_S = 5.0  # time that a server has to end before it is killed


@dataclass(frozen=True, slots=True)
class PageServer:
    """The process that serves the page of a results folder."""

    process: subprocess.Popen[bytes]
    port: int
    token: str


servers: dict[str, PageServer] = {}
"""The servers that this process has started, by results folder."""


def show(name: str | Path = "", *, results: str | Path = "results", height: int = 700) -> None:
    """Show the live page in the output of a notebook's cell: the page of one sweep, or the list of all sweeps.

    ``name`` is a name in the results folder or the path or URL of a sweep's folder; "" shows the list. ``results`` is
    the results folder or its URL. ``height`` is the height of the frame in pixels. The first call for a results folder
    starts the process of its page, which runs while other cells do and ends with the kernel. Raises `InputError` if
    there is no such sweep, if a URL is invalid, if ``height`` is below 1, if the page's process does not start, or if
    this process is not the kernel of a notebook, and `StoreError` if an object store is unavailable.
    """
    if not running.is_here():
        hint = f"in a terminal: python -m sweep ui {name}".rstrip()
        raise InputError.one("sweep.show", "this process is no kernel of a notebook", hint)
    if height < 1:
        raise InputError.one(
            "sweep.show", f"height is {height}, expected a number of pixels above 0"
        )
    place, sweep = _find_sweep(name, results)
    running.show_html(draw_cell(find_server(place), sweep, height))


def _find_sweep(name: str | Path, results: str | Path) -> tuple[str, str]:
    """Return the results folder (or its URL) and the name of a sweep; the name is "" if none is given.

    For a sweep outside of ``results``, the folder around it is returned. Raises `InputError` if the sweep does not
    exist or a URL is invalid, and `StoreError` if its object store is unavailable.
    """
    if not str(name):
        return str(results), ""
    folder = ResultsFolder.open(find_local_folder(results, "sweep.show"), name)
    if is_url(name):
        return str(name).rstrip("/").rpartition("/")[0], folder.name
    # `ResultsFolder.open` also finds a folder outside of `results`, whose server is another one.
    is_inside = folder.path.parent == find_local_folder(results)
    return str(results) if is_inside else str(folder.path.parent), folder.name


def find_server(results: str) -> PageServer:
    """Return the server of a results folder or its URL, after starting a process for it if none is running.

    Waits until a new process serves the page, and keeps it in `servers`. Raises `InputError` if it does not start.
    """
    # Absolute, because the current folder may change between two calls.
    key = results if is_url(results) else str(Path(results).resolve())
    known = servers.get(key)
    if known is not None and known.process.poll() is None:
        return known
    options = ["--results", results, "--port", "0", "--within", str(os.getpid())]
    process, url = address.start_process(options)
    if not url:
        raise InputError.one(
            "sweep.show", "the page's process did not start", "see python -m sweep ui"
        )
    parts = urlsplit(url)
    found = PageServer(process, parts.port or 0, parse_qs(parts.query)["token"][0])
    servers[key] = found
    return found


@atexit.register
def _end_servers() -> None:
    """End the server processes that this kernel has started, and wait for each up to 5 seconds before killing it.

    If the kernel is killed instead, each server notices that its parent is gone, and ends.
    """
    for server in servers.values():  # all of them first, so that they end at the same time
        server.process.terminate()
    for server in servers.values():
        try:
            server.process.wait(END_S)
        except subprocess.TimeoutExpired:
            server.process.kill()


def draw_cell(server: PageServer, sweep: str, height: int) -> str:
    """Return the HTML for the output of a cell, whose script opens the page of ``sweep`` in a frame.

    If ``sweep`` is "", it is the page with all sweeps. ``height`` is in pixels. Each call puts two new access passes
    for ``server`` into the HTML: one for the frame, and one to open the page in a tab.
    """
    script = resources.files("sweep.ui.page").joinpath("cell.js").read_text(encoding="utf-8")
    return shells.draw_cell(
        script,
        id=f"sweep-{secrets.token_hex(8)}",
        port=server.port,
        frame_pass=make_pass(server.token),
        tab_pass=make_pass(server.token),
        sweep=sweep,
        height=height,
        host=socket.gethostname(),
    )
