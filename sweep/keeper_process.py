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
    content: dict[str, Any]
    streams: list[int]


class KeeperServer:
    """Receives the command lines of a folder in threads, and runs them one after another in the main thread."""

    def __init__(self, place: Path, kept: KeptRay, run: RunCommand = run_command) -> None:
        self._place = place
        self._kept = kept
        self._run_command = run
        self._first: dict[str, Any] | None = None  # the first request, with which others must agree
        self._log = os.dup(2)
        self._requests: SimpleQueue[KeeperRequest] = SimpleQueue()
        self._lock = threading.Lock()  # protects the next two
        self._is_busy = False
        self._is_over = False
        self._has_run = False
        self._until = time.monotonic() + FIRST_S  # the end of its time, unless a page is open

    def serve(self, listener: socket.socket) -> None:
        """Run the command lines that come in at ``listener`` one after another; return when the keeper has to end.

        Each command is sent its exit code when it has ended.
        """
        threading.Thread(
            target=self._accept_connections, args=(listener,), name="keeper-accepts", daemon=True
        ).start()
        while True:
            try:
                request = self._requests.get(timeout=LOOK_S)
            except Empty:
                if self._end_if_not_needed():
                    return
                continue
            code = self._run_request(request)
            self._has_run = True
            with self._lock:
                self._is_busy = False
                self._is_over = self._is_over or not self._kept.is_running
            # last, because the next command may come as soon as this one has its exit code
            send_exit_code(request.connection, code)
            if self._is_over:
                return

    # ---- in the main thread

    def _run_request(self, request: KeeperRequest) -> int:
        """Run a command line with its own streams, folder, environment and signals; return its exit code.

        The code is 1 if it raises an exception. If Ray stays running, a line on the command's standard error says so,
        unless the command is quiet. Afterwards the streams point to the keeper's log.
        """
        _connect_streams(request.streams)
        content = request.content
        recorder.pause()  # as `sweep.__main__` does for a command without a keeper
        _set_environment(content["environment"])
        sys.path[:] = content["search_path"]
        sys.argv = [content["program"], *content["arguments"]]
        self._kept.terminal = content["process"]  # the one that the user has started
        interruption.send_exit_code = partial(send_exit_code, request.connection)
        interruption.start_handling_signals()  # before the first one can come
        is_over = threading.Event()
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
        if self._kept.is_running and not self._is_over and not self._kept.is_quiet:
            _print_line(self._describe_kept())  # still to the command's standard error
        self._redirect_streams_to_log()
        return code

    def _clean_up(self) -> None:
        """Forget the author's modules after a command, and set until when the keeper waits for the next one.

        If TensorFlow was imported here, the keeper does not wait, but ends.
        """
        _forget_author_modules()
        self._until = time.monotonic() + self._kept.keep_s
        # Testing the best models imports it; it then keeps the devices of this sweep, and a next one may have others.
        if "tensorflow" in sys.modules:
            self._is_over = True

    def _redirect_streams_to_log(self) -> None:
        """Redirect the standard streams to the keeper's log, until the next command comes."""
        _connect_streams([os.open(os.devnull, os.O_RDWR), os.dup(self._log), os.dup(self._log)])
        output.flush()  # what could not be written to the streams of the command

    def _describe_kept(self) -> str:
        """Return the line that says that Ray is kept running, for how long, and how to end it."""
        kept = "Ray stays"
        if len(self._kept.workers):
            kept = f"Ray and {counted(len(self._kept.workers), 'worker')} stay"
        until = []
        if self._kept.keep_s:
            until.append(f"for {duration(self._kept.keep_s)}")
        if places.is_page_open(self._place):
            until.append("while the page is open")
        return (
            f"warm     {kept} {' and '.join(until) or 'for a moment'} (process {os.getpid()}); end it with "
            "python -m sweep stop --warm"
        )

    def _end_if_not_needed(self) -> bool:
        """Return True if the keeper must end now; from then on it refuses commands.

        It must if no command runs, and at least one of these holds: its time is over and no page is open; its Ray has
        ended; memory is short; it was asked to.
        """
        # before the first command, there is no Ray yet
        is_lost = self._has_run and not self._kept.is_running
        is_needed = not is_lost and (
            time.monotonic() < self._until or places.is_page_open(self._place)
        )
        with self._lock:
            # busy from the acceptance of a command on, while it may still be in the queue
            if not self._is_busy and (not is_needed or _is_memory_short()):
                self._is_over = True
            return self._is_over and not self._is_busy

    # ---- in the thread that accepts

    def _accept_connections(self, listener: socket.socket) -> None:
        """Accept connections forever, each in a thread of its own."""
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
        if "question" in content:
            for stream in streams:
                os.close(stream)
            self._answer_question(connection, content["question"])
            connection.close()
            return
        with self._lock:
            if self._is_busy or self._is_over:
                reason = "it runs another sweep now" if self._is_busy else "it is about to end"
                self._refuse(connection, reason)
                refused = True
            else:
                reason = self._find_difference(content)
                refused = bool(reason)
                if refused:
                    # so that the command can start another keeper in its place
                    self._is_over = True
                    self._refuse(connection, reason)
                else:
                    self._is_busy = True
        if refused:
            for stream in streams:
                os.close(stream)
            connection.close()
            return
        self._accept(KeeperRequest(connection, content, streams))

    def _accept(self, request: KeeperRequest) -> None:
        """Tell a command that it runs here, and queue it. Raises OSError if the command is gone, as after Ctrl-C."""
        try:
            messages.send_answer(request.connection, accepted=True)
        except OSError:
            with self._lock:
                self._is_busy = False
            for stream in request.streams:
                os.close(stream)
            raise
        self._requests.put(request)

    def _find_difference(self, content: dict[str, Any]) -> str:
        """Return why a command cannot use the processes that are kept running; "" if it can or is the first.

        ``content`` is its request; that of the first command is kept. A command can if its environment, the settings of
        its process (`describe_process`) and the packages are those of the first command. Call it with the lock held.
        """
        if self._first is None:
            self._first = content
            return ""
        name = places.find_difference(self._first["environment"], content["environment"])
        if name:
            return f"the environment variable {name} has another value"
        for what, value in self._first["inherited"].items():
            if content["inherited"].get(what) != value:
                return f"{what} is another"
        if content["installation"] != self._first["installation"]:
            return "the installed packages have changed"
        return ""

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        """Send the command the reason why it cannot run here, and the keeper's process id; call with the lock held."""
        messages.send_answer(connection, reason=reason, is_busy=self._is_busy, process=os.getpid())

    def _answer_question(self, connection: socket.socket, question: str) -> None:
        """Send the keeper's state; if ``question`` is "end" and no command runs, also end the keeper."""
        with self._lock:
            if question == "end" and not self._is_busy:
                self._is_over = True
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
    """Return whether less than `LEAST_MEMORY` of the memory is available, on the machine or in its container."""
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
        most = int((_CONTAINER / "memory.max").read_text())
        used = int((_CONTAINER / "memory.current").read_text())
        # cached files, which count as used, but are given up when memory is needed
        files = _read_numbers(_CONTAINER / "memory.stat")["inactive_file"]
        shares.append((most - used + files) / most)
    return min(shares)


def _read_numbers(path: Path) -> dict[str, int]:
    """Read a file of lines such as ``MemTotal: 123 kB``; return the number of each line by its first word.

    The first word keeps its colon: "MemTotal:".
    """
    found = {}
    for line in path.read_text().splitlines():
        words = line.split()
        found[words[0]] = int(words[1])
    return found


def _print_line(text: str) -> None:
    """Write a line to standard error; ignore errors."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))


def _exit_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal: end the process by SystemExit, so that Ray is ended as well."""
    raise SystemExit(0)


def main() -> None:
    """Run the keeper whose socket path is the first argument; return without doing so if another process runs it.

    Waits up to 30 s for an earlier keeper that is about to end. Ends this process by `os._exit` after running.
    """
    place = Path(sys.argv[1])
    with place.with_suffix(".lock").open("a") as lock:
        deadline = time.monotonic() + FIRST_S
        while not _try_to_lock(lock):
            # the other process serves commands, or hangs
            if place.exists() or time.monotonic() > deadline:
                return
            time.sleep(0.05)  # the one before is about to end
        _serve(place)


def _try_to_lock(file: IO[str]) -> bool:
    """Lock a file; return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _serve(place: Path) -> None:
    """Listen on the socket, run commands until the keeper ends, then end Ray and this process; never returns."""
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
