"""A sweep on Ray whose workers are forks, as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sweep

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forks on Linux alone"),
]

TRAINABLE = """
import json, os, signal, sys
from pathlib import Path

def train(hp, report):
    number = hp["number"]
    if number == 2 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    about = {
        "parent": Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\\0"),
        "names": [name for name in os.environ if name.startswith("SWEEP_")],
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    Path(f"about-{number}.json").write_text(json.dumps(about))
    report(loss=number)
"""
FILE = """
trainable: mine:train
method: grid
metric: {name: loss}
parameters: {number: {values: [1, 2, 3]}}
epochs: 1
"""


THREAD = """
import sys, threading, time

if any("fork_server" in word for word in sys.orig_argv):
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
"""


def run(folder: Path, **environment: str) -> str:
    """Run the sweep in this folder; return what it says."""
    (folder / "mine.py").write_text(TRAINABLE)
    (folder / "mine.yaml").write_text(FILE)
    (folder / "attrs.py").write_text("")  # a library of Ray's has this name
    command = [str(Path(sys.executable).with_name("sweep")), "run", "mine.yaml"]
    result = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    assert sweep.load(str(folder / "results" / "mine")).trials["metric.loss"].tolist() == [
        1.0,
        2.0,
        3.0,
    ]
    return result.stdout


def read_about(folder: Path) -> list[dict[str, Any]]:
    """Return what each trial has seen of its process."""
    return [json.loads((folder / f"about-{number}.json").read_text()) for number in (1, 2, 3)]


def test_workers_are_forks_and_a_killed_one_is_replaced(tmp_path: Path) -> None:
    assert "by themselves" not in run(tmp_path)
    assert (tmp_path / "killed").exists()
    for about in read_about(tmp_path):
        assert any("ray_tune.fork_server" in word for word in about["parent"])
        assert (about["names"], about["threads"]) == ([], "1")


def test_if_the_server_fails_workers_are_ray_s_own(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(THREAD)
    said = run(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert (
        "workers have imported their libraries by themselves, which takes longer: libraries have started"
        in said
    )
    for about in read_about(tmp_path):
        assert "raylet" in about["parent"][0]
        assert about["names"] == []
