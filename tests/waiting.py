"""Waiting for what another thread or process does, on a machine that does ten other things."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Longer than anything takes: only a test that fails waits so long. No test may measure how long something took."""


def until(true: Callable[[], object], what: object = "", *, every_s: float = 0.02) -> None:
    """Return when it is true. Raises AssertionError with ``what``, or what it returns, where it never becomes so."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(every_s)
