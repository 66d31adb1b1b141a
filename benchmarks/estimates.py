"""What a sweep is thought to cost after a twentieth of it, against what it costs: simulated with recorded curves.

    python benchmarks/estimates.py results/digits results/tabular

Each folder is a sweep without early termination. Ten sweeps of half of its trials, drawn anew, are simulated under each
rule, four trials at a time. Prints, for each rule, how far the estimate was off.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "analysis"))

from passing import simulate

import sweep
from sweep.space.early_terminate import Asha, EarlyTermination, Hyperband, Median, NoTermination
from sweep.space.objectives import objective

RULES: tuple[EarlyTermination, ...] = (
    NoTermination(),
    Asha(1, None, 3),
    Hyperband(min_iter=1),
    Median(3),
)
SWEEPS, AT_ONCE = 10, 4


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--share", type=float, default=0.05)
    given = parser.parse_args()
    for folder in given.folders:
        curves = recorded(folder)
        trials, epochs = len(curves) // 2, min(map(len, curves))
        print(f"{folder.name}: {SWEEPS} sweeps of {trials} trials and {epochs} epochs")
        for rule in RULES:
            off = []
            for seed in range(SWEEPS):
                drawn = random.Random(seed).sample(curves, trials)
                off.append(
                    abs(
                        simulate(rule, trials, epochs, AT_ONCE, seed, drawn).cost_at(given.share)
                        - 1
                    )
                )
            name, within = type(rule).__name__, sum(one <= 0.15 for one in off)
            print(
                f"  {name:14} off by {median(off):4.0%}, at most {max(off):4.0%}; {within} within 15 %",
                flush=True,
            )
    return 0


def recorded(folder: Path) -> list[list[float]]:
    """Return the losses of all completed trials by epoch."""
    found = sweep.load(folder)
    metric = found.info["objectives"][0]
    loss = objective(metric["name"], metric["goal"]).to_loss
    done = found.trials[found.trials["status"] == "completed"]["trial"]
    rows = found.metrics[found.metrics["trial"].isin(done)].sort_values(["trial", "epoch"])
    return [
        [loss(value) for value in values]
        for _, values in rows.groupby("trial")[f"metric.{metric['name']}"]
    ]


if __name__ == "__main__":
    sys.exit(main())
