"""The folder in which a Ray started by a sweep keeps its sockets and logs. This module does not import Ray."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sweep.errors import InputError

LONGEST_SOCKET = "/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""The longest path that Ray needs below its folder."""

_SOCKET_PATH = 103 if sys.platform == "darwin" else 107  # bytes that the system allows
LONGEST_FOLDER = _SOCKET_PATH - len(LONGEST_SOCKET)
"""Largest length in bytes of a folder's path that leaves room for Ray's session folder and its sockets."""

FOLDERS = ("/tmp", "/var/tmp")
"""Folders that are tried in turn if Ray's own choice is unusable."""


def find_fault(folder: str) -> str:
    """Return why a local Ray cannot keep its sockets and logs in a folder; ``""`` if it can.

    It cannot if the path is relative or too long for sockets, or if no file can be written. To find that out, the
    folder and ``ray`` in it are created if they do not exist.
    """
    if not folder.startswith("/"):
        return "is no absolute path"
    size = len(os.fsencode(folder))
    if size > LONGEST_FOLDER:
        return f"is too long for Ray's sockets ({size} bytes, at most {LONGEST_FOLDER})"
    try:
        os.makedirs(f"{folder}/ray", exist_ok=True)  # noqa: PTH103  # like Ray itself
        with tempfile.TemporaryFile(dir=f"{folder}/ray"):
            return ""
    except OSError as error:
        return f"cannot be used by Ray: {error.filename or folder}: {error.strerror}"


def get_ray_folder(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return (the folder that Ray will choose, the environment variable that names it or ``""`` if none does).

    ``environ`` are the environment variables. ``RAY_TMPDIR`` comes first, then on Linux ``TMPDIR``, and then ``/tmp``.
    """
    names = ("RAY_TMPDIR", "TMPDIR") if sys.platform.startswith("linux") else ("RAY_TMPDIR",)
    name = next((name for name in names if name in environ), "")
    return environ.get(name, FOLDERS[0]), name


@contextmanager
def ensure_usable_folder(say: Callable[[str], None]) -> Iterator[None]:
    """Make a Ray that starts inside the block keep its sockets and logs in a usable folder.

    If Ray's own choice is unusable, the environment variable ``RAY_TMPDIR`` names ``/tmp`` or ``/var/tmp`` inside the
    block, and ``say`` gets a line. Raises InputError if these are unusable too.
    """
    folder, name = get_ray_folder(os.environ)
    fault = find_fault(folder)
    if not fault:
        yield
        return
    other = next((one for one in FOLDERS if one != folder and not find_fault(one)), None)
    if other is None:
        hint = f"export RAY_TMPDIR=DIR, a folder that can be written, of at most {LONGEST_FOLDER} bytes"
        raise InputError.one(f"{name} {folder}".strip(), fault, hint)
    say(f"Ray keeps its files in {other}/ray, for {name or 'its folder'} {folder} {fault}")
    before = os.environ.get("RAY_TMPDIR")
    os.environ["RAY_TMPDIR"] = other
    try:
        yield
    finally:
        if before is None:
            del os.environ["RAY_TMPDIR"]
        else:
            os.environ["RAY_TMPDIR"] = before
