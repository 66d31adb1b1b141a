"""The program's end: its exit code and its output are there, and it does not wait for libraries to be taken down."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, sys
from sweep import __main__
atexit.register(print, "taken down")
sys.argv = ["sweep", *{arguments!r}]
__main__.run()
"""


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [(["--version"], 0, "sweep "), (["list", "--no-such"], 2, ""), (["list"], 0, "")],
)
def test_it_leaves_at_once_with_its_code_and_all_that_it_said(
    arguments: list[str], code: int, output: str, tmp_path: object
) -> None:
    command = [sys.executable, "-c", SCRIPT.format(arguments=arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=str(tmp_path))
    assert (ran.returncode, "Traceback" in ran.stderr) == (code, False)
    assert output in ran.stdout
    assert "taken down" not in ran.stdout
    assert bool(ran.stderr) == (code == 2)
