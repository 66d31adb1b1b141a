"""``run --detach``, ``wait`` and ``run --events``: sweeps that a program starts, follows and waits for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from waiting import PATIENCE_S, until
from walking import SLOW, write_project

from sweep.cli import main

ENDLESS = ["--set", "trainable=walk:Slow", "--set", "epochs=100000"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_project(tmp_path, code=SLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_sweep_in_the_background_is_watched_waited_for_and_stopped(project: Path) -> None:
    code, out, _ = call("run", "first.yaml", "--inline", "--detach", "--json", *ENDLESS)
    assert code == 0
    found = json.loads(out)
    process = found["process"]
    assert os.getsid(process) == process  # a session of its own
    assert (found["sweep"], found["stop"]) == ("first", "python -m sweep stop first")
    until(lambda: call("status", "first")[1].startswith("first  running"))
    # the log grows, but not by the session of another process
    driver_log = (project / "results" / "first" / "driver.log").stat().st_ino
    code, out, err = call("resume", "first", "--inline", "--detach", "--json")
    assert (code, json.loads(out)["exit_code"]) == (4, 4)
    assert f"the sweep is being run by process {process}" in err
    assert (project / "results" / "first" / "driver.log").stat().st_ino == driver_log
    code, out, err = call("wait", "first", "--timeout", "0", "--json")
    waited = json.loads(out)
    assert (code, waited["exit_code"], waited["reached"], waited["state"]) == (
        124,
        124,
        False,
        "running",
    )
    assert "error: first: not finished after" in err
    assert call("stop", "first", "--now")[0] == 0
    code, out, err = call("wait", "first", "--interval", "0.1")
    assert (code, out) == (1, "")
    assert (
        err
        == "error: first: is not running, and not finished; go on with: python -m sweep resume first\n"
    )
    until(lambda: not _is_alive(process))
    assert not list((project / "results").glob(".*"))


def _is_alive(process: int) -> bool:
    try:
        return os.waitpid(process, os.WNOHANG) == (0, 0)
    except ChildProcessError:  # it was waited for
        return False


def test_waiting_ends_with_the_sweep(project: Path) -> None:
    code, out, _ = call("run", "first.yaml", "--inline", "--detach", "--no-memo")
    assert (code, out.splitlines()[1:4]) == (
        0,
        [
            "watch    python -m sweep status first --watch",
            "wait     python -m sweep wait first",
            "stop     python -m sweep stop first",
        ],
    )
    assert call("wait", "first", "--interval", "0.1")[0] == 0
    assert call("wait", "first", "--until", "trials=2")[0] == 0
    assert call("wait", "first", "--until", "best<100", "--interval", "0.1")[0] == 0
    code, out, _ = call("wait", "first", "--until", "verdict", "--interval", "0.1", "--json")
    assert (code, json.loads(out)["error"][0]["is"]) == (1, "is not running, and not verdict")
    until(
        lambda: (
            "results  results/first" in (project / "results" / "first" / "driver.log").read_text()
        )
    )
    assert call("resume", "first", "--detach", "--inline", "--run-cap", "2")[0] == 0


def test_a_start_that_fails_is_visible(project: Path) -> None:
    assert call("run", "first.yaml", "--inline", "-q")[0] == 0
    code, out, err = call("run", "first.yaml", "--inline", "--detach", "--json")
    assert (code, json.loads(out)["exit_code"]) == (4, 4)
    assert err.startswith("error: results/first: holds a sweep already")
    # as one that does not start in the background
    code, alone, _ = call("run", "first.yaml", "--inline", "--json")
    assert (code, json.loads(alone)) == (4, json.loads(out))
    assert json.loads(out)["error"][0]["where"] == "results/first"
    code, _, err = call(
        "run", "first.yaml", "--detach", "--name", "other", "--address", "127.0.0.1:1"
    )
    assert (code, "127.0.0.1:1" in err) == (2, True)
    assert call("run", "first.yaml", "--detach", "--set", "trainable=nowhere:X")[0] == 2
    assert not (project / "results" / "other").exists()
    assert not list((project / "results").glob(".*"))


def test_events_are_all_that_standard_output_has(project: Path) -> None:
    command = [sys.executable, "-m", "sweep", "run", "first.yaml", "--inline", "--events"]
    ran = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
    assert ran.stdout == (project / "results" / "first" / "log.jsonl").read_bytes()
    again = [
        sys.executable,
        "-m",
        "sweep",
        "run",
        "first.yaml",
        "--inline",
        "--events",
        "--or-resume",
    ]
    ran = subprocess.run(again, capture_output=True, timeout=PATIENCE_S, check=True)
    kinds = [json.loads(line)["event"] for line in ran.stdout.splitlines()]
    assert kinds == ["session_started", "session_ended"]  # those of earlier sessions are in the log


def test_a_sweep_outlives_the_reader_of_its_events(project: Path) -> None:
    command = [sys.executable, "-m", "sweep", "run", "first.yaml", "--inline", "--events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert b"session_started" in driver.stdout.readline()
        driver.stdout.close()
        assert driver.wait(PATIENCE_S) == 0
    assert json.loads(call("status", "first", "--json")[1])["trials"] == {"completed": 2}


def test_ctrl_c_while_it_waits(project: Path) -> None:
    call("run", "first.yaml", "--inline", "-q")
    lock = project / "results" / "first" / "lock"
    holder = "import sys, time; from sweep.store.folder import ResultsFolder as R; from pathlib import Path\n"
    holder += (
        "with R(Path('results/first')).lock():\n    print('held', flush=True); time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        waiter = subprocess.Popen(
            [sys.executable, "-m", "sweep", "wait", "first", "--until", "trials=9"]
        )
        with waiter:
            time.sleep(1.0)
            while waiter.poll() is None:  # until it is past its start
                waiter.send_signal(signal.SIGINT)
                time.sleep(0.5)
            assert waiter.returncode in (130, -signal.SIGINT)
        driver.kill()
    assert lock.exists()


def test_trials_of_a_status(project: Path) -> None:
    call("run", "first.yaml", "--inline", "-q")
    code, out, _ = call("status", "first", "--trials")
    rows = out.split("\n\n")[1].splitlines()
    assert (code, rows[0].split()) == (0, ["trial", "status", "epochs", "loss", "took", "rate"])
    assert [row.split()[:3] for row in rows[1:]] == [
        ["0", "completed", "2"],
        ["1", "completed", "2"],
    ]
    found = json.loads(call("status", "first", "--trials", "--json")[1])
    assert [trial["params"]["rate"] for trial in found["each"]] == [0.1, 0.3]
    assert json.loads(call("status", "first", "--json")[1])["each"] is None


def test_what_does_not_go_together(project: Path) -> None:
    for line in ("--json --events", "--events --detach"):
        code, _, err = call("run", "first.yaml", "--inline", *line.split())
        assert (code, "leave one of them out" in err) == (2, True)
