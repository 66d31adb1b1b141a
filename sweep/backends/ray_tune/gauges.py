"""A sweep's numbers as metrics of Ray, which its Prometheus endpoints give out under ``ray_sweep_...``."""

from __future__ import annotations

from typing import Any

from ray.util.metrics import Gauge

from sweep.backends.vitals import Vitals

GAUGES = {
    "sweep_trials": ("trials in each state", ("state",)),
    "sweep_trials_planned": ("trials that there will be, where that is known", ()),
    "sweep_epochs_trained": ("epochs trained so far, in all sessions", ()),
    "sweep_epochs_per_second": ("epochs per second, over the last ten seconds", ()),
    "sweep_best_objective": ("the best value of the objective of all trials that completed", ("metric", "goal")),
    "sweep_seconds_left": ("an estimate of the seconds until the sweep ends", ()),
    "sweep_workers": ("trials that can run at once", ()),
    "sweep_workers_busy": ("trials that run", ()),
    "sweep_utilization": ("share of the workers that are busy, of 1", ()),
}
"""Name: what it is, and its tags beside ``sweep`` and ``session``."""


class Gauges:
    """Sets all gauges of one session of a sweep; some microseconds each."""

    def __init__(self, sweep: str, session: str) -> None:
        self._tags = {"sweep": plain(sweep), "session": plain(session)}
        self._gauges: dict[str, Any] = {
            name: Gauge(name, description, tag_keys=(*self._tags, *more))
            for name, (description, more) in GAUGES.items()
        }

    def set(self, vitals: Vitals, busy: int, slots: int) -> None:
        """Show these numbers, ``slots`` of them are workers of which some are ``busy``."""
        for state, count in vitals.trials.items():
            self._set("sweep_trials", count, state=state)
        self._set("sweep_trials_planned", vitals.total)
        self._set("sweep_epochs_trained", vitals.epochs)
        self._set("sweep_epochs_per_second", vitals.epochs_per_s)
        self._set("sweep_best_objective", vitals.best, metric=plain(vitals.metric), goal=vitals.goal)
        self._set("sweep_seconds_left", vitals.left_s)
        self._set("sweep_workers", slots)
        self._set("sweep_workers_busy", busy)
        self._set("sweep_utilization", min(busy / slots, 1.0) if slots else None)

    def _set(self, name: str, value: float | None, **tags: str) -> None:
        if value is not None:
            self._gauges[name].set(value, {**self._tags, **tags})


def plain(text: str) -> str:
    """A tag's value: Ray takes nothing but ASCII, and raises at the rest."""
    return text.encode("ascii", "backslashreplace").decode()
