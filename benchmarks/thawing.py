"""Rules that let trials pause against ASHA that stops, replayed on five recorded tables, with a control.

    python benchmarks/thawing.py                       # records for four minutes, replays for one
    python benchmarks/thawing.py --tables /tmp/tables  # records there what is not there yet

A table is a random search of 80 configurations of a task of `thawing_tasks.py`, of which each trained all of its 81
epochs. The same curves are then replayed under each rule with its defaults, in 20 orders, four trials at a time. The
control trains all for one epoch and the best of these to its end. The score is that of the winner after all of its
epochs; the epochs are all that were trained, those of the winner among them.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path
from statistics import fmean

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})  # before NumPy is imported
sys.path.insert(0, str(Path(__file__).parent))

from thawing_tasks import EPOCHS, TASKS

import sweep
from sweep.analysis import replay
from sweep.analysis.replay import Curve
from sweep.events import Status
from sweep.schedulers import Scheduler
from sweep.schedulers.early_termination import build_scheduler
from sweep.schedulers.promotion import PausingScheduler, _Pause
from sweep.space.early_terminate import Asha, AshaPromotion, FreezeThaw, Pasha
from sweep.space.objectives import Objective, objective
from sweep.store import log
from sweep.store.folder import ResultsFolder

CONFIGURATIONS, AT_ONCE = 80, 4
RULES = {
    "asha": Asha(),
    "asha_promotion": AshaPromotion(),
    "pasha": Pasha(),
    "freeze_thaw": FreezeThaw(),
}


class OneEpoch(PausingScheduler):
    """The control: all trials pause after one epoch, and in the end the best of them continues."""

    def __init__(self, objective: Objective) -> None:
        super().__init__("one epoch", objective, (1,), EPOCHS)

    def _process_epoch(self, trial: int, epoch: int, loss: float) -> None:
        if epoch == 1:
            self._pause(trial, epoch, loss)

    def _describe_pause(self, pause: _Pause) -> str:
        return "not the best after an epoch"


def record(name: str, tables: Path) -> None:
    """Train all configurations of a task to their last epoch, in this process."""
    _, metric, parameters = TASKS[name]
    file = {
        "name": name,
        "method": "random",
        "metric": metric,
        "parameters": parameters,
        "epochs": EPOCHS,
        "run_cap": CONFIGURATIONS,
        "max_failures": CONFIGURATIONS,
    }
    sweep.run(
        file, trainable=f"thawing_tasks:{name}", results=tables, inline=True, memo=False, quiet=True
    )


def replayed(
    curves: list[Curve], goal: Objective, rule: str, orders: int
) -> list[tuple[float, int]]:
    """Return the loss of the winner and the epochs trained, for each order."""

    def make() -> Scheduler:
        return OneEpoch(goal) if rule == "one epoch" else build_scheduler(RULES[rule], goal, EPOCHS)

    beyond = replay._UnknownEpochs(curves, goal, better=False)  # no curve is cut short
    found = []
    for seed in range(orders):
        course = replay.simulate_trials(
            random.Random(seed).sample(curves, len(curves)), make, AT_ONCE, beyond
        )
        whole = [
            one for one in curves if course.is_whole(one.place) and one.status is Status.COMPLETED
        ]
        found.append((min(replay._final_loss(one, goal) for one in whole), course.trained))
    return found


def compare(name: str, tables: Path, orders: int) -> dict[str, bool]:
    """Print the rows of a table; return by rule whether it reached ASHA's score with a third of its epochs."""
    folder = ResultsFolder(tables / name)
    goal = objective(*folder.read_info().objectives[0])
    curves, _ = replay.curves(log.read(folder.log), lambda params: EPOCHS)
    ends = sorted(loss for one in curves if (loss := replay._final_loss(one, goal)) < float("inf"))
    print(f"{name}: {goal.name}, the best of {len(ends)} {goal.from_loss(ends[0]):.4f}, "
          f"tenth {goal.from_loss(ends[9]):.4f}, median {goal.from_loss(ends[len(ends) // 2]):.4f}")  # fmt: skip
    asha = replayed(curves, goal, "asha", orders)
    reached = {}
    for rule in (*RULES, "one epoch"):
        ours = replayed(curves, goal, rule, orders)
        loss, epochs = (fmean(column) for column in zip(*ours, strict=True))
        ratio = epochs / fmean(epochs for _, epochs in asha)
        good = sum(mine <= theirs for (mine, _), (theirs, _) in zip(ours, asha, strict=True))
        reached[rule] = loss <= fmean(loss for loss, _ in asha) and ratio <= 1 / 3
        rank = fmean(ends.index(mine) + 1 for mine, _ in ours)
        print(f"  {rule:15} score {goal.from_loss(loss):.4f}, rank {rank:4.1f}, {epochs:5.0f} epochs, "
              f"{ratio:.2f} of ASHA's; as good as ASHA in {good} of {orders}")  # fmt: skip
    return reached


def main() -> None:
    """Record missing tables, replay all, and print where the goal is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=Path, help="the folder of the recorded tables")
    parser.add_argument("--orders", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tables = given.tables or Path(scratch)
        found = {}
        for name in TASKS:
            if not (tables / name).exists():
                record(name, tables)
            found[name] = compare(name, tables, given.orders)
    for rule in (*list(RULES)[1:], "one epoch"):
        tasks = [name for name, reached in found.items() if reached[rule]]
        print(
            f"{rule}: ASHA's score with a third of its epochs on {len(tasks)} of {len(found)}: {', '.join(tasks)}"
        )


if __name__ == "__main__":
    main()
