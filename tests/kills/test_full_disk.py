"""A disk that fills up while a sweep runs: it stops with a message, and resumes once there is room."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from killing import ROOT, Tally, compare
from killing import Project as Disturbed

FILE = """
name: grid
trainable: quick:Quick
method: grid
metric: {name: loss, goal: minimize}
parameters: {rate: {values: [0.1, 0.2, 0.3, 0.4]}, drag: {value: 0.5}}
epochs: 500
checkpoint: {every_s: 0}
resources: {max_concurrent: 2}
"""
QUICK = """
import walk
READS = walk.READS
class Quick(walk.Walk):
    PAUSE_S = 0.0
"""


def _project(path: Path) -> Disturbed:
    project = Disturbed.make(path, "grid")
    (path / "grid.yaml").write_text(FILE)
    (path / "quick.py").write_text(QUICK)
    return project


def _sweep(project: Disturbed, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweep", *arguments, "--no-memo", "-q"],
        cwd=project.path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(project.path)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own, of 150 kB; only root can make one."""
    folder = tmp_path / "full" / "results"
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=150k", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize(
    "backend", ["inline", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.exhaustive])]
)
def test_a_full_disk_stops_a_sweep_that_resumes(
    tmp_path: Path, small_disk: Path, backend: str
) -> None:
    how = ["--inline"] if backend == "inline" else []
    alone, full = _project(tmp_path / "alone"), _project(tmp_path / "full")
    assert _sweep(alone, "run", "grid.yaml", "--inline").returncode == 0
    ended = _sweep(full, "run", "grid.yaml", *how)
    assert ended.returncode == 130, ended.stderr
    assert "No space left on device" in ended.stderr
    assert ended.stderr.endswith("go on with: python -m sweep resume grid\n")
    assert "Traceback" not in ended.stderr
    again = _sweep(full, "resume", "grid", *how)
    assert again.returncode in (2, 130)
    assert "No space left on device" in again.stderr
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    done = _sweep(full, "resume", "grid", *how)
    assert done.returncode == 0, done.stderr
    tally = Tally()
    compare(full, alone, tally)
    assert tally.wrong() == 0, tally.remarks
