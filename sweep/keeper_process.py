"""The keeper's process: runs the commands of a folder one after another, and ends when it is not needed any more.

It ends when the time of ``--keep-warm`` is over and no page of its folder is open, when memory gets short, when
`sweep stop --warm` asks it to, or when a command comes that cannot use its processes, because its environment differs
or packages were installed. It is the driver of each sweep that it runs; if it is killed, its sweep is resumed as
after any kill.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import IO, Any, NoReturn, TypeAlias

from sweep import interruption, output
from sweep.author_code import is_author_file
from sweep.backends.ray_tune.kept_ray import KeptRay, keep_ray
from sweep.command import run_command
from sweep.keeper import messages
from sweep.keeper import place as places
from sweep.read_recorder import recorder
from sweep.text import counted, duration

FIRST_S = 30.0
"""Seconds after which a keeper that has received no command ends."""

REQUEST_S = 10.0
"""Seconds within which a new connection must send its request."""

LOOK_S = 1.0
_CONTAINER = Path("/sys/fs/cgroup")
LEAST_MEMORY = 0.1
"""Share of the machine's memory that must be available while nothing runs."""


RunCommand: TypeAlias = Callable[[Sequence[str], str], int]
"""A function that runs a command line, given with the program's name, and returns the exit code."""


@dataclass(slots=True)
class KeeperRequest:
    """A command line to run, and the connection to the command that has sent it."""

    connection: socket.socket
    content: dict[str, Any]  # as `Keeper.request` sends it
    streams: list[int]  # descriptors of the command's standard input, output and error


class KeeperServer:
    """Receives the command lines of a folder in threads, and runs them one after another in the main thread."""

    def __init__(self, place: Path, kept: KeptRay, run: RunCommand = run_command) -> None:
        self._socket_path = place
        self._kept_ray = kept
        self._run_command = run
        # the content of the first command's request, with which others must agree
        self._first_request: dict[str, Any] | None = None
        self._log_descriptor = os.dup(2)
        self._accepted: SimpleQueue[KeeperRequest] = SimpleQueue()
        self._lock = threading.Lock()  # protects `_is_busy` and `_must_end`
        self._is_busy = False  # whether a command was accepted and has not ended
        # whether the keeper ends as soon as it is not busy; it then accepts no command
        self._must_end = False
        self._has_run = False  # whether a command has run
        self._wait_until = time.monotonic() + FIRST_S  # the end of its time, unless a page is open

    def serve(self, listener: socket.socket) -> None:
        """Run the command lines that come in at the socket ``listener`` one after another; return when the keeper ends.

        It ends if it is not needed any more, or if the next command cannot use it. Each command is sent its exit code
        when it has ended. Call it in the main thread. Does not close ``listener``, at which a thread goes on accepting.
        """
        threading.Thread(
            target=self._accept_connections, args=(listener,), name="keeper-accepts", daemon=True
        ).start()
        while True:
            try:
                request = self._accepted.get(timeout=LOOK_S)
            except Empty:  # no command came
                if self._end_if_not_needed():
                    return
                continue
            code = self._run_request(request)
            self._has_run = True
            with self._lock:
                self._is_busy = False
                # without a Ray, the keeper is of no use
                self._must_end = self._must_end or not self._kept_ray.is_running
            # last, because the next command may come as soon as this one has its exit code
            send_exit_code(request.connection, code)
            if self._must_end:
                return

    # ---- in the main thread

    def _run_request(self, request: KeeperRequest) -> int:
        """Run a command line with its own streams, folder, environment and signals; return its exit code.

        If it raises an exception, its standard error gets the traceback, and the code is 1. If Ray stays running, a
        line on its standard error says so, unless the command is quiet. Afterwards standard output and error lead to
        the keeper's log again; folder, environment, ``sys.path`` and ``sys.argv`` stay those of the command.
        """
        _connect_streams(request.streams)
        content = request.content
        recorder.pause()  # as `sweep.__main__` does for a command without a keeper
        _set_environment(content["environment"])
        sys.path[:] = content["search_path"]
        sys.argv = [content["program"], *content["arguments"]]
        # the id of the process that the user has started
        self._kept_ray.terminal = content["process"]
        interruption.send_exit_code = partial(send_exit_code, request.connection)
        interruption.start_handling_signals()  # before the first one can come
        is_over = threading.Event()  # that the command has ended, so that no signal may reach it
        threading.Thread(
            target=forward_signals, args=(request.connection, is_over), daemon=True
        ).start()
        try:
            os.chdir(content["folder"])  # which may have been deleted since the command was started
            code = self._run_command(content["arguments"], content["program"])
        except Exception:
            traceback.print_exc()
            code = 1
        is_over.set()  # before the handlers are removed: a signal would end the keeper then
        interruption.stop_handling_signals()
        interruption.send_exit_code = interruption.ignore_exit_code
        with suppress(OSError):  # the command has removed it
            os.chdir(content["folder"])
        self._clean_up()
        if self._kept_ray.is_running and not self._must_end and not self._kept_ray.is_quiet:
            _print_line(self._describe_kept())  # still to the command's standard error
        self._redirect_streams_to_log()
        return code

    def _clean_up(self) -> None:
        """Forget the author's modules after a command, and set until when the keeper waits for the next one.

        If TensorFlow was imported here, the keeper does not wait, but ends.
        """
        _forget_author_modules()
        self._wait_until = time.monotonic() + self._kept_ray.keep_s
        # Testing the best models imports it; it then keeps the devices of this sweep, and a next one may have others.
        if "tensorflow" in sys.modules:
            self._must_end = True

    def _redirect_streams_to_log(self) -> None:
        """Redirect standard output and error to the keeper's log, and input to the null device.

        They lose the streams of the last command, whose reader may wait for their end.
        """
        _connect_streams(
            [
                os.open(os.devnull, os.O_RDWR),
                os.dup(self._log_descriptor),
                os.dup(self._log_descriptor),
            ]
        )
        output.flush()  # what could not be written to the streams of the command

    def _describe_kept(self) -> str:
        """Return the line that says that Ray is kept running, for how long, and how to end it."""
        what_stays = "Ray stays"
        if len(self._kept_ray.workers):
            what_stays = f"Ray and {counted(len(self._kept_ray.workers), 'worker')} stay"
        how_long = []
        if self._kept_ray.keep_s:
            how_long.append(f"for {duration(self._kept_ray.keep_s)}")
        if places.is_page_open(self._socket_path):
            how_long.append("while the page is open")
        return (
            f"warm     {what_stays} {' and '.join(how_long) or 'for a moment'} (process {os.getpid()}); end it with "
            "python -m sweep stop --warm"
        )

    def _end_if_not_needed(self) -> bool:
        """Return True if the keeper must end now; from then on it refuses commands.

        It must if no command runs, and at least one of these holds: its time is over and no page is open; its Ray has
        ended; memory is short; it was asked to; a command came that cannot use its processes.
        """
        # before the first command, there is no Ray yet
        has_lost_ray = self._has_run and not self._kept_ray.is_running
        is_needed = not has_lost_ray and (
            time.monotonic() < self._wait_until or places.is_page_open(self._socket_path)
        )
        with self._lock:
            # busy from the acceptance of a command on, while it may still be in the queue
            if not self._is_busy and (not is_needed or _is_memory_short()):
                self._must_end = True
            return self._must_end and not self._is_busy

    # ---- in the thread that accepts

    def _accept_connections(self, listener: socket.socket) -> None:
        """Accept connections forever, and answer each in a thread of its own."""
        while True:
            connection = listener.accept()[0]
            # a thread for each: one that connects and says nothing must not keep others waiting
            threading.Thread(target=self._serve_connection, args=(connection,), daemon=True).start()

    # ---- in a thread for each connection

    def _serve_connection(self, connection: socket.socket) -> None:
        """Answer the request of a connection; close the connection if the request is broken or its sender is gone."""
        try:
            self._answer_request(connection)
        except (OSError, ValueError, KeyError):  # it is gone, or speaks something else
            connection.close()

    def _answer_request(self, connection: socket.socket) -> None:
        """Receive a request and answer its question, refuse its command, or queue the command for the main thread.

        A command is refused while another one runs, or if the keeper is about to end. It is also refused if it cannot
        use the present processes, and the keeper then ends. Other users are not answered.
        """
        if not messages.is_own(connection):
            connection.close()
            return
        connection.settimeout(REQUEST_S)
        received = messages.receive_request(connection)
        connection.settimeout(None)  # the connection of a command stays open until the command ends
        if received is None:
            connection.close()
            return
        content, streams = received
        is_queued = False
        try:
            if "question" in content:
                self._answer_question(connection, content["question"])
            elif self._admit(connection, content):
                self._accept(KeeperRequest(connection, content, streams))
                is_queued = True
        finally:
            # also if the command is gone: what reads its output must not wait for this process
            if not is_queued:
                for stream in streams:
                    os.close(stream)
                connection.close()

    def _admit(self, connection: socket.socket, content: dict[str, Any]) -> bool:
        """Return True if the command with the request ``content`` may run here; the keeper then counts as busy.

        Otherwise send the command the reason and return False. If the reason is that it cannot use the present
        processes, the keeper ends. Raises OSError if the command is gone.
        """
        with self._lock:
            if self._is_busy or self._must_end:
                reason = "it runs another sweep now" if self._is_busy else "it is about to end"
                self._refuse(connection, reason)
                return False
            reason = self._find_difference(content)
            if reason:
                # so that the command can start another keeper in its place
                self._must_end = True
                self._refuse(connection, reason)
                return False
            self._is_busy = True
            return True

    def _accept(self, request: KeeperRequest) -> None:
        """Tell a command that it runs here, and queue it for the main thread.

        Raises OSError if the command is gone, as after Ctrl-C; the keeper then is no longer busy.
        """
        try:
            messages.send_answer(request.connection, accepted=True)
        except OSError:
            with self._lock:
                self._is_busy = False
            raise
        self._accepted.put(request)

    def _find_difference(self, content: dict[str, Any]) -> str:
        """Return why a command cannot use the processes that are kept running; "" if it can or is the first.

        ``content`` is its request; that of the first command is kept. A command can if its environment, except for the
        variables of a terminal, the settings of its process (`describe_process`) and the packages are those of the
        first command. Call it with the lock held.
        """
        if self._first_request is None:
            self._first_request = content
            return ""
        name = places.find_difference(self._first_request["environment"], content["environment"])
        if name:
            return f"the environment variable {name} has another value"
        for what, value in self._first_request["inherited"].items():
            if content["inherited"].get(what) != value:
                return f"{what} is another"
        if content["installation"] != self._first_request["installation"]:
            return "the installed packages have changed"
        return ""

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        """Send a command the reason why it cannot run here, whether the keeper is busy, and its process id.

        Call it with the lock held. Raises OSError if the command is gone.
        """
        messages.send_answer(connection, reason=reason, is_busy=self._is_busy, process=os.getpid())

    def _answer_question(self, connection: socket.socket, question: str) -> None:
        """Send the keeper's process id and whether it is busy; if it is not and ``question`` is "end", also end it.

        It ends soon afterwards, in the main thread. Raises OSError if nobody receives the answer.
        """
        with self._lock:
            if question == "end" and not self._is_busy:
                self._must_end = True
            messages.send_answer(connection, process=os.getpid(), is_busy=self._is_busy)


def forward_signals(connection: socket.socket, is_over: threading.Event) -> None:
    """Send this process the signals that the command's own process passes on through the connection.

    Runs in a thread. If the command is gone before ``is_over`` is set, SIGTERM is sent; after that, no signal is sent
    any more. Returns, and closes the connection, only when the command has closed it, because it may still have to
    receive the exit code.
    """
    with connection:
        received = None  # a byte with the number of a signal, or b"" once the connection is closed
        while received != b"":
            try:
                received = connection.recv(1)
            except OSError:
                received = b""
            if not is_over.is_set():
                os.kill(os.getpid(), received[0] if received else signal.SIGTERM)


def _set_environment(environment: dict[str, str]) -> None:
    """Make the environment variables those of a command; ``RAY_`` and ``TUNE_`` variables that it lacks stay."""
    for name in os.environ.keys() - environment.keys():
        if not name.startswith(("RAY_", "TUNE_")):
            del os.environ[name]
    os.environ.update(environment)


def _connect_streams(streams: list[int]) -> None:
    """Replace standard input, output and error by the file descriptors ``streams``, which are then closed."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def send_exit_code(connection: socket.socket, code: int) -> None:
    """Send a command its exit code; do nothing if the command is gone."""
    with suppress(OSError):
        messages.send_answer(connection, exit=code)


def _forget_author_modules() -> None:
    """Remove the author's modules from `sys.modules`, because their files may change before the next command."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and name != "__main__" and is_author_file(file):
            del sys.modules[name]


def _is_memory_short() -> bool:
    """Return whether less than `LEAST_MEMORY` of the memory is available, on the machine or in its container.

    Return False if the system does not tell.
    """
    return _find_free_share() < LEAST_MEMORY


def _find_free_share() -> float:
    """Return the share of memory, from 0 to 1, that is available on the machine or in its container.

    Return the smaller one of the two, or 1 if the system reports neither.
    """
    shares = [1.0]
    with suppress(OSError, ValueError, KeyError):
        values = _read_numbers(Path("/proc/meminfo"))
        shares.append(values["MemAvailable:"] / values["MemTotal:"])
    with suppress(OSError, ValueError, KeyError):  # there is none, or it has no limit ("max")
        limit = int((_CONTAINER / "memory.max").read_text())
        used = int((_CONTAINER / "memory.current").read_text())
        # cached files, which count as used, but are given up when memory is needed
        cached = _read_numbers(_CONTAINER / "memory.stat")["inactive_file"]
        shares.append((limit - used + cached) / limit)
    return min(shares)


def _read_numbers(path: Path) -> dict[str, int]:
    """Read a file of lines such as ``MemTotal: 123 kB``; return the number of each line by its first word.

    The first word keeps its colon: "MemTotal:". Units are ignored. Raises OSError if the file cannot be read, and
    ValueError if a second word is not a whole number.
    """
    numbers = {}
    for line in path.read_text().splitlines():
        words = line.split()
        numbers[words[0]] = int(words[1])
    return numbers


def _print_line(text: str) -> None:
    """Write a line to standard error; ignore errors."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))


def _exit_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal: raise SystemExit with the code 0, so that Ray is ended as well."""
    raise SystemExit(0)


def main() -> None:
    """Run the keeper whose socket path is the first argument; return without doing so if another process runs it.

    A lock on a file beside the socket, with the suffix ``.lock``, tells that. Waits up to 30 s for an earlier keeper
    that is about to end: one that holds the lock, but whose socket is gone. Ends this process by `os._exit` after
    running.
    """
    place = Path(sys.argv[1])
    with place.with_suffix(".lock").open("a") as lock:
        deadline = time.monotonic() + FIRST_S
        while not _try_to_lock(lock):
            # the process that holds the lock serves commands, or hangs
            if place.exists() or time.monotonic() > deadline:
                return
            time.sleep(0.05)  # it has removed its socket, and is about to end
        _serve(place)


def _try_to_lock(file: IO[str]) -> bool:
    """Lock a file, without waiting, until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _serve(place: Path) -> None:
    """Listen on the socket ``place``, run commands until the keeper ends, then end Ray and this process; never returns.

    A socket that exists there is replaced; it is removed at the end. The exit code is 0, also at a signal, or 1 after
    an exception, whose traceback is in the keeper's log.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    place.unlink(missing_ok=True)  # a killed keeper has left its socket
    listener.bind(os.fspath(place))
    listener.listen()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C concerns a command, which passes it on
    # SIGHUP too, which a command passes on, even if the first one was started with nohup
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_on_signal)
    kept = keep_ray()
    code = 0
    try:
        KeeperServer(place, kept).serve(listener)
    except Exception:
        traceback.print_exc()  # into the keeper's log
        code = 1
    finally:
        place.unlink(missing_ok=True)  # commands that come now do not find it
        kept.close()
        os._exit(code)  # without waiting for threads


if __name__ == "__main__":
    main()
