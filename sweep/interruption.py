"""Handlers for Ctrl-C, SIGTERM and SIGHUP that set a flag, and a thread that acts while the main thread cannot.

The main thread checks the flag where it can act on it, never in the middle of other work. The thread learns of each
signal too, because Python writes a byte for it whatever the main thread is doing: at the first signal it informs the
user, at the second it ends the process. A handler raises an exception only if a user's own process survives the second
signal and a trainable trains in its main thread, because nothing else stops such code.

When a terminal is closed, all processes of the command get SIGHUP twice: from the shell and from the kernel. After
another signal, SIGHUP is ignored. Processes that must live until everything is saved are started inside
`blocking_sighup`.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from sweep import output
from sweep.errors import InterruptedByUser, StoppedAtOnce

_SIGHUP = getattr(signal, "SIGHUP", None)  # sent when the terminal is closed; None on Windows
_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([] if _SIGHUP is None else [_SIGHUP]))
CODE = InterruptedByUser.exit_code  # of a process that was interrupted
_OVER = b"\0"  # not the number of a signal
_PATIENCE_S = 2.0  # seconds to wait for a terminal that accepts no output
_HANDLER_WAIT_S = 0.2  # seconds to wait until the main thread calls the handler


def ignore_exit_code(code: int) -> None:
    """Do nothing with the exit code, because no other process waits for it."""


send_exit_code: Callable[[int], None] = ignore_exit_code
"""Called with the exit code before this process ends at once; a keeper passes it on to the command that it runs."""


NOTHING_STARTED = "interrupted before anything was started; run the command again"


def list_signals() -> list[signal.Signals]:
    """Return the signals that ask this process to end: Ctrl-C, SIGTERM and, unless it is ignored (nohup), SIGHUP."""
    return [
        number
        for number in _SIGNALS
        if number != _SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]


def is_running(process: int) -> bool:
    """Return whether the process with the id ``process`` of this machine runs, also if it is another user's.

    A zombie does not run: a process that has ended, but whose parent has not waited for it, so that it still has its
    id. In a container whose first process never waits, it stays a zombie.
    """
    try:
        os.kill(process, 0)  # sends no signal, only checks that there is such a process
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    try:
        # the state follows the name, which is in parentheses and may itself have some
        state = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # a system without /proc, or it has just ended
        return True
    return state[:1] not in (["Z"], ["X"])


@contextmanager
def blocking_sighup() -> Iterator[None]:
    """Block SIGHUP in this thread inside the block, and in all processes and threads that it starts there.

    These processes and those that they start survive a closed terminal. If this process handles signals, another of
    its threads still gets SIGHUP. Does nothing on Windows.
    """
    if _SIGHUP is None:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [_SIGHUP])
    try:
        yield
    finally:
        if _SIGHUP not in before:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [_SIGHUP])


def treat_as_ctrl_c() -> None:
    """Make SIGTERM and, unless it is ignored, SIGHUP raise KeyboardInterrupt; call it in the main thread."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if _SIGHUP in list_signals():
        signal.signal(_SIGHUP, _interrupt_once)


def _interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt for a signal, and ignore it from now on."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


class Interruption:
    """Handles Ctrl-C, SIGTERM and SIGHUP in this process: counts the signals, and calls an action at each.

    SIGHUP stays ignored if it was, as in a command that was started with nohup. It is not counted after another one.
    """

    def __init__(
        self, first: Callable[[], None], second: Callable[[], None], *, breaks: bool = False
    ) -> None:
        # printed when a process that belongs to sweep ends at a signal
        self.last_words = NOTHING_STARTED
        self._acts = (first, second)
        self._breaks = breaks  # whether `breakable` blocks may be interrupted
        self._lock = threading.Lock()  # protects the next two; handlers never take it
        self._flagged = 0  # signals seen by the handler
        self._heard = 0  # signals seen by the thread; more while the main thread is in a long call
        self._breakable = False
        self._own_signals = 0  # signals sent by this object, not by the user
        self._before: dict[signal.Signals, Any] = {}  # handlers that `install` has replaced
        self._wakeup = -1  # the wakeup descriptor that it has replaced
        self._ears: tuple[int, int] | None = None  # a pipe
        self.terminal = -1  # original standard error, since it may be redirected later

    @property
    def asked(self) -> bool:
        """Whether a signal has asked this process to end; False as long as the handlers were not installed."""
        return self._flagged > 0 or self._heard > 0

    def check(self, message: str) -> None:
        """Raise `InterruptedByUser` with ``message`` if a signal has asked the process to end."""
        if self.asked:
            raise InterruptedByUser(message)

    def install(self) -> None:
        """Start to handle signals, and start the thread that acts on them; call it in the main thread."""
        self._main = threading.get_ident()
        self.terminal = os.dup(2)
        self._ears = heard, written = os.pipe()
        os.set_blocking(written, False)  # as `set_wakeup_fd` requires
        self._wakeup = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        threading.Thread(
            target=self._read_signals, args=(heard,), name="sweep-signals", daemon=True
        ).start()
        # last, because from here on signals come to the handler, the pipe and the thread
        self._before = {number: signal.signal(number, self._handle) for number in list_signals()}

    def restore(self) -> None:
        """Install the signal handlers again, after a library has replaced them; does nothing before `install`.

        Call it in the main thread.
        """
        if self._ears is not None:
            for number in self._before:
                signal.signal(number, self._handle)

    def remove(self) -> None:
        """Stop handling signals and restore the earlier handlers, after waiting for actions under way as `finish` does.

        Call it in the main thread.
        """
        self.finish()
        for number, handler in self._before.items():
            # None: not set by Python code
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._ears is not None:
            signal.set_wakeup_fd(self._wakeup)
            os.write(self._ears[1], _OVER)  # ends the thread, which closes the other end
            os.close(self._ears[1])
            os.close(self.terminal)

    @contextmanager
    def replacing_actions(
        self, first: Callable[[], None], second: Callable[[], None]
    ) -> Iterator[None]:
        """Replace the actions inside the block: ``first`` is for the first signal, ``second`` for each later one.

        They are called in a thread, and the end of the block waits for them as `finish` does. Signals that came
        before the block count, so ``second`` may be called without ``first``.
        """
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
        """Make the second signal raise `StoppedAtOnce` inside the block, for user code that does not check `asked`.

        Does nothing if this object was created without ``breaks``.
        """
        self._breakable = self._breaks
        try:
            yield
        finally:
            self._breakable = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Count a signal in the main thread; raise `StoppedAtOnce` at the second one inside a `breakable` block."""
        if number == _SIGHUP and self.asked:
            return
        self._flagged += 1
        if self._breakable and max(self._flagged, self._heard) > 1:
            raise StoppedAtOnce("stopped at once")

    def _read_signals(self, heard: int) -> None:
        """Read the signals from the pipe's end ``heard`` until handling ends, and act on each; runs in a thread.

        Signals that are not handled, those that `_resend_missed_signal` sends, and SIGHUP after another signal are
        ignored. Closes ``heard`` at the end.
        """
        while (number := os.read(heard, 1)) not in (_OVER, b""):
            if number[0] == signal.SIGINT and self._own_signals:  # sent by `_resend_missed_signal`
                self._own_signals -= 1
            # Python also writes other signals, if code has set a handler for them
            elif number[0] in _SIGNALS and not (number[0] == _SIGHUP and self._heard):
                self._act_on_signal()
        os.close(heard)

    def _act_on_signal(self) -> None:
        """Count a signal, call its action in a thread, and wait for that for up to `_PATIENCE_S` seconds.

        The second action is for the second signal and all later ones. If the handler has missed one of these inside a
        `breakable` block, the signal is sent to it again.
        """
        with self._lock:
            self._heard += 1
            # the first action, or from the second signal on the second one
            act = threading.Thread(
                target=self._acts[self._heard > 1], name="sweep-signal", daemon=True
            )
            act.start()
            # an action that waits for a terminal must not keep the next signal from acting
            act.join(_PATIENCE_S)
        if self._breaks and self._heard > 1 and hasattr(signal, "pthread_kill"):  # not on Windows
            self._resend_missed_signal()

    def _resend_missed_signal(self) -> None:
        """Send a signal to the main thread if its handler was called less often than signals came.

        Python calls a handler once for several pending signals. Does nothing outside a `breakable` block.
        """
        deadline = time.monotonic() + _HANDLER_WAIT_S
        while self._flagged < self._heard and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:
            if self._breakable and self._flagged < self._heard:
                self._own_signals += 1  # so that the thread does not take it for the user's
                signal.pthread_kill(self._main, signal.SIGINT)

    def finish(self) -> None:
        """Wait until the actions of all signals that the handler has counted are done.

        Waits for about 2 s at most, or 4 s after several signals.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while self._heard < self._flagged and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:  # held while an action runs
            pass


_active: Interruption | None = None


def start_handling_signals() -> None:
    """Handle signals in this process, which belongs to sweep; the first one ends it, unless other actions are set.

    It ends with exit code 130 after printing `Interruption.last_words`. Call it in the main thread. Does nothing if
    this process handles signals already.
    """
    global _active
    if _active is not None:
        return

    def exit_at_once() -> None:
        """End the process with the last words that are set at that time."""
        exit_now(process.last_words)

    _active = process = Interruption(exit_at_once, exit_at_once)
    process.install()


def stop_handling_signals() -> None:
    """Restore the signal handlers from before `start_handling_signals`; do nothing if that was not called."""
    global _active
    if _active is not None:
        _active.remove()
        _active = None


def finish() -> None:
    """Wait until the actions of all signals so far are done, as `Interruption.finish` does, before the process ends."""
    if _active is not None:
        _active.finish()


@contextmanager
def handle_signals(
    first: Callable[[], None], second: Callable[[], None], *, breaks: bool = False
) -> Iterator[Interruption]:
    """Handle signals inside the block; a thread calls ``first`` at the first one and ``second`` at each later one.

    Yield the `Interruption`, whose `asked` tells whether a signal has come. With ``breaks``, the second signal raises
    `StoppedAtOnce` inside a `breakable` block. If signals are handled already, only the actions are replaced, earlier
    signals count, and ``breaks`` has no effect. Outside of the main thread, signals are not handled.
    """
    global _active
    # Python allows no handlers to be set there
    if threading.current_thread() is not threading.main_thread():
        yield Interruption(first, second)
        return
    if _active is not None:
        with _active.replacing_actions(first, second):
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
    """Make the second signal raise `StoppedAtOnce` inside the block, if `handle_signals` was called with ``breaks``.

    Otherwise the block is run as it is.
    """
    if _active is None:
        yield
        return
    with _active.breakable():
        yield


def exit_now(last_words: str, tidy: Callable[[], None] = lambda: None) -> None:
    """Print a last message and end this process at once with exit code 130; never returns.

    It ends within 2 s even if other threads run or the output is blocked. ``tidy`` clears the terminal before the
    message. A command with ``--json`` prints it as a document, too. The folders of `temporary_folder` are deleted, and
    `send_exit_code` is called before the end.
    """
    terminal = _active.terminal if _active else 2
    # ends the process if one of the calls below blocks
    late = threading.Timer(_PATIENCE_S, os._exit, (CODE,))
    late.daemon = True
    late.start()
    with suppress(Exception):  # a lost terminal must not prevent the exit
        tidy()
        os.write(terminal, f"{last_words}\n".encode())
    with suppress(Exception):
        output.print_missing_document(last_words, CODE)
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(Exception):
        send_exit_code(CODE)
    os._exit(CODE)


_folders: list[str] = []


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """Yield a new temporary folder; it is deleted after the block, or when `exit_now` ends this process inside it."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        _folders.append(folder)
        try:
            yield folder
        finally:
            _folders.remove(folder)


_masks = threading.local()  # of threads that fork


def _before_fork() -> None:
    """Block signals during a fork, so that a signal to the child is not counted by this process.

    Does nothing if this process does not handle signals.
    """
    if _active is not None:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _after_fork(*, child: bool) -> None:
    """Unblock signals after a fork; in the child, also stop handling them and restore Python's default handlers.

    Do nothing if `_before_fork` has blocked no signals.
    """
    global _active
    mask = _masks.__dict__.pop("before", None)
    if mask is None:  # `_before_fork` has blocked nothing
        return
    try:
        if child:
            # otherwise the child's signals would be written to its parent's pipe
            signal.set_wakeup_fd(-1)
            for number in list_signals():
                own = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, own)
            _active = None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, child=False),
        after_in_child=partial(_after_fork, child=True),
    )
