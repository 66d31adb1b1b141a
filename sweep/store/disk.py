"""Writes to disks that may be full, missing or read-only: errors name the disk, and files are complete or absent."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sweep.errors import StoreError

_PROCESS = secrets.token_hex(4)


def process() -> str:
    """Return a name for this process that is unique in a folder shared by several machines, unlike process ids."""
    return f"{os.getpid()}-{_PROCESS}"


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an `OSError` from reading or writing ``path`` into a `StoreError` that names the file and the disk."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}{_room(path)}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path`` that replaces it at the end, so that ``path`` is complete at any time."""
    aside = path.with_name(f".{path.name}.{process()}")
    with storing(path):
        try:
            yield aside
            aside.replace(path)
        finally:
            with suppress(OSError):  # a leftover is harmless, and the first error is the important one
                aside.unlink(missing_ok=True)


def link(source: str | Path, target: str | Path) -> None:
    """Link a file to another name, or copy it if the file system cannot; neither file may be modified afterwards."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextmanager
def removed_if_it_fails(folder: Path) -> Iterator[None]:
    """Delete a folder if the block that fills it fails, because a full disk needs the space."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder, so that they survive a loss of power if the file system supports that."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _room(path: Path) -> str:
    """Return the free space on the disk of ``path``, as the end of a message; empty if unknown."""
    disk = path.absolute()
    while not disk.is_mount() and disk != disk.parent:
        disk = disk.parent
    try:
        free = shutil.disk_usage(disk).free
    except OSError:
        return ""
    return f" (the disk mounted at {disk} has {free / 1e6:,.0f} MB free)"
