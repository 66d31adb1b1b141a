"""One worker: holds a trainable and takes one trial after another through it, step by step.

A step trains to the next point where somebody else may decide: an epoch at which the scheduler can prune, a
checkpoint that is due, about a second of epochs, or the end. Whatever a trainable raises ends its trial and
no more. It knows neither Ray nor the driver; backends move its `Order` in and its `Progress` out.
"""

from __future__ import annotations

import dataclasses
import math
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from sweep.backends import checkpoints
from sweep.contract import Assignment, Diverged, EpochReported, Facts, OutOfMemory, Trainable
from sweep.events import Status, TrialEnded
from sweep.loading import load

STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """What all trials of a sweep share."""

    sweep: str
    trainable: str
    import_folders: tuple[Path, ...]
    results_folder: Path
    objective: str
    maximize: bool
    checkpoint_every_s: float = 60.0

    @property
    def stop_file(self) -> Path:
        """Its existence asks all workers to end their trials as interrupted after the present epoch."""
        return self.results_folder / "stop"


@dataclass(frozen=True, slots=True)
class Order:
    """One trial for a worker."""

    assignment: Assignment
    decision_epochs: tuple[int, ...] = ()
    best: float | None = None  # of the sweep when the trial was given out: only a better one is kept

    def __repr__(self) -> str:
        return f"trial {self.assignment.trial}"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step brought."""

    epochs: tuple[EpochReported, ...] = ()
    end: TrialEnded | None = None
    facts: Facts = field(default_factory=Facts)
    notices: tuple[str, ...] = ()
    spoilt: bool = False  # the worker must not be used again


class Worker:
    """Runs trials in this process. ``reuse`` keeps the trainable, and what it compiled, between them."""

    def __init__(self, job: Job, *, reuse: bool = True) -> None:
        self._job = job
        self._reuse = reuse
        self._trainable: Trainable | None = None
        self._order: Order | None = None
        self._begun = False
        self._notices: list[str] = []

    def take(self, order: Order) -> None:
        """Accept a trial; nothing happens before its first step."""
        self._order = order
        self._begun = False
        if not self._reuse:
            self._trainable = None

    def step(self) -> Progress:
        """Train on; never raises for what a trainable does."""
        if self._order is None:
            raise RuntimeError("the worker has no trial")
        epochs: list[EpochReported] = []
        self._notices = []
        try:
            status, reason, error = self._advance(self._order, epochs)
        except Diverged as caught:
            status, reason, error = Status.DIVERGED, _one_line(caught), None
        except Exception as caught:  # the border to the user's code: all of it is kept with the trial
            status = Status.OOM if _is_out_of_memory(caught) else Status.FAILED
            reason, error = f"{type(caught).__name__}: {_one_line(caught)}", traceback.format_exc()
        facts = self._facts(epochs)
        end = None
        if status is not Status.RUNNING:
            trial = self._order.assignment.trial
            end = TrialEnded(trial=trial, status=status, reason=reason, time=time.time(), error=error, facts=facts)
        spoilt = status in (Status.FAILED, Status.OOM)
        if spoilt:
            self._trainable = None
        return Progress(tuple(epochs), end, facts, tuple(self._notices), spoilt)

    def _advance(self, order: Order, epochs: list[EpochReported]) -> tuple[Status, str, str | None]:
        began = time.monotonic()
        assignment, folder = order.assignment, self._checkpoint_folder(order)
        if self._job.stop_file.exists() and not self._begun:
            return Status.INTERRUPTED, "stopped before it began", None
        if not self._begun:
            self._begin(assignment)
        trainable = self._loaded()
        if self._done < assignment.epochs:
            trainable.train(lambda epoch: self._hear(order, epoch, epochs, began))
        reason = self._divergence(epochs)
        if reason:
            return Status.DIVERGED, reason, None
        if epochs and self._done < assignment.epochs and not self._paused:
            return self._complete(order, epochs, f"the trainable stopped after epoch {self._done}")
        if self._done >= assignment.epochs:
            return self._complete(order, epochs, "")
        if self._job.stop_file.exists():
            self._save(folder)
            return Status.INTERRUPTED, "the sweep was stopped", None
        if time.monotonic() - self._saved >= self._job.checkpoint_every_s:
            self._save(folder)
        return Status.RUNNING, "", None

    def _begin(self, assignment: Assignment) -> None:
        trainable = self._loaded()
        trainable.begin(assignment)
        self._done, self._paused, self._saved = 0, False, time.monotonic()
        for folder in checkpoints.newest_first(self._job.results_folder, assignment.trial):
            try:
                self._done = trainable.restore(folder)
                break
            except Exception as error:  # whatever is wrong with it, the one before is the way out
                self._notices.append(f"trial {assignment.trial}: {folder.name} is unusable ({_one_line(error)})")
                trainable.begin(assignment)
        self._begun = True

    def _hear(self, order: Order, epoch: EpochReported, epochs: list[EpochReported], began: float) -> bool:
        """Take one epoch in; the answer says whether to train on within this step."""
        epochs.append(dataclasses.replace(epoch, trial=order.assignment.trial))
        self._done = epoch.epoch
        go_on = (
            epoch.epoch not in order.decision_epochs
            and epoch.epoch < order.assignment.epochs
            and time.monotonic() - began < STEP_S
            and not self._divergence(epochs[-1:])
            and not self._job.stop_file.exists()
        )
        self._paused = not go_on
        return go_on

    def _complete(self, order: Order, epochs: list[EpochReported], reason: str) -> tuple[Status, str, str | None]:
        value = epochs[-1].metrics.get(self._job.objective) if epochs else None
        better = order.best is None or (
            value is not None and (value > order.best if self._job.maximize else value < order.best)
        )
        if better:
            self._save(self._checkpoint_folder(order))
        return Status.COMPLETED, reason, None

    def _divergence(self, epochs: list[EpochReported]) -> str:
        """The first loss or objective that is not finite, as a reason."""
        for epoch in epochs:
            for name in ("loss", self._job.objective):
                value = epoch.metrics.get(name)
                if value is not None and not math.isfinite(value):
                    return f"{name} is {value} in epoch {epoch.epoch}"
        return ""

    def _save(self, folder: Path) -> None:
        checkpoints.write(folder, self._done, self._loaded().save)
        self._saved = time.monotonic()

    def _facts(self, epochs: list[EpochReported]) -> Facts:
        if not self._begun or self._trainable is None or self._order is None:
            return Facts()
        facts = self._trainable.facts()
        newest = checkpoints.newest_first(self._job.results_folder, self._order.assignment.trial)
        if newest:
            facts = dataclasses.replace(facts, checkpoint=str(newest[0].relative_to(self._job.results_folder)))
        return facts

    def _checkpoint_folder(self, order: Order) -> Path:
        return checkpoints.of_trial(self._job.results_folder, order.assignment.trial)

    def _loaded(self) -> Trainable:
        if self._trainable is None:
            self._trainable = load(self._job.trainable, self._job.import_folders)()
        return self._trainable


def _is_out_of_memory(error: Exception) -> bool:
    # TensorFlow's own type is named, not imported: this package does not know TensorFlow.
    return isinstance(error, OutOfMemory | MemoryError) or type(error).__name__ == "ResourceExhaustedError"


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return lines[0][:300]
