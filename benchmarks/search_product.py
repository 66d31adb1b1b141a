"""Does a sweep search as the simulation of `search.py` does? `auto` against random search, both by `sweep.run`.

    python benchmarks/search_product.py                                    # on the table of our own, a minute
    python benchmarks/search_product.py --tasks lcbench-others --tables lcbench=DATA --budget 30

Tasks and tables are those of `search.py`; ``lcbench-others`` are all data sets of the surrogate that `search.py` does
not use, so that nothing was chosen on them. Random search has `asha_promotion` from epoch 1. The sweeps run inline, so
that one trial trains at a time. Regret is that of the lowest loss of all epochs. 0 is the best of the table, or of
4,000 random configurations trained whole, so that it may be negative. The last line has the mean difference, with a
95 % interval of a bootstrap over tasks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from search import interval
from search_tasks import DATA_SETS, Task, load_tasks

import sweep
from sweep.functions import Reporter
from sweep.hyperparameters import Hyperparameters
from sweep.spec.distributions import domain_to_dict

SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "auto": {},
    "random": {"method": "random", "early_terminate": {"type": "asha_promotion", "min_iter": 1}},
}


def find_tasks(names: Sequence[str], tables: Mapping[str, Path]) -> list[Task]:
    """Return the tasks of names such as ``crossing``, ``lcbench-3945`` or ``lcbench-others``."""
    tasks = []
    for name in names:
        folder = tables.get(name.partition("-")[0])
        if name != "lcbench-others":
            tasks += load_tasks(name, folder)
            continue
        if folder is None:
            raise SystemExit("lcbench needs the path of its tables: --tables lcbench=FOLDER")
        known = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]
        for data_set in sorted(known):
            # one of the names stands for data sets that are not known
            if data_set.isdigit() and data_set not in DATA_SETS["lcbench"]:
                tasks += load_tasks(f"lcbench-{data_set}", folder)
    return tasks


def search(task: Task, which: str, budget: int, seed: int, results: Path) -> float:
    """Run a sweep on a task with a budget in full trainings, and return its regret."""

    def train(hp: Hyperparameters, report: Reporter) -> None:
        params = {name: hp[name] for name in task.space.names}
        losses = task.curve(params, report.seed)
        done = 0
        if report.restored:
            done = int((report.restored / "epoch").read_text())
        for epoch in range(done, task.epochs):

            def save(folder: Path, epoch: int = epoch) -> None:
                (folder / "epoch").write_text(str(epoch + 1))

            if not report(loss=float(losses[epoch]), checkpoint=save):
                return

    parameters = {one.name: domain_to_dict(one.domain) for one in task.space.parameters}
    what = {
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": parameters,
        "epochs": task.epochs,
        "budget": {"epochs": budget * task.epochs},
        "seed": seed,
        **SEARCHES[which],
    }
    name = f"{task.name}-{which}-{seed}"
    done = sweep.run(what, trainable=train, name=name, results=results, inline=True, quiet=True)
    return task.regret(float(done.metrics["metric.loss"].min()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default="crossing")
    parser.add_argument("--tables", action="append", default=[], metavar="KIND=PATH")
    parser.add_argument("--budget", type=int, default=4, help="in full trainings")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tables = {kind: Path(path) for kind, _, path in (pair.partition("=") for pair in given.tables)}
    differences = []
    with tempfile.TemporaryDirectory() as results:
        for task in find_tasks(given.tasks.split(","), tables):
            regrets = {}
            for which in SEARCHES:
                regrets[which] = search(task, which, given.budget, given.seed, Path(results))
            shown = "  ".join(f"{which} {regret:.3f}" for which, regret in regrets.items())
            print(f"{task.name}: {shown}", flush=True)
            differences.append(regrets["auto"] - regrets["random"])
    low, high = interval(differences)
    better = sum(difference < 0 for difference in differences)
    print(
        f"auto less random: {np.mean(differences):+.3f} [{low:+.3f}, {high:+.3f}], "
        f"better in {better} of {len(differences)}"
    )


if __name__ == "__main__":
    main()
