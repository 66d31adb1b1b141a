"""`doctor` for real, on whatever this machine is without its GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LEVELS = {"ok", "note", "warning", "error"}


def doctor(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sweep", "doctor", "--results", str(folder), *arguments]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", **environ}
    return subprocess.run(command, capture_output=True, text=True, env=hidden, timeout=1500)


@pytest.mark.keras
@pytest.mark.exhaustive  # the same round, with its probes in one process, is in tests/trainables/doctor
def test_a_machine_that_trains_on_its_cpu(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    assert {f["level"] for f in found} <= LEVELS - {"error"}
    checks = {f["check"]: f["found"] for f in found}
    assert checks["device"].startswith("cpu:0: matmul")
    assert checks["together"].startswith("2 logical CPU devices sum and train")


@pytest.mark.keras
@pytest.mark.slow
def test_mistakes_end_with_1_and_say_what_to_do(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    done = doctor(taken / "results", "--timeout", "1")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any(line.startswith("error    results") for line in lines)
    assert any(
        line.startswith("error    tensorflow") and "no answer in time" in line for line in lines
    )
    assert any(line.strip().startswith("to do: ") for line in lines)
