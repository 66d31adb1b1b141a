"""One trial as it trains: epoch by epoch, with all state that a checkpoint must hold."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from sweep.contract import Assignment, Diverged, EpochReported
from sweep.hyperparameters import Hyperparameters, Reads
from trainables.data.chunks import Split
from trainables.devices.gauges import Gauges
from trainables.devices.placement import Placement
from trainables.loop.cache import Structure
from trainables.loop.fit_program import FitProgram
from trainables.loop.hooks import EpochHook
from trainables.loop.program import Program, Trained
from trainables.loop.stopwatch import Stopwatch
from trainables.recipe import optimizers, schedules
from trainables.recipe.plateau import Plateau, Reduction, State
from trainables.recipe.refusals import Refused
from trainables.state import checkpoint


@dataclass
class Trial:
    """A prepared trial."""

    assignment: Assignment
    hp: Hyperparameters
    placement: Placement
    dtype: str
    structure: Structure
    program: Program | FitProgram
    train: Split
    validation: Split | None
    batch_size: int  # global
    validation_batch_size: int
    reads: tuple[Reads, ...]  # all that was read of `hp` in making it
    peak: float | None  # None: the author's optimizer has a schedule of its own
    schedule: schedules.Schedule
    warmup: int  # updates
    updates_per_epoch: int
    reduction: Reduction | None
    stopwatch: Stopwatch
    gauges: Gauges
    on_epoch_end: EpochHook | None = None
    rate_scale: float = 1.0
    stopped: str = ""  # why the author's hook ends the trial
    epoch: int = 0
    train_s: float = 0.0
    waited: Plateau = field(init=False)

    def __post_init__(self) -> None:
        self.waited = Plateau(self.assignment.maximize)

    @property
    def finished(self) -> bool:
        """Whether all epochs are trained, or more would be in vain."""
        patience = self.assignment.training.get("patience")
        in_vain = isinstance(patience, int) and self.waited.waited >= patience
        return bool(self.stopped) or in_vain or self.epoch >= self.assignment.epochs

    @property
    def extends(self) -> bool:
        """Whether it is done, and a trial of more epochs would have begun with the same ones."""
        told = "epochs" in self.hp and any("epochs" in reads for reads in self.reads)
        if told or self.epoch < self.assignment.epochs:
            return False
        if self.peak is None:  # who knows what the author's schedule was told
            return False
        updates = self.epoch * self.updates_per_epoch
        return not schedules.foresees(self.schedule, updates=updates, count=self.updates_per_epoch, warmup=self.warmup)

    def rates(self) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """The learning rate of each update of the next epoch; of an optimizer's own schedule the last one alone."""
        if self.peak is None:
            rates = np.full(self.updates_per_epoch, np.nan, np.float32)
            last = (self.epoch + 1) * self.updates_per_epoch - 1
            rates[-1] = optimizers.scheduled_rate(self.program.parts.optimizer, last)
            return rates
        return schedules.rates(
            self.schedule,
            peak=self.peak * self.rate_scale * (self.reduction.scale if self.reduction else 1.0),
            epoch=self.epoch + 1,
            count=self.updates_per_epoch,
            epochs=self.assignment.epochs,
            warmup=self.warmup,
        )

    def train_epoch(self) -> EpochReported:
        """Train and validate one epoch; raises Diverged."""
        began, epoch, rates = time.perf_counter(), self.epoch + 1, self.rates()
        self.gauges.begin()
        trained = self._train(rates, epoch)
        train_s = time.perf_counter() - began
        metrics = trained.metrics
        if self.validation is not None and trained.finite:
            with self.placement.strategy.scope():
                held_out = self.program.evaluate(
                    self.validation, batch_size=self.validation_batch_size, seed=self.assignment.seed, epoch=epoch
                )
            metrics = metrics | {f"val_{name}": value for name, value in held_out.items()}
        time_s = time.perf_counter() - began
        self.epoch, self.train_s = epoch, self.train_s + time_s
        if not trained.finite:
            raise Diverged(f"the loss, a gradient or a weight became NaN or infinite in epoch {epoch}")
        if isinstance(self.program, FitProgram):
            self.stopped = self.program.end_epoch(epoch, metrics, last=epoch == self.assignment.epochs)
        if self.on_epoch_end:
            with self.placement.strategy.scope():
                metrics = self.on_epoch_end(epoch, metrics)
        self._hear(metrics)
        return EpochReported(
            trial=self.assignment.trial,
            epoch=epoch,
            metrics=metrics,
            time=time.time(),
            time_s=time_s,
            learning_rate=float(rates[-1]),
            examples_per_s=self.train.size / train_s,
            measures={
                "step_s": (train_s - trained.wait_s) / len(rates),
                "data_wait_s": trained.wait_s,
                "validation_s": time_s - train_s,
                "compile_s": self.stopwatch.laps.get("compile", 0.0) if epoch == 1 else 0.0,
                **({"validation_examples": float(self.validation.size)} if epoch == 1 and self.validation else {}),
                **self.gauges.end(),
            },
        )

    def scale_rate(self, factor: float) -> None:
        """Multiply all later rates; raises Refused where the loop sets none."""
        if self.peak is None or self.program.sets_no_rate:
            raise Refused("scale_rate() has no effect: the optimizer brings a schedule or a rate of its own")
        self.rate_scale *= float(factor)

    def state(self) -> dict[str, State | int | float | str]:
        """What a checkpoint must hold beside the program's variables."""
        return {
            "epoch": self.epoch,
            "waited": self.waited.state(),
            "stopped": self.stopped,
            "rate_scale": self.rate_scale,
            **({"reduction": self.reduction.state()} if self.reduction else {}),
        }

    def restore(self, about: checkpoint.About) -> None:
        """Go on from what `state` gave."""
        if isinstance(self.program, FitProgram) and self.program.callbacks:
            raise checkpoint.CheckpointError("Keras callbacks keep state that no checkpoint holds; it begins anew")
        self.epoch = int(about["epoch"])
        self.stopped, self.rate_scale = str(about.get("stopped", "")), float(about.get("rate_scale", 1.0))
        self.waited.restore(about["waited"])
        if self.reduction:
            self.reduction.restore(about["reduction"])

    def _train(self, rates: np.ndarray[tuple[int], np.dtype[np.float32]], epoch: int) -> Trained:
        # Traces belong to the scope that they were made in; one for new shapes reads again.
        with self.placement.strategy.scope(), self.hp.recording(self.structure.reads):
            return self.program.train_epoch(
                self.train,
                rates,
                batch_size=self.batch_size,
                seed=self.assignment.seed,
                epoch=epoch,
                profile_into=self.assignment.profile if epoch == 1 else None,
            )

    def _hear(self, metrics: dict[str, float]) -> None:
        objective = self.assignment.objective or ("val_loss" if self.validation is not None else "loss")
        value = metrics.get(objective)
        if value is not None:
            self.waited.hear(value)
            if self.reduction:
                self.reduction.hear(value)
