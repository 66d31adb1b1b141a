"""A command and its keeper, with a stand-in for the command that is run and for the Ray that is kept."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from sweep import interruption, keeper_process, output
from sweep.backends.ray_tune.kept_ray import KeptRay
from sweep.errors import RefusedError
from sweep.keeper import client, messages
from sweep.keeper import place as places
from sweep.keeper.client import Keeper

pytestmark = pytest.mark.usefixtures("default_sighup")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class FakeRay(KeptRay):
    """Is kept without having been started."""

    running = True

    @property
    def is_running(self) -> bool:
        return self.running


class Kept:
    """A keeper in a process of its own, and its place."""

    def __init__(self, place: Path, process: int, *, reaps: bool) -> None:
        self.place, self.process = place, process
        self._status: int | None = None
        # an ended process stays until its parent has asked for it
        self._reaper = threading.Thread(target=self._reap)
        if reaps:
            self._reaper.start()

    def _reap(self) -> None:
        self._status = os.waitpid(self.process, 0)[1]

    def wait(self) -> int:
        if self._reaper.ident is None:
            self._reaper.start()
        self._reaper.join(20)
        assert self._status is not None
        return os.waitstatus_to_exitcode(self._status)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        self.wait()


Command = Callable[[Sequence[str], str], int]


def echo(arguments: Sequence[str], program: str) -> int:
    """Print what the command is run with, and end with the number of its words."""
    os.write(1, f"{program} {' '.join(arguments)} {os.environ.get('COLUMNS')}\n".encode())
    return len(arguments)


def wait_for_signal(arguments: Sequence[str], program: str) -> int:
    """Run until a signal comes, as a sweep does; end with its number."""
    received: list[int] = []

    def do_nothing() -> None:
        pass

    with interruption.handle_signals(do_nothing, do_nothing):
        for number in SIGNALS:
            signal.signal(number, lambda number, frame: received.append(number))
        Path("ready").touch()
        while not received:
            time.sleep(0.01)
        Path("received").touch()
        time.sleep(0.3)  # for the signals that are on their way
    return received[0]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kept]]:
    """Return a function that starts a keeper of the working folder."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(prefix="k-"))
    monkeypatch.setattr(keeper_process, "LOOK_S", 0.02)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    started: list[Kept] = []

    def start_keeper(
        command: Command = echo,
        *,
        keep_s: float = 60.0,
        running: bool = True,
        reaps: bool = True,
    ) -> Kept:
        place = places.find_place()
        assert place is not None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(place))
        listener.listen()
        process = os.fork()
        if process == 0:
            interruption.stop_handling_signals()
            sys.modules.pop("tensorflow", None)  # of tests before, with which a keeper would end
            kept = FakeRay(keep_s=keep_s)
            kept.running = running
            keeper_process.KeeperServer(place, kept, command).serve(listener)
            os._exit(0)
        listener.close()
        started.append(Kept(place, process, reaps=reaps))
        return started[-1]

    yield start_keeper
    for kept in started:
        kept.kill()


def test_a_command_is_run_with_the_terminal_of_the_person(
    start: Callable[..., Kept], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = start()
    monkeypatch.setenv("COLUMNS", "77")
    monkeypatch.setattr(sys, "argv", ["/bin/sweep"])
    for _ in range(2):
        assert client.run_in_keeper(["run", "a.yaml", "-q"]) == 3
    said = capfd.readouterr()
    assert said.out == "sweep run a.yaml -q 77\n" * 2
    line = f"warm     Ray stays for 1 min 00 s (process {kept.process}); end it with python -m sweep stop --warm"
    assert said.err.splitlines() == [line] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["status", "a"],
        ["run", "a.yaml", "--inline"],
        ["run", "a.yaml", "--address=1.2.3.4:5"],
        ["run", "--help"],
        ["resume", "a", "--detach"],
    ],
)
def test_other_commands_run_where_they_are_typed(
    start: Callable[..., Kept], arguments: list[str]
) -> None:
    start()
    assert client.run_in_keeper(arguments) is None


def test_without_a_keeper_a_command_runs_where_it_is_typed(start: Callable[..., Kept]) -> None:
    assert client.run_in_keeper(["run", "a.yaml"]) is None
    assert client.stop_keeper() == "nothing is kept warm for this folder"


def test_signals_are_passed_on(start: Callable[..., Kept]) -> None:
    start(wait_for_signal)
    for number in SIGNALS:
        Path("ready").unlink(missing_ok=True)
        Path("received").unlink(missing_ok=True)
        # one that comes too early must not end the tests
        before = signal.signal(number, lambda number, frame: None)
        is_over = threading.Event()
        sender = threading.Thread(target=_send_signals, args=(number, is_over))
        sender.start()
        try:
            assert client.run_in_keeper(["run", "a.yaml"]) == number
        finally:
            is_over.set()
            sender.join()
            signal.signal(number, before)


def _send_signals(number: int, is_over: threading.Event) -> None:
    """Send this process a signal again and again, from when a keeper's command waits for it."""
    until(lambda: Path("ready").exists() or is_over.is_set())
    while not is_over.wait(0.1) and not Path("received").exists():
        os.kill(os.getpid(), number)


def test_a_signal_that_comes_too_late_does_not_cost_the_exit_code() -> None:
    ours, its = socket.socketpair()
    is_over = threading.Event()
    is_over.set()
    passing = threading.Thread(target=keeper_process.forward_signals, args=(its, is_over))
    passing.start()
    with ours:
        ours.sendall(bytes([signal.SIGINT]))
        until(lambda: not select.select([its], [], [], 0)[0])
        keeper_process.send_exit_code(its, 3)
        assert ours.recv(100) == b'{"exit": 3}\n'
    passing.join(10)
    assert not passing.is_alive()


def test_a_command_whose_terminal_is_gone_is_asked_to_end(
    start: Callable[..., Kept], tmp_path: Path
) -> None:
    kept = start(wait_for_signal)
    keeper = Keeper.find(kept.place)
    assert keeper is not None
    assert keeper.request(["run", "a.yaml"]) is None
    busy = Keeper.find(kept.place)
    assert busy is not None
    answer = busy.ask("look")
    assert answer == {"process": kept.process, "is_busy": True}
    until(Path("ready").exists)
    keeper.close()
    deadline = time.monotonic() + 10
    while client.run_in_keeper(["status"]) is None and time.monotonic() < deadline:
        other = Keeper.find(kept.place)
        assert other is not None
        looked = other.ask("look")
        assert looked is not None
        if not looked["is_busy"]:
            break
        time.sleep(0.02)
    else:
        pytest.fail("it runs still")


def test_while_it_runs_a_sweep_another_command_runs_where_it_is_typed(
    start: Callable[..., Kept], capfd: pytest.CaptureFixture[str]
) -> None:
    kept = start(wait_for_signal)
    keeper = Keeper.find(kept.place)
    assert keeper is not None
    assert keeper.request(["run", "a.yaml"]) is None
    assert client.run_in_keeper(["run", "b.yaml", "--keep-warm", "1m"]) is None
    assert (
        "the warm Ray of this folder is not used: it runs another sweep now"
        in capfd.readouterr().err
    )
    with pytest.raises(RefusedError, match=f"process {kept.process} runs a sweep now"):
        client.stop_keeper()
    keeper.close()


def test_in_another_environment_it_is_of_no_use_and_ends(
    start: Callable[..., Kept], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = start()
    assert client.run_in_keeper(["run", "a.yaml"]) == 2
    monkeypatch.setenv("TF_XLA_FLAGS", "--other")
    assert client.run_in_keeper(["run", "a.yaml"]) is None
    assert "ends: the environment variable TF_XLA_FLAGS has another value" in capfd.readouterr().err
    assert kept.wait() == 0


def test_after_an_installation_it_is_of_no_use_and_ends(
    start: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = start()
    assert client.run_in_keeper(["run", "a.yaml"]) == 2
    monkeypatch.setattr(places, "describe_installation", lambda: {"site": 2})
    assert client.run_in_keeper(["run", "a.yaml"]) is None
    assert "the installed packages have changed" in capfd.readouterr().err
    assert kept.wait() == 0


def test_it_ends_when_its_time_is_over_unless_a_page_is_open(
    start: Callable[..., Kept], tmp_path: Path
) -> None:
    kept = start(keep_s=0.05)
    with places.opening_page(tmp_path):
        assert client.run_in_keeper(["run", "a.yaml"]) == 2
        time.sleep(0.3)
        assert client.run_in_keeper(["run", "a.yaml"]) == 2
    assert kept.wait() == 0


def test_it_ends_at_once_if_nothing_is_kept_or_somebody_asks(start: Callable[..., Kept]) -> None:
    kept = start(running=False)
    assert client.run_in_keeper(["run", "a.yaml"]) == 2
    assert kept.wait() == 0
    kept.place.unlink(missing_ok=True)
    kept = start()
    assert (
        client.stop_keeper() == f"ended what was kept warm for this folder (process {kept.process})"
    )
    assert kept.wait() == 0


def test_a_keeper_that_is_a_zombie_has_ended(start: Callable[..., Kept]) -> None:
    """It stays one in a container whose first process does not wait for those that have ended."""
    kept = start(reaps=False)
    assert client.run_in_keeper(["run", "a.yaml"]) == 2
    message = f"ended what was kept warm for this folder (process {kept.process})"
    assert client.stop_keeper() == message
    assert kept.wait() == 0


def test_if_it_dies_the_command_says_so(
    start: Callable[..., Kept], capfd: pytest.CaptureFixture[str]
) -> None:
    kept = start(wait_for_signal)
    killer = threading.Thread(target=_kill_when_ready, args=(kept.process,))
    killer.start()
    assert client.run_in_keeper(["run", "a.yaml", "--json"]) == 1
    killer.join()
    said = capfd.readouterr()
    assert "error: the process that kept Ray warm and ran this command has ended" in said.err
    document = json.loads(said.out)
    assert document["exit_code"] == 1
    assert document["error"][0]["is"].startswith("the process that kept Ray warm")


def test_if_it_dies_without_reading_a_signal_the_command_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The system then says that the connection was reset, rather than that it has ended."""
    ours, its = socket.socketpair()
    keeper = Keeper(ours)
    ours.sendall(bytes([signal.SIGINT]))
    its.close()
    assert keeper.follow() == 1
    assert "the process that kept Ray warm and ran this command has ended" in capfd.readouterr().err


def _kill_when_ready(process: int) -> None:
    until(Path("ready").exists)
    os.kill(process, signal.SIGKILL)


def test_an_exception_of_a_command_ends_that_command_alone(
    start: Callable[..., Kept], capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: Sequence[str], program: str) -> int:
        raise ValueError("a fault of ours")

    start(fail)
    assert [client.run_in_keeper(["run", "a.yaml"]) for _ in range(2)] == [1, 1]
    assert capfd.readouterr().err.count("ValueError: a fault of ours") == 2


def test_who_connects_and_says_nothing_keeps_nobody_waiting(
    start: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_process, "REQUEST_S", 600.0)
    kept = start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(str(kept.place))
        keeper = Keeper.find(kept.place)
        assert keeper is not None
        assert keeper.ask("look") == {"process": kept.process, "is_busy": False}


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0\5hello", b"\xff\xff\xff\xff{}", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_is_dropped(start: Callable[..., Kept], content: bytes) -> None:
    kept = start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as strange:
        strange.connect(str(kept.place))
        strange.sendall(content)
        strange.shutdown(socket.SHUT_WR)
        strange.settimeout(10)
        with suppress(ConnectionResetError):  # it was closed before all was read
            assert strange.recv(1) == b""
    assert client.run_in_keeper(["run", "a.yaml"]) == 2


def test_a_request_arrives_as_it_was_sent() -> None:
    request: dict[str, Any] = {"arguments": ["x" * 300_000], "environment": {"A": "ü"}}
    one, other = socket.socketpair()
    with one, other:
        sender = threading.Thread(target=messages.send_request, args=(one, request, (0, 1, 2)))
        sender.start()
        received = messages.receive_request(other)
        sender.join()
        assert messages.is_own(one)
    assert received is not None
    assert received[0] == request
    assert [os.fstat(stream) for stream in received[1]] == [
        os.fstat(number) for number in (0, 1, 2)
    ]
    for stream in received[1]:
        os.close(stream)


def test_the_streams_of_a_request_that_breaks_off_are_closed() -> None:
    open_before = len([*Path("/proc/self/fd").iterdir()])
    one, other = socket.socketpair()
    with one, other:
        socket.send_fds(one, [struct.pack("!I", 10)], [0, 1, 2])
        other.settimeout(0.01)
        with pytest.raises(TimeoutError):
            messages.receive_request(other)
    assert len([*Path("/proc/self/fd").iterdir()]) == open_before


def test_the_streams_of_a_refused_command_that_is_gone_are_closed(
    start: Callable[..., Kept],
) -> None:
    """Otherwise the next program of its pipeline would wait for the keeper to end."""
    kept = start(wait_for_signal)
    keeper = Keeper.find(kept.place)
    assert keeper is not None
    assert keeper.request(["run", "a.yaml"]) is None
    reads, writes = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.connect(str(kept.place))
        gone.shutdown(socket.SHUT_RD)  # so that it certainly is gone when it is answered
        messages.send_request(gone, {"arguments": ["run", "b.yaml"]}, (writes, writes, writes))
    os.close(writes)
    assert select.select([reads], [], [], 10)[0], "the keeper has them still"
    assert os.read(reads, 1) == b""
    os.close(reads)
    keeper.close()


@pytest.mark.parametrize(
    "name", ["the umask", "the working folder", "its niceness", "the cores that it may use"]
)
def test_what_a_process_inherits_must_be_the_same(
    start: Callable[..., Kept],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
) -> None:
    kept = start()
    assert client.run_in_keeper(["run", "a.yaml"]) == 2
    other = {**places.describe_process(), name: 99}
    monkeypatch.setattr(places, "describe_process", lambda: other)
    assert client.run_in_keeper(["run", "a.yaml"]) is None
    assert f"the warm Ray of this folder ends: {name} is another" in capfd.readouterr().err
    assert kept.wait() == 0


def test_variables_that_a_command_has_set_are_gone_in_the_next(
    start: Callable[..., Kept], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(arguments: Sequence[str], program: str) -> int:
        os.write(1, f"{os.environ.get('OURS')} {os.environ.get('THEIRS')}\n".encode())
        os.environ["OURS"] = "1"
        os.environ.pop("THEIRS", None)
        return 0

    monkeypatch.setenv("THEIRS", "2")
    start(change)
    assert [client.run_in_keeper(["run", "a.yaml"]) for _ in range(2)] == [0, 0]
    assert capfd.readouterr().out == "None 2\n" * 2


def test_a_command_that_ends_its_process_at_once_has_its_exit_code(
    start: Callable[..., Kept],
) -> None:
    def leave(arguments: Sequence[str], program: str) -> int:
        interruption.exit_now("stopped at once")
        return 0

    start(leave)
    assert client.run_in_keeper(["run", "a.yaml"]) == interruption.CODE


def test_after_tensorflow_was_imported_nothing_is_kept(start: Callable[..., Kept]) -> None:
    def test_best_models(arguments: Sequence[str], program: str) -> int:
        sys.modules["tensorflow"] = sys
        return 0

    kept = start(test_best_models)
    assert client.run_in_keeper(["run", "a.yaml"]) == 0
    assert kept.wait() == 0


def test_what_a_broken_pipe_has_left_does_not_reach_the_next_command(
    start: Callable[..., Kept], tmp_path: Path
) -> None:
    def speak(arguments: Sequence[str], program: str) -> int:
        output.prepare_streams()
        print(arguments[1], end="")  # noqa: T201  # into a buffer
        with suppress(OSError):
            sys.stdout.flush()
        return 0

    kept = start(speak)
    for word, stream in (("old", "/dev/full"), ("new", str(tmp_path / "out"))):
        keeper = Keeper.find(kept.place)
        assert keeper is not None
        with open(stream, "w") as file:  # noqa: PTH123  # a device
            saved = os.dup(1)
            os.dup2(file.fileno(), 1)
            try:
                assert keeper.request(["run", word]) is None
            finally:
                os.dup2(saved, 1)
                os.close(saved)
            assert keeper.follow() == 0
    assert (tmp_path / "out").read_text() == "new"


def test_two_first_commands_share_one_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(prefix="k-"))
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "START_S", 90.0)  # three processes import Ray at once
    place = places.find_place()
    assert place is not None
    found: list[Keeper | None] = []
    starts = [threading.Thread(target=lambda: found.append(Keeper.start(place))) for _ in range(3)]
    for one in starts:
        one.start()
    for one in starts:
        one.join()
    answers = []
    for keeper in found:
        assert keeper is not None
        answers.append(keeper.ask("look"))
    assert len({answer["process"] for answer in answers if answer is not None}) == 1
    assert None not in answers
    monkeypatch.setattr(client, "END_S", 1.0)
    # this process has started it, and must ask for its end
    assert "kept warm for this folder" in client.stop_keeper()
    (process,) = {answer["process"] for answer in answers if answer is not None}
    os.waitpid(process, 0)


def test_a_command_that_is_gone_before_its_answer_keeps_no_other_out(
    start: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-C just then."""
    send_answer = messages.send_answer

    def fail_once(connection: socket.socket, **answer: Any) -> None:
        if answer.get("accepted") and not Path("failed").exists():
            Path("failed").touch()
            raise BrokenPipeError
        send_answer(connection, **answer)

    monkeypatch.setattr(messages, "send_answer", fail_once)  # in the keeper, which is a fork
    start()
    assert client.run_in_keeper(["run", "a.yaml"]) is None
    assert Path("failed").exists()
    assert client.run_in_keeper(["run", "a.yaml"]) == 2
