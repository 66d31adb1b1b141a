"""Results are read where sweeps are not run: on systems without Unix's modules and calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweep.events import EpochReported, Status, TrialEnded, TrialStarted
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

ROOT = Path(__file__).parents[2]
HIDING = """
import os, subprocess, sys
import multiprocessing.connection, socket, tempfile, webbrowser  # the standard library makes its own choices
hidden = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "syslog"}
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
for name in hidden:
    sys.modules.pop(name, None)
for name in ("O_CLOEXEC", "fork", "getuid", "geteuid", "pwrite", "posix_fallocate", "sched_getaffinity",
             "setpriority", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    results = tmp_path / "results"
    info = {
        "objectives": [{"name": "loss", "goal": "minimize"}],
        "spec": {
            "trainable": "m:M",
            "method": "grid",
            "parameters": {"a": {"values": [1, 2]}},
            "run_cap": 9,
        },
        "import_folders": [],
    }
    with Log(ResultsFolder.create(results, "done", "", info).log) as log:
        for number, params in enumerate(({"a": 1}, {"a": 2})):
            started = TrialStarted(
                trial=number, trial_id=f"t{number}", params=params, seed=0, repeat=0, time=1.0
            )
            epoch = EpochReported(
                trial=number, epoch=1, metrics={"loss": 0.5 + number}, time=2.0, time_s=1.0
            )
            log.append(
                [
                    started,
                    epoch,
                    TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=3.0),
                ]
            )
    return results


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDING + code]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )


def test_a_sweep_is_loaded(results: Path) -> None:
    code = "import sweep\nloaded = sweep.load('results/done')\nprint(len(loaded.trials), len(loaded.metrics))\n"
    done = run(code, results.parent)
    assert (done.stdout, done.stderr) == ("2 2\n", "")


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["status", "done"], ["compare", "done"], ["best", "done"], ["report", "done"]],
)
def test_the_commands_that_look_at_sweeps(results: Path, arguments: list[str]) -> None:
    done = run(f"from sweep.cli import main\nmain({arguments})\n", results.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert "done" in done.stdout or "0.5000" in done.stdout


def test_a_sweep_is_not_run_there(results: Path) -> None:
    (results.parent / "m.py").write_text(
        "class M:\n    def begin(self, assignment): self.a = assignment.params['a']\n"
    )
    (results.parent / "new.yaml").write_text(
        "trainable: m:M\nmethod: grid\nparameters: {a: {values: [1]}}\n"
    )
    done = run(
        "from sweep.cli import main\nmain(['run', 'new.yaml', '--inline'])\n", results.parent
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert (
        "this system cannot run sweeps, only look at them; use Linux, macOS or WSL" in done.stderr
    )
    assert not (results / "new").exists()
