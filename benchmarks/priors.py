"""What a prior is worth, and what a wrong one costs: the best loss after so many trials, the median of some seeds.

    python benchmarks/priors.py --seeds 10     # half a minute

The function has four parameters. The good prior lies near its minimum, the wrong one at the other end.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from sweep.events import EpochReported, Facts, Params, Status, TrialEnded, TrialStarted
from sweep.runner.methods import build_searcher
from sweep.space import Parameter, Space
from sweep.space.domains import Categorical, LogUniform, Uniform
from sweep.space.draws import Belief
from sweep.space.objectives import Objective

SPACE = (
    Parameter("rate", LogUniform(1e-6, 1.0)),
    Parameter("dropout", Uniform(0, 1)),
    Parameter("optimizer", Categorical(("adam", "sgd", "rmsprop"))),
    Parameter("width", Uniform(0, 1)),
)
PRIORS: Mapping[str, Mapping[str, Belief]] = {
    "none": {},
    "good": {
        "rate": Belief(5e-3),
        "dropout": Belief(0.35),
        "optimizer": Belief("adam"),
        "width": Belief(0.6),
    },
    "wrong": {
        "rate": Belief(1.0),
        "dropout": Belief(0.9),
        "optimizer": Belief("sgd"),
        "width": Belief(0.1),
    },
}
AFTER = (5, 10, 20, 40, 60)


def loss(params: Params) -> float:
    """Return a loss whose minimum is 0."""
    rate = (math.log10(params["rate"]) + 2.5) ** 2
    rest = 2 * (params["dropout"] - 0.3) ** 2 + (params["width"] - 0.7) ** 2
    return rate + rest + 0.5 * (params["optimizer"] != "adam")


def curve(method: str, beliefs: Mapping[str, Belief], seed: int) -> list[float]:
    """Return the best loss after each trial."""
    space = Space(tuple(replace(one, belief=beliefs.get(one.name)) for one in SPACE))
    searcher = build_searcher(method, space, (Objective("loss", "minimize"),), seed)
    best, found = math.inf, []
    for number in range(AFTER[-1]):
        params = searcher.suggest(number)
        if params is None:
            raise SystemExit("the space is exhausted")
        now = loss(params)
        searcher.observe(
            TrialStarted(trial=number, trial_id="", params=params, seed=0, repeat=0, time=0.0)
        )
        searcher.observe(
            EpochReported(trial=number, epoch=1, metrics={"loss": now}, time=0.0, time_s=1.0)
        )
        searcher.observe(
            TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=0.0, facts=Facts())
        )
        best = min(best, now)
        found.append(best)
    return found


def main() -> None:
    """Print a line for each method and prior."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    print(f"{'method':8}{'prior':8}" + "".join(f"{f'after {count}':>10}" for count in AFTER))
    for method in ("random", "tpe"):
        for name, beliefs in PRIORS.items():
            curves = [curve(method, beliefs, seed) for seed in seeds]
            found = [median(one[count - 1] for one in curves) for count in AFTER]
            print(f"{method:8}{name:8}" + "".join(f"{value:10.3f}" for value in found))


if __name__ == "__main__":
    main()
