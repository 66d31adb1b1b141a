"""The command's side of a keeper: finds or starts the keeper, and passes signals on while it runs the command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sweep import interruption, output
from sweep.errors import RefusedError

if TYPE_CHECKING:
    from types import FrameType

COMMANDS = ("run", "resume", "confirm", "retrain")
ELSEWHERE = ("--inline", "--address", "--detach", "--eager", "--profile", "-h", "--help")
"""Options with which a command is not run in a keeper, mostly because it starts no local Ray in this process."""

OPTION = "--keep-warm"
START_S = 20.0
"""Seconds that a new keeper may take until it listens at its socket."""

END_S = 20.0
"""Seconds that a keeper may take to end its Ray."""

ANSWER_S = 20.0
"""Seconds that a keeper may take to say whether it runs a command."""

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from sweep.keeper_process import main; main()"
)
"""Code that runs the keeper. The working folder is not in its search path, because a module of the author may have the
same name as a library there. The folder that contains sweep comes last, in case sweep is not installed."""


def run_in_keeper(arguments: Sequence[str]) -> int | None:
    """Run a command line in the keeper of the working folder, and return its exit code.

    Waits until the command has ended. Return None if the command must run in this process: it needs no keeper, or the
    keeper cannot run it, for a reason that is then written to standard error. Ctrl-C before the command begins gives a
    line on standard error and the exit code 130. Standard streams that are closed are opened on the null device. Raises
    OSError if a file of the keeper, such as the log of a new one, cannot be opened.
    """
    if not starts_local_ray(arguments):
        return None
    output.open_closed_streams()  # 0, 1 and 2 are sent to the keeper, and must not be free for its socket
    with output.expecting_document(arguments):
        try:
            return _run_in_keeper(arguments)
        except KeyboardInterrupt:
            return _end_with(interruption.NOTHING_STARTED, interruption.CODE)


def _run_in_keeper(arguments: Sequence[str]) -> int | None:
    """Run in the keeper a command line that starts a local Ray; return the exit code of the command.

    If there is no keeper, or it ends because it cannot run the command, a new one is started if the command has
    ``--keep-warm`` or a web page of the folder is open. Return None if the command must run in this process: if no new
    one is to be started or it does not start, if the keeper is busy, or if there can be none. A line on standard error
    says why a keeper is not used, or that one ends.
    """
    from sweep.keeper import place as places

    place = places.find_place()
    if place is None:
        if _asks_to_be_kept(arguments):
            _print_line(
                "nothing is kept warm: there is no folder that only you can enter for the keeper's socket"
            )
        return None
    wants_keeper = _asks_to_be_kept(arguments) or places.is_page_open(place)
    keeper = Keeper.find(place)
    if keeper is not None:
        refusal = keeper.request(arguments)
        if refusal is None:  # the keeper runs the command now
            return keeper.follow()
        if refusal["is_busy"]:
            _print_line(f"the warm Ray of this folder is not used: {refusal['reason']}")
            return None
        _print_line(f"the warm Ray of this folder ends: {refusal['reason']}")
        if refusal["process"]:  # a new keeper can only listen here after the one before has ended
            _wait_for_end(int(refusal["process"]))
    return _run_in_new_keeper(place, arguments) if wants_keeper else None


def _run_in_new_keeper(place: Path, arguments: Sequence[str]) -> int | None:
    """Start a keeper at the socket ``place`` and run a command line in it; return the exit code of the command.

    Return None, after a line on standard error, if no keeper starts or the new one refuses the command.
    """
    keeper = Keeper.start(place)
    if keeper is None or keeper.request(arguments) is not None:
        _print_line(
            f"nothing is kept warm: the process that would keep it did not start, see {place.with_suffix('.log')}"
        )
        return None
    return keeper.follow()


def stop_keeper() -> str:
    """End the keeper of the working folder and its Ray; return a line for the user that says what was done.

    The line also says so if there is no keeper, if it does not answer, or if it still runs after `END_S` seconds.

    Raises:
        RefusedError: if the keeper runs a command now; then it is not ended.
    """
    from sweep.keeper import place as places

    place = places.find_place()
    # without a place, there can be no keeper
    keeper = None if place is None else Keeper.find(place)
    if keeper is None:
        return "nothing is kept warm for this folder"
    answer = keeper.ask("end")
    if answer is None:
        return "what was kept warm for this folder has just ended, or does not answer"
    process = int(answer["process"])
    if answer["is_busy"]:
        hint = "stop the sweep first: python -m sweep stop NAME"
        raise RefusedError.one("--warm", f"process {process} runs a sweep now", hint)
    if not _wait_for_end(process):
        return f"what was kept warm for this folder ends (process {process}, which still runs)"
    return f"ended what was kept warm for this folder (process {process})"


def _wait_for_end(process: int) -> bool:
    """Wait up to `END_S` seconds for the process with the id ``process`` to end; return whether it has ended."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        if not interruption.is_running(process):
            return True
        time.sleep(0.05)
    return False


class Keeper:
    """A command's connection to a keeper."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers: IO[bytes] = connection.makefile("rb")  # lines of JSON from the keeper
        self._passed_on = 0  # number of signals that `follow` has passed on

    @classmethod
    def find(cls, place: Path) -> Keeper | None:
        """Connect to this user's keeper at the socket ``place``; return None if none listens there.

        Another user's process at the socket counts as none.
        """
        from sweep.keeper.messages import is_own

        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(os.fspath(place))
        except OSError:
            connection.close()
            return None
        if not is_own(connection):
            connection.close()
            return None
        return cls(connection)

    @classmethod
    def start(cls, place: Path) -> Keeper | None:
        """Start a keeper that listens at the socket ``place``, and connect to it.

        The output of its process goes into a file beside the socket, with the suffix ``.log``. Return None if nothing
        listens after `START_S` seconds, in which case the process is killed, or if the process ends and no other
        command has started a keeper meanwhile. Raises OSError if the file cannot be written.
        """
        # the folder that contains sweep, see `_PROGRAM`
        home = os.fspath(Path(__file__).parents[2])
        with place.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    *_list_interpreter_options(),
                    "-P",  # the working folder is not searched for modules
                    "-c",
                    _PROGRAM,
                    home,
                    os.fspath(place),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which passes it on
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            keeper = cls.find(place)
            if keeper is not None:
                # it outlives this process: counted as ended, `Popen` does not warn that it still runs
                process.returncode = 0
                return keeper
            if process.poll() is not None:
                return cls.find(place)  # another command may have started a keeper first
            time.sleep(0.01)
        process.kill()
        process.wait()
        return None

    def request(self, arguments: Sequence[str]) -> dict[str, Any] | None:
        """Ask the keeper to run a command line with the streams of this process.

        Return None if the keeper begins to run the command; call `follow` then. Otherwise disconnect and return a
        dictionary: ``reason`` says in words why the command is refused; ``is_busy`` is True if the keeper runs another
        command or does not answer within `ANSWER_S` seconds. If ``is_busy`` is False, ``process`` is the id of the
        keeper's process, which now ends, or 0 if it has ended. Raises OSError if the working folder is gone.
        """
        from sweep.keeper import messages, place

        request = {
            "arguments": list(arguments),
            "program": _name_program(),
            "folder": os.getcwd(),  # noqa: PTH109  # as it is named here
            "environment": dict(os.environ),
            "search_path": sys.path,
            "process": os.getpid(),
            "inherited": place.describe_process(),
            "installation": place.describe_installation(),
        }
        self._connection.settimeout(ANSWER_S)
        try:
            messages.send_request(self._connection, request, (0, 1, 2))
            answer = self._read_answer()
        except OSError as error:
            answer = {"reason": str(error) or "it does not answer", "is_busy": True}
        if answer is None:
            answer = {"reason": "it has ended", "is_busy": False, "process": 0}
        if "reason" in answer:  # it is refused: otherwise the answer only says that it is accepted
            self.close()
            return answer
        self._connection.settimeout(None)  # the command may take any time
        return None

    def ask(self, question: str) -> dict[str, Any] | None:
        """Send ``question`` to the keeper, wait for the answer, and disconnect; return the answer, the keeper's state.

        It has the process id under ``process``, and under ``is_busy`` whether a command runs. The question ``end`` also
        makes the keeper end, unless it is busy; any other changes nothing. Return None if the keeper has ended or does
        not answer within `ANSWER_S` seconds.
        """
        from sweep.keeper import messages

        self._connection.settimeout(ANSWER_S)
        try:
            # every request has streams
            messages.send_request(self._connection, {"question": question}, (0, 1, 2))
            return self._read_answer()
        except OSError:
            return None
        finally:
            self.close()

    def close(self) -> None:
        """Disconnect; if the keeper still runs a command for this connection, it ends that after saving its trials."""
        self._answers.close()
        self._connection.close()

    def follow(self) -> int:
        """Pass the signals that ask for an end on to the keeper until the command has ended; return its exit code.

        Then disconnect and restore the signal handlers. Call it in the main thread. If the keeper itself ends before it
        has sent the exit code, return 130 if a signal was passed on, otherwise 1 after a line on standard error.
        """
        earlier_handlers = {
            number: signal.signal(number, self._forward_signal)
            for number in interruption.list_signals()
        }
        try:
            answer = self._read_answer()  # waits until the command has ended
        except OSError:  # the keeper has ended without reading a signal that was passed on
            answer = None
        finally:
            for number, handler in earlier_handlers.items():
                signal.signal(number, handler)
            self.close()
        if answer is not None:
            return int(answer["exit"])
        if self._passed_on:  # the keeper may end with the command that it was asked to interrupt
            return interruption.CODE
        what = "the process that kept Ray warm and ran this command has ended"
        return _end_with(f"error: {what}; see the sweep with sweep status", 1)

    def _forward_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: count it, and send its number to the keeper, if that still runs."""
        self._passed_on += 1
        with suppress(OSError):
            self._connection.sendall(bytes([number]))

    def _read_answer(self) -> dict[str, Any] | None:
        """Wait for the next answer of the keeper and return it; None if the keeper has ended without a whole answer.

        Raises OSError if the connection is lost, or has a timeout that is over.
        """
        line = self._answers.readline()
        if not line.endswith(b"\n"):  # the connection was closed before or within the answer
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer


def starts_local_ray(arguments: Sequence[str]) -> bool:
    """Return whether a command line, if it is valid, starts a Ray on this machine that can be kept.

    It does if its first word is one of `COMMANDS`, it has no option of `ELSEWHERE`, and ``RAY_ADDRESS`` is not set.
    """
    if not arguments or arguments[0] not in COMMANDS or "RAY_ADDRESS" in os.environ:
        return False
    return not any(word.partition("=")[0] in ELSEWHERE for word in arguments)


def _asks_to_be_kept(arguments: Sequence[str]) -> bool:
    """Return whether a command line has ``--keep-warm``."""
    return any(word.partition("=")[0] == OPTION for word in arguments)


def _list_interpreter_options() -> list[str]:
    """Return the options of the Python interpreter of this process, such as ``-X dev``, to start the keeper with.

    ``-m`` or ``-c``, which name the program, are left out, with all that follows.
    """
    words = iter(sys.orig_argv[1:])
    options = []
    for word in words:
        # the program, whose own arguments follow
        if word in ("-m", "-c") or not word.startswith("-"):
            break
        options.append(word)
        if word in ("-X", "-W"):  # their value is the next word
            options.append(next(words, ""))
    return options


def _name_program() -> str:
    """Return the name of this program for messages: ``python -m sweep``, or the file's name, such as ``sweep``."""
    name = Path(sys.argv[0]).name
    return "python -m sweep" if name == "__main__.py" else name


def _end_with(text: str, code: int) -> int:
    """Print a line to standard error and, with ``--json``, an error document to standard output; return ``code``.

    The document is only printed if the command has printed none, and is without the ``error:`` that ``text`` may begin
    with. Errors of writing are ignored.
    """
    _print_line(text)
    with suppress(OSError):
        output.print_missing_document(text.removeprefix("error: "), code)
    return code


def _print_line(text: str) -> None:
    """Write a line to standard error; errors of writing are ignored."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))
