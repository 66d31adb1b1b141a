"""Controls when Python looks for garbage, which are objects that only refer to one another.

A full collection goes through all objects. While large libraries are imported, and while TensorFlow traces a model,
hundreds of thousands of objects are made that stay, and collections among them take up to a fifth of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 50_000
"""Number of new objects after which a command looks for garbage, in place of Python's 700 or 2,000."""

_usual: list[tuple[int, int, int]] = []  # thresholds of before `collect_rarely`


def collect_rarely() -> None:
    """Let this process look for garbage rarely, until `collect_as_usual`."""
    _usual.append(gc.get_threshold())
    gc.set_threshold(NEW_OBJECTS)


def collect_as_usual() -> None:
    """Let this process look for garbage as before `collect_rarely`; does nothing if that was not called.

    Needed before a model is trained here, because objects that are garbage may hold tensors of any size.
    """
    while _usual:
        gc.set_threshold(*_usual.pop())


@contextmanager
def collecting_later() -> Iterator[None]:
    """Let this process look for garbage only after the block. If collection is switched off, it stays so."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
