"""What every scheduler keeps, whatever its rule: `sweep.schedulers.contract.Scheduler`, as tests."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

from sweep.events import EpochReported, Event, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.schedulers.contract import Scheduler
from sweep.space.objectives import Objective

EPOCHS = 12

Verdicts: TypeAlias = dict[tuple[int, int], str | None]
"""The reason to prune, or None, by trial and epoch."""


def report(trial: int, epoch: int, value: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=epoch, metrics={"m": value}, time=0.0, time_s=1.0)


def run(scheduler: Scheduler, values: Mapping[int, float], epochs: int = EPOCHS) -> Verdicts:
    """Return all trials side by side, in the order given, each with one value throughout, until it is pruned."""
    verdicts: Verdicts = {}
    going = list(values)
    for epoch in range(1, epochs + 1):
        for trial in list(going):
            verdicts[trial, epoch] = scheduler.observe(report(trial, epoch, values[trial]))
            if verdicts[trial, epoch]:
                going.remove(trial)
    return verdicts


def pruned(verdicts: Verdicts) -> dict[int, int]:
    """Return the epoch at which each pruned trial was stopped."""
    return {trial: epoch for (trial, epoch), reason in verdicts.items() if reason}


class SchedulerConformance(ABC):
    """Derive a class whose name begins with Test and let it ``make`` a scheduler."""

    @abstractmethod
    def make(self, objective: Objective, epochs: int) -> Scheduler:
        """Return the scheduler under test."""

    def build(self, epochs: int = EPOCHS) -> Scheduler:
        return self.make(Objective("m", "minimize"), epochs)

    def test_decision_epochs_ascend_and_are_before_the_last(self) -> None:
        epochs = self.build().decision_epochs(EPOCHS)
        assert list(epochs) == sorted(set(epochs))
        assert all(0 < epoch < EPOCHS for epoch in epochs)

    def test_a_log_replays_to_the_same_verdicts_at_decision_epochs_only(self) -> None:
        for seed in range(20):
            rng = random.Random(seed)
            waiting = dict.fromkeys(range(6), 1)
            scheduler = self.build()
            log: list[EpochReported] = []
            verdicts: list[str | None] = []
            for _ in range(60):
                trial = rng.randrange(6)
                if waiting[trial] <= EPOCHS:
                    value = rng.choice([rng.uniform(-10, 10)] * 6 + [math.nan, math.inf, -math.inf])
                    log.append(report(trial, waiting[trial], value))
                    verdicts.append(scheduler.observe(log[-1]))
                    waiting[trial] = EPOCHS + 1 if verdicts[-1] else waiting[trial] + 1
            replayed = self.build()
            assert [replayed.observe(event) for event in log] == verdicts
            stopped = {event.epoch for event, verdict in zip(log, verdicts, strict=True) if verdict}
            assert stopped <= set(replayed.decision_epochs(EPOCHS))

    def test_replaying_restores_what_comes_next(self) -> None:
        scheduler, resumed = self.build(), self.build()
        for trial in range(20):
            for epoch in range(1, 5):
                event = report(trial, epoch, random.Random(trial).random())
                assert scheduler.observe(event) == resumed.observe(event)
        assert run(scheduler, {99: 0.99}) == run(resumed, {99: 0.99})

    def test_a_reason_is_one_line(self) -> None:
        for reason in run(self.build(), {trial: float(trial) for trial in range(20)}).values():
            assert reason is None or (reason and "\n" not in reason)

    def test_other_events_bring_no_verdict(self) -> None:
        events: list[Event] = [
            SessionStarted(time=0.0, resumed=False, version="1"),
            TrialStarted(trial=0, trial_id="t", params={}, seed=0, repeat=0, time=0.0),
            TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=0.0),
            EpochReported(trial=0, epoch=2, metrics={"other": 1.0}, time=0.0, time_s=1.0),
        ]
        scheduler = self.build()
        assert [scheduler.observe(event) for event in events] == [None] * 4

    def test_a_trial_of_one_epoch_is_never_stopped(self) -> None:
        scheduler = self.build(epochs=1)
        assert scheduler.decision_epochs(1) == ()
        assert pruned(run(scheduler, {trial: float(trial) for trial in range(20)}, epochs=1)) == {}
