"""Writes to disks that may be full, missing or read-only: errors name the disk, and files are complete or absent."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from sweep.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows, where sweeps can be viewed but not run
    fcntl = None  # type: ignore[assignment]  # not on Windows

HAS_LOCKS = fcntl is not None

REST = 20  # least pause between updates, as a multiple of the last one's duration
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


def lock(file: int, *, shared: bool = False) -> bool:
    """Lock an open file for as long as it is open; return False if another process has locked it.

    Raises:
        StoreError: if the file system does not support locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(f"this file system keeps no locks: {error.strerror}") from error
    return True


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock of a file."""
    if not HAS_LOCKS:
        return False
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock(file, shared=True)
    finally:
        os.close(file)


@contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """Hold the lock of a file inside the block, after waiting until it is free."""
    with storing(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if HAS_LOCKS:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


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


class Closing:
    """Base class of context managers that call `close` at the end of the block."""

    def close(self) -> None:
        """Release what the object holds."""
        raise NotImplementedError  # subclasses implement it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Follower(Closing):
    """A thread that keeps files up to date with the log of a sweep, less often if an update takes longer.

    The files are derived only from the log. An update that fails, as on a full disk, is logged in the debug log, and
    the next one starts over. `close` does the last update itself and raises its errors.
    """

    def __init__(self, files: str, period_s: float) -> None:
        self._files, self._period_s = files, period_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"sweep {files}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Update the files to the end of the log. Raises `StoreError`, or any other error of the update."""
        self._closing.set()
        self._thread.join()
        try:
            self.update()
        finally:
            self.drop()

    def update(self) -> None:
        """Update the files to the present log."""
        raise NotImplementedError  # subclasses implement it

    def drop(self) -> None:
        """Discard what is known about the files."""
        raise NotImplementedError  # subclasses implement it

    def _follow(self) -> None:
        pause_s = self._period_s
        while not self._closing.wait(pause_s):
            started = time.perf_counter()
            try:
                self.update()
            except Exception:  # the sweep continues, and `close` tries again
                logging.getLogger(__name__).exception("the %s could not be written", self._files)
                self.drop()
            pause_s = max(self._period_s, REST * (time.perf_counter() - started))


def settle(folder: Path) -> None:
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
