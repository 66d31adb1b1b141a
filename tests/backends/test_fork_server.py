"""The fork server and its client, with a worker that runs the code in its first argument."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import processes
import pytest

from sweep import forking
from sweep.backends.ray_tune import fork_client, fork_server, local_ray
from sweep.backends.ray_tune.fork_client import LENGTH
from sweep.contract import Devices
from sweep.forking import ForkServer
from sweep.spec.blocks import Resources

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forks on Linux alone"),
    pytest.mark.usefixtures("default_sighup"),
]

SERVER = """
import gc, json, os, signal, sys, time
from sweep.backends.ray_tune import fork_server
fork_server.ALWAYS = ()
fork_server._read_ray_settings = lambda: None
fork_server.run_worker = lambda arguments: exec(arguments[0], {**globals(), "asked": arguments[1:]})
fork_server.main()
"""
CLIENT = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv.pop(1)).parent))
import fork_client
fork_client.run_worker = lambda arguments: print("by itself", *arguments)
fork_client.main()
"""

Popen = subprocess.Popen[str]


class Served:
    """A server and its clients."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.name = f"sweep-test-{uuid.uuid4().hex}"
        self.server: Popen | None = None

    def start(self, *modules: str, path: Path | None = None, **options: Any) -> Popen:
        search_path = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": search_path} if path else None
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER, self.name],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,
        )
        self._stack.callback(self.end, self.server)
        assert self.server.stdin is not None
        self.server.stdin.write("".join(f"{name}\n" for name in (*modules, "")))
        self.server.stdin.flush()
        until = time.monotonic() + 60
        while (
            f"@{self.name}\n" not in Path("/proc/net/unix").read_text()
            and self.server.poll() is None
        ):
            assert time.monotonic() < until
            time.sleep(0.02)
        return self.server

    def client(self, *arguments: str, **options: Any) -> Popen:
        environment = {**options.pop("env", os.environ), fork_client.SERVER_VARIABLE: self.name}
        client = subprocess.Popen(
            [sys.executable, "-S", "-c", CLIENT, fork_client.__file__, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,
        )
        self._stack.callback(self.end, client)
        return client

    @staticmethod
    def end(process: Popen) -> None:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(stack)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    """A process that exists and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


ABOUT = """
print(json.dumps({
    "asked": asked, "folder": os.getcwd(), "x": os.environ.get("X"), "home": os.environ.get("HOME"),
    "group": os.getpgrp(), "parent": os.getppid(), "input": sys.stdin.read(),
    "blocked": [int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "interrupts": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "collects": gc.isenabled(), "frozen": gc.get_freeze_count() > 0,
}))
print("told", file=sys.stderr)
sys.exit(7)
"""


def test_a_worker_has_what_its_client_has(served: Served, tmp_path: Path) -> None:
    server = served.start()
    client = served.client(
        ABOUT, "--a=1", "b c", cwd=tmp_path, env={"X": "ä\udc80"}, process_group=0
    )
    output, errors = client.communicate(timeout=60)
    assert (client.returncode, errors) == (7, "told\n")
    found = json.loads(output)
    assert found["asked"] == ["--a=1", "b c"]
    assert (found["folder"], found["x"], found["home"], found["input"]) == (
        str(tmp_path),
        "ä\udc80",
        None,
        "",
    )
    assert (found["group"], found["parent"]) == (client.pid, server.pid)
    assert (found["blocked"], found["interrupts"]) == ([], True)
    assert (found["collects"], found["frozen"]) == (True, True)


def test_signals_that_a_client_blocks_are_blocked(served: Served) -> None:
    served.start()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        client = served.client(ABOUT)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert json.loads(client.communicate(timeout=60)[0])["blocked"] == [signal.SIGINT]


def test_workers_run_beside_each_other_and_have_random_numbers_of_their_own(served: Served) -> None:
    served.start("numpy")
    draw = "import random, numpy; print(random.random(), numpy.random.rand()); sys.stdout.flush(); time.sleep(0.3)"
    clients = [served.client(draw) for _ in range(3)]
    outputs = [client.communicate(timeout=60)[0] for client in clients]
    numbers = {number for output in outputs for number in output.split()}
    assert [client.returncode for client in clients] == [0, 0, 0]
    assert len(numbers) == 6


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("raise RuntimeError", 1),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_a_client_ends_as_its_worker(served: Served, code: str, expected: int) -> None:
    served.start()
    client = served.client(code)
    client.communicate(timeout=60)
    assert client.returncode == expected


def sleeper(served: Served, **options: Any) -> tuple[Popen, int]:
    """A client and its worker, which sleeps."""
    client = served.client("print(os.getpid()); sys.stdout.flush(); time.sleep(300)", **options)
    assert client.stdout is not None
    return client, int(client.stdout.readline())


def test_another_child_of_the_server_may_end(served: Served, tmp_path: Path) -> None:
    """For example, a library may start a helper when it is imported."""
    (tmp_path / "helped.py").write_text(
        "import subprocess\nhelper = subprocess.Popen(['sleep', '300'])\nprint(helper.pid, file=open('pid', 'w'))"
    )
    server = served.start("helped", path=tmp_path, cwd=tmp_path)
    first, worker = sleeper(served)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert served.client("pass").wait(60) == 0
    assert server.poll() is None
    assert is_alive(worker)
    assert first.poll() is None


def test_a_worker_ends_with_its_client(served: Served) -> None:
    served.start()
    (first, worker), (second, other) = sleeper(served), sleeper(served)
    first.kill()
    wait_until(lambda: not is_alive(worker))
    assert is_alive(other)
    assert second.poll() is None


def test_a_client_ends_with_its_parent(served: Served) -> None:
    served.start()
    script = f"import subprocess, sys; subprocess.run({[sys.executable, '-S', '-c', CLIENT, fork_client.__file__]!r} + "
    script += "['print(os.getpid()); sys.stdout.flush(); time.sleep(300)'])"
    environment = {**os.environ, fork_client.SERVER_VARIABLE: served.name}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    wait_until(lambda: not is_alive(worker))
    Served.end(parent)


def test_the_server_ends_when_its_input_is_closed_and_clients_see_it(served: Served) -> None:
    server = served.start()
    client, worker = sleeper(served)
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(30) == 0
    assert client.wait(30) == 1
    assert is_alive(worker)  # Ray's workers look whether RAY_RAYLET_PID lives, which is the server
    os.kill(worker, signal.SIGKILL)


def test_without_a_server_the_client_is_the_worker(served: Served) -> None:
    assert served.client("a").communicate(timeout=60)[0] == "by itself a\n"


def test_a_module_that_cannot_be_imported_is_left_to_the_worker(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("raise OSError")
    (tmp_path / "whole.py").write_text("import os\nprocess = os.getpid()")
    server = served.start("broken", "missing", "whole", path=tmp_path)
    client = served.client("import whole; print(whole.process)")
    assert client.communicate(timeout=60)[0] == f"{server.pid}\n"


def test_after_threads_were_started_nothing_is_forked(served: Served, tmp_path: Path) -> None:
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(300,), daemon=True).start()"
    (tmp_path / "threaded.py").write_text(text)
    server = served.start("threaded", path=tmp_path)
    assert served.client("a").communicate(timeout=60)[0] == "by itself a\n"
    assert server.wait(30) == 1
    assert server.stderr is not None
    assert (
        "libraries have started threads, which a fork would not have: python"
        in server.stderr.read()
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_other_users_are_not_served(served: Served, tmp_path: Path) -> None:
    served.start()
    script = "import os, socket, sys; os.setuid(65534)\n"
    script += (
        "one = socket.socket(socket.AF_UNIX); one.connect('\\0' + sys.argv[1]); print(one.recv(9))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, served.name], capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "b''\n"


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (Devices(), True),
        (Devices(gpus=1, simulated=True), True),
        (Devices(gpus=1), False),
        (Devices(gpus=0.5), False),
    ],
)
def test_workers_with_gpus_are_no_forks(devices: Devices, expected: bool) -> None:
    assert forking.can_fork(devices.real_gpus) is expected
    with (
        forking.serving(1.0, 1.0, (), print) as server,
        local_ray.forking_workers(server, print) as forked,
    ):
        assert (server, forked) == (None, False)


class Recorded:
    """A fork server that starts no process."""

    def __init__(self, cpus: float) -> None:
        self.calls: list[Any] = [cpus]
        self.threads = int(cpus)
        self.failure = ""

    def import_modules(self, modules: Any) -> None:
        self.calls.append(modules)

    def serve(self) -> None:
        pass

    def describe_failure(self) -> str:
        return self.failure

    def close(self) -> None:
        self.calls.append("closed")


def test_a_server_that_was_started_early_is_used_and_ends_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forking, "ForkServer", Recorded)
    said: list[str] = []
    with forking.starting_early(2.0):
        with forking.serving(2.0, 0.0, ("keras",), said.append) as first:
            pass
        with forking.serving(2.0, 0.0, ("keras",), said.append) as second:
            assert second is first
        assert isinstance(first, Recorded)
        first.failure = "no memory"
        with forking.serving(2.0, 0.0, (), said.append):
            pass
        assert first.calls == [2.0, ("keras",), ("keras",), ()]
    assert first.calls[-1] == "closed"
    assert said == [
        "workers have imported their libraries by themselves, which takes longer: no memory"
    ]
    with forking.serving(1.0, 0.0, (), said.append) as third:
        assert third is not first
    assert isinstance(third, Recorded)
    assert third.calls == [1.0, (), "closed"]


def test_a_server_for_other_trials_than_the_files_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Recorded] = []

    def start(cpus: float) -> Recorded:
        started.append(Recorded(cpus))
        return started[-1]

    monkeypatch.setattr(forking, "ForkServer", start)
    with forking.starting_early():
        with forking.starting_early(1.5):  # once the file is read: the same number of threads
            assert [one.calls for one in started] == [[1.0]]
        with forking.starting_early(2.0):
            forking.import_early(("numpy",))
            assert [one.calls for one in started] == [[1.0, "closed"], [2.0, ("numpy",)]]
        with forking.serving(3.0, 0.0, ("keras",), print) as server:
            assert server is started[2]
        with forking.starting_early(3.0, gpus=1.0):
            assert [one.calls for one in started] == [
                [1.0, "closed"],
                [2.0, ("numpy",), "closed"],
                [3.0, ("keras",), "closed"],
            ]
    with forking.starting_early(3.0):
        assert len(started) == 4
    assert started[3].calls == [3.0, "closed"]


def test_the_usual_number_of_cpus_is_that_of_a_sweep_file() -> None:
    assert Resources().cpus == forking.USUAL_CPUS


def test_a_server_that_cannot_be_started_early_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(cpus: float) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(forking, "ForkServer", fail)
    with forking.starting_early():
        monkeypatch.setattr(forking, "ForkServer", Recorded)
        with forking.serving(1.0, 0.0, ("keras",), print) as server:
            assert isinstance(server, Recorded)


def test_the_early_start_imports_nothing_that_takes_time() -> None:
    script = "import sys; from sweep import __main__; print(*{'numpy', 'ray', 'pydantic', 'click'} & {*sys.modules})"
    assert (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout
        == "\n"
    )


def test_a_server_lives_on_if_the_terminal_is_closed() -> None:
    with closing(ForkServer(1.0)) as server:
        (process,) = [one for one in processes.below(os.getpid()) if server.name in one.title]
        os.kill(process.pid, signal.SIGHUP)
        server.serve()
        time.sleep(0.2)
        assert server.describe_failure() == ""


def test_why_a_server_has_failed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    server = ForkServer(1.0)
    wait_until(lambda: server.describe_failure() != "")
    assert server.describe_failure() == "exit code 1"
    server.import_modules(["keras"])
    server.close()


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_server_that_cannot_be_started_leaves_no_open_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    before = count_open_files()
    with pytest.raises(OSError, match="absent"):
        ForkServer(1.0)
    assert count_open_files() == before


@pytest.mark.parametrize("sent", [b"", b"\0", LENGTH.pack(9), LENGTH.pack(9) + b"{"])
def test_a_request_that_is_incomplete_leaves_no_open_file(sent: bytes) -> None:
    server, client = socket.socketpair()
    with server:
        with client:
            if sent:
                socket.send_fds(client, [sent], [1, 2])
        before = count_open_files()
        assert fork_server.receive_request(server) is None
        assert count_open_files() == before


def test_modules_may_be_named_before_the_others(tmp_path: Path) -> None:
    """A real server imports what it is told at once, and serves only when it is told to."""
    for name in ("early", "late"):
        (tmp_path / f"{name}.py").write_text(
            f"from pathlib import Path; Path({str(tmp_path / name)!r}).touch()"
        )
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        server = ForkServer(1.0)
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    try:
        server.import_modules(["early"])
        wait_until((tmp_path / "early").exists)
        assert not (tmp_path / "late").exists()
        server.import_modules(["late"])
        server.serve()
        server.import_modules(["never"])  # would be taken for a request to end
        server.serve()
        wait_until((tmp_path / "late").exists)
        assert server.describe_failure() == ""
    finally:
        server.close()


def test_a_worker_records_what_it_reads_and_the_server_does_not(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "whole.py").write_text(
        "from sweep.read_recorder import recorder\nwas_paused = recorder._is_paused\n"
    )
    served.start("whole", path=tmp_path)
    (tmp_path / "author.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'data')!r}).exists()\n"
    )
    code = f"""import sys
sys.path.insert(0, {str(tmp_path)!r})
import author, whole
from sweep.read_recorder import recorder
print(whole.was_paused, recorder.digest_of_module({str(tmp_path / "author.py")!r}) is not None)"""
    client = served.client(code)
    assert client.communicate(timeout=60)[0] == "True True\n"
