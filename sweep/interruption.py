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
    id. In a container whose first process never waits, it stays a zombie. Zombies of other users count as running,
    as do all zombies on a system without /proc.
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
    its threads still gets SIGHUP. After the block, SIGHUP is unblocked in this thread, unless it was blocked before.
    Does nothing on Windows.
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
    """Make SIGTERM and, unless it is ignored, SIGHUP raise KeyboardInterrupt; call it in the main thread.

    Only the first SIGHUP does: a closed terminal sends two. The handlers stay for the rest of the process.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if _SIGHUP in list_signals():
        signal.signal(_SIGHUP, _interrupt_once)


def _interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt for the signal ``number``, and ignore this signal from now on."""
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
        self._actions = (first, second)
        self._may_break = breaks  # whether `breakable` blocks may be interrupted
        # held by the thread while it acts on a signal; handlers never take it
        self._lock = threading.Lock()
        self._handled = 0  # signals counted by the handler, in the main thread
        # signals counted by the thread that acts on them; more while the main thread is in a long call
        self._acted_on = 0
        self._is_in_breakable = False  # whether the main thread is in a `breakable` block now
        self._resent = 0  # signals of `_resend_missed_signal` that the thread has still to ignore
        self._earlier_handlers: dict[signal.Signals, Any] = {}  # those that `install` has replaced
        self._earlier_wakeup = -1  # the wakeup descriptor that `install` has replaced
        # the reading and the writing end of the pipe to the thread; None before `install`
        self._pipe: tuple[int, int] | None = None
        self.terminal = -1  # original standard error, since it may be redirected later

    @property
    def asked(self) -> bool:
        """Whether a signal has asked this process to end; False as long as the handlers were not installed."""
        return self._handled > 0 or self._acted_on > 0

    def check(self, message: str) -> None:
        """Raise `InterruptedByUser` with ``message`` if a signal has asked the process to end."""
        if self.asked:
            raise InterruptedByUser(message)

    def install(self) -> None:
        """Start to handle the signals of `list_signals`, and start the thread that acts on them.

        Call it in the main thread; in another one, Python raises ValueError. `terminal` becomes a copy of standard
        error.
        """
        self._main_thread = threading.get_ident()
        self.terminal = os.dup(2)
        self._pipe = reading_end, writing_end = os.pipe()
        os.set_blocking(writing_end, False)  # as `set_wakeup_fd` requires
        # from here on, Python writes the number of each signal that has a handler into the pipe
        self._earlier_wakeup = signal.set_wakeup_fd(writing_end, warn_on_full_buffer=False)
        threading.Thread(
            target=self._read_signals, args=(reading_end,), name="sweep-signals", daemon=True
        ).start()
        # last, because from here on signals come to the handler, the pipe and the thread
        self._earlier_handlers = {
            number: signal.signal(number, self._handle) for number in list_signals()
        }

    def restore(self) -> None:
        """Install the signal handlers again, after a library has replaced them; does nothing before `install`.

        Call it in the main thread.
        """
        if self._pipe is not None:
            for number in self._earlier_handlers:
                signal.signal(number, self._handle)

    def remove(self) -> None:
        """Stop handling signals and restore the earlier handlers, after waiting for actions under way as `finish` does.

        Call it in the main thread, at most once. Does nothing before `install`.
        """
        self.finish()
        for number, handler in self._earlier_handlers.items():
            # a handler that was not set by Python code is None
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._pipe is not None:
            signal.set_wakeup_fd(self._earlier_wakeup)
            os.write(self._pipe[1], _OVER)  # ends the thread, which closes the other end
            os.close(self._pipe[1])
            os.close(self.terminal)

    @contextmanager
    def replacing_actions(
        self, first: Callable[[], None], second: Callable[[], None]
    ) -> Iterator[None]:
        """Replace the actions inside the block: ``first`` is for the first signal, ``second`` for each later one.

        They are called in a thread, and the end of the block waits for them as `finish` does. Signals that came
        before the block count, so ``second`` may be called without ``first``.
        """
        # waits until the action for an earlier signal is finished, for up to `_PATIENCE_S` seconds
        with self._lock:
            replaced = self._actions
            self._actions = (first, second)
        try:
            yield
        finally:
            self.finish()
            with self._lock:
                self._actions = replaced

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Make the second signal raise `StoppedAtOnce` inside the block, for user code that does not check `asked`.

        A later signal does so too, but not one that came before the block. Call it in the main thread. Does nothing if
        this object was created without ``breaks``. The blocks cannot be nested: the end of the inner one ends both.
        """
        self._is_in_breakable = self._may_break
        try:
            yield
        finally:
            self._is_in_breakable = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Count a signal in the main thread; raise `StoppedAtOnce` if one came before and a `breakable` block runs.

        SIGHUP after another signal is ignored. Called by Python for each signal.
        """
        if number == _SIGHUP and self.asked:
            return
        self._handled += 1
        so_far = max(self._handled, self._acted_on)  # either may have missed some
        if self._is_in_breakable and so_far > 1:
            raise StoppedAtOnce("stopped at once")

    def _read_signals(self, reading_end: int) -> None:
        """Read signals from the descriptor ``reading_end`` of a pipe until handling ends, and act on each.

        Runs in a thread. Signals that are not handled, those that `_resend_missed_signal` sends, and SIGHUP after
        another signal are ignored. Closes ``reading_end`` at the end.
        """
        while (byte := os.read(reading_end, 1)) not in (_OVER, b""):
            number = byte[0]
            if number == signal.SIGINT and self._resent:  # sent by `_resend_missed_signal`
                self._resent -= 1
                continue
            if number not in _SIGNALS:  # Python writes all signals for which code has set a handler
                continue
            if number == _SIGHUP and self._acted_on:
                continue
            self._act_on_signal()
        os.close(reading_end)

    def _act_on_signal(self) -> None:
        """Count a signal, call its action in a thread, and wait for that for up to `_PATIENCE_S` seconds.

        The second action is for the second signal and all later ones. If the handler has missed one of these inside a
        `breakable` block, the signal is sent to it again.
        """
        with self._lock:
            self._acted_on += 1
            first, second = self._actions
            action = first if self._acted_on == 1 else second
            acting = threading.Thread(target=action, name="sweep-signal", daemon=True)
            acting.start()
            # an action that waits for a terminal must not keep the next signal from acting
            acting.join(_PATIENCE_S)
        can_resend = hasattr(signal, "pthread_kill")  # not on Windows
        if self._may_break and self._acted_on > 1 and can_resend:
            self._resend_missed_signal()

    def _resend_missed_signal(self) -> None:
        """Send SIGINT to the main thread if its handler was called less often than signals came.

        Python calls a handler once for several pending signals. Gives the handler `_HANDLER_WAIT_S` seconds first.
        Sends nothing outside a `breakable` block.
        """
        deadline = time.monotonic() + _HANDLER_WAIT_S
        while self._handled < self._acted_on and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:
            if self._is_in_breakable and self._handled < self._acted_on:
                self._resent += 1  # so that the thread does not take it for the user's
                signal.pthread_kill(self._main_thread, signal.SIGINT)

    def finish(self) -> None:
        """Wait until the actions of all signals that the handler has counted are done.

        Waits for about 2 s at most, or 4 s after several signals; an action that takes longer goes on in its thread.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while self._acted_on < self._handled and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:  # held while the last action runs, so this waits for it
            pass


_active: Interruption | None = None


def start_handling_signals() -> None:
    """Handle signals in this process, which belongs to sweep; the first one ends it, as `exit_now` does.

    The message is `Interruption.last_words`. Inside a `handle_signals` block, the actions of the block are called
    instead. Call it in the main thread. Does nothing if this process handles signals already.
    """
    global _active
    if _active is not None:
        return

    def exit_at_once() -> None:
        """End the process with the last words that are set at that time."""
        exit_now(handling.last_words)

    # the same action for the first signal and for later ones
    _active = handling = Interruption(exit_at_once, exit_at_once)
    handling.install()


def stop_handling_signals() -> None:
    """Restore the signal handlers from before `start_handling_signals`; do nothing if that was not called.

    Waits for actions under way as `Interruption.finish` does. Call it in the main thread.
    """
    global _active
    if _active is not None:
        _active.remove()
        _active = None


def finish() -> None:
    """Wait until the actions of all signals so far are done, as `Interruption.finish` does, before the process ends.

    Does nothing if this process does not handle signals.
    """
    if _active is not None:
        _active.finish()


@contextmanager
def handle_signals(
    first: Callable[[], None], second: Callable[[], None], *, breaks: bool = False
) -> Iterator[Interruption]:
    """Handle signals inside the block; a thread calls ``first`` at the first one and ``second`` at each later one.

    Yield the `Interruption`, whose `asked` tells whether a signal has come. With ``breaks``, the second signal raises
    `StoppedAtOnce` inside a `breakable` block. The end of the block waits for actions under way, as `finish` does. If
    signals are handled already, only the actions are replaced, earlier signals count, and ``breaks`` has no effect.
    Outside of the main thread, signals are not handled, and `asked` stays False.
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

    That is `Interruption.breakable` of the present handling of signals. Otherwise the block is run as it is.
    """
    if _active is None:
        yield
        return
    with _active.breakable():
        yield


def exit_now(last_words: str, tidy: Callable[[], None] = lambda: None) -> None:
    """Print a last message to standard error and end this process at once with exit code 130; never returns.

    It ends within 2 s even if other threads run or the output is blocked. ``tidy`` clears the terminal before the
    message, which is not printed if ``tidy`` raises an exception. A command with ``--json`` prints the message as a
    document, too, unless it has printed its own. Then the folders of `temporary_folder` are deleted and
    `send_exit_code` is called with 130. Errors of all this are ignored.
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

    SIGHUP stays ignored if it was. Do nothing if `_before_fork` has blocked no signals.
    """
    global _active
    blocked_before = _masks.__dict__.pop("before", None)  # the signals blocked before the fork
    if blocked_before is None:  # `_before_fork` has blocked nothing
        return
    try:
        if child:
            # otherwise the child's signals would be written to its parent's pipe
            signal.set_wakeup_fd(-1)
            for number in list_signals():
                default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, default)
            _active = None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, child=False),
        after_in_child=partial(_after_fork, child=True),
    )
