"""How many times as fast trials of one structure train as one program: `training: {fuse: K}`.

    python benchmarks/fused.py                       # five models, K = 32; some minutes on one core
    python benchmarks/fused.py --models tabular --trials 8 32 64
    python benchmarks/fused.py --commands            # whole commands: 64 tabular trials with ASHA, and without

Each process computes on one core. For each model: an epoch with its validation of one trial in sweep's own loop and
by `Model.fit` (compiled once, which a sweep of plain Keras pays for each trial), and one of K trials together, in
turns; the median of a trial's processor times, which tell less of what else runs there, and of those on the clock.
Trials differ in rates, decay, dropout, clipping and their first weights' seed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np

MODELS = ("tabular", "mlp", "lstm", "transformer", "cnn")
SHARED = {"optimizer": "adamw", "batch_size": 32, "lr_schedule": "cosine", "warmup_epochs": 1}
OWN = {"tabular": {"normalization": "batch"}, "cnn": {"augmentation": "low"}}
FILE = """
# Which rate, decay and dropout suit the tabular net?
# 64 trials of up to 20 epochs; seconds.
trainable: trainables.tabular_mlp:TabularMLP
method: random
metric: {name: val_loss, goal: minimize}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-4, max: 1e-2}
  weight_decay: {distribution: log_uniform_values, min: 1e-4, max: 1e-2}
  dropout: {min: 0.0, max: 0.4}
  normalization: {value: batch}
  optimizer: {value: adamw}
  global_clipnorm: {value: 1.0}
epochs: 20
run_cap: 64
"""
ASHA = "early_terminate: {type: asha, min_iter: 2, eta: 3}\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--trials", nargs="+", type=int, default=[32])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--seeds",
        type=int,
        default=1,
        help="how many the trials have; each has its own order of data",
    )
    parser.add_argument("--commands", action="store_true")
    given = parser.parse_args()
    if given.commands:
        commands()
        return
    for model in given.models:
        if len(given.models) == 1:
            measure(model, given.trials, given.rounds, given.seeds)
            continue
        options = [
            "--trials",
            *map(str, given.trials),
            "--rounds",
            str(given.rounds),
            "--seeds",
            str(given.seeds),
        ]
        subprocess.run([sys.executable, __file__, "--models", model, *options], check=True)


def trainable(model: str) -> Any:
    import fused_models

    from trainables.digits_cnn import DigitsCNN
    from trainables.sequence_transformer import SequenceTransformer
    from trainables.tabular_mlp import TabularMLP

    kinds = {"tabular": TabularMLP, "mlp": fused_models.DigitsMLP, "lstm": fused_models.TokenLSTM}
    return (kinds | {"transformer": SequenceTransformer, "cnn": DigitsCNN})[model]


def measure(model: str, widths: list[int], rounds: int, seeds: int) -> None:
    """Print a line for each number of trials that train together."""
    import tensorflow as tf

    from sweep.contract import Assignment, Devices
    from trainables.session import TrialSession

    def assignment(number: int) -> Assignment:
        rng = np.random.default_rng(100 + number)
        own = {
            "learning_rate": float(10 ** rng.uniform(-3.5, -2)),
            "weight_decay": float(10 ** rng.uniform(-4, -2)),
            "dropout": float(rng.uniform(0.05, 0.4)),
            "global_clipnorm": float(rng.uniform(0.5, 3)),
        }
        return Assignment(
            trial=number,
            params={**SHARED, **OWN.get(model, {}), **own},
            seed=number % seeds,
            epochs=10**6,
            devices=Devices(cpus=1),
            objective="val_loss",
        )

    kind, calls = trainable(model), dict[str, Callable[[], Any]]()
    alone = TrialSession(kind())
    alone.begin(assignment(0))
    calls["alone"] = alone.trial.train_epoch
    plain, (x, y), (v, w) = alone.trained_model(), *alone._author.data(alone.trial.hp)[:2]
    plain.compile(optimizer="adamw", loss=alone._author.loss(alone.trial.hp, plain), metrics=[])
    calls["fit"] = lambda: plain.fit(
        x, y, batch_size=32, validation_data=(v, w), validation_batch_size=256, verbose=0
    )
    traced_s = {}
    for width in widths:
        group = TrialSession(kind()).group()
        members = [group.member() for _ in range(width)]
        for number, member in enumerate(members):
            member.begin(assignment(number))
        reports = dict.fromkeys(members, lambda epoch: False)
        began = time.perf_counter()
        if raised := group.train(reports):
            raise next(iter(raised.values()))
        traced_s[width] = time.perf_counter() - began
        calls[f"{width}"] = lambda group=group, reports=reports: group.train(reports)
    times = defaultdict(list)
    for turn in range(rounds + 1):
        for name, call in calls.items():
            began, began_on_clock = time.process_time(), time.perf_counter()
            call()
            if turn:
                times[name].append(time.process_time() - began)
                times[f"{name} on the clock"].append(time.perf_counter() - began_on_clock)
    alone_s, fit_s, alone_on_clock_s = (
        median(times[name]) for name in ("alone", "fit", "alone on the clock")
    )
    del tf
    for width in widths:
        each_s, each_on_clock_s = (
            median(times[f"{width}{kind}"]) / width for kind in ("", " on the clock")
        )
        print(
            f"{model:12s} K = {width:3d}: alone {1e3 * alone_s:.1f} ms an epoch, fit {1e3 * fit_s:.1f}, together "
            f"{1e3 * each_s:.2f} a trial: {alone_s / each_s:.1f} times our own loop "
            f"({alone_on_clock_s / each_on_clock_s:.1f} on the clock), {fit_s / each_s:.1f} times fit; "
            f"first epoch with its trace {traced_s[width]:.1f} s",
            flush=True,
        )


def commands() -> None:
    """Time whole commands, one trial at a time and fused."""
    with tempfile.TemporaryDirectory() as scratch:
        for rule, words in (("", "no early stopping"), (ASHA, "ASHA")):
            (Path(scratch) / "tabular.yaml").write_text(FILE + rule)
            for where in ("--inline", ""):
                asked = {
                    "alone": ("training.fuse=false",),
                    "fused": ("training.fuse=32",),
                    "one trial": ("training.fuse=false", "run_cap=1", "epochs=3"),
                }
                took = {}
                for name, keys in asked.items():
                    command = [
                        sys.executable,
                        "-m",
                        "sweep",
                        "run",
                        "tabular.yaml",
                        "--no-memo",
                        "-q",
                    ]
                    command += ["--results", f"results{len(rule)}{where}{len(took)}"]
                    command += [word for key in keys for word in ("--set", key)] + [where] * bool(
                        where
                    )
                    began = time.perf_counter()
                    subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
                    took[name] = time.perf_counter() - began
                ratio, most = (took["alone"] / took[name] for name in ("fused", "one trial"))
                print(
                    f"64 tabular trials, {words}, {where or 'Ray'}: {took['alone']:.1f} s, "
                    f"fused {took['fused']:.1f} s: {ratio:.1f} times as fast, of at most {most:.1f}: "
                    f"three epochs of one trial take {took['one trial']:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
