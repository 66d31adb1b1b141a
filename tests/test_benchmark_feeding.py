"""The benchmark of the host's feeding runs, on little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.keras, pytest.mark.slow]


@pytest.mark.exhaustive
def test_each_source_has_a_line() -> None:
    program = Path(__file__).parents[1] / "benchmarks" / "feeding.py"
    command = [sys.executable, str(program), "--seconds", "0.05"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1500, check=True, env=dict(os.environ)
    )
    head, *lines = done.stdout.splitlines()
    assert head.split()[:3] == ["what", "img/s", "a"]
    kinds = ("memory map", "tf.data", "jpg files", "png files")
    sides = ("32x32", "224x224")
    for line, (side, kind) in zip(
        lines, ((side, kind) for side in sides for kind in kinds), strict=True
    ):
        assert line.startswith(f"{kind} of {side}")
        assert float(line.split(side)[1].split()[0].replace(",", "")) > 0
