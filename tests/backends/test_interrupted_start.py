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


@pytest.mark.parametrize(("number", "after_s"), [(signal.SIGINT, 0.2), (signal.SIGINT, 1.5), (signal.SIGTERM, 1.0)])
def test_the_name_is_free_again(tmp_path: Path, number: signal.Signals, after_s: float) -> None:
    (tmp_path / "walk.py").write_text((ROOT / "tests" / "kills" / "walk.py").read_text())
    (tmp_path / "free.yaml").write_text(FILE)
    folder = tmp_path / "results" / "free"
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep", "run", "free.yaml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not folder.exists():
        assert time.monotonic() < deadline, "no folder"
        time.sleep(0.02)
    time.sleep(after_s)
    assert not (folder / "log.jsonl").exists(), "it has begun already"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted before the first trial\n")
    assert not folder.exists()
