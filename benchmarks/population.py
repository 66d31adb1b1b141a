"""Population based training, pbt and pb2, against random search and ASHA, where the best learning rate falls with time.

    python benchmarks/population.py --seeds 10     # some minutes on two cores

Noisy gradient descent on a stiff quadratic function: the loss falls fast at a large rate, and stays at a floor that the
rate sets, so that no constant rate is best for all of it. Each method trains as many epochs in all. A line for each
seed, then the mean of the best losses, and in how many seeds a population was better, with a sign test (two-sided).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from math import comb
from pathlib import Path
from statistics import fmean

import sweep

TRAINABLE = """
import json
import time
import numpy as np
from sweep.contract import EpochReported, Facts

STIFFNESS = np.geomspace(0.02, 1.0, 20)

class Noisy:
    def begin(self, assignment):
        self.given, self.done = assignment, 0
        self.rng = np.random.default_rng(assignment.seed)
        self.place = np.ones(20)
    def train(self, report):
        rate = self.given.params["rate"]
        while self.done < self.given.epochs:
            for _ in range(25):
                self.place -= rate * (STIFFNESS * self.place + 0.5 * self.rng.normal(size=20))
            self.done += 1
            loss = float(np.sum(STIFFNESS * self.place**2))
            told = EpochReported(trial=0, epoch=self.done, metrics={"loss": loss}, time=time.time(), time_s=0.001)
            if not report(told):
                return
    def save(self, folder):
        state = {"done": self.done, "place": self.place.tolist(), "rng": self.rng.bit_generator.state}
        (folder / "state.json").write_text(json.dumps(state))
    def restore(self, folder):
        state = json.loads((folder / "state.json").read_text())
        self.done, self.place = state["done"], np.array(state["place"])
        self.rng.bit_generator.state = state["rng"]
        return self.done
    def facts(self):
        return Facts()
"""
FILE = """
trainable: noisy:Noisy
metric: {name: loss, goal: minimize}
parameters: {rate: {distribution: log_uniform_values, min: 1e-3, max: 1.0}}
"""
EPOCHS, SIZE = 40, 16
WAYS = {
    "pb2": f"method: pb2\npopulation: {{size: {SIZE}, interval: 2}}\nepochs: {EPOCHS}\n",
    "pbt": f"method: pbt\npopulation: {{size: {SIZE}, interval: 2}}\nepochs: {EPOCHS}\n",
    "random": f"method: random\nrun_cap: {SIZE}\nepochs: {EPOCHS}\n",
    "asha": f"method: random\nearly_terminate: {{type: asha, min_iter: 2, eta: 3}}\nepochs: {EPOCHS}\n"
    f"budget: {{epochs: {SIZE * EPOCHS}}}\n",
}


def best(folder: Path, way: str, seed: int) -> float:
    """Return the best final loss of all trials that trained to the end."""
    name = f"{way}-{seed}"
    (folder / f"{name}.yaml").write_text(f"{FILE}{WAYS[way]}seed: {seed}\n")
    command = [sys.executable, "-m", "sweep", "run", f"{name}.yaml", "--inline", "-q"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ)
    if done.returncode not in (0, 130):
        raise SystemExit(done.stderr)
    trials = sweep.load(folder / "results" / name).trials
    return float(trials[trials["status"] == "completed"]["metric.loss"].min())


def main() -> None:
    """Run all methods and compare them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "noisy.py").write_text(TRAINABLE)
        for seed in seeds:
            for way in WAYS:
                found[way].append(best(folder, way, 100 * seed))
            print(
                f"seed {seed}: " + ", ".join(f"{way} {found[way][-1]:.4f}" for way in WAYS),
                flush=True,
            )
    print("mean: " + ", ".join(f"{way} {fmean(values):.4f}" for way, values in found.items()))
    for one, other in (
        ("pbt", "random"),
        ("pbt", "asha"),
        ("pb2", "random"),
        ("pb2", "asha"),
        ("pb2", "pbt"),
    ):
        wins = sum(a < b for a, b in zip(found[one], found[other], strict=True))
        few = min(wins, len(seeds) - wins)
        p = min(2 * sum(comb(len(seeds), k) for k in range(few + 1)) / 2 ** len(seeds), 1.0)
        print(f"{one} better than {other} with {wins} of {len(seeds)} seeds, p = {p:.3f}")


if __name__ == "__main__":
    main()
