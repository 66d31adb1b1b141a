"""Writing to a disk that can be full, gone or read-only: one error that names it, whole files or none."""

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
except ImportError:  # Windows, where sweeps are looked at and not run
    fcntl = None  # type: ignore[assignment]  # not on Windows

HAS_LOCKS = fcntl is not None

REST = 20  # times as long as the last update took
_PROCESS = secrets.token_hex(4)


def process() -> str:
    """Return a name for this process in a folder that several machines share.

    Ids of processes are each machine's own.
    """
    return f"{os.getpid()}-{_PROCESS}"


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an `OSError` of reading or writing ``path`` into a `StoreError` that names file and disk."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}{_room(path)}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Let ``path`` be whole at every moment: yields a file beside it, which takes its place at the end."""
    aside = path.with_name(f".{path.name}.{process()}")
    with storing(path):
        try:
            yield aside
            aside.replace(path)
        finally:
            with suppress(OSError):  # a leftover is harmless, and the first error is the one to hear of
                aside.unlink(missing_ok=True)


def lock(file: int, *, shared: bool = False) -> bool:
    """Lock an open file for as long as it is open; whether nobody else has. Raises `StoreError` where none can."""
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
    """Hold the lock of a file, once whoever has it is done."""
    with storing(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if HAS_LOCKS:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def link(source: str | Path, target: str | Path) -> None:
    """Give a file another name, or copy it where the file system cannot: nobody may write into either then."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextmanager
def removed_if_it_fails(folder: Path) -> Iterator[None]:
    """Remove a folder that could not be filled: a full disk needs the room."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


class Closing:
    """Closes itself at the end of its block."""

    def close(self) -> None:
        """End it."""
        raise NotImplementedError  # each kind has its own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Follower(Closing):
    """A thread that brings files up to the log of a sweep, less often the longer that takes.

    The files come from the log and only from it: an update that fails (a full disk) is noted in the debug log and the
    next one starts over. `close` makes the last update itself and raises what goes wrong in it.
    """

    def __init__(self, files: str, period_s: float) -> None:
        self._files, self._period_s = files, period_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"sweep {files}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Bring the files up to the end of the log. Raises `StoreError`, or whatever kept failing."""
        self._closing.set()
        self._thread.join()
        try:
            self.update()
        finally:
            self.drop()

    def update(self) -> None:
        """Bring the files up to the log as it is."""
        raise NotImplementedError  # each kind has its own

    def drop(self) -> None:
        """Forget what is known of the files."""
        raise NotImplementedError  # each kind has its own

    def _follow(self) -> None:
        pause_s = self._period_s
        while not self._closing.wait(pause_s):
            started = time.perf_counter()
            try:
                self.update()
            except Exception:  # the sweep goes on, and `close` tries again
                logging.getLogger(__name__).exception("the %s could not be written", self._files)
                self.drop()
            pause_s = max(self._period_s, REST * (time.perf_counter() - started))


def settle(folder: Path) -> None:
    """Let the names in a folder survive a loss of power, where the file system can promise that."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _room(path: Path) -> str:
    """Return what is free on the disk of ``path``, as the end of a message."""
    disk = path.absolute()
    while not disk.is_mount() and disk != disk.parent:
        disk = disk.parent
    try:
        free = shutil.disk_usage(disk).free
    except OSError:
        return ""
    return f" (the disk mounted at {disk} has {free / 1e6:,.0f} MB free)"
