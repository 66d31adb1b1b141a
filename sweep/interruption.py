"""Ctrl-C and SIGTERM: handlers that set a flag, and a thread that acts where the main thread cannot look at it.

The main thread asks for the flag where it can act on it, and never in the middle of something else. The thread hears
of each signal as well, for Python writes a byte for it whatever the main thread is busy with: it tells the user that
the first was heard, and ends the process at the second. Only where a user's own process lives on after that, and a
trainable trains in its main thread, does a handler raise: nothing else ends such code.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

from sweep.errors import Interrupted, StoppedAtOnce

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CODE = 130  # of a process that was interrupted
_OVER = b"\0"  # no signal's number
_PATIENCE_S = 2.0  # with a terminal that takes no more lines
_HANDLER_WAIT_S = 0.2  # for the main thread to call the handler

NOTHING_STARTED = "interrupted before anything was started; run the command again"


class Interruption:
    """What signals have asked of this process."""

    def __init__(self, first: Callable[[], None], second: Callable[[], None], *, breaks: bool = False) -> None:
        self.last_words = NOTHING_STARTED  # of a process that is the service's own
        self._acts = (first, second)
        self._breaks = breaks  # a block may be broken off
        self._lock = threading.Lock()  # of these two; no handler takes it
        self._flagged = 0  # by the handler
        self._heard = 0  # by the thread; more where the main thread was in a long call
        self._breakable = False
        self._own_signals = 0  # signals of our own, which are none of the user's
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup = -1
        self._ears: tuple[int, int] | None = None  # a pipe
        self.terminal = -1  # standard error as it was, for it may be redirected by now

    @property
    def asked(self) -> bool:
        """Whether this process is to end."""
        return self._flagged > 0 or self._heard > 0

    def check(self, message: str) -> None:
        """Raise `Interrupted` if it is."""
        if self.asked:
            raise Interrupted(message)

    def install(self) -> None:
        """Hear signals from now on; to be called by the main thread."""
        self._main = threading.get_ident()
        self.terminal = os.dup(2)
        self._ears = heard, written = os.pipe()
        os.set_blocking(written, False)
        self._wakeup = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(heard,), name="sweep-signals", daemon=True).start()
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}

    def restore(self) -> None:
        """Hear signals again where a library has put a handler of its own in place of ours."""
        if self._ears is not None:
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def remove(self) -> None:
        """Put the handlers back that were there before."""
        self.finish()
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: of no Python code
        if self._ears is not None:
            signal.set_wakeup_fd(self._wakeup)
            os.write(self._ears[1], _OVER)
            os.close(self._ears[1])
            os.close(self.terminal)

    @contextmanager
    def acting(self, first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
        """Let the thread call these in the block, at the first signal and at each later one."""
        with self._lock:  # whatever it does for a signal that came before is done, or ends this process
            before, self._acts = self._acts, (first, second)
        try:
            yield
        finally:
            self.finish()
            with self._lock:
                self._acts = before

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Let the second signal raise `StoppedAtOnce` in the block: for code of the user's that looks at no flag."""
        self._breakable = self._breaks
        try:
            yield
        finally:
            self._breakable = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._flagged += 1
        if self._breakable and max(self._flagged, self._heard) > 1:
            raise StoppedAtOnce("stopped at once")

    def _listen(self, heard: int) -> None:
        while (number := os.read(heard, 1)) not in (_OVER, b""):
            if number[0] in _SIGNALS and self._own_signals:
                self._own_signals -= 1
            elif number[0] in _SIGNALS:
                self._hear()
        os.close(heard)

    def _hear(self) -> None:
        with self._lock:
            self._heard += 1
            act = threading.Thread(target=self._acts[self._heard > 1], name="sweep-signal", daemon=True)
            act.start()
            act.join(_PATIENCE_S)
        if self._breaks and self._heard > 1 and hasattr(signal, "pthread_kill"):  # not on Windows
            self._repeat()

    def _repeat(self) -> None:
        """Call the handler again where two signals were one to it, for Python calls it once for all that wait."""
        deadline = time.monotonic() + _HANDLER_WAIT_S
        while self._flagged < self._heard and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:
            if self._breakable and self._flagged < self._heard:
                self._own_signals += 1
                signal.pthread_kill(self._main, signal.SIGINT)

    def finish(self) -> None:
        """Wait until the thread has heard what the handler has, and has done what follows."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._heard < self._flagged and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:
            pass


_active: Interruption | None = None


def begin() -> None:
    """Hear signals in this process, which is the service's own: until something has begun, the first ends it."""
    global _active

    def leave() -> None:
        exit_now(process.last_words)

    _active = process = Interruption(leave, leave)
    process.install()


def end() -> None:
    """Leave signals to Python again, for a command that has nothing to bring to an end."""
    global _active
    if _active is not None:
        _active.remove()
        _active = None


def finish() -> None:
    """Let a signal that has come before this process ends do what it does."""
    if _active is not None:
        _active.finish()


@contextmanager
def heard(first: Callable[[], None], second: Callable[[], None], *, breaks: bool = False) -> Iterator[Interruption]:
    """Hear signals in the block, and let a thread call ``first`` at the first one and ``second`` at each later one.

    ``breaks``: the process lives on after the second, which also ends a `breakable` block. In another thread than the
    main one, signals are none of ours.
    """
    global _active
    if threading.current_thread() is not threading.main_thread():
        yield Interruption(first, second)
        return
    if _active is not None:
        with _active.acting(first, second):
            yield _active
        return
    _active = mine = Interruption(first, second, breaks=breaks)
    try:
        mine.install()
        yield mine
    finally:
        mine.remove()
        _active = None


@contextmanager
def breakable() -> Iterator[None]:
    """Let the second signal raise in the block, where this process lives on after it; see `Interruption.breakable`."""
    if _active is None:
        yield
        return
    with _active.breakable():
        yield


def exit_now(last_words: str, tidy: Callable[[], None] = lambda: None) -> None:
    """End this process with the exit code of an interruption, whatever its threads do, and even if nobody reads.

    ``tidy`` clears the terminal for the last words.
    """
    terminal = _active.terminal if _active else 2
    late = threading.Timer(_PATIENCE_S, os._exit, (CODE,))
    late.daemon = True
    late.start()
    with suppress(Exception):  # a terminal that is gone keeps nobody from ending
        tidy()
        os.write(terminal, f"{last_words}\n".encode())
    os._exit(CODE)


_masks = threading.local()  # of threads that fork


def _before_fork() -> None:
    """A child that is forked is another program: its signals are not for this one, not even the first."""
    if _active is not None:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _after_fork(*, child: bool) -> None:
    global _active
    mask = _masks.__dict__.pop("before", None)
    if mask is None:
        return
    try:
        if child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _active = None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, child=False),
        after_in_child=partial(_after_fork, child=True),
    )
