"""The address of the live page, and the start of its process.

Imports no large package, so that the address is known at once.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from urllib.parse import quote

from sweep.errors import InputError
from sweep.ui.access import HOST, Access

_ADDRESS = re.compile(r"http://[^\s\"]+")
TRIED = 20  # number of ports that are tried if the first is not free


def listen(port: int, *, or_next: bool) -> socket.socket:
    """Return a socket that listens on 127.0.0.1 at ``port``; port 0 chooses a free one.

    With ``or_next``, one of the next 19 ports is used if ``port`` is not free. Raises `InputError` if no port is free.
    """
    problem = ""  # why the last port cannot be used
    tries = 1
    if or_next and port != 0:  # port 0 needs no second try: the system chooses one that is free
        tries = TRIED
    for candidate in range(port, port + tries):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Otherwise the port of a server that has just ended would count as taken for a minute.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, candidate))
            found.listen(128)
        except (OSError, OverflowError) as error:  # OverflowError: the number is above 65535
            found.close()
            problem = getattr(error, "strerror", None) or str(error)
        else:
            return found
    raise InputError.one(
        f"--port {port}", f"cannot listen on {HOST}:{port} ({problem})", "give another --port"
    )


def find_address(listening: socket.socket, secrets: Access, sweep: str = "") -> str:
    """Return the URL, including the token, of the page of ``sweep``; of the list of all sweeps if it is ``""``."""
    port = listening.getsockname()[1]
    return f"http://{HOST}:{port}/{quote(sweep, safe='')}?token={secrets.token}"


def start_process(options: Sequence[str]) -> tuple[subprocess.Popen[bytes], str]:
    """Start the page in a process that Ctrl-C here does not end; wait until it has printed its address with the token.

    ``options`` are further options of `sweep ui`. Returns the process and the address, which is "" if the process has
    ended without printing one. Nothing else that the process prints is read or shown. Its output is closed here.
    """
    started = subprocess.Popen(
        [sys.executable, "-m", "sweep", "ui", "--no-open", "--json", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    output = started.stdout
    if output is None:  # never, with a pipe, but its type allows it
        raise TypeError("the output of the page's process is a pipe")
    text = ""
    with output:
        for line in output:
            text += line.decode("ascii", "replace")
            if line == b"}\n":  # the end of the document with the address; the process goes on
                break
    found = _ADDRESS.search(text)
    if found is None:
        return started, ""
    return started, found[0]
