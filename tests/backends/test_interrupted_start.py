"""Ctrl-C while Ray starts: nothing is left of the sweep."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
FILE = """
trainable: walk:Walk
method: grid
metric: {name: loss}
parameters: {rate: {values: [0.1, 0.3]}, drag: {value: 0.5}}
epochs: 5
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "walk.py").write_text((ROOT / "tests" / "kills" / "walk.py").read_text())
    (tmp_path / "free.yaml").write_text(FILE)
    return tmp_path


def start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sweep", *arguments]
    return subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "after_s"), [(signal.SIGINT, 0.2), (signal.SIGINT, 1.5), (signal.SIGTERM, 1.0)])
def test_the_name_is_free_again(project: Path, number: signal.Signals, after_s: float) -> None:
    folder = project / "results" / "free"
    process = start(project, "run", "free.yaml")
    wait_for(folder)
    time.sleep(after_s)
    assert not (folder / "log.jsonl").exists(), "it has begun already"
    process.send_signal(number)
    _, errors = process.communicate(timeout=1500)
    assert (process.returncode, errors) == (130, "interrupted before the first trial\n")
    assert not folder.exists()


def test_a_sweep_that_is_resumed_stays_as_it_was(project: Path) -> None:
    first = start(project, "run", "free.yaml", "--inline", "--run-cap", "1")
    assert first.communicate(timeout=1500)[1] == ""
    folder = project / "results" / "free"
    before = (folder / "log.jsonl").read_bytes()
    (folder / "debug.log").unlink()
    process = start(project, "resume", "free", "--run-cap", "2")
    wait_for(folder / "debug.log")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=1500)
    assert process.returncode == 130
    assert errors == "interrupted before it went on; go on with: python -m sweep resume free\n"
    assert (folder / "log.jsonl").read_bytes() == before
