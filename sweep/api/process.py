"""The process that a script or notebook shares with its sweeps, and gets back as it was."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sweep.errors import InputError

_running = threading.Lock()


@contextmanager
def alone() -> Iterator[None]:
    """Be the only sweep of this process, which has one Ray and one standard error; raises InputError for a second."""
    if not _running.acquire(blocking=False):
        raise InputError.one("sweep.run", "a sweep is running in this process", "wait for it, or use another process")
    try:
        yield
    finally:
        _running.release()


@contextmanager
def kept_process() -> Iterator[None]:
    """Leave environment and search path as they were: the process goes on with other things."""
    environment, path = dict(os.environ), list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
