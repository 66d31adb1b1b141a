"""The program's end: its exit code and its output are there, and it does not wait for libraries to be taken down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


# Ctrl-C while the command's own modules are imported, before it handles signals
EARLY = """
import builtins, os, signal, sys
from sweep import __main__
theirs = builtins.__import__

def interrupt(name, *rest):
    if name == "sweep.command":
        os.kill(os.getpid(), signal.SIGINT)
    return theirs(name, *rest)

builtins.__import__ = interrupt
sys.argv = ["sweep", *{arguments!r}]
__main__.run()
"""


@pytest.mark.parametrize("arguments", [["list"], ["run", "lr.yaml", "--json"]])
def test_ctrl_c_at_once_is_no_traceback(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", EARLY.format(arguments=arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (130, "interrupted\n")
    if "--json" in arguments:
        found = json.loads(ran.stdout)
        assert (found["exit_code"], found["error"][0]["is"]) == (130, "interrupted")
    else:
        assert ran.stdout == ""
