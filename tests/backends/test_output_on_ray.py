"""What trials print under Ray is in the log, also what a worker printed before it was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]

TRAINABLE = """
import os, signal, subprocess, sys, time
from sweep.contract import EpochReported, Facts

class Printing:
    def begin(self, assignment):
        self.given, self.done = assignment, 0
        print("begins", assignment.params["does"])
    def train(self, report):
        does = self.given.params["does"]
        while self.done < self.given.epochs:
            self.done += 1
            print("epoch", self.done, file=sys.stderr)
            if self.done == 2 and does == "runs a program":
                subprocess.run(["echo", "by a child"], check=True)
            if self.done == 2 and does == "prints much":
                os.write(1, b"." * 1_000_000 + b" the end")
            if self.done == 2 and does == "is killed":
                os.write(1, b"last words")
                os.kill(os.getpid(), signal.SIGKILL)
            if self.done == 2 and does == "exits":
                print("leaving", flush=True)
                os._exit(3)
            if self.done == 2 and does == "hangs":
                print("hanging", flush=True)
                time.sleep(600)
            if self.done == 2 and does == "fails":
                raise RuntimeError("no more")
            epoch = EpochReported(trial=0, epoch=self.done, metrics={"score": 1.0}, time=0.0, time_s=0.1)
            if not report(epoch):
                return
    def save(self, folder):
        (folder / "x").write_text("x")
    def restore(self, folder):
        raise RuntimeError("begins again")
    def facts(self):
        return Facts(node="here", data="none")
"""
FILE = """
trainable: printing:Printing
method: grid
metric: {name: score, goal: minimize}
parameters: {does: {values: [nothing, runs a program, prints much, is killed, exits, hangs, fails]}}
epochs: 3
max_restarts: 0
max_failures: 9
resources: {epoch_minutes: 0.1}
"""
BEFORE = "begins {}\nepoch 1\nepoch 2\n"
PRINTED = {
    "nothing": BEFORE + "epoch 3\n",
    "runs a program": BEFORE + "by a child\nepoch 3\n",
    "is killed": BEFORE + "last words",
    "exits": BEFORE + "leaving\n",
    "hangs": BEFORE + "hanging\n",
    "fails": BEFORE,
}


def test_what_each_trial_printed_is_kept(tmp_path: Path) -> None:
    (tmp_path / "printing.py").write_text(TRAINABLE)
    (tmp_path / "printing.yaml").write_text(FILE)
    command = [sys.executable, "-m", "sweep", "run", "printing.yaml", "--max-concurrent", "2", "-q"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    loaded = sweep.load(tmp_path / "results" / "printing")
    printed = {}
    for trial, does in zip(loaded.trials["trial"], loaded.trials["param.does"], strict=True):
        lines = loaded.output(trial).splitlines(keepends=True)
        # TensorFlow says so in a new process
        printed[does] = "".join(line for line in lines if "cuda" not in line)
    much = printed.pop("prints much")
    assert printed == {does: text.format(does) for does, text in PRINTED.items()}
    assert much.startswith("begins prints much\nepoch 1\nepoch 2\n.....")
    assert "bytes are left out]\n" in much
    assert much.endswith("... the endepoch 3\n")
    assert len(much) < 40_000
    assert not (tmp_path / "results" / "printing" / "workers").exists()
    shown = subprocess.run(
        [sys.executable, "-m", "sweep", "logs", "printing", "--trial", "3", "--follow"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.stdout.endswith("last words")
