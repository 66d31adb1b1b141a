"""How long it takes to go on with a long sweep, beside another checkout of sweep.

    python benchmarks/resuming.py --trials 4000 --epochs 100 --beside ../before

Each checkout trains a sweep of a function that costs nothing, in this process, and then goes on with it for one more
trial; the time of that, processes and all, is what counts. Of ``--beside``, its own ``.venv`` is used if it has one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent.parent
TRAINABLE = """
def train(hp, report):
    for epoch in range(1, {epochs} + 1):
        report(loss=hp["x"] + 1 / epoch, accuracy=hp["y"])
"""
SWEEP = """\
name: long
trainable: quick:train
method: random
run_cap: {trials}
metric: {{name: loss, goal: minimize}}
parameters: {{x: {{min: 0.0, max: 1.0}}, y: {{min: 0.0, max: 1.0}}}}
epochs: {epochs}
"""


def seconds(checkout: Path, folder: Path, *arguments: str) -> float:
    """Run a command of a checkout in a folder, and return the seconds that it took."""
    own = checkout / ".venv" / "bin" / "python"
    python = str(own) if own.exists() and checkout != HERE else sys.executable
    paths = os.pathsep.join([str(checkout), str(folder)])
    command = [python, "-m", "sweep", *arguments, "--inline", "-q"]
    began = time.perf_counter()
    subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def prepared(checkout: Path, folder: Path, trials: int, epochs: int) -> None:
    """Train a sweep and set its results aside, so that each measurement can resume a copy."""
    folder.mkdir()
    (folder / "quick.py").write_text(TRAINABLE.format(epochs=epochs))
    (folder / "long.yaml").write_text(SWEEP.format(trials=trials, epochs=epochs))
    took_s = seconds(checkout, folder, "run", "long.yaml")
    shutil.move(folder / "results", folder / "kept")
    print(f"{checkout}: trained in {took_s:.1f} s", flush=True)


def resumed(checkout: Path, folder: Path, trials: int) -> float:
    """Resume a copy of the sweep for one more trial, and return the seconds that it took."""
    shutil.rmtree(folder / "results", ignore_errors=True)
    shutil.copytree(folder / "kept", folder / "results")
    return seconds(checkout, folder, "resume", "long", "--run-cap", str(trials + 1))


def main() -> None:
    """Print the medians, and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout")
    given = parser.parse_args()
    checkouts = [HERE] if given.beside is None else [HERE, given.beside.resolve()]
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / str(number) for number in range(len(checkouts))]
        for checkout, folder in zip(checkouts, folders, strict=True):
            prepared(checkout, folder, given.trials, given.epochs)
        found: list[list[float]] = [[] for _ in checkouts]
        for _ in range(given.rounds):
            for checkout, folder, times in zip(checkouts, folders, found, strict=True):
                times.append(resumed(checkout, folder, given.trials))
    for checkout, times in zip(checkouts, found, strict=True):
        print(
            f"{checkout}: resumed in {median(times):.2f} s ({', '.join(f'{one:.2f}' for one in times)})"
        )
    if len(found) > 1:
        print(f"ratio {median(found[0]) / median(found[1]):.2f}")


if __name__ == "__main__":
    main()
