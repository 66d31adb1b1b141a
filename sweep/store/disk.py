"""Writes files to disks that may be full, missing or read-only: an error names the disk and leaves no partial file."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sweep.errors import StoreError

_PROCESS = secrets.token_hex(4)  # tells processes of several machines apart


def get_process_name() -> str:
    """Return a short text that identifies this process, unique even in a folder shared by several machines.

    It can be part of a file name, and stays the same as long as the process lives.
    """
    return f"{os.getpid()}-{_PROCESS}"


def find_cache_folder() -> Path | None:
    """Return the folder of sweep's caches for this user, which need not exist; None if no home folder is known.

    It is the environment variable ``SWEEP_CACHE`` if it is set, otherwise ``sweep`` in the user's cache folder
    (``XDG_CACHE_HOME`` or ``~/.cache``).
    """
    if folder := os.environ.get("SWEEP_CACHE"):
        return Path(folder)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweep"
    except RuntimeError:
        return None


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Raise a `StoreError` if the block fails with an `OSError`; other exceptions pass unchanged.

    Its message has ``path``, the cause and, if it is known, the free space of the disk. ``path`` need not exist.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror or error}{_describe_free_space(path)}"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, and replace ``path`` by the file written there when the block ends.

    The block must write that file. If the block raises, the temporary file is deleted and ``path`` is unchanged.
    Readers never see an incomplete file. The file is flushed to disk only if the block does that. Two threads of this
    process must not replace the same ``path`` at once. An `OSError`, as of a missing folder or of a file that the block
    has not written, is raised as a `StoreError`; other exceptions pass.
    """
    aside = path.with_name(f".{path.name}.{get_process_name()}")
    with storing(path):
        try:
            yield aside
            aside.replace(path)
        finally:
            # a leftover is harmless, and the first error is the important one
            with suppress(OSError):
                aside.unlink(missing_ok=True)


def link(source: str | Path, target: str | Path) -> None:
    """Make the file ``source`` available at ``target`` too, by a hard link, or by a copy if no link can be made.

    An existing file at ``target`` is overwritten. Neither may be modified afterwards, because they may be one file.
    Raises `OSError` if copying fails, as when ``target`` already is a link to ``source``.
    """
    try:
        os.link(source, target)
    except OSError:  # another disk, a file system without links, or an existing target
        shutil.copyfile(source, target)


@contextmanager
def removed_if_it_fails(folder: Path) -> Iterator[None]:
    """Delete ``folder`` and its content if the block, which fills it, raises: on a full disk, its space is needed.

    The exception passes; errors while deleting are ignored.
    """
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, so that they survive a loss of power.

    The content of its files is not flushed. Errors are ignored.
    """
    with suppress(OSError):  # some file systems cannot open or flush a folder
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _describe_free_space(path: Path) -> str:
    """Return the free space on the disk of ``path``, in words for the end of a message; ``""`` if it is unknown."""
    # the path itself may not exist, but the folder on which its disk is mounted does
    disk = path.absolute()
    while not disk.is_mount() and disk != disk.parent:
        disk = disk.parent
    try:
        free = shutil.disk_usage(disk).free
    except OSError:
        return ""
    return f" (the disk mounted at {disk} has {free / 1e6:,.0f} MB free)"
