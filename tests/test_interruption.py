"""Signals set a flag, and a thread acts; afterwards the process has its own handlers back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

from sweep import interruption
from sweep.errors import InterruptedByUser, StoppedAtOnce

pytestmark = pytest.mark.usefixtures("default_sighup")


@pytest.fixture(autouse=True)
def _handlers_stay() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    assert signal.set_wakeup_fd(-1) == -1


def noting(into: list[str], word: str) -> Callable[[], None]:
    return lambda: into.append(f"{word} in {threading.current_thread().name}")


def test_a_thread_acts_and_the_main_thread_looks() -> None:
    done: list[str] = []
    with interruption.handle_signals(noting(done, "first"), noting(done, "second")) as signals:
        assert not signals.asked
        signals.check("before it began")
        for count, number in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGINT), 1):
            os.kill(os.getpid(), number)
            until(lambda count=count: len(done) == count)
        assert signals.asked
        with pytest.raises(InterruptedByUser, match="before it began"):
            signals.check("before it began")
    # all heard when the block ends
    assert done == [
        "first in sweep-signal",
        *["second in sweep-signal"] * 2,
    ]


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        # by the shell, and by the kernel
        ([signal.SIGHUP, signal.SIGHUP], ["first"]),
        ([signal.SIGINT, signal.SIGHUP, signal.SIGHUP], ["first"]),
        ([signal.SIGHUP, signal.SIGHUP, signal.SIGTERM], ["first", "second"]),
    ],
)
def test_a_closed_terminal_is_the_first_signal_or_none(
    signals: list[signal.Signals], expected: list[str]
) -> None:
    done: list[str] = []
    with interruption.handle_signals(
        lambda: done.append("first"), lambda: done.append("second"), breaks=True
    ) as handled:
        with interruption.breakable():
            for number in signals[:2]:
                os.kill(os.getpid(), number)
        for number in signals[2:]:
            os.kill(os.getpid(), number)
        assert handled.asked
    assert done == expected


def test_a_closed_terminal_stays_ignored_where_it_is() -> None:
    """As in a command that was started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruption.handle_signals(lambda: None, lambda: None) as signals:
            signals.restore()
            os.kill(os.getpid(), signal.SIGHUP)
            assert not signals.asked
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_that_must_outlast_the_terminal_does_and_this_one_is_told() -> None:
    """As Ray, which the driver needs until all trials are saved."""
    done: list[str] = []
    code = "import os, signal; os.kill(os.getpid(), signal.SIGHUP); print('lives')"
    with interruption.handle_signals(noting(done, "first"), noting(done, "second")) as signals:
        with interruption.blocking_sighup():
            for _ in range(2):
                ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
                assert (ran.returncode, ran.stdout) == (0, "lives\n")
            os.kill(os.getpid(), signal.SIGHUP)
            until(lambda: done)
            assert signals.asked
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ran.returncode == -signal.SIGHUP
    assert done == ["first in sweep-signal"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_commands_end_as_by_ctrl_c(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        interruption.treat_as_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        if number == signal.SIGHUP:
            os.kill(os.getpid(), number)  # the kernel's, while the command tidies up
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_a_lock_of_the_main_thread_delays_the_thread_and_not_the_main_thread() -> None:
    lock, done = threading.Lock(), list[str]()

    def first() -> None:
        with lock:
            done.append("told")

    # as a view that counts an event
    with (
        interruption.handle_signals(first, first) as signals,
        lock,
    ):
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.asked
        assert done == []
    assert done == ["told"]


def test_inside_of_another_block_its_own_acts_count_and_then_those_of_the_other() -> None:
    done: list[str] = []
    with interruption.handle_signals(noting(done, "outer"), noting(done, "outer again")) as outer:
        with interruption.handle_signals(
            noting(done, "inner"), noting(done, "inner again")
        ) as inner:
            assert inner is outer
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert done == ["inner in sweep-signal", "outer again in sweep-signal"]


@pytest.mark.parametrize("breaks", [True, False])
def test_code_that_looks_at_no_flag_is_broken_off_where_the_process_lives_on(breaks: bool) -> None:
    turns = 0
    with interruption.handle_signals(lambda: None, lambda: None, breaks=breaks):
        os.kill(os.getpid(), signal.SIGINT)
        try:
            with interruption.breakable():
                for _ in range(3):
                    turns += 1
                    os.kill(os.getpid(), signal.SIGINT)
        except StoppedAtOnce:
            assert breaks
        os.kill(os.getpid(), signal.SIGINT)  # outside, nothing is raised
    assert turns == (1 if breaks else 3)


def test_two_signals_that_the_handler_is_told_of_once_are_two() -> None:
    done: list[str] = []

    @interruption.breakable()
    def wait(written: int) -> None:
        # what Python writes of a signal whose call is still to come
        os.write(written, bytes([signal.SIGINT]))
        time.sleep(60)

    with interruption.handle_signals(noting(done, "first"), noting(done, "second"), breaks=True):
        written = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: len(done) == 1)
        with pytest.raises(StoppedAtOnce):
            wait(written)
    assert done == ["first in sweep-signal", "second in sweep-signal"]


def test_another_handler_in_place_of_ours_is_heard_and_replaced() -> None:
    done: list[str] = []
    with interruption.handle_signals(noting(done, "first"), noting(done, "second")) as signals:
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # as Ray does when it starts
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: done)  # two that wait for a thread of this process are one
        signals.restore()
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: len(done) == 2)
    assert done == ["first in sweep-signal", "second in sweep-signal"]


def test_in_another_thread_signals_are_none_of_ours() -> None:
    ran: list[bool] = []

    def work() -> None:
        with (
            interruption.handle_signals(lambda: None, lambda: None) as signals,
            interruption.breakable(),
        ):
            signals.restore()
            ran.append(signals.asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [False]


@pytest.mark.filterwarnings("ignore:This process")  # the child does nothing but wait
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("forks", ["the main thread", "another"])
def test_the_signals_of_a_forked_child_are_not_its_parent_s(
    forks: str, number: signal.Signals
) -> None:
    """As of a loader of data that is ended by SIGTERM."""
    ends, blocked = list[int](), signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def fork() -> None:
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        os.kill(child, number)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with interruption.handle_signals(lambda: None, lambda: None) as signals:
        if forks == "another":
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        else:
            fork()
        assert ends == [-number]
        assert not signals.asked
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked


ENDS_AT_ONCE = """
import os, signal, time
from pathlib import Path
from sweep import interruption
interruption.start_handling_signals()
with interruption.temporary_folder("sweep-") as folder:
    (Path(folder) / "trial").mkdir()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""


def test_a_temporary_folder_does_not_outlive_a_process_that_ends_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDS_AT_ONCE]
    ran = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=PATIENCE_S)
    assert ran.returncode == interruption.CODE
    assert [*tmp_path.iterdir()] == []


def test_a_zombie_does_not_run() -> None:
    assert interruption.is_running(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert interruption.is_running(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its id stays taken
        assert not interruption.is_running(process.pid)
    assert not interruption.is_running(process.pid)
