"""When a sweep has had enough: budgets, target, plateau, failures. All derived from events, so resume counts on."""

from __future__ import annotations

from sweep.events import EpochReported, Event, ModelTested, Params, SessionStarted, Status, TrialEnded
from sweep.spec import Spec
from sweep.store.ledger import Change, Ended, Reported, Session, TrialState

ALIKE = 2  # trials that fail for the same reason, which no parameter can change, and end the sweep


class Limits:
    """Watches the events for the reasons to end a sweep cleanly."""

    def __init__(self, spec: Spec, gpus: float) -> None:
        self._objective = spec.objectives[0]
        self._target = spec.metrics[0].target
        self._budget = spec.budget
        caps = [cap for cap in (spec.run_cap, spec.budget.trials) if cap is not None]
        self.cap = min(caps) * spec.trials_each if caps else None  # trials to start, of all sessions
        self._patience = spec.stop_when.no_improvement if spec.stop_when else None
        self._max_failures = spec.max_failures
        self._gpus, self._shares = gpus, spec.resources.gpus == "auto"
        self._earlier_s = 0.0  # driving time of the sessions before
        self._session_s = 0.0  # and of this one
        self._is_timed = False  # the log has the driver's own clock for this session
        self._last_time: float | None = None
        self._trained_s = 0.0
        self._under_way_s = 0.0  # training that no epoch has come of yet
        self._epochs = 0
        self._since_better = 0
        self._failures: list[Params] = []  # configurations that failed one after the other
        self._last_failure = ""
        self._alike = 0  # failures one after the other that no parameter had a part in, all for the last reason
        self._best_loss: float | None = None
        self._hit: tuple[float, int] | None = None  # the best objective of any epoch, and its trial

    @property
    def reached(self) -> str | None:
        """The limit that is reached, as a reason to stop."""
        return self._hit_target() or self._spent() or self._plateau() or self._at_fault()

    def drive(self, session_s: float, under_way_s: float) -> None:
        """Look at the driver's clock: this session's time, and what running trials have trained since they reported."""
        self._is_timed, self._session_s, self._under_way_s = True, session_s, under_way_s

    def observe(self, change: Change) -> None:
        """Count an event in."""
        match change:
            case Session(SessionStarted(time=now)):
                self._earlier_s, self._session_s = self._earlier_s + self._session_s, 0.0
                self._is_timed, self._last_time = False, now
                self._failures.clear()  # the code may have been mended
                self._alike = 0
                return
            case Reported(_, report):
                self._hear(report)
            case Ended(trial, end):
                self._finish(trial, end)
            case _:
                pass
        self._clock(change.event)

    def _hear(self, event: EpochReported) -> None:
        if not event.memo:  # else it was trained in another sweep, on its account
            self._epochs += 1
            # Of a trial whose share of a GPU is not fixed, each epoch tells the share that it had.
            self._trained_s += event.time_s * (event.measures.get("gpus", 1.0) if self._shares else 1.0)
        loss = self._objective.loss(event.metrics)
        if loss is not None and (self._hit is None or loss < self._hit[0]):
            self._hit = loss, event.trial

    def _finish(self, trial: TrialState, event: TrialEnded) -> None:
        if event.status is Status.FAILED:
            self._alike = (self._alike if event.reason == self._last_failure else 0) + 1 if event.regardless else 0
            self._last_failure = event.reason
        else:
            self._failures.clear()
            self._alike = 0
        if event.status is Status.FAILED and trial.params not in self._failures:
            self._failures.append(trial.params)
        if event.status not in (Status.COMPLETED, Status.PRUNED):
            return
        completed, loss = event.status is Status.COMPLETED, self._objective.loss(trial.last)
        if completed and loss is not None and (self._best_loss is None or loss < self._best_loss):
            self._best_loss = loss
            self._since_better = 0
        else:
            self._since_better += 1

    def _clock(self, event: Event) -> None:
        if isinstance(event, SessionStarted | ModelTested):
            return
        if event.driven_s is not None:
            self._is_timed, self._session_s = True, event.driven_s
        elif not self._is_timed:  # the log of an earlier release: by the clocks of the nodes
            last, now = self._last_time or event.time, event.time
            self._session_s += max(now - last, 0.0)
            self._last_time = max(now, last)

    def _hit_target(self) -> str | None:
        if self._hit is None:
            return None
        loss, trial = self._hit
        reached = self._objective.reached(self._target, {self._objective.name: self._objective.of_loss(loss)})
        return f"{reached} in trial {trial}" if reached else None

    def _plateau(self) -> str | None:
        if self._patience is None or self._since_better < self._patience:
            return None
        return f"no improvement in {self._patience} trials"

    def _at_fault(self) -> str | None:
        if self._alike >= ALIKE:
            return (
                f"{self._alike} trials failed alike, before they had read any parameter in which trials differ: "
                f"{self._last_failure}"
            )
        if len(self._failures) < self._max_failures:
            return None
        return (
            f"{len(self._failures)} configurations failed in a row; this looks like a bug in the training code: "
            f"{self._last_failure}"
        )

    def _spent(self) -> str | None:
        budget = self._budget
        gpu_hours = (self._trained_s + self._under_way_s) * self._gpus / 3600
        for limit, spent, unit in (
            (budget.hours, (self._earlier_s + self._session_s) / 3600, "hours"),
            (budget.gpu_hours, gpu_hours, "GPU hours"),
            (budget.epochs, self._epochs, "epochs"),
        ):
            if limit is not None and spent >= limit:
                return f"budget of {limit:g} {unit}"
        return None
