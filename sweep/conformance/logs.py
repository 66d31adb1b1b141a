"""Short ways to write events and to let a searcher run, for the suites here and for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sweep.events import EpochReported, Event, Params, Status, TrialEnded, TrialStarted
from sweep.searchers.contract import Searcher


def started(trial: int, params: Params, repeat: int = 0) -> TrialStarted:
    return TrialStarted(trial=trial, trial_id=f"t{trial}", params=params, seed=0, repeat=repeat, time=100.0 + trial)


def epoch(trial: int, number: int, **metrics: float) -> EpochReported:
    return EpochReported(trial=trial, epoch=number, metrics=metrics, time=200.0 + trial, time_s=1.0)


def ended(trial: int, status: Status, reason: str = "") -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason=reason, time=300.0 + trial)


def trial(number: int, params: Params, status: Status, losses: Iterable[float], repeat: int = 0) -> list[Event]:
    """Return a whole trial, one loss an epoch; still running if the status says so."""
    reports = [epoch(number, index, loss=loss) for index, loss in enumerate(losses, start=1)]
    end = [ended(number, status)] if status is not Status.RUNNING else []
    return [started(number, params, repeat), *reports, *end]


def drive(searcher: Searcher, count: int, outcome: Callable[[int, Params], Iterable[Event]]) -> list[Event]:
    """Run up to ``count`` trials one after the other; returns the log."""
    log: list[Event] = []
    for number in range(count):
        params = searcher.suggest(number)
        if params is None:
            break
        for event in outcome(number, params):
            searcher.observe(event)
            log.append(event)
    return log
