"""``status --watch`` and the view of ``run`` on a real pseudo-terminal, and what they write elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from waiting import PATIENCE_S, until
from walking import SLOW, write_project

from sweep.cli import main

HELD = """

class Held(Walk):
    @property
    def PAUSE_S(self):
        if self.done == 3 and not os.path.exists("go"):
            time.sleep(1.1)  # a step ends
        while self.done == 4 and not os.path.exists("go"):
            time.sleep(0.01)
        return 0.0
"""
FILE = """
trainable: walk:Walk
method: random
metric: {name: loss, goal: minimize}
parameters: {rate: {min: 0.1, max: 0.3}, drag: {value: 0.5}}
epochs: 4
run_cap: 4
"""
SEQUENCES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_project(tmp_path, code=SLOW + HELD, file=FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


class OnTerminal:
    """A command on a pseudo-terminal."""

    def __init__(
        self, *arguments: str, columns: int = 80, lines: int = 24, **environment: str
    ) -> None:
        self.leader, follower = pty.openpty()
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sweep", *arguments],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            env={
                **os.environ,
                "TERM": "xterm",
                "LANG": "C.UTF-8",
                "PYTHONWARNINGS": "error",
                **environment,
            },
        )
        os.close(follower)
        self.output = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, enough: Callable[[str], bool]) -> str:
        """Read until the output is enough, or the command ends."""
        deadline = time.monotonic() + PATIENCE_S
        while not enough(self.output):
            assert time.monotonic() < deadline, self.output[-3000:]
            if select.select([self.leader], [], [], 0.2)[0]:
                try:
                    self.output += os.read(self.leader, 1 << 16).decode()
                except OSError:  # it has ended
                    break
        return self.output

    def end(self) -> int:
        self.read_until(lambda output: False)
        os.close(self.leader)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def running(project: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A sweep in another process, whose trials go on from their fourth epoch once there is a file ``go``."""
    changes = ["--set", "trainable=walk:Held", "--set", "epochs=8"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", "first.yaml", "--inline", "-q", *changes]
    )
    log = project / "results" / "first" / "log.jsonl"
    until(lambda: log.exists() and "epoch_reported" in log.read_text())
    yield process
    process.kill()
    process.wait(PATIENCE_S)


def test_a_run_draws_within_its_terminal_and_leaves_it_as_it_was(project: Path) -> None:
    terminal = OnTerminal(
        "run", "first.yaml", "--inline", "--set", "trainable=walk:Slow", columns=60, lines=12
    )
    terminal.read_until(lambda output: "trial 0" in output)
    terminal.resize(40, 10)
    assert terminal.end() == 0
    frames = terminal.output.split("\x1b[?7l")[1:]
    assert len(frames) > 4
    assert all(frame.partition("\x1b[?7h")[0].count("\n") <= 11 for frame in frames)
    assert "about" in terminal.output
    assert "results  " in frames[-1]
    assert "\x1b[?25l" not in terminal.output  # the cursor is never hidden, nor another screen used
    assert "\x1b[?1049h" not in terminal.output


def test_no_colour_and_a_terminal_that_can_do_nothing(project: Path) -> None:
    terminal = OnTerminal("run", "first.yaml", "--inline", NO_COLOR="1", LANG="C", LC_ALL="C")
    assert terminal.end() == 0
    assert not re.search(r"\x1b\[\d*(;\d+)*3\dm", terminal.output)
    assert "[#" in terminal.output.split("rank")[0]
    assert terminal.output.split("rank")[0].isascii()
    dumb = OnTerminal("run", "first.yaml", "--inline", "--name", "dumb", "--no-memo", TERM="dumb")
    assert dumb.end() == 0
    assert "\x1b" not in dumb.output
    assert dumb.output.count("completed in") == 4


def test_a_sweep_elsewhere_is_watched_to_its_end(
    project: Path, running: subprocess.Popen[bytes]
) -> None:
    terminal = OnTerminal("status", "first", "--watch", "--interval", "0.2")
    terminal.read_until(lambda output: "4/8" in output)
    terminal.resize(50, 12)
    (project / "go").touch()
    assert terminal.end() == 0
    assert running.wait(PATIENCE_S) == 0
    shown = SEQUENCES.sub("", terminal.output)
    assert "first  running" in shown
    assert "first  finished" in shown.rpartition("first  running")[2]
    assert "4/4 trials" in shown.rpartition("first  finished")[2]


def test_who_leaves_the_view_leaves_the_sweep_running(running: subprocess.Popen[bytes]) -> None:
    terminal = OnTerminal("status", "first", "--watch")
    terminal.read_until(lambda output: "first" in output)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.output
    assert running.poll() is None


def test_a_killed_sweep_ends_the_view(running: subprocess.Popen[bytes]) -> None:
    terminal = OnTerminal("status", "first", "--watch", "--interval", "0.2")
    terminal.read_until(lambda output: "running" in output)
    running.kill()
    assert terminal.end() == 0
    assert "first  unfinished" in SEQUENCES.sub("", terminal.output)


def test_into_a_pipe_go_a_picture_then_lines_then_a_picture(
    project: Path, running: subprocess.Popen[bytes]
) -> None:
    command = [sys.executable, "-m", "sweep", "status", "first", "--watch", "--interval", "0.2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        (project / "go").touch()
        rest, errors = watching.communicate(timeout=PATIENCE_S)
    assert (watching.returncode, errors) == (0, "")
    lines = (first + rest).splitlines()
    assert "\x1b" not in first + rest
    assert lines[0] == "first  running"
    assert [line for line in lines if line.startswith("trial 3 completed in ")]
    assert "first  finished" in lines


def test_a_finished_sweep_is_shown_once(project: Path) -> None:
    assert call("run", "first.yaml", "--inline", "-q")[0] == 0
    code, output = call("status", "first", "--watch")
    assert code == 0
    lines = output.splitlines()
    assert lines[0] == "first  finished"
    assert "4/4 trials" in lines[1]
    assert "0 running  4 completed" in lines[2]
    assert lines[3].startswith("best    loss ")
    assert output.count("first  finished") == 1


def test_a_sweep_of_which_nothing_is_known_yet(project: Path) -> None:
    assert call("run", "first.yaml", "--inline", "-q")[0] == 0
    (project / "results" / "first" / "log.jsonl").unlink()
    code, output = call("status", "first", "--watch")
    assert (code, output.splitlines()[0]) == (0, "first  unfinished")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--watch", "--json"],
            "error: --watch: is given with --json; run it with --json repeatedly instead\n",
        ),
        (["--interval", "3"], "error: --interval: is given without --watch; add --watch\n"),
        (["--watch", "--interval", "0"], "0.0 is not in the range x>=0.1"),
    ],
)
def test_options_that_make_no_sense(project: Path, options: list[str], message: str) -> None:
    code, output = call("status", "first", *options)
    assert code == 2
    assert message in output
