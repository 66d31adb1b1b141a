"""What the driver's decisions cost: a stopping rule for each reported epoch, a method for each suggested trial.

    python benchmarks/decisions.py                    # a minute on one core
    python benchmarks/decisions.py --trials 10000 --methods

Rules are asked about random curves that nobody stops, in the order of trials that run 8 at a time; methods search three
numbers and a choice, one trial after the other. "plain" is Optuna's own `study.optimize` on the same function.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings

import optuna

from sweep.events import EpochReported, Status, TrialEnded, TrialStarted
from sweep.runner.methods import build_searcher
from sweep.schedulers.early_termination import build_scheduler
from sweep.space import Parameter, Space
from sweep.space.domains import Categorical, LogUniform, Uniform
from sweep.space.early_terminate import Asha, EarlyTermination, Hyperband, Median
from sweep.space.objectives import Objective

LOSS = Objective("loss", "minimize")
EPOCHS, AT_ONCE = 100, 8
RULES: dict[str, EarlyTermination] = {
    "asha": Asha(),
    "median": Median(),
    "hyperband": Hyperband(min_iter=1),
}
NUMBERS = (
    Parameter("x", Uniform(-1, 1)),
    Parameter("y", Uniform(-1, 1)),
    Parameter("z", LogUniform(1e-4, 1)),
)
SPACE = Space((*NUMBERS, Parameter("c", Categorical(("a", "b", "c")))))
PLAIN = {"tpe": optuna.samplers.TPESampler, "cmaes": optuna.samplers.CmaEsSampler}


def rule_us(rule: EarlyTermination, trials: int) -> list[float]:
    """Return the microseconds per report in each quarter of the trials; the rule's decisions are ignored."""
    scheduler, draws, spent = build_scheduler(rule, LOSS, EPOCHS), random.Random(0), [0.0] * 4
    for first in range(0, trials, AT_ONCE):
        events = [
            EpochReported(
                trial=trial, epoch=epoch, metrics={"loss": draws.random()}, time=0.0, time_s=0.0
            )
            for epoch in range(1, EPOCHS + 1)
            for trial in range(first, min(first + AT_ONCE, trials))
        ]
        began = time.perf_counter()
        for event in events:
            scheduler.observe(event)
        spent[4 * first // trials] += time.perf_counter() - began
    return [1e6 * seconds / (trials / 4 * EPOCHS) for seconds in spent]


def method_s(method: str, trials: int) -> float:
    """Return the seconds for ``trials`` suggestions and for learning from their results."""
    searcher, began = build_searcher(method, SPACE, (LOSS,), 0), time.perf_counter()
    for trial in range(trials):
        params = searcher.suggest(trial)
        if params is None:
            raise RuntimeError("the space is exhausted")
        loss = _loss(params["x"], params["y"], params["z"], params["c"])
        searcher.observe(
            TrialStarted(
                trial=trial, trial_id=str(trial), params=params, seed=0, repeat=0, time=0.0
            )
        )
        searcher.observe(
            EpochReported(trial=trial, epoch=1, metrics={"loss": loss}, time=0.0, time_s=0.0)
        )
        searcher.observe(TrialEnded(trial=trial, status=Status.COMPLETED, reason="", time=0.0))
    return time.perf_counter() - began


def plain_s(method: str, trials: int) -> float:
    """Return the seconds that Optuna alone takes."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    study, began = optuna.create_study(sampler=PLAIN[method](seed=0)), time.perf_counter()
    study.optimize(
        lambda trial: _loss(
            trial.suggest_float("x", -1, 1),
            trial.suggest_float("y", -1, 1),
            trial.suggest_float("z", 1e-4, 1, log=True),
            trial.suggest_categorical("c", ("a", "b", "c")),
        ),
        n_trials=trials,
    )
    return time.perf_counter() - began


def _loss(x: object, y: object, z: object, c: object) -> float:
    return (
        (float(str(x)) - 0.3) ** 2
        + (float(str(y)) + 0.4) ** 2
        + float(str(z))
        + (0.1 if c == "a" else 0.0)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rules", nargs="*", choices=RULES, default=list(RULES))
    parser.add_argument("--methods", nargs="*", default=["tpe", "cmaes", "nsga2"])
    given = parser.parse_args()
    for name in given.rules:
        quarters = " ".join(f"{us:.1f}" for us in rule_us(RULES[name], given.trials))
        print(
            f"{name:10} {given.trials} trials of {EPOCHS} epochs: us a report in each quarter: {quarters}",
            flush=True,
        )
    for name in given.methods:
        plain = f", plain Optuna {plain_s(name, given.trials):.1f} s" if name in PLAIN else ""
        print(
            f"{name:10} {given.trials} trials: {method_s(name, given.trials):.1f} s{plain}",
            flush=True,
        )


if __name__ == "__main__":
    main()
