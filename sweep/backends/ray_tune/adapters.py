"""Our searcher, scheduler and stopper in the shapes that Ray Tune asks for; each only passes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from sweep.backends.driver import Driver
from sweep.backends.worker import Job, Order, Progress


class _NotSaved:
    """Pickles as nothing: Tune saves snapshots of itself, and we never read them."""

    def __getstate__(self) -> dict[str, object]:
        return {}


class DriverSearcher(_NotSaved, Searcher):
    """Gives Tune the driver's next trial, never more at a time than there is room for."""

    def __init__(self, driver: Driver, job: Job, room: int, *, reuse: bool) -> None:
        super().__init__()
        self._driver, self._job, self._room, self._reuse = driver, job, room, reuse

    def suggest(self, trial_id: str) -> Any:
        """A config that holds the order; FINISHED when there will be none, None to be asked again later.

        While a trial runs, it may come again: its worker may be lost.
        """
        order = self._driver.next() if self._driver.running < self._room else None
        if order is None:
            return None if self._driver.running else Searcher.FINISHED
        return {"order": order, "job": self._job, "reuse": self._reuse}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The scheduler adapter has told the driver already."""

    def save(self, checkpoint_path: str) -> None:
        """The log is what a sweep is resumed from."""

    def restore(self, checkpoint_path: str) -> None:
        """The log is what a sweep is resumed from."""


class DriverScheduler(_NotSaved, FIFOScheduler):
    """Hands each step to the driver and turns its answer into Tune's."""

    def __init__(self, driver: Driver, notice: Callable[[str], None]) -> None:
        super().__init__()
        self._driver, self._notice = driver, notice

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Called for every step; all decisions are made here."""
        progress: Progress = result["progress"]
        for text in progress.notices:
            self._notice(text)
        if self._driver.take(_number(trial), progress):
            return str(TrialScheduler.CONTINUE)
        if progress.spoilt:
            # Let it raise in its next step: Tune ends actors that raise and keeps those that stop.
            return str(TrialScheduler.CONTINUE)
        return str(TrialScheduler.STOP)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """A worker is gone, or raised because it was spoilt: then its trial has ended already."""
        error = trial.get_pickled_error()
        lines = str(error).strip().splitlines() if error else []
        reason = f"worker lost: {lines[0]}" if lines else "worker lost"
        if self._driver.lose(_number(trial), reason):
            self._notice(f"trial {_number(trial)}: {reason}; it goes on from its checkpoint")


class DriverStopper(_NotSaved, Stopper):
    """Ends the experiment once the driver stops and no trial runs any more."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._driver.stopping is not None and self._driver.running == 0


def _number(trial: Any) -> int:
    order: Order = trial.config["order"]
    return order.assignment.trial
