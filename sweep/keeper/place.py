"""Finds the socket of a folder's keeper, and compares what must be the same for a command to use the keeper.

There is one keeper for each user, folder and Python. Its socket is in a folder that only this user can enter.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TERMINAL = frozenset(
    {
        *(
            "_",
            "COLORTERM",
            "COLUMNS",
            "DISPLAY",
            "FORCE_COLOR",
            "LINES",
            "NO_COLOR",
            "OLDPWD",
            "PWD",
            "SHLVL",
        ),
        *(
            "GNOME_TERMINAL_SCREEN",
            "GPG_TTY",
            "ITERM_SESSION_ID",
            "KITTY_PID",
            "KITTY_WINDOW_ID",
            "SSH_AUTH_SOCK",
        ),
        *(
            "SSH_CLIENT",
            "SSH_CONNECTION",
            "SSH_TTY",
            "STY",
            "TERM",
            "TERMINATOR_UUID",
            "TERM_PROGRAM",
        ),
        *(
            "TERM_SESSION_ID",
            "TMUX",
            "TMUX_PANE",
            "VSCODE_GIT_IPC_HANDLE",
            "VSCODE_IPC_HOOK_CLI",
            "VTE_VERSION",
        ),
        *("WINDOW", "WINDOWID", "WT_SESSION", "XDG_SESSION_ID"),
    }
)
"""Environment variables of a terminal; a keeper takes them over from each command. All others must not have changed."""

LONGEST_PATH = 103
"""Maximum length of a socket's path in bytes that all systems allow."""


def find_place(folder: Path | None = None) -> Path | None:
    """Return the path of the socket of a folder's keeper, by default that of the working folder.

    The socket need not exist. The private folder of the sockets is created if it is missing. The path also depends on
    the Python interpreter and its flags, but not on links on the way to ``folder``. Return None if there can be no
    keeper: on a system without Unix users, if the private folder cannot be created, is another user's or a link, or
    others may enter it, if the working folder has been deleted, or if the path is too long for a socket.
    """
    if not hasattr(os, "getuid"):
        return None
    sockets = Path(tempfile.gettempdir()) / f"sweep-keepers-{os.getuid()}"
    try:
        sockets.mkdir(mode=0o700, exist_ok=True)
        # of a link itself, because anybody can make one in the temporary folder
        about = sockets.lstat()
    except OSError:
        return None
    others_may_enter = bool(about.st_mode & 0o077)  # any permission of the group or of others
    if about.st_uid != os.getuid() or others_may_enter or sockets.is_symlink():
        return None
    try:
        served = os.path.realpath(folder or Path.cwd())
    except FileNotFoundError:  # the working folder has been deleted
        return None
    # A command of another Python, or with other flags such as -O, has a keeper of its own.
    parts = (served, sys.executable, sys.prefix, repr(sys.flags))
    digest = hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()
    socket = sockets / f"{digest[:16]}.socket"
    if len(os.fsencode(socket)) > LONGEST_PATH:
        return None
    return socket


def describe_installation() -> dict[str, int]:
    """Return the modification times in ns, by path, of the folders in ``sys.path`` and of sweep's own modules.

    A keeper compares the times that a command sends with earlier ones: an installer changes its folder. The modules are
    those of the packages `sweep` and `trainables`. The time of a path that does not exist is 0. The first entry of
    ``sys.path``, relative ones and the working folder are left out.
    """
    times = {}
    home = Path(__file__).parents[2]
    # in a checkout, an edited module does not change the time of a folder in ``sys.path``
    modules = [
        *(home / "sweep").rglob("*.py"),
        *(home / "trainables").rglob("*.py"),
    ]
    for path in [*map(Path, sys.path[1:]), *modules]:
        if path.is_absolute() and path != Path.cwd():
            try:
                times[str(path)] = path.stat().st_mtime_ns
            except OSError:  # a folder of the search path need not exist
                times[str(path)] = 0
    return times


def describe_process() -> dict[str, Any]:
    """Return what must be the same in a command and its keeper besides the environment, in JSON types.

    The values are the umask, device and inode of the working folder, resource limits, allowed CPU cores (empty if the
    system does not tell) and niceness. The keys are their names in messages, such as ``the umask``. Call it in a
    process without other threads that create files, because the umask is 0 for a moment.
    """
    import resource  # only on systems that have keepers

    mask = os.umask(0)  # the umask can only be read by setting it
    os.umask(mask)
    folder = Path.cwd().stat()
    limits = [
        resource.getrlimit(kind)
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    ]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return {
        "the umask": mask,
        "the working folder": [folder.st_dev, folder.st_ino],
        "a limit of the process": [list(limit) for limit in limits],
        "the cores that it may use": cores,
        "its niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }


def find_difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the name of the alphabetically first environment variable whose values differ, ``""`` if none do.

    ``before`` and ``now`` are two environments. A variable that only one of them has differs too; the variables in
    `TERMINAL` are left out.
    """
    for name in sorted((before.keys() | now.keys()) - TERMINAL):
        if before.get(name) != now.get(name):
            return name
    return ""


@contextmanager
def opening_page(folder: Path) -> Iterator[None]:
    """Mark a web page of the sweep folder ``folder`` as open inside the block, so that commands in it keep Ray warm.

    Does nothing if the folder can have no keeper. Raises OSError if the file for the mark cannot be opened.
    """
    place = find_place(folder)
    if place is None:
        yield
        return
    import fcntl  # not on Windows, where no folder can have a keeper

    # The system releases the lock when this process ends, even if it is killed. Several pages can share it.
    with _get_page_file(place).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def is_page_open(place: Path) -> bool:
    """Return whether a page is marked as open with `opening_page`, in the folder of the keeper at socket ``place``.

    Raises OSError if the file for the mark exists but cannot be opened.
    """
    import fcntl

    if not _get_page_file(place).exists():
        return False
    with _get_page_file(place).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when the file is closed
        except OSError:  # a page has locked it
            return True
    return False


def _get_page_file(place: Path) -> Path:
    """Return the path of the file that `opening_page` locks: the path of the socket, with the suffix ``.page``."""
    return place.with_suffix(".page")
