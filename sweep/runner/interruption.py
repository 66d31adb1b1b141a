"""Ctrl-C and SIGTERM: the first ends a sweep after the running epochs, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from sweep.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def before_it_begins() -> Iterator[None]:
    """Turn a signal that comes before `handled` is entered into `Interrupted`, wherever the program is."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        with _handling(handle):
            yield
    except (KeyboardInterrupt, SystemExit) as error:  # Ray's own handler of SIGTERM exits
        raise Interrupted("interrupted before the first trial") from error


@contextmanager
def handled(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Call ``first`` at the first signal inside the block and ``second`` at every later one.

    Enter it after Ray has started, which installs a handler of its own.
    """
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        (first if count == 1 else second)()

    with _handling(handle):
        yield


@contextmanager
def _handling(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have this handler inside the block; in another thread than the main one, signals are none of ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: of no Python code
