"""How many trials at a time are fastest: the main job with the same cores shared by one, two, four trials.

    python benchmarks/concurrency.py --rounds 3

Each is a process from its start to its exit; all run in turns. `auto` is what a sweep file without `resources` does:
one CPU a trial, and as many at a time as there are. The last line is the ratio of `auto` to the fastest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from overhead import ROOT, sweep_command

TRIALS = 27


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    cores = os.cpu_count() or 1
    layouts: dict[str, list[str]] = {"auto": []}
    for at_a_time in (1, cores, 2 * cores):
        cpus = cores / at_a_time
        name = f"{at_a_time} at a time, {cpus:g} CPUs each"
        layouts[name] = ["--max-concurrent", str(at_a_time), "--set", f"resources.cpus={cpus:g}"]
    layouts[f"1 at a time, 1 of {cores} CPUs"] = ["--max-concurrent", "1"]
    times: dict[str, list[float]] = {name: [] for name in layouts}
    for _ in range(given.rounds):
        for name, options in layouts.items():
            times[name].append(took_s(given.epochs, options))
    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"{TRIALS} trials of {given.epochs} epochs on {cores} cores, median of {given.rounds}")
    for name, median in medians.items():
        print(f"{name:32} {median:6.1f} s   ({', '.join(f'{one:.1f}' for one in times[name])})")
    print(f"auto takes {medians['auto'] / min(medians.values()):.2f} of the fastest")


def took_s(epochs: int, options: list[str]) -> float:
    """Return the seconds from the start of a sweep to its exit."""
    with tempfile.TemporaryDirectory(prefix="concurrency-") as folder:
        command = [sys.executable, *sweep_command(TRIALS, epochs, Path(folder)), *options]
        began = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
