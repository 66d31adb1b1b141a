"""Whole sweeps in simulated time, with the real schedulers: what is left of them is known afterwards."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import EpochReported, Event, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.schedulers.early_termination import build_scheduler
from sweep.space.early_terminate import EarlyTermination, compute_decision_epochs
from sweep.space.objectives import Objective

EPOCH_S, START_S = 10.0, 3.0


@dataclass
class Passed:
    """What was thought on the way: (time, seconds left, trials that train to the end); and how it was."""

    thought: list[tuple[float, float, float]]
    took_s: float
    completed: int
    costs: list[tuple[float, float]]  # what it had cost, and was thought to cost in all
    cost: float

    def at(self, share: float) -> tuple[float, float]:
        """What was thought when this share of the time had passed: of the whole time, and of those that complete.

        Both are ratios to what came.
        """
        time, left_s, completed = min(
            self.thought, key=lambda thought: abs(thought[0] - share * self.took_s)
        )
        return (time + left_s) / self.took_s, completed / self.completed

    def cost_at(self, share: float) -> float:
        """What it was thought to cost when it had cost this share, as a ratio to what it did."""
        return (
            next(in_all for spent, in_all in self.costs if spent >= share * self.cost) / self.cost
        )


def simulate(
    rule: EarlyTermination,
    trials: int,
    epochs: int,
    slots: int,
    seed: int,
    curves: Sequence[Sequence[float]] = (),
) -> Passed:
    """Trials of random merit, or with these losses; an epoch takes about 10 s, and a start 3 s."""
    numbers = random.Random(seed)
    standing = Standing(
        Outline(
            metric="loss",
            goal="minimize",
            total=trials,
            epochs=epochs,
            decisions=compute_decision_epochs(rule, epochs),
            rule=rule,
        )
    )
    scheduler = build_scheduler(rule, Objective("loss", "minimize", None), epochs)
    workers: list[tuple[float, int, int]] = []
    merits: list[float] = []
    thought: list[tuple[float, float, float]] = []
    costs: list[tuple[float, float]] = []
    held_since: dict[int, float] = {}
    now, asked = 0.0, 0

    def emit(event: Event) -> str | None:
        standing.observe(event)
        return scheduler.observe(event)

    def start() -> None:
        number = len(merits)
        if number < trials:
            merits.append(numbers.random())
            held_since[number] = now
            emit(TrialStarted(trial=number, trial_id="", params={}, seed=0, repeat=0, time=now))
            heapq.heappush(
                workers, (now + START_S + EPOCH_S * numbers.uniform(0.8, 1.2), number, 1)
            )

    emit(SessionStarted(time=0.0, resumed=False, version="1"))
    for _ in range(slots):
        start()
    while workers:
        now, number, epoch = heapq.heappop(workers)
        loss = merits[number] / 2 + 1 / (2 * epoch) + numbers.gauss(0, 0.02)
        if curves:
            loss = curves[number][epoch - 1]
        measures = {"cost": now - held_since[number]}
        held_since[number] = now
        reported = EpochReported(
            trial=number,
            epoch=epoch,
            metrics={"loss": loss},
            time=now,
            time_s=EPOCH_S,
            measures=measures,
        )
        pruned = emit(reported)
        asked += 1
        if asked % max(trials // 10, 1) == 0:
            costs.append((standing.cost, standing.cost_in_all(now) or 0.0))
            left_s, survivors = standing.left_s(now), standing.survivors()
            assert left_s is not None
            assert survivors is not None
            thought.append((now, left_s, survivors))
        if pruned or epoch == epochs:
            status = Status.PRUNED if pruned else Status.COMPLETED
            emit(TrialEnded(trial=number, status=status, reason=pruned or "", time=now))
            start()
        else:
            heapq.heappush(workers, (now + EPOCH_S * numbers.uniform(0.8, 1.2), number, epoch + 1))
    return Passed(thought, now, standing.ended[Status.COMPLETED], costs, standing.cost)
