"""How good is the search? Methods and rules against each other, on tables of trainings and a simulated clock.

    python benchmarks/search.py                                    # gp, tpe and random on a table of our own, a minute
    python benchmarks/search.py --methods gp+asha_promotion:min_iter=6:capped=true,optuna/tpe \\
        --tasks lcbench --tables lcbench=DATA --seeds 5 --budgets 2,5,10,20,30 --out /tmp/runs

A method is one of sweep's, with a rule after a plus and the rule's keys after colons; ``auto`` chooses both;
``optuna/tpe`` and ``optuna/gp`` are Optuna's own samplers. ``gp@gain=0.01`` starts no more trials once the next eight
are expected to gain less than this regret (`stop_when.gain`). The tasks are in `search_tasks.py`.

Workers train at once, and the budget is counted in epochs of full trainings. Regret 0 is the best configuration that is
known, 1 the median one; a trial counts with the best value that it has shown, and where a training is noisy, with the
mean over the seeds of that configuration. The table has the mean over tasks and seeds, with a 95 % interval of a
bootstrap over tasks. With ``--out``, each run is a line of a file, and what is there is not run again.

``started`` in the table is the regret at the end if the best configuration that a search has started had been trained
whole. Where it is near the last regret, the searcher did not find the best region; where it is far below, the rule did
not let the best ones go on. ``--compare`` adds for each method its difference from the first one, over the runs of the
same task and seed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import logging
import math
import os
import sys
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})  # before NumPy is imported
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from search_tasks import Task, load_tasks

from sweep.events import EpochReported, Event, Facts, Params, Status, TrialEnded, TrialStarted
from sweep.runner.expected_gain import GainRule, GainSetting
from sweep.runner.methods import build_searcher
from sweep.schedulers import Pausing, Scheduler
from sweep.schedulers.early_termination import build_scheduler
from sweep.searchers import Searcher
from sweep.space.early_terminate import RULES, EarlyTermination, NoTermination
from sweep.space.objectives import Objective
from sweep.spec.automatic import choose_automatically
from sweep.spec.blocks import StopWhen
from sweep.spec.search_methods import find_method

LOSS = Objective("loss", "minimize")


class Method(Protocol):
    """A search method, which is asked for trials and identifies them by their numbers."""

    def ask(self) -> tuple[int, Params] | None:
        """Return the trial that a free worker trains on; None if the worker must wait for a report."""

    def report(self, trial: int, epoch: int, loss: float) -> bool:
        """Learn from an epoch; return whether the trial continues. If not, `ask` may return it again later."""


class OwnMethod:
    """A searcher and a scheduler of sweep, which get events as from the coordinator."""

    def __init__(
        self,
        searcher: Searcher,
        scheduler: Scheduler,
        epochs: int,
        gain_rule: GainRule | None = None,
    ) -> None:
        self._searcher, self._scheduler, self._epochs = searcher, scheduler, epochs
        self._gain_rule = gain_rule
        self._pausing = scheduler if isinstance(scheduler, Pausing) else None
        self._rungs = frozenset(scheduler.decision_epochs(epochs))
        self._params: dict[int, Params] = {}
        self._paused: list[int] = []
        self._running: set[int] = set()

    def ask(self) -> tuple[int, Params] | None:
        trial = self._released()
        if trial is None:
            trial = len(self._params)
            is_over = self._gain_rule is not None and self._gain_rule.reason is not None
            params = None if is_over else self._searcher.suggest(trial)
            if params is None:
                return None
            self._params[trial] = params
            self._observe(
                TrialStarted(
                    trial=trial, trial_id=str(trial), params=params, seed=0, repeat=0, time=0.0
                )
            )
        self._running.add(trial)
        return trial, self._params[trial]

    def report(self, trial: int, epoch: int, loss: float) -> bool:
        metrics = {"loss": loss}
        reason = self._observe(
            EpochReported(trial=trial, epoch=epoch, metrics=metrics, time=0.0, time_s=1.0)
        )
        if epoch == self._epochs:
            self._end(trial, Status.COMPLETED)
        elif reason is not None:
            self._end(trial, Status.PRUNED)
        elif (
            self._pausing is not None
            and epoch in self._rungs
            and self._pausing.holds(trial) is not None
        ):
            self._paused.append(trial)
            self._end(trial, Status.INTERRUPTED)
        return trial in self._running

    def _released(self) -> int | None:
        """Return a paused trial that may continue, and remove it from the paused ones; None if there is none."""
        for trial in self._paused:
            if self._pausing is not None and self._pausing.holds(trial) is None:
                self._paused.remove(trial)
                return trial
        return None

    def _end(self, trial: int, status: Status) -> None:
        self._running.discard(trial)
        waits = status is Status.INTERRUPTED
        self._observe(
            TrialEnded(trial=trial, status=status, reason="", time=0.0, waits=waits, facts=Facts())
        )

    def _observe(self, event: Event) -> str | None:
        self._searcher.observe(event)
        reason = self._scheduler.observe(event)
        if self._gain_rule is not None:
            self._gain_rule.observe(event)
        return reason


class OptunaMethod:
    """An Optuna sampler with its defaults, as its users get it."""

    def __init__(self, which: str, task: Task, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        samplers |= {"gp": optuna.samplers.GPSampler, "cmaes": optuna.samplers.CmaEsSampler}
        self._study = optuna.create_study(sampler=samplers[which](seed=seed))
        self._task = task
        self._open: dict[int, Any] = {}

    def ask(self) -> tuple[int, Params]:
        from sweep.searchers.optuna_search import draw_value

        trial = self._study.ask()
        self._open[trial.number] = trial
        return trial.number, self._task.space.complete(
            lambda parameter: draw_value(trial, parameter)
        )

    def report(self, trial: int, epoch: int, loss: float) -> bool:
        if epoch == self._task.epochs:
            self._study.tell(self._open.pop(trial), loss)
        return epoch < self._task.epochs


def build_method(name: str, task: Task, seed: int, budget: int, workers: int) -> Method:
    """Return the method of a name, for a budget in full trainings."""
    if name.startswith("optuna/"):
        return OptunaMethod(name.removeprefix("optuna/"), task, seed)
    name, _, gain = name.partition("@")
    method, _, rule_text = name.partition("+")
    rule = parse_rule(rule_text)
    if method == "auto":
        chosen = choose_automatically(
            objectives=1, epochs=task.epochs, budget_epochs=budget * task.epochs
        )
        method, rule = chosen.method, chosen.rule or rule
    searcher = build_searcher(method, task.space, (LOSS,), seed)
    gain_rule = build_gain_rule(gain, task, method, searcher, seed) if gain else None
    return OwnMethod(searcher, build_scheduler(rule, LOSS, task.epochs), task.epochs, gain_rule)


def build_gain_rule(text: str, task: Task, method: str, searcher: Searcher, seed: int) -> GainRule:
    """Return the rule that ends a search, of a text such as ``gain=0.001`` or ``gain=auto``.

    A number is a regret: a share of the way from the median configuration to the best.
    """
    asked = text.removeprefix("gain=")
    gain = asked if asked == "auto" else float(asked) * (task.middle - task.best)
    setting = GainSetting(task.space, LOSS, seed, StopWhen.model_validate({"gain": gain}))
    used = find_method(method)
    return GainRule(setting, None if used.learns else searcher, enumerates=used.enumerates)


def parse_rule(text: str) -> EarlyTermination:
    """Return the rule of a text such as ``asha_promotion:min_iter=6:capped=true``."""
    if not text:
        return NoTermination()
    kind, *pairs = text.split(":")
    keys = dict(pair.split("=") for pair in pairs)
    return RULES[kind](**{key: json.loads(value) for key, value in keys.items()})


@dataclass(slots=True)
class Run:
    """The result of a method with a budget: the loss of the best configuration at each change."""

    method: str
    task: str
    seed: int
    budget: int
    epochs: list[int] = field(default_factory=list)  # spent when the best changed
    losses: list[float] = field(default_factory=list)
    trials: int = 0
    completed: int = 0
    spent: int = 0
    asking_s: float = 0.0
    slowest_s: float = 0.0
    # lowest loss that any of the trials would have shown, had it been trained whole
    best_started: float = math.inf

    def loss_at(self, epochs: float) -> float:
        """Return the loss of the best configuration after so many epochs; infinite before the first result."""
        place = int(np.searchsorted(np.array(self.epochs), epochs, side="right")) - 1
        return self.losses[place] if place >= 0 else math.inf


def simulate(method: Method, task: Task, run: Run, seed: int, workers: int) -> None:
    """Simulate the trainings of a run until its budget is spent, or until no trial is left."""
    # when the next epoch of a trial ends, and the order in which that began
    clock: list[tuple[float, int, int]] = []
    curves: dict[int, np.ndarray] = {}
    known: dict[int, Params] = {}
    reached: dict[int, int] = {}
    best, now, order = math.inf, 0.0, 0
    while run.spent < run.budget * task.epochs:
        while len(clock) < workers:
            asked = time.perf_counter()
            found = method.ask()
            took = time.perf_counter() - asked
            run.asking_s += took
            run.slowest_s = max(run.slowest_s, took)
            if found is None:
                break
            trial, params = found
            if trial not in known:
                training_seed = np.random.SeedSequence([seed, len(known)]).generate_state(1)[0]
                known[trial], reached[trial] = params, 0
                curves[trial] = task.curve(params, int(training_seed))
                run.best_started = min(
                    run.best_started, task.final(params, float(curves[trial].min()))
                )
            order += 1
            heapq.heappush(clock, (now + task.seconds(params), order, trial))
        if not clock:
            return
        now, _, trial = heapq.heappop(clock)
        reached[trial] += 1
        run.spent += 1
        loss = float(curves[trial][reached[trial] - 1])
        if loss < best:
            best = loss
            run.epochs.append(run.spent)
            run.losses.append(task.final(known[trial], loss))
        if reached[trial] == task.epochs:
            run.completed += 1
        if method.report(trial, reached[trial], loss):
            order += 1
            heapq.heappush(clock, (now + task.seconds(known[trial]), order, trial))
        run.trials = len(known)


def load_runs(path: Path) -> list[Run]:
    """Return the runs of a file; [] if it does not exist."""
    return (
        [Run(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    )


def interval(by_task: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean over tasks."""
    values = np.array(by_task)
    picks = np.random.default_rng(0).integers(0, len(values), (5000, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def table(runs: Sequence[Run], tasks: Sequence[Task], budgets: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table with the mean regrets of each method."""
    by_name = {task.name: task for task in tasks}
    methods = dict.fromkeys(run.method for run in runs)
    width = max(map(len, methods))
    head = "".join(f"{budget:>21}" for budget in budgets)
    yield f"{'full trainings':{width}}{head}  started  runs  spent  s/ask  slowest"
    for method in methods:
        own = [run for run in runs if run.method == method]
        cells = []
        for budget in budgets:
            means = [
                np.mean(
                    [
                        task.regret(run.loss_at(budget * task.epochs))
                        for run in own
                        if run.task == name
                    ]
                )
                for name, task in by_name.items()
                if any(run.task == name for run in own)
            ]
            low, high = interval(means)
            cells.append(f"{np.mean(means):7.3f} [{low:.3f}, {high:.3f}]")
        asking = sum(run.asking_s for run in own) / sum(run.trials for run in own)
        slowest = max(run.slowest_s for run in own)
        spent = float(np.mean([run.spent / by_name[run.task].epochs for run in own]))
        started = float(np.mean([by_name[run.task].regret(run.best_started) for run in own]))
        counts = f"{started:7.3f}  {len(own):4}  {spent:5.1f}  {asking:.3f}  {slowest:.2f}"
        yield f"{method:{width}}{' '.join(cells)}  {counts}"


def compare(runs: Sequence[Run], tasks: Sequence[Task], budgets: Sequence[int]) -> Iterator[str]:
    """Yield for each method but the first a line with its regrets less those of the first, by task and seed."""
    by_name = {task.name: task for task in tasks}
    first, *others = dict.fromkeys(run.method for run in runs)
    known = {(run.task, run.seed): run for run in runs if run.method == first}
    width = max((len(method) for method in others), default=0)
    for method in others:
        own = [run for run in runs if run.method == method and (run.task, run.seed) in known]
        cells = []
        for budget in budgets:
            differences: dict[str, list[float]] = {}
            for run in own:
                task = by_name[run.task]
                epochs = budget * task.epochs
                other = known[run.task, run.seed]
                difference = task.regret(run.loss_at(epochs)) - task.regret(other.loss_at(epochs))
                differences.setdefault(run.task, []).append(difference)
            means = [float(np.mean(several)) for several in differences.values()]
            better = sum(one < 0 for several in differences.values() for one in several)
            low, high = interval(means)
            cells.append(f"{np.mean(means):+.3f} [{low:+.3f}, {high:+.3f}] {better}")
        yield f"{method:{width}} - {first}: {', '.join(cells)} better of {len(own)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--methods", default="gp+asha_promotion:min_iter=6:capped=true,gp,tpe,random"
    )
    parser.add_argument("--tasks", default="crossing")
    parser.add_argument("--tables", action="append", default=[], metavar="KIND=PATH")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budgets", default="2,5,10", help="full trainings; runs spend the last")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path, help="folder of the runs")
    parser.add_argument(
        "--compare", action="store_true", help="differences from the first method, run by run"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    paths = {kind: Path(path) for kind, _, path in (pair.partition("=") for pair in given.tables)}
    kinds = given.tasks.split(",")
    tasks = [task for kind in kinds for task in load_tasks(kind, paths.get(kind.partition("-")[0]))]
    budgets = [int(budget) for budget in given.budgets.split(",")]
    names = {task.name for task in tasks}
    runs: list[Run] = []
    for method in given.methods.split(","):
        path = (
            None
            if given.out is None
            else given.out / f"{method.replace('/', '_')}-{given.workers}.jsonl"
        )
        done = [] if path is None else load_runs(path)
        seen = {(run.task, run.seed, run.budget) for run in done}
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            for task in tasks:
                if (task.name, seed, budgets[-1]) in seen:
                    continue
                run = Run(method, task.name, seed, budgets[-1])
                # tasks of one space do not begin alike
                own_seed = zlib.crc32(f"{task.name} {seed}".encode()) % 2**31
                built = build_method(method, task, own_seed, budgets[-1], given.workers)
                simulate(built, task, run, own_seed, given.workers)
                done.append(run)
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("a") as file:
                        file.write(json.dumps(asdict(run)) + "\n")
        runs += [run for run in done if run.task in names and run.budget == budgets[-1]]
    print("\n".join(table(runs, tasks, budgets)))
    if given.compare:
        print("\n".join(compare(runs, tasks, budgets)))


if __name__ == "__main__":
    main()
