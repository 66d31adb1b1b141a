"""Runs sweeps in warm processes and from nothing, and compares each metric of each epoch bit by bit.

    python benchmarks/warm.py                  # all shipped sweeps that need no GPU, each with all changes
    python benchmarks/warm.py --files lr_wd_aug --changes rate epochs

For each file, one keeper runs the sweep as it is, and then with one change after the other, so that each change meets
processes that all changes before it have used; beside each, the same command runs without a keeper. Prints a row for
each: whether the metrics are equal, whether the workers were those of the sweep before, and the seconds until the first
epoch of both. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
FILES = (
    "lr_wd_aug",
    "tabular_mlp",
    "sequence_transformer",
    "transfer_digits",
    "distilled_digits",
    "own",
)
SMALL = {
    "lr_wd_aug": {"augmentation": {"values": ["low", "high"]}, "weight_decay": {"value": 0.01}},
    "sequence_transformer": {
        "warmup_epochs": {"value": 1},
        "learning_rate": {"values": [0.01, 0.003]},
    },
    "transfer_digits": {
        "learning_rate": {"value": 0.003},
        "frozen_layers": {"value": 1, "when": {"pretrained": True}},
    },
    "distilled_digits": {
        "alpha": {"values": [0, 0.5]},
        "temperature": {"value": 3, "when": {"alpha": [0.5]}},
    },
}
"""Parameters that replace those of a file, so that a sweep has few trials."""

CHANGES: dict[str, dict[str, Any]] = {
    "none": {},
    "rate": {"parameters.learning_rate": {"values": [0.02, 0.004]}},
    "epochs": {"epochs": 3},
    "batch": {"parameters.batch_size": {"value": 48}},
    "optimizer": {"parameters.optimizer": {"value": "sgd"}},
    "metric": {"metric": {"name": "val_loss", "goal": "minimize"}},
    "repeats": {"repeats": 2},
    "folds": {"folds": 2},
    "seed": {"seed": 5},
    "precision": {"training.precision": "mixed_bfloat16"},
    "eager": {"training.run_eagerly": True},
    "deterministic": {"training.deterministic": True},
    "code": {"touch": "own.py"},
    "data": {"touch": "own.npy"},
}
OWN = """
import keras
import numpy as np
from trainables.keras_trainable import KerasTrainable

SCALE = 1.0

class Own(KerasTrainable):
    def data(self, hp):
        x = np.load("own.npy")
        y = (x.sum(axis=1) > 0).astype("int32")
        return (x[:300], y[:300]), (x[300:], y[300:])

    def model(self, hp):
        return keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dropout(hp["dropout"]),
                                 keras.layers.Dense(2), keras.layers.Rescaling(SCALE), keras.layers.Softmax()])
"""
OWN_FILE = {
    "trainable": "own:Own",
    "method": "grid",
    "metric": {"name": "val_accuracy", "goal": "maximize"},
    "parameters": {
        "learning_rate": {"values": [0.01, 0.003]},
        "dropout": {"values": [0.1, 0.4]},
        "optimizer": {"value": "adam"},
        "batch_size": {"value": 32},
    },
    "seed": 0,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", nargs="+", choices=FILES, default=FILES)
    parser.add_argument("--changes", nargs="+", choices=list(CHANGES), default=list(CHANGES))
    given = parser.parse_args()
    wrong = 0
    print(f"{'file':<22}{'change':<15}{'metrics':<12}{'workers':<10}{'cold s':>7}{'warm s':>8}")
    for name in given.files:
        with tempfile.TemporaryDirectory(prefix="warm-") as scratch:
            wrong += compare(Path(scratch), name, given.changes)
    return int(wrong > 0)


def compare(project: Path, name: str, changes: list[str]) -> int:
    """Print a row for each change of a file; return how many differ."""
    content = prepare(project, name)
    _, code = run(project, {**content, "name": "before"}, warm=True)
    if code:
        raise RuntimeError(f"{name} is refused as it is")
    before = list_workers()
    wrong = 0
    try:
        for change in changes:
            settings = CHANGES[change]
            if settings.get("touch") and not (project / settings["touch"]).exists():
                continue
            changed = apply(content, settings)
            if "touch" in settings:
                rewrite(project / settings["touch"])
            cold_s, cold_code = run(project, {**changed, "name": f"{change}-cold"}, warm=False)
            warm_s, warm_code = run(project, {**changed, "name": f"{change}-warm"}, warm=True)
            if (cold_code, warm_code) == (2, 2):
                print(f"{name:<22}{change:<15}{'refused':<12}", flush=True)
                continue
            equal = read_metrics(project, f"{change}-cold") == read_metrics(
                project, f"{change}-warm"
            )
            after = list_workers()
            workers = "same" if after & before else "new"
            before = after
            wrong += not equal
            said = "equal" if equal else "DIFFERENT"
            print(
                f"{name:<22}{change:<15}{said:<12}{workers:<10}{cold_s:>7.1f}{warm_s:>8.1f}",
                flush=True,
            )
    finally:
        subprocess.run(
            [sys.executable, "-m", "sweep", "stop", "--warm"],
            cwd=project,
            check=True,
            capture_output=True,
        )
    return wrong


def prepare(project: Path, name: str) -> dict[str, Any]:
    """Write what a sweep needs into a folder; return the content of its file, shortened to a few trials."""
    if name == "own":
        (project / "own.py").write_text(OWN)
        rewrite(project / "own.npy")
        return {**OWN_FILE, "epochs": 2, "training": {}}
    content: dict[str, Any] = yaml.safe_load((ROOT / "search_spaces" / f"{name}.yaml").read_text())
    content.pop("early_terminate", None)
    if content["method"] != "grid":
        content["run_cap"] = 3
    content["parameters"] = {**content["parameters"], **SMALL.get(name, {})}
    return {**content, "epochs": 2, "repeats": 1, "training": content.get("training", {})}


def rewrite(path: Path) -> None:
    """Change a file: code gets another constant, data other numbers."""
    if path.suffix == ".py":
        path.write_text(path.read_text().replace("SCALE = 1.0", "SCALE = 1.5"))
        return
    import numpy as np

    seed = int(path.exists())
    np.save(path, np.random.default_rng(seed).normal(size=(400, 6)).astype("float32"))


def apply(content: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return a file's content with these keys set, each named by its path."""
    changed: dict[str, Any] = json.loads(json.dumps(content))
    for path, value in settings.items():
        if path == "touch":
            continue
        *parents, last = path.split(".")
        place = changed
        for parent in parents:
            place = place[parent]
        place[last] = value
    return changed


def run(project: Path, content: dict[str, Any], *, warm: bool) -> tuple[float, int]:
    """Run a sweep file; return the seconds until its first epoch and the exit code."""
    name = content["name"]
    (project / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    option = ["--keep-warm", "5m"] if warm else []
    began = time.time()
    # a folder of its own has no keeper, so that a cold run does not meet the warm one
    folder = project if warm else project / "cold"
    if not warm:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(project, folder, ignore=shutil.ignore_patterns("results", "cold"))
    result = subprocess.run(
        [sys.executable, "-m", "sweep", "run", f"{name}.yaml", "--no-memo", "-q", *option],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if result.returncode not in (0, 2):
        raise RuntimeError(f"{name} ended with {result.returncode}: {result.stderr[-2000:]}")
    if result.returncode == 2:
        return 0.0, 2
    if not warm:
        shutil.copytree(folder / "results" / name, project / "results" / name)
    first = min(
        event["time"] for event in read_log(project, name) if event["event"] == "epoch_reported"
    )
    return first - began, 0


def read_log(project: Path, name: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (project / "results" / name / "log.jsonl").read_text().splitlines()
    ]


def read_metrics(project: Path, name: str) -> dict[tuple[int, int], dict[str, float]]:
    """Return the metrics of each epoch of each trial."""
    found = {}
    for event in read_log(project, name):
        if event["event"] == "epoch_reported":
            found[event["trial"], event["epoch"]] = event["metrics"]
    return found


def list_workers() -> set[str]:
    """Return the numbers of the processes that are workers now, which those of a keeper stay after its sweep."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if b"TrialWorker" in path.read_bytes():
                found.add(path.parent.name)
    return found


if __name__ == "__main__":
    sys.exit(main())
