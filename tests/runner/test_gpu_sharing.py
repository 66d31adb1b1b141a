"""Trials that share GPUs as measured: a fleet of cards that a coordinator drives, without any training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import simulated

from sweep.backends import Continues, Crowded, Ends, Moves, Order, Progress
from sweep.contract import Devices
from sweep.events import EpochReported, Facts, Status, TrialEnded, TrialStarted
from sweep.runner.coordinator import Coordinator, Hooks
from sweep.runner.methods import build_searcher
from sweep.schedulers.early_termination import build_scheduler
from sweep.spec import parse_spec
from sweep.store import log as store_log
from sweep.store.log import Log

FILE = """
name: packed
trainable: none:None
method: grid
metric: {name: score, goal: minimize}
parameters: {size: {values: [%s]}, a: {values: [%s]}}
epochs: %d
max_failures: 99
resources: {gpus: auto}
%s
"""
MEMORY = 24e9
EXAMPLES = 1000.0


@dataclass
class Fleet:
    """GPUs, and workers that train an epoch each in turn."""

    speed: Callable[[int], float]  # examples a second of one of so many trials on a GPU
    peak: Callable[[object], float]  # bytes, by the parameter ``size``
    gpus: int = 1
    now: float = 1000.0
    told: Mapping[int, float] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    done: Counter[int] = field(default_factory=Counter)
    most: int = 0  # trials that ran at once
    shares: list[float] = field(default_factory=list)  # of all epochs
    crowds: int = 0
    driver: Coordinator = field(init=False)

    def begin(self, folder: Path, *what: str, **more: Any) -> tuple[Coordinator, Log]:
        hooks = Hooks(
            at_once=lambda gpus: int(self.gpus / gpus + 1e-9),
            share=self._hear,
            say=self.said.append,
        )
        self.driver, log = begin(folder, *what, hooks=hooks, **more)
        return self.driver, log

    def _hear(self, wanted: Mapping[int, float]) -> None:
        self.told = dict(wanted)

    def run(self, epochs: float = float("inf")) -> None:
        """Train until all is done, or so many epochs."""
        running: dict[int, tuple[Order, int]] = {}
        waiting: list[Order] = []
        while len(self.shares) < epochs:
            while (
                self.driver.running < (self.driver.room or 0)
                and (order := self.driver.next()) is not None
            ):
                waiting.append(order)
            free = [
                1
                - sum(order.assignment.devices.gpus for order, on in running.values() if on == gpu)
                for gpu in range(self.gpus)
            ]
            for order in list(waiting):
                share = order.assignment.devices.gpus
                room = [gpu for gpu in range(self.gpus) if free[gpu] >= share - 1e-9]
                if room:
                    gpu = min(room, key=lambda gpu: free[gpu])
                    free[gpu] -= share
                    running[order.assignment.trial] = order, gpu
                    waiting.remove(order)
                    self.driver.begun(order.assignment.trial)
            if not running:
                assert not waiting
                return
            assert min(free) > -1e-9, "more was given than there is"
            self.most = max(self.most, len(running))
            self._epoch(running)

    def _epoch(self, running: dict[int, tuple[Order, int]]) -> None:
        at_once = Counter(gpu for _, gpu in running.values())
        slowest = max(EXAMPLES / self.speed(count) for count in at_once.values())
        begun, self.now = self.now, self.now + slowest
        for trial, (order, gpu) in list(running.items()):
            share, size = order.assignment.devices.gpus, order.assignment.params["size"]
            if self.peak(size) > share * MEMORY:
                self.crowds += 1
                assert self.driver.take(trial, Crowded(spoilt="crowded"))
                self.driver.lose(trial, "replaced")
                del running[trial]
                continue
            self.done[trial] += 1
            self.shares.append(share)
            took = EXAMPLES / self.speed(at_once[gpu])
            event = EpochReported(
                trial=trial,
                epoch=self.done[trial],
                metrics={"score": 1.0},
                time=begun + took,
                time_s=took,
                examples_per_s=EXAMPLES / took,
                measures={
                    "gpus": share,
                    "gpu_memory_bytes": MEMORY,
                    "gpu_memory_peak_bytes": self.peak(size),
                },
            )
            facts = Facts()
            last = event.epoch == order.assignment.epochs
            progress: Progress = Continues(epochs=(event,), facts=facts)
            if last:
                end = TrialEnded(
                    trial=trial, status=Status.COMPLETED, reason="", time=self.now, facts=facts
                )
                progress = Ends(epochs=(event,), end=end, facts=facts)
            elif self.told.get(trial, share) != share:
                progress = Moves(epochs=(event,), facts=facts)
            if not self.driver.take(trial, progress):
                del running[trial]


def begin(
    folder: Path,
    sizes: str = "1",
    trials: int = 12,
    epochs: int = 6,
    hooks: Hooks | None = None,
    more: str = "",
) -> tuple[Coordinator, Log]:
    text = FILE % (sizes, ", ".join(map(str, range(trials))), epochs, more)
    given, log = parse_spec(text, "f.yaml"), Log(folder / "log.jsonl")
    searcher = build_searcher(
        given.method, given.space, given.objectives, given.seed, given.repeats
    )
    scheduler = build_scheduler(given.early_terminate, given.objectives[0], given.epochs)
    devices = Devices(1, 1.0, simulated=True)
    return Coordinator(given, devices, searcher, scheduler, log, hooks), log


def small(size: object) -> float:
    return 1e9


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(
    ("speeds", "level"),
    [
        ({1: 100.0, 2: 50.0}, 1),
        ({1: 100.0, 2: 90.0, 4: 30.0}, 2),
        ({1: 100.0, 2: 90.0, 4: 80.0, 8: 20.0}, 4),
    ],
)
def test_it_finds_what_is_fastest(
    tmp_path: Path, gpus: int, speeds: dict[int, float], level: int
) -> None:
    fleet = Fleet(
        lambda count: speeds.get(count, speeds[max(n for n in speeds if n <= count)]), small, gpus
    )
    driver, log = fleet.begin(tmp_path, trials=40)
    driver.open()
    fleet.run()
    assert driver.completed == 40
    assert set(fleet.done.values()) == {6}, (
        "each epoch was trained once, wherever its trial went on"
    )
    late = fleet.shares[len(fleet.shares) // 2 :]
    assert set(late) == {1 / level}
    assert fleet.said[-1].startswith(f"{2 * level} trials per GPU were")
    assert f"it stays at {'one trial' if level == 1 else f'{level} trials'} a GPU" in fleet.said[-1]
    log.close()


def test_memory_bounds_it_and_nobody_is_lost_to_a_neighbour(tmp_path: Path) -> None:
    """The first trials are small: those that come later do not fit beside so many, and go on with more room."""
    fleet = Fleet(lambda count: 100.0, lambda size: float(size) * 1e9)
    driver, log = fleet.begin(tmp_path, sizes="1, 9", trials=12)
    driver.open()
    fleet.run()
    assert driver.completed == 24
    assert set(fleet.done.values()) == {6}
    assert 0 < fleet.crowds <= 24
    assert any("out of memory on 1/" in line for line in fleet.said)
    log.close()


def test_a_resumed_sweep_knows_what_was_measured(tmp_path: Path) -> None:
    speeds = {1: 100.0, 2: 90.0, 4: 30.0}
    fleet = Fleet(lambda count: speeds[count if count != 3 else 2], small)
    driver, log = fleet.begin(tmp_path, trials=40)
    driver.open()
    fleet.run(epochs=100)
    assert driver.room == 2
    log.close()
    following = Fleet(fleet.speed, small, now=fleet.now, done=fleet.done)
    again, log = following.begin(tmp_path, trials=40)
    again.open(list(store_log.read(log.path)))
    assert again.room == 2
    following.run()
    assert set(following.shares) == {0.5}
    assert again.completed == 40
    log.close()


def test_few_trials_stay_where_they_are(tmp_path: Path) -> None:
    fleet = Fleet(lambda count: 100.0, small)
    driver, log = fleet.begin(tmp_path, trials=3)
    driver.open()
    fleet.run()
    assert fleet.most == 2
    assert driver.completed == 3
    log.close()


@pytest.mark.parametrize("settled", [False, True])
def test_more_trials_than_there_were_try_more_of_them_a_gpu(tmp_path: Path, settled: bool) -> None:
    fleet = Fleet(lambda count: 100.0, small)
    driver, log = fleet.begin(tmp_path, trials=40, epochs=30, more="run_cap: 2")
    driver.open()
    fleet.run(epochs=50 if settled else 5)
    driver.close()
    log.close()
    following = Fleet(fleet.speed, small, now=fleet.now, done=fleet.done)
    again, log = following.begin(tmp_path, trials=40, epochs=30, more="run_cap: 2")
    again.open(list(store_log.read(log.path)), settings={"run_cap": 40})
    following.run()
    assert again.completed == 40
    assert following.most == 8
    log.close()


def test_what_was_decided_stays_with_more_trials_if_nothing_is_left_to_try(tmp_path: Path) -> None:
    fleet = Fleet(lambda count: 100.0, lambda size: 10e9)
    driver, log = fleet.begin(tmp_path, trials=40, epochs=30, more="run_cap: 4")
    driver.open()
    fleet.run(epochs=50)
    assert (driver.room, fleet.said[-1].count("it stays at 2")) == (2, 1)
    driver.close()
    log.close()
    following = Fleet(fleet.speed, fleet.peak, now=fleet.now, done=fleet.done)
    again, log = following.begin(tmp_path, trials=40, epochs=30, more="run_cap: 4")
    again.open(list(store_log.read(log.path)), settings={"run_cap": 40})
    following.run()
    assert (again.completed, following.most, following.said) == (40, 2, [])
    log.close()


def test_without_a_measured_peak_one_trial_has_a_gpu(tmp_path: Path) -> None:
    fleet = Fleet(lambda count: 100.0, lambda size: 0.0)
    driver, log = fleet.begin(tmp_path, trials=4)
    driver.open()
    fleet.run()
    assert (fleet.most, fleet.said) == (1, [])
    log.close()


def test_a_fixed_share_stays(tmp_path: Path) -> None:
    driver, log = simulated.begin(tmp_path)
    driver.open()
    order = driver.next()
    assert order is not None
    assert (order.shares, order.assignment.devices) == (False, Devices())
    log.close()


def test_a_log_with_a_failed_trial_that_was_tried_again_is_resumed(tmp_path: Path) -> None:
    driver, log = begin(tmp_path)
    measures = {"gpus": 0.5, "gpu_memory_bytes": MEMORY, "gpu_memory_peak_bytes": 1e9}

    def report(epoch: int) -> EpochReported:
        return EpochReported(
            trial=0,
            epoch=epoch,
            metrics={"score": 1.0},
            time=2.0,
            time_s=1.0,
            examples_per_s=1.0,
            measures=measures,
        )

    def end(status: Status, *, again: bool) -> TrialEnded:
        return TrialEnded(trial=0, status=status, reason="", time=3.0, again=again)

    begun = TrialStarted(
        trial=0, trial_id="t0", params={"size": 1, "a": 0}, seed=0, repeat=0, time=1.0
    )
    failed, again = end(Status.FAILED, again=False), end(Status.INTERRUPTED, again=True)
    driver.open([begun, report(1), failed, again, report(2)])
    assert driver.next().assignment.trial == 0
    log.close()
