"""Runs a script that starts a cluster and a sweep on it, in a process of its own: settings of Ray last as long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
SLOW = """
from pathlib import Path
import walk
READS = walk.READS
class Slow(walk.Walk):
    @property
    def PAUSE_S(self):
        return 0.0 if Path(__file__).with_name("hurry").exists() else SECONDS
"""
"""The text of a slow.py: walks that take their time until there is a file ``hurry`` beside it."""
QUICK = {"RAY_health_check_period_ms": "500"}
"""A node whose processes are gone is known to be after seconds; one that is slow to answer has as long as ever."""


def run(folder: Path, files: Mapping[str, str], script: str, timeout: float) -> str:
    """Write the files beside a walk.py, run the script there, and return what it printed; it must succeed."""
    (folder / "walk.py").write_text((ROOT / "tests" / "kills" / "walk.py").read_text())
    for name, text in files.items():
        (folder / name).write_text(text)
    command, environment = [sys.executable, "-W", "ignore", "-c", script], {**os.environ, **QUICK}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
    )
    output = ran.stdout + ran.stderr
    assert ran.returncode == 0, output[-4000:]
    return output
