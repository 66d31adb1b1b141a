"""Handlers for Ctrl-C and SIGTERM that set a flag, and a thread that acts while the main thread cannot check the flag.

The main thread checks the flag where it can act on it, never in the middle of other work. The thread learns of each
signal too, because Python writes a byte for it whatever the main thread is doing: at the first signal it informs the
user, at the second it ends the process. A handler raises an exception only if a user's own process survives the second
signal and a trainable trains in its main thread, because nothing else stops such code.
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

from sweep.errors import InterruptedByUser, StoppedAtOnce

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CODE = InterruptedByUser.exit_code  # of a process that was interrupted
_OVER = b"\0"  # not the number of a signal
_PATIENCE_S = 2.0  # for a terminal that accepts no output
_HANDLER_WAIT_S = 0.2  # for the main thread to call the handler


def tell_nobody(code: int) -> None:
    """Ignore the exit code: by default, no other process waits for it."""


tell_exit: Callable[[int], None] = tell_nobody
"""Called with the exit code before this process ends at once; a keeper passes it on to the command that it runs."""

NOTHING_STARTED = "interrupted before anything was started; run the command again"


class Interruption:
    """Signals received by this process, and what they ask for."""

    def __init__(self, first: Callable[[], None], second: Callable[[], None], *, breaks: bool = False) -> None:
        self.last_words = NOTHING_STARTED  # for a process that belongs to sweep
        self._acts = (first, second)
        self._breaks = breaks  # a block may be interrupted
        self._lock = threading.Lock()  # protects the next two; handlers never take it
        self._flagged = 0  # signals seen by the handler
        self._heard = 0  # signals seen by the thread; more while the main thread is in a long call
        self._breakable = False
        self._own_signals = 0  # signals sent by this object, not by the user
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup = -1
        self._ears: tuple[int, int] | None = None  # a pipe
        self.terminal = -1  # original standard error, since it may be redirected later

    @property
    def asked(self) -> bool:
        """True if this process is asked to end."""
        return self._flagged > 0 or self._heard > 0

    def check(self, message: str) -> None:
        """Raise `InterruptedByUser` if this process is asked to end."""
        if self.asked:
            raise InterruptedByUser(message)

    def install(self) -> None:
        """Start to handle signals; must be called in the main thread."""
        self._main = threading.get_ident()
        self.terminal = os.dup(2)
        self._ears = heard, written = os.pipe()
        os.set_blocking(written, False)
        self._wakeup = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(heard,), name="sweep-signals", daemon=True).start()
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}

    def restore(self) -> None:
        """Install the handlers again after a library has replaced them."""
        if self._ears is not None:
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def remove(self) -> None:
        """Restore the earlier handlers."""
        self.finish()
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python code
        if self._ears is not None:
            signal.set_wakeup_fd(self._wakeup)
            os.write(self._ears[1], _OVER)
            os.close(self._ears[1])
            os.close(self.terminal)

    @contextmanager
    def acting(self, first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
        """Call ``first`` in the thread at the first signal inside the block, ``second`` at each later one."""
        with self._lock:  # the action for an earlier signal is finished, or has ended this process
            before = self._acts
            self._acts = (first, second)
        try:
            yield
        finally:
            self.finish()
            with self._lock:
                self._acts = before

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Make the second signal raise `StoppedAtOnce` inside the block, for user code that does not check the flag."""
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
        """Send a signal if the handler missed one, because Python calls it once for several pending signals."""
        deadline = time.monotonic() + _HANDLER_WAIT_S
        while self._flagged < self._heard and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:
            if self._breakable and self._flagged < self._heard:
                self._own_signals += 1
                signal.pthread_kill(self._main, signal.SIGINT)

    def finish(self) -> None:
        """Wait until the thread has seen all signals that the handler has, and has acted on them."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._heard < self._flagged and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:
            pass


_active: Interruption | None = None


def start_handling_signals() -> None:
    """Handle signals in this process, which belongs to sweep; until something has begun, the first one ends it.

    Does nothing if this process handles them already.
    """
    global _active
    if _active is not None:
        return

    def leave() -> None:
        exit_now(process.last_words)

    _active = process = Interruption(leave, leave)
    process.install()


def stop_handling_signals() -> None:
    """Stop handling signals, for a command that has nothing to finish."""
    global _active
    if _active is not None:
        _active.remove()
        _active = None


def finish() -> None:
    """Wait until the actions of signals that have already arrived are done, before this process ends."""
    if _active is not None:
        _active.finish()


@contextmanager
def handle_signals(
    first: Callable[[], None], second: Callable[[], None], *, breaks: bool = False
) -> Iterator[Interruption]:
    """Handle signals inside the block; a thread calls ``first`` at the first one and ``second`` at each later one.

    ``breaks``: the process survives the second signal, which interrupts a `breakable` block instead. Outside of the
    main thread, signals are not handled.
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
    """Make the second signal raise inside the block if this process survives it; see `Interruption.breakable`."""
    if _active is None:
        yield
        return
    with _active.breakable():
        yield


def exit_now(last_words: str, tidy: Callable[[], None] = lambda: None) -> None:
    """End this process with the exit code of an interruption, whatever its threads do and even if output is blocked.

    ``tidy`` clears the terminal before the last message.
    """
    terminal = _active.terminal if _active else 2
    late = threading.Timer(_PATIENCE_S, os._exit, (CODE,))
    late.daemon = True
    late.start()
    with suppress(Exception):  # a lost terminal must not prevent the exit
        tidy()
        os.write(terminal, f"{last_words}\n".encode())
        tell_exit(CODE)
    os._exit(CODE)


_masks = threading.local()  # of threads that fork


def _before_fork() -> None:
    """Block signals during a fork: the child is another program, and its signals must not reach this object."""
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
