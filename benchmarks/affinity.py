"""How often structures are compiled: trials that go to workers which hold their structure, or by number as they come.

    python benchmarks/affinity.py                   # two minutes on two CPU cores

Both rows run a grid of 27 trials and three structures on a Ray of their own; in the second the trainable keeps to
itself what it read, so that the driver cannot tell the structures apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import structs

import sweep
from sweep.contract import Facts
from sweep.hyperparameters import to_json
from trainables.digits_cnn import DigitsCNN
from trainables.session import TrialSession

ROOT = Path(__file__).parents[1]
FILE = """
name: affinity
trainable: affinity:{trainable}
method: grid
metric: {{name: val_accuracy, goal: maximize}}
parameters:
  learning_rate: {{values: [1e-2, 3e-3, 1e-3]}}
  weight_decay: {{values: [1e-1, 1e-2, 1e-3]}}
  filters: {{values: [8, 16, 32]}}
  optimizer: {{value: adamw}}
  batch_size: {{value: 64}}
epochs: {epochs}
resources: {{cpus: 1}}
"""


class _Reads(TrialSession):
    """Reports the parameters that were read to build a program as its structure."""

    def facts(self) -> Facts:
        return structs.replace(super().facts(), structure=to_json(self.trial.structure.reads))


class _Nothing(TrialSession):
    """Reports no structure."""

    def facts(self) -> Facts:
        return structs.replace(super().facts(), structure=None)


class Told(DigitsCNN):
    """A trainable whose trials go to the worker that has their program."""

    __trainable__ = _Reads


class Untold(DigitsCNN):
    """A trainable whose trials go to any worker."""

    __trainable__ = _Nothing


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()
    for name in ("Told", "Untold"):
        with tempfile.TemporaryDirectory(prefix="affinity-") as scratch:
            file = Path(scratch) / "affinity.yaml"
            file.write_text(FILE.format(trainable=name, epochs=given.epochs))
            command = [
                sys.executable,
                "-m",
                "sweep",
                "run",
                str(file),
                "--results",
                scratch,
                "--no-memo",
            ]
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)]),
            }
            began = time.perf_counter()
            ran = subprocess.run(
                command, cwd=scratch, env=environment, check=True, capture_output=True, text=True
            )
            wall_s = time.perf_counter() - began
            trials = sweep.load(Path(scratch) / "affinity").trials
        compile_s = trials["overhead.compile_s"].fillna(0.0)
        print(
            f"{name:7} {len(trials)} trials: {int((compile_s > 0).sum())} compiled, in {compile_s.sum():.1f} s; "
            f"{ran.stdout.count(' is replaced')} workers replaced; {wall_s:.1f} s in all",
            flush=True,
        )


if __name__ == "__main__":
    main()
