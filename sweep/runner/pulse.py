"""The vitals of the sweep that runs here, for Ray's dashboard and its metrics."""

from __future__ import annotations

import math
import time

from sweep.analysis.outline import Outline
from sweep.analysis.progress import Standing
from sweep.backends.vitals import Vitals
from sweep.events import Event, Status
from sweep.spec import Spec


class Pulse:
    """Observes the events of a session in the driver's thread; called, it gives the vitals."""

    def __init__(self, spec: Spec) -> None:
        self._standing = Standing(Outline.of(spec))

    def on(self, event: Event) -> None:
        """Observe an event."""
        self._standing.observe(event)

    def forget_running(self) -> None:
        """After the events of earlier sessions: none of their trials runs."""
        self._standing.running.clear()

    def __call__(self) -> Vitals:
        standing, now = self._standing, time.time()
        best = standing.best
        waiting = len(standing.open) - len(standing.running)
        counts = {status.value: standing.ended[status] for status in Status}
        left_s = standing.left_s(now)
        return Vitals(
            trials={**counts, Status.RUNNING: len(standing.running), Status.INTERRUPTED: waiting},
            total=standing.total,
            epochs=standing.epochs,
            epochs_per_s=standing.epochs_per_s(now),
            metric=standing.outline.metric,
            goal=standing.outline.goal,
            best=None if best is None else best.value,
            best_trials=() if best is None else best.trials,
            left_s=left_s if left_s is not None and math.isfinite(left_s) else None,
        )
