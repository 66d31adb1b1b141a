"""Locks of files, which the system releases if their process dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweep.errors import StoreError
from sweep.store.disk import storing

try:
    import fcntl
except ImportError:  # Windows, where sweeps can be viewed but not run
    fcntl = None  # type: ignore[assignment]  # not on Windows

HAS_LOCKS = fcntl is not None


def lock(file: int, *, shared: bool = False) -> bool:
    """Lock the open file with the descriptor ``file`` until it is closed; return False if it is locked elsewhere.

    It does not wait. With ``shared``, the lock is one that others may hold at the same time, if theirs are shared too.
    Returns True if the file is locked, also if it was by this descriptor before. Must not be called unless `HAS_LOCKS`.

    Raises:
        StoreError: if the file system does not support locks.
    """
    if shared:
        kind = fcntl.LOCK_SH
    else:
        kind = fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(f"this file system keeps no locks: {error.strerror}") from error
    return True


def is_locked(path: Path) -> bool:
    """Return whether a living process, perhaps this one, holds the lock of a file, other than a shared one.

    The file is locked for a moment to find that out. Returns False if it is missing or cannot be opened, and on systems
    without locks. Raises `StoreError` if the file system does not support locks.
    """
    if not HAS_LOCKS:
        return False
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock(file, shared=True)  # shared: processes that only ask do not find each other
    finally:
        os.close(file)


@contextmanager
def waiting_for(path: Path) -> Iterator[None]:
    """Wait, without a limit, until no one else holds the lock of a file, and hold it inside the block.

    The file is created if necessary, and stays. A second call for the same file inside the block waits for ever. On a
    system without locks, the block runs at once. Raises `StoreError` if the file cannot be opened, or if the file
    system does not support locks.
    """
    with storing(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if HAS_LOCKS:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                raise StoreError(
                    f"{path}: this file system keeps no locks: {error.strerror}"
                ) from error
        yield
    finally:
        os.close(file)  # which releases the lock
