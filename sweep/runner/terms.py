"""What a sweep's file says of each of its trials: how it is trained, and which reports end it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import structs

from sweep.backends.worker import Order
from sweep.contract import Assignment, Devices, Fold
from sweep.errors import TrainableError, did_you_mean
from sweep.events import EpochReported, Params, Role, Status, TrialEnded, TrialStarted
from sweep.runner.open_trial import OpenTrial
from sweep.spec import Spec


class Terms:
    """The terms on which all trials of a sweep are trained."""

    def __init__(self, spec: Spec) -> None:
        self._spec, self._objective = spec, spec.objectives[0]

    def order(self, trial: OpenTrial, devices: Devices, to_beat: float | None, known_data: str | None) -> Order:
        """A trial as a worker gets it."""
        started, shares = trial.started, self._spec.resources.gpus == "auto"
        assignment = self.assignment(started, devices, trial.accumulate)
        if started.role is not Role.SEARCH:
            return Order(assignment, whole=True, known_data=known_data, moved=trial.moved, shares=shares)
        return Order(assignment, trial.decisions, to_beat, known_data=known_data, moved=trial.moved, shares=shares)

    def assignment(self, started: TrialStarted, devices: Devices, accumulate: int = 1) -> Assignment:
        """Return a trial as a trainable gets it."""
        spec = self._spec
        return Assignment(
            trial=started.trial,
            params=started.params,
            seed=started.seed,
            epochs=spec.trial_epochs(started.params),
            devices=devices,
            training=spec.training,
            data_seed=spec.data_seed,
            objective=self._objective.name,
            maximize=self._objective.goal == "maximize",
            fold=fold(spec, started),
            accumulate=accumulate,
        )

    def trial(self, number: int, params: Params, devices: Devices) -> Assignment:
        """Return a trial that is no part of the sweep: with its first seed, and its first fold."""
        return self.assignment(self.start(0, params, number), devices)

    def start(self, place: int, params: Params, number: int | None = None, role: Role = Role.SEARCH) -> TrialStarted:
        """A trial that begins now.

        ``place`` counts the trials of a search, or those of a configuration where it has another role; ``number`` is
        the same unless given.
        """
        number = place if number is None else number
        each = place % self._spec.trials_each if role is Role.SEARCH else place
        repeat, fold = divmod(each, self._spec.folds or 1)
        return TrialStarted(
            trial=number,
            trial_id=f"{self._spec.name}-{number:05d}",
            params=params,
            seed=self._spec.seed + repeat,
            repeat=repeat,
            fold=fold if self._spec.folds else None,
            time=time.time(),
            role=role,
            index=place if role is Role.SEARCH and place != number else None,
        )

    def spared(self, end: TrialEnded, retries: int) -> TrialEnded:
        """A trial's end, or an interruption where it is a failure and has not been tried again often enough."""
        most = self._spec.retries
        if end.status is not Status.FAILED or retries >= most:
            return end
        reason = f"{end.reason}; tried again, {retries + 1} of {most}"
        return structs.replace(end, status=Status.INTERRUPTED, again=True, reason=reason)

    def divergence(self, epoch: EpochReported) -> str | None:
        """Why a trial has diverged with this epoch, if it has."""
        return self._objective.diverged(epoch) or None

    def reached(self, epoch: EpochReported) -> str | None:
        """That a trial has reached the sweep's target with this epoch, in words; None where it has not."""
        return self._objective.reached(self._spec.metrics[0].target, epoch.metrics)

    def wrong(self, epochs: Sequence[EpochReported]) -> TrainableError | None:
        """What ends the whole sweep: an epoch without an objective."""
        for epoch in epochs:
            for objective in self._spec.objectives:
                if objective.name not in epoch.metrics:
                    return TrainableError(
                        f"{self._spec.trainable} reports no metric {objective.name!r}, which is the sweep's; "
                        f"it reports {', '.join(epoch.metrics)}; {did_you_mean(objective.name, epoch.metrics)}"
                    )
        return None


def fold(spec: Spec, started: TrialStarted) -> Fold | None:
    """The part of the examples that a trial of a cross-validation leaves out; folds of one repeat are one cut."""
    if spec.folds is None or started.fold is None:
        return None
    return Fold(started.fold, spec.folds, started.seed)
