"""How workers die, and what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from placed import without_place

import sweep
from sweep.backends import Job
from sweep.backends.ray_tune import worker_exits
from sweep.space.objectives import Objective

ROOT = Path(__file__).parents[2]
LOST = "The actor died unexpectedly before finishing this task.\n\tclass_name: A\n\tpid: 42\n\tip: 10.0.0.7\n"
SILENT = f"{LOST}Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
OTHERS = '\n\nThread 0x2 (most recent call first):\n  File "threading.py", line 327 in wait\n'
STACK = '\n\nCurrent thread 0x1 (most recent call first):\n  File "net.py", line 11 in train\n'


TAKEN = "Node Id: 1\n\tthe actor's node was preempted: spot"
ENDED = "Node Id: 1\n\tthe actor's node was terminated expectedly: received SIGTERM"
LIKELY = "its node has died. This can happen if the node was preempted, had a hardware failure, or its raylet crashed"


def job(folder: Path) -> Job:
    return Job("s", "m:M", (), folder, Objective("loss", "minimize"))


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (SILENT, "worker"),
        ("Task was killed due to the node running low on memory.", "worker"),
        (f"{LOST}The actor died because its node has died. Node Id: 1", "node"),
        ("The actor 9f is unavailable: The actor is temporarily unavailable: RpcError: x", "node"),
        ("Traceback\nsweep.errors.WorkerLost: rank 1: its node is gone\n", "node"),
        (f"{LOST}The actor died because its node has died. {TAKEN}", "preempted"),
        ("Traceback\nsweep.errors.WorkerLost: rank 1: its node was taken away\n", "preempted"),
        (f"{LOST}The actor died because its node has died. {ENDED}", "node"),
        (LIKELY, "node"),
    ],
)
def test_what_was_lost(error: str, lost: str) -> None:
    assert worker_exits.classify_loss(error) == lost


@pytest.mark.parametrize(
    ("error", "words", "cause"),
    [
        (
            SILENT,
            "",
            "killed from outside (SIGKILL or SIGTERM), as the kernel does where memory runs out",
        ),
        (
            LOST,
            None,
            "killed from outside (SIGKILL or SIGTERM), as the kernel does where memory runs out",
        ),
        (SILENT, "exit code 9\n", "exit code 9"),
        (SILENT, f"Fatal Python error: Segmentation fault{STACK}", "SIGSEGV in train, net.py:11"),
        (
            SILENT,
            f"Fatal Python error: Segmentation fault{OTHERS}{STACK}",
            "SIGSEGV in train, net.py:11",
        ),
        (SILENT, "Fatal Python error: Aborted\n", "SIGABRT"),
        (
            SILENT,
            f'Timeout (0:01:05)!{OTHERS}\nThread 0x1 (most recent call first):\n  File "met.py", line 7 in meet\n',
            "the other workers have not come within 0:01:05 (in meet, met.py:7)",
        ),
        (
            "Traceback\nsweep.errors.WorkerLost: rank 1: its node is gone\n",
            None,
            "rank 1: its node is gone",
        ),
        (f"{LOST}Worker exits with an exit code 3.", "", "exit code 3"),
        (f"{LOST}Worker exits with an exit code 1. The process receives a SIGTERM.", "", "SIGTERM"),
        (f"{LOST}The actor died because its node has died. Node Id: 1", "", "its node is gone"),
        (f"{LOST}The actor died because its node has died. {TAKEN}", "", "its node was taken away"),
        (f"{LOST}The actor died because its node has died. {ENDED}", "", "its node was ended"),
        (
            "The actor 9f is unavailable: The actor is temporarily unavailable: RpcError: x",
            "",
            "its node does not answer",
        ),
        (
            "Task was killed due to the node running low on memory.\nMore.",
            "",
            "Ray's memory monitor killed it",
        ),
        (
            "\x1b[36mray::A.go()\x1b[39m (pid=42, ip=10.0.0.7)\n  File",
            "",
            "ray::A.go() (pid=42, ip=10.0.0.7)",
        ),
        ("", "", "no reason is known"),
    ],
)
def test_the_cause_is_named(tmp_path: Path, error: str, words: str | None, cause: str) -> None:
    if words is not None:
        worker_exits.get_exits_folder(job(tmp_path)).mkdir()
        (worker_exits.get_exits_folder(job(tmp_path)) / "10.0.0.7-42").write_text(
            f"trial 1\ntrial 3\n{words}"
        )
        (worker_exits.get_exits_folder(job(tmp_path)) / "10.0.0.7-43").write_text("trial 3\n")
        (worker_exits.get_exits_folder(job(tmp_path)) / "10.0.0.8-42").write_text(
            "trial 3\ntrial 4\nexit code 99\n"
        )
    assert worker_exits.explain_loss(job(tmp_path), 3, error) == cause


def test_a_path_is_not_taken_for_the_number_of_a_trial(tmp_path: Path) -> None:
    place = worker_exits.get_exits_folder(job(tmp_path))
    place.mkdir()
    stack = STACK.replace("net.py", "/home/me/trial runs/net.py")
    (place / "10.0.0.7-42").write_text(f"trial 3\nFatal Python error: Segmentation fault{stack}")
    assert worker_exits.explain_loss(job(tmp_path), 3, SILENT).startswith("SIGSEGV in train")


def test_words_count_once(tmp_path: Path) -> None:
    worker_exits.get_exits_folder(job(tmp_path)).mkdir()
    (worker_exits.get_exits_folder(job(tmp_path)) / "10.0.0.7-42").write_text(
        "trial 3\nexit code 9\n"
    )
    causes = [worker_exits.explain_loss(job(tmp_path), 3, SILENT) for _ in range(2)]
    assert causes[0] == "exit code 9"
    assert causes[1].startswith("killed")


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("os._exit(7)", "exit code 7"),
        ("os.abort()", "SIGABRT in <module>, <string>:"),
        ("ctypes.string_at(0)", "SIGSEGV in string_at"),
        # a child's exit is not the worker's
        (
            "os.fork() == 0 and os._exit(3); os.wait()",
            "killed",
        ),
    ],
)
def test_a_process_leaves_its_last_words(tmp_path: Path, how: str, cause: str) -> None:
    code = (
        "import ctypes, os\nfrom pathlib import Path\nfrom sweep.backends.ray_tune import worker_exits\n"
        "from sweep.backends import Job\nfrom sweep.space.objectives import Objective\n"
        f"job = Job('s', 'm:M', (), Path({str(tmp_path)!r}), Objective('loss', 'minimize'))\n"
        f"worker_exits.record_exit(job)(3)\n{how}\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True)
    assert worker_exits.explain_loss(job(tmp_path), 3, SILENT).startswith(cause)


def test_a_session_keeps_them_for_itself(tmp_path: Path) -> None:
    place = worker_exits.get_exits_folder(job(tmp_path))
    place.mkdir()
    (place / "10.0.0.7-42").write_text("exit code 1")
    with worker_exits.make_exits_folder(job(tmp_path)):
        assert not place.exists()
        place.mkdir()
    assert not place.exists()


DYING = """
import ctypes, os, signal, sys, time
from sweep.contract import EpochReported, Facts
READS = ("how",)
class Dying:
    def begin(self, assignment):
        self.given = assignment
    def train(self, report):
        match self.given.params["how"]:
            case "exit": os._exit(9)
            case "kill": os.kill(os.getpid(), signal.SIGKILL)
            case "segv": ctypes.string_at(0)
            case "term": os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)
            case "interrupt": raise KeyboardInterrupt
            case "colour": raise ValueError("\\x1b[31mred\\x1b[0m\\x1b]0;title\\x07 \\x07bell")
        report(EpochReported(trial=0, epoch=1, metrics={"loss": 1.0}, time=1.0, time_s=0.1))
    def save(self, folder): pass
    def restore(self, folder): return 1
    def facts(self): return Facts()
"""
FILE = """
trainable: dying:Dying
method: grid
metric: {name: loss}
parameters: {how: {values: [exit, kill, segv, term, interrupt, colour, live]}}
epochs: 1
max_failures: 99
max_restarts: 0
"""


@pytest.mark.ray
@pytest.mark.slow
def test_each_death_of_a_worker_is_told_by_its_cause(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    (tmp_path / "dying.yaml").write_text(FILE)
    environment = {**os.environ, "HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "sweep", "run", "dying.yaml"]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=1500, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    trials = sweep.load(tmp_path / "results" / "dying").trials.set_index("param.how")
    assert dict(trials["status"]) == {**dict.fromkeys(trials.index, "failed"), "live": "completed"}
    reasons = {
        how: without_place(reason).removesuffix(", after 0 restarts")
        for how, reason in trials["status_reason"].items()
    }
    assert reasons.pop("segv").startswith("worker lost: SIGSEGV in string_at, ")
    assert reasons == {
        "exit": "worker lost: exit code 9",
        "kill": "worker lost: killed from outside (SIGKILL or SIGTERM), as the kernel does where memory runs out",
        "term": "worker lost: killed from outside (SIGKILL or SIGTERM), as the kernel does where memory runs out",
        "interrupt": "KeyboardInterrupt: ",
        "colour": "ValueError: red \\x07bell",
        "live": "",
    }
    assert [line for line in (ran.stdout + ran.stderr).splitlines() if "\x1b" in line] == []
    assert (
        "A worker died or was killed" in (tmp_path / "results" / "dying" / "debug.log").read_text()
    )
    assert not (tmp_path / "results" / "dying" / "workers").exists()
    token = tmp_path / "home" / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o777 == 0o600
