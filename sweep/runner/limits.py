"""When a sweep has had enough: budgets, its target, a plateau. All derived from events, so resume counts on."""

from __future__ import annotations

from sweep.events import EpochReported, Event, SessionEnded, SessionStarted, TrialEnded
from sweep.spec import Spec


class Limits:
    """Watches the events for the reasons to end a sweep cleanly."""

    def __init__(self, spec: Spec, gpus: float) -> None:
        self._objective = spec.objectives[0]
        self._target = spec.metrics[0].target
        self._budget = spec.budget
        caps = [cap for cap in (spec.run_cap, spec.budget.trials) if cap is not None]
        self.cap = min(caps) * spec.repeats if caps else None  # trials to start, of all sessions
        self._patience = spec.stop_when.no_improvement if spec.stop_when else None
        self._gpus = gpus
        self._spent_s = 0.0  # driving time of all sessions
        self._last_time: float | None = None
        self._trained_s = 0.0
        self._epochs = 0
        self._since_better = 0
        self._last_losses: dict[int, float] = {}
        self._best_loss: float | None = None
        self.reached: str | None = None

    @property
    def best(self) -> float | None:
        """The best final objective so far."""
        if self._best_loss is None:
            return None
        return self._objective.sign * self._best_loss

    def observe(self, event: Event) -> None:
        """Count an event in; sets `reached` to the reason when a limit is."""
        match event:
            case SessionStarted(time=now):
                self.reached = None  # a session that resumes is measured against its own plan
                self._last_time = now
            case EpochReported():
                self._clock(event.time)
                self._epochs += 1
                self._trained_s += event.time_s
                self._hear(event)
            case TrialEnded():
                self._clock(event.time)
                self._finish(event)
            case SessionEnded(time=now):
                self._clock(now)
            case _:
                pass
        self.reached = self.reached or self._spent()

    def _hear(self, event: EpochReported) -> None:
        objective, target = self._objective, self._target
        value = objective.value(event.metrics)
        if value is None:
            return
        loss = objective.sign * value
        self._last_losses[event.trial] = loss
        if target is not None and loss <= objective.sign * target:
            self.reached = f"target reached: {objective.name} {value:.4g} in trial {event.trial}"

    def _finish(self, event: TrialEnded) -> None:
        loss = self._last_losses.pop(event.trial, None)
        if event.status not in ("completed", "pruned"):
            return
        if event.status == "completed" and loss is not None and (self._best_loss is None or loss < self._best_loss):
            self._best_loss = loss
            self._since_better = 0
        else:
            self._since_better += 1
        patience = self._patience
        if patience is not None and self._since_better >= patience:
            self.reached = f"no improvement in {patience} trials"

    def _clock(self, now: float) -> None:
        if self._last_time is not None:
            self._spent_s += max(now - self._last_time, 0.0)
        self._last_time = now

    def _spent(self) -> str | None:
        budget = self._budget
        gpu_hours = self._trained_s * self._gpus / 3600
        for limit, spent, unit in (
            (budget.hours, self._spent_s / 3600, "hours"),
            (budget.gpu_hours, gpu_hours, "GPU hours"),
            (budget.epochs, self._epochs, "epochs"),
        ):
            if limit is not None and spent >= limit:
                return f"budget of {limit:g} {unit}"
        return None
