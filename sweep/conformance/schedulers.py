"""Tests that every scheduler (`sweep.schedulers.Scheduler`) must pass."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeAlias

from sweep.events import EpochReported, Event, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.schedulers import Pausing, Scheduler
from sweep.space.objectives import Objective

EPOCHS = 12

Verdicts: TypeAlias = dict[tuple[int, int], str | None]
"""The scheduler's reason to prune a trial after an epoch, or None, by (trial, epoch)."""


def report(trial: int, epoch: int, value: float) -> EpochReported:
    """Return the event in which a trial reports that the metric ``m`` is ``value`` after an epoch, counted from 1."""
    return EpochReported(trial=trial, epoch=epoch, metrics={"m": value}, time=0.0, time_s=1.0)


def run(scheduler: Scheduler, values: Mapping[int, float], epochs: int = EPOCHS) -> Verdicts:
    """Simulate trials that train concurrently, and return the scheduler's verdict on each reported epoch.

    ``values`` maps the number of each trial to the value that it reports in every epoch until it is pruned, or until
    ``epochs`` are over. The trials report in the order of ``values``, all of them one epoch before any reports the
    next. The result has, by (trial, epoch), the reason for which the scheduler prunes the trial, or None.
    """
    verdicts: Verdicts = {}
    not_pruned = list(values)
    for epoch in range(1, epochs + 1):
        for trial in list(not_pruned):
            verdicts[trial, epoch] = scheduler.observe(report(trial, epoch, values[trial]))
            if verdicts[trial, epoch]:
                not_pruned.remove(trial)
    return verdicts


def pruned(verdicts: Verdicts) -> dict[int, int]:
    """Return the epoch at which each pruned trial was pruned, by trial number; trials that were not are left out.

    ``verdicts`` are those that `run` returns.
    """
    return {trial: epoch for (trial, epoch), reason in verdicts.items() if reason}


class SchedulerConformance(ABC):
    """Base class of a scheduler's tests: derive a class whose name begins with Test and implement ``make``."""

    @abstractmethod
    def make(self, objective: Objective, epochs: int) -> Scheduler:
        """Return a new scheduler under test for ``objective`` and trials of ``epochs`` epochs.

        The class that is derived for a scheduler must implement this.
        """

    def build(self, epochs: int = EPOCHS) -> Scheduler:
        """Return a new scheduler under test whose objective is to minimize the metric ``m``."""
        return self.make(Objective("m", "minimize"), epochs)

    def test_decision_epochs_ascend_and_are_before_the_last(self) -> None:
        epochs = self.build().decision_epochs(EPOCHS)
        assert list(epochs) == sorted(set(epochs))
        assert all(0 < epoch < EPOCHS for epoch in epochs)

    def test_a_log_replays_to_the_same_verdicts_at_decision_epochs_only(self) -> None:
        for seed in range(20):
            rng = random.Random(seed)
            # by trial; above `EPOCHS` once the trial is over
            next_epochs = dict.fromkeys(range(6), 1)
            scheduler = self.build()
            log: list[EpochReported] = []
            verdicts: list[str | None] = []
            for _ in range(60):
                trial = rng.randrange(6)
                if next_epochs[trial] > EPOCHS:
                    continue
                # About a third of the values are not finite, which a scheduler must bear.
                value = rng.choice([rng.uniform(-10, 10)] * 6 + [math.nan, math.inf, -math.inf])
                log.append(report(trial, next_epochs[trial], value))
                # the reason to prune the trial, or None
                verdicts.append(scheduler.observe(log[-1]))
                if verdicts[-1]:
                    next_epochs[trial] = EPOCHS + 1
                else:
                    next_epochs[trial] += 1
            replayed = self.build()
            assert [replayed.observe(event) for event in log] == verdicts
            stopping_epochs = set()
            for event, verdict in zip(log, verdicts, strict=True):
                if verdict:
                    stopping_epochs.add(event.epoch)
            assert stopping_epochs <= set(replayed.decision_epochs(EPOCHS))

    def test_replaying_restores_what_comes_next(self) -> None:
        """Two schedulers with the same reports must judge these alike, and a new trial after them as well.

        One stands for that of a first session, the other for the one into which the log is replayed to resume.
        """
        scheduler = self.build()
        resumed = self.build()
        for trial in range(20):
            for epoch in range(1, 5):
                # one value for all epochs of the trial
                event = report(trial, epoch, random.Random(trial).random())
                assert scheduler.observe(event) == resumed.observe(event)
        # what comes next: another trial, number 99, that reports 0.99 in each epoch
        new_trial = {99: 0.99}
        assert run(scheduler, new_trial) == run(resumed, new_trial)

    def test_a_reason_is_one_line(self) -> None:
        for reason in run(self.build(), {trial: float(trial) for trial in range(20)}).values():
            assert reason is None or (reason and "\n" not in reason)

    def test_other_events_bring_no_verdict(self) -> None:
        events: list[Event] = [
            SessionStarted(time=0.0, resumed=False, version="1"),
            TrialStarted(trial=0, trial_id="t", params={}, seed=0, repeat=0, time=0.0),
            TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=0.0),
            # without the objective
            EpochReported(trial=0, epoch=2, metrics={"other": 1.0}, time=0.0, time_s=1.0),
        ]
        scheduler = self.build()
        assert [scheduler.observe(event) for event in events] == [None] * 4

    def test_a_trial_of_one_epoch_is_never_stopped(self) -> None:
        scheduler = self.build(epochs=1)
        assert scheduler.decision_epochs(1) == ()
        assert pruned(run(scheduler, {trial: float(trial) for trial in range(20)}, epochs=1)) == {}


def search(scheduler: Scheduler, trials: int, value: Callable[[int, int], float]) -> list[Event]:
    """Simulate a search in which one worker trains ``trials`` trials and ``scheduler`` pauses some; return its events.

    ``value(trial, epoch)`` returns the value of the metric ``m``. Trials complete after `EPOCHS` epochs; a value that
    is not finite in an earlier epoch ends them as diverged. Those that are still paused at the end are pruned. The
    scheduler's reasons to prune from `observe` are ignored. Raises AssertionError if ``scheduler`` is not `Pausing`, or
    leaves paused trials waiting for ever.
    """
    return _Search(scheduler, trials, value).run()


class _Search:
    """A simulated search of one worker with a scheduler that pauses trials, and its events so far."""

    def __init__(
        self, scheduler: Scheduler, trials: int, value: Callable[[int, int], float]
    ) -> None:
        assert isinstance(scheduler, Pausing)
        # the same object twice, for type checkers: no class has the methods of both protocols
        self._scheduler: Scheduler = scheduler
        self._pausing: Pausing = scheduler
        self._most_trials = trials
        self._compute_value = value
        self._log: list[Event] = []
        self._last_epochs: dict[int, int] = {}  # of each trial that has started, its last epoch
        self._paused: list[int] = []

    def run(self) -> list[Event]:
        """Train until no trial is left to start or resume, prune the paused ones, and return all events.

        Raises AssertionError if the scheduler leaves some of these waiting.
        """
        while True:
            trial = self._next_trial()
            if trial is None:
                self._drop_paused()
                return self._log
            if trial in self._paused:
                self._paused.remove(trial)
            self._train(trial)

    def _next_trial(self) -> int | None:
        """Return the number of the trial to train next; None if no trial is left.

        It is the first paused trial that may resume or else a new trial, whose start is logged here. If all trials have
        started, it is the paused trial that `Pausing.last` returns, which is None if none should resume.
        """
        for paused in self._paused:
            # the reason to wait; None if the trial may resume
            if self._pausing.holds(paused) is None:
                return paused
        started = len(self._last_epochs)
        if started == self._most_trials:
            return self._pausing.last()
        trial = started  # trials are numbered from 0
        self._last_epochs[trial] = 0
        self._observe(
            TrialStarted(trial=trial, trial_id="", params={"a": trial}, seed=0, repeat=0, time=0.0)
        )
        return trial

    def _train(self, trial: int) -> None:
        """Train a trial from its present epoch until it completes, diverges or pauses, and log its epochs and that.

        It completes with the last epoch whatever its value there, and diverges if the value in an earlier one is not
        finite.
        """
        while True:
            self._last_epochs[trial] += 1
            epoch = self._last_epochs[trial]
            value = self._compute_value(trial, epoch)
            self._observe(report(trial, epoch, value))
            if epoch == EPOCHS:
                return self._end_trial(trial, Status.COMPLETED)
            if not math.isfinite(value):
                return self._end_trial(trial, Status.DIVERGED)
            reason = self._pausing.holds(trial)  # to pause now; None if it may continue
            if reason is not None:
                self._paused.append(trial)
                return self._end_trial(trial, Status.INTERRUPTED, reason, waits=True)

    def _drop_paused(self) -> None:
        """End the remaining paused trials as pruned, for the scheduler's reasons.

        Raises AssertionError if the scheduler names no reason for one of them, which would wait for ever.
        """
        # `rest`: no trial is left to start or resume, so that all paused ones are to end
        for trial, reason in self._pausing.dropped(rest=True).items():
            self._paused.remove(trial)
            self._end_trial(trial, Status.PRUNED, reason, waits=True)
        assert not self._paused, "those that are left wait for ever"

    def _end_trial(
        self, trial: int, status: Status, reason: str = "", *, waits: bool = False
    ) -> None:
        """Log the end or the pause of a trial, and let the scheduler observe it.

        ``reason`` is for the log, and "" for a trial that completes. ``waits`` says that the trial pauses now, or was
        paused when it was pruned.
        """
        self._observe(TrialEnded(trial=trial, status=status, reason=reason, time=0.0, waits=waits))

    def _observe(self, event: Event) -> None:
        """Add an event to the log, and let the scheduler observe it."""
        self._log.append(event)
        self._scheduler.observe(event)


class PausingConformance(SchedulerConformance):
    """Base class for tests of schedulers that pause trials (`sweep.schedulers.Pausing`).

    Use it instead of `SchedulerConformance`.
    """

    def values(self, seed: int) -> Callable[[int, int], float]:
        """Return a function that computes the value of a trial's metric at an epoch, by ``(trial, epoch)``.

        Some of these synthetic curves fall, some rise, and about one in ten is NaN from the third epoch on. ``seed``
        determines them, so that each call of the function with the same arguments returns the same value.
        """

        def value(trial: int, epoch: int) -> float:
            # draws the same curve for each epoch of the trial: it falls by ``height`` to ``end``, or rises
            rng = random.Random(1000 * seed + trial)
            end = rng.uniform(-1, 1)
            height = rng.uniform(-0.2, 1)
            diverges = rng.random() < 0.1
            # of this epoch, and the same in every call
            noise = random.Random(f"{seed} {trial} {epoch}").uniform(-0.05, 0.05)
            if diverges and epoch > 2:
                return math.nan
            return end + height / epoch + noise

        return value

    def test_every_trial_ends_and_one_is_trained_whole(self) -> None:
        for seed in range(5):
            log = search(self.build(), 20, self.values(seed))
            ends = {}
            for event in log:
                if isinstance(event, TrialEnded):
                    ends[event.trial] = event.status
            assert len(ends) == 20
            assert Status.COMPLETED in ends.values()
            assert Status.INTERRUPTED not in ends.values()

    def test_trials_pause_at_decision_epochs_only(self) -> None:
        scheduler = self.build()
        last_epochs: dict[int, int] = {}  # by trial
        for event in search(scheduler, 20, self.values(0)):
            if isinstance(event, EpochReported):
                last_epochs[event.trial] = event.epoch
            elif isinstance(event, TrialEnded) and event.status is Status.INTERRUPTED:
                assert last_epochs[event.trial] in scheduler.decision_epochs(EPOCHS)

    def test_reasons_are_one_line(self) -> None:
        events = search(self.build(), 20, self.values(1))
        reasons = []  # of trials that paused, or were pruned while they were paused
        for event in events:
            if isinstance(event, TrialEnded) and event.waits:
                reasons.append(event.reason)
        assert reasons
        assert all(reason and "\n" not in reason for reason in reasons)

    def test_the_same_events_give_the_same_answers(self) -> None:
        log = search(self.build(), 16, self.values(2))
        asked_often = self.build()
        for index, event in enumerate(log):
            asked_often.observe(event)
            fresh = self.build()  # has the same events, and was never asked before
            for earlier in log[: index + 1]:
                fresh.observe(earlier)
            assert isinstance(asked_often, Pausing)
            assert isinstance(fresh, Pausing)
            assert [asked_often.holds(trial) for trial in range(16)] == [
                fresh.holds(trial) for trial in range(16)
            ]
            assert asked_often.last() == fresh.last()
            assert asked_often.dropped(rest=False) == fresh.dropped(rest=False)
            assert asked_often.dropped(rest=True) == fresh.dropped(rest=True)

    def test_a_trial_that_has_ended_or_not_begun_does_not_wait(self) -> None:
        scheduler = self.build()
        search(scheduler, 16, self.values(3))  # all trials have ended afterwards
        assert isinstance(scheduler, Pausing)
        # trials 16 to 19 have not begun
        assert [scheduler.holds(trial) for trial in range(20)] == [None] * 20
        assert scheduler.last() is None
        assert scheduler.dropped(rest=True) == {}
