"""The folder in which a Ray that a sweep starts keeps its sockets and logs. Imports no Ray."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sweep.errors import InputError

_SOCKET = "/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"  # the longest that Ray needs
_SOCKET_PATH = 103 if sys.platform == "darwin" else 107  # bytes that the system takes
LONGEST_FOLDER = _SOCKET_PATH - len(_SOCKET)
"""Bytes of the path of a folder in which Ray can make the folder of its session, with its sockets."""
_FOLDERS = ("/tmp", "/var/tmp")  # where a local Ray goes if it cannot use its own choice


def fault_of(folder: str) -> str:
    """Return why a local Ray cannot keep its files in a folder; empty where it can."""
    if not folder.startswith("/"):
        return "is no absolute path"
    size = len(os.fsencode(folder))
    if size > LONGEST_FOLDER:
        return f"is too long for Ray's sockets ({size} bytes, at most {LONGEST_FOLDER})"
    try:
        os.makedirs(f"{folder}/ray", exist_ok=True)  # noqa: PTH103  # as Ray does
        with tempfile.TemporaryFile(dir=f"{folder}/ray"):
            return ""
    except OSError as error:
        return f"cannot be used by Ray: {error.filename or folder}: {error.strerror}"


def chosen(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the folder that Ray takes by itself for its files, and the variable that says so, empty for none."""
    names = ("RAY_TMPDIR", "TMPDIR") if sys.platform.startswith("linux") else ("RAY_TMPDIR",)
    name = next((name for name in names if name in environ), "")
    return environ.get(name, _FOLDERS[0]), name


@contextmanager
def usable(say: Callable[[str], None]) -> Iterator[None]:
    """Let a Ray that is started in this block keep its files in a folder that it can use.

    Raises InputError where there is none.
    """
    folder, name = chosen(os.environ)
    fault = fault_of(folder)
    if not fault:
        yield
        return
    other = next((one for one in _FOLDERS if one != folder and not fault_of(one)), None)
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
