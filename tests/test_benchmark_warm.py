"""`benchmarks/warm.py` at its smallest size: what a sweep holds is not used again where its data have changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_in_warm_processes_has_the_numbers_of_one_from_nothing() -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "warm.py"),
        "--files",
        "own",
        "--changes",
        "none",
        "data",
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [row[:4] for row in rows] == [
        ["own", "none", "equal", "same"],
        ["own", "data", "equal", "new"],
    ]
