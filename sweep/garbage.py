"""Controls when Python looks for garbage: unused objects that refer to one another.

A full collection goes through all objects. While large libraries are imported, and while TensorFlow traces a model,
hundreds of thousands of objects are made that stay, and collections among them take up to a fifth of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 50_000
"""Number of new objects after which a command looks for garbage, in place of Python's 700 or 2,000."""

_usual: list[tuple[int, int, int]] = []  # thresholds from before `collect_rarely`


def collect_rarely() -> None:
    """Make Python's garbage collector run only after every 50,000 new objects, until `collect_as_usual`.

    Only the threshold of the youngest generation changes.
    """
    _usual.append(gc.get_threshold())
    gc.set_threshold(NEW_OBJECTS)  # the other two thresholds stay


def collect_as_usual() -> None:
    """Restore the collector's thresholds from before the first `collect_rarely`; do nothing if that was not called.

    Needed before a model is trained here, because objects that are garbage may hold tensors of any size.
    """
    while _usual:  # the thresholds from before the first call are restored last
        gc.set_threshold(*_usual.pop())


@contextmanager
def collecting_later() -> Iterator[None]:
    """Switch the garbage collector off inside the block and on again afterwards; if it is off already, it stays so."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
