"""When Python looks for garbage while a program is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_later() -> Iterator[None]:
    """Let Python look for garbage only after the block, which makes hundreds of thousands of objects that stay.

    Each full collection would go through all of them. If collection is switched off, it stays so.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
