"""`KerasTrainable`: the author gives data and a model, the rest is done here.

Compiled programs are kept between trials: what `model`, `loss`, `metrics`, `optimizer` and `augment` read as
plain values is the structure of a program, and a trial whose structure is at hand resets it in place.
"""

from __future__ import annotations

import random
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sweep.contract import Assignment, Diverged, EpochReported, Facts, Report
from sweep.hyperparameters import Hyperparameters, Reads
from trainables import checkpoint, keras_corrections, losses, optimizers, precision, schedules, scope
from trainables.data import Split, split, updates
from trainables.devices import Placement, place
from trainables.draws import Draws
from trainables.fit_program import FitProgram
from trainables.live import Live
from trainables.program import Program, Recipe
from trainables.programs import Programs, Structure
from trainables.stopwatch import Stopwatch


class KerasTrainable:
    """A Keras model and its data, trained as the hyperparameters of a trial say.

    Subclasses define `data` and `model`, and override whatever else they want to do their own way.
    """

    # ---- what an author writes

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Training and validation data: (x, y), (x, y, sample_weight) or a `tf.data.Dataset` of examples each.

        Loaded once per worker and set of parameters that it reads. Validation may be None.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no data(self, hp)")

    def model(self, hp: Hyperparameters) -> keras.Model:
        """A new model; called inside the strategy's scope, under the trial's precision and seed."""
        raise NotImplementedError(f"{type(self).__name__} defines no model(self, hp)")

    # ---- what an author may override

    def loss(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Anything that `Model.compile` takes; by default crossentropy for integer targets, else squared error."""
        smoothing = self.live.number("label_smoothing") if "label_smoothing" in hp else None
        return losses.default_loss(self.example[1], model, smoothing)

    def metrics(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Anything that `Model.compile` takes; by default accuracy for integer targets, else absolute error."""
        return losses.default_metrics(self.example[1], model)

    def optimizer(self, hp: Hyperparameters) -> keras.optimizers.Optimizer:
        """A new optimizer; by default the one that ``optimizer`` and its kin name."""
        return optimizers.build(hp, self.live)

    def schedule(self, hp: Hyperparameters) -> schedules.Schedule:
        """The learning-rate schedule after warm-up, as a factor of ``learning_rate``."""
        return schedules.build(hp)

    def augment(self, x: Any, hp: Hyperparameters, draws: Draws) -> Any:
        """Change the inputs of a training batch, inside the graph; by default not at all."""
        return x

    # ---- the trainable contract

    live: Live
    """Numbers for the graph that change between trials without a new one: ``self.live.number("dropout")``."""
    example: tuple[Any, ...]
    """The first training example, as a batch of one."""

    def __init__(self) -> None:
        self._programs = Programs()
        self._data: tuple[Placement, Reads, Split, Split | None] | None = None
        self._trial: _Trial | None = None

    def begin(self, assignment: Assignment) -> None:
        """Prepare a trial: its devices, data and program, everything random from its seed."""
        self._trial = None
        stopwatch = Stopwatch()
        hp, options = Hyperparameters(assignment.params), assignment.training
        placement = place(
            assignment.devices, str(options.get("strategy", "auto")), str(options.get("cross_device", "auto"))
        )
        dtype = precision.resolve(str(options.get("precision", "auto")), placement)
        stopwatch.lap("start")
        train, validation = self._load(hp, placement)
        self.example = train.example()
        stopwatch.lap("data")
        with placement.strategy.scope(), precision.policy(dtype):
            structure, program = self._prepare(hp, placement, dtype, assignment.seed, fit=options.get("loop") == "fit")
        stopwatch.lap("build")
        batch_size = hp.integer("batch_size", 32)
        per_epoch = updates(train.size, batch_size)
        self._trial = _Trial(
            assignment=assignment,
            hp=hp,
            placement=placement,
            dtype=dtype,
            structure=structure,
            program=program,
            train=train,
            validation=validation,
            batch_size=batch_size,
            peak=hp.number("learning_rate", 1e-3),
            schedule=self.schedule(hp),
            warmup=schedules.warmup_updates(hp, per_epoch),
            updates_per_epoch=per_epoch,
            stopwatch=stopwatch,
        )
        if isinstance(program, Program) and not program.compiled:
            with hp.recording(structure.reads):  # tracing runs `augment`
                program.compile(train, validation)
            stopwatch.lap("compile")

    def train(self, report: Report) -> None:
        """Train epoch by epoch until all are done or the report says to pause; raises Diverged."""
        trial = self._begun()
        while trial.epoch < trial.assignment.epochs:
            if not report(self._train_epoch(trial)):
                return

    def save(self, folder: Path) -> None:
        """Write an exact checkpoint."""
        trial = self._begun()
        checkpoint.save(folder, trial.program.variables, trial.placement.strategy, {"epoch": trial.epoch})

    def restore(self, folder: Path) -> int:
        """Go on from an exact checkpoint; raises CheckpointError."""
        trial = self._begun()
        about = checkpoint.restore(folder, trial.program.variables, trial.placement.strategy)
        trial.epoch = int(about["epoch"])
        return trial.epoch

    def facts(self) -> Facts:
        """Where and how the present trial runs."""
        trial = self._begun()
        return Facts(
            started=trial.stopwatch.started,
            node=socket.gethostname(),
            devices=",".join(trial.placement.devices),
            strategy=trial.placement.name,
            num_replicas=trial.placement.strategy.num_replicas_in_sync,
            precision=trial.dtype,
            train_s=trial.train_s,
            overhead_s=dict(trial.stopwatch.laps),
        )

    # ---- how it is done

    def _begun(self) -> _Trial:
        if self._trial is None:
            raise RuntimeError("no trial has begun")
        return self._trial

    def _load(self, hp: Hyperparameters, placement: Placement) -> tuple[Split, Split | None]:
        if self._data is not None and self._data[0] is placement and hp.agree(self._data[1]):
            return self._data[2:]
        self._data = None  # two data sets at once may not fit
        reads: Reads = {}
        with hp.recording(reads):
            train_data, validation_data = self.data(hp)
        train = split(train_data, placement.strategy, "training data")
        validation = None
        if validation_data is not None:
            validation = split(validation_data, placement.strategy, "validation data")
        self._data = placement, reads, train, validation
        return train, validation

    def _prepare(
        self, hp: Hyperparameters, placement: Placement, dtype: str, seed: int, *, fit: bool
    ) -> tuple[Structure, Program | FitProgram]:
        """A program of this trial's structure in its initial state; called inside the strategy's scope."""
        environment = (placement.devices, placement.name, dtype, _shapes(self.example))
        held = None if fit else self._programs.find(environment, hp)
        if held is not None:
            self.live = held[1].live
            self.live.set(hp)
            held[1].reset(self._build_model(hp, seed))
            return held
        structure = Structure(environment)
        self.live = Live(hp)
        with hp.recording(structure.reads):
            program = self._build(hp, placement, dtype, seed, fit=fit)
        if isinstance(program, Program):
            self._programs.add(structure, program)
        return structure, program

    def _build(
        self, hp: Hyperparameters, placement: Placement, dtype: str, seed: int, *, fit: bool
    ) -> Program | FitProgram:
        model = self._build_model(hp, seed)
        if not fit and type(model).train_step is not keras.Model.train_step:
            raise TypeError(
                f"{type(model).__name__} has its own train_step, which only Model.fit calls; "
                "set `training: {loop: fit}` in the sweep file"
            )
        scope.check(model, placement.strategy)
        optimizer = self.optimizer(hp)
        keras_corrections.synchronise_batch_norm(model)
        optimizers.exclude_from_decay(optimizer, model)
        recipe = Recipe(
            clipping=optimizers.clipping(hp),
            micro_batches=hp.integer("micro_batches", 1),
            scale_loss=dtype == "mixed_float16",
        )
        compiled = {"optimizer": optimizer, "loss": self.loss(hp, model), "metrics": self.metrics(hp, model)}
        if fit:
            return FitProgram(model, compiled, placement.strategy, hp, recipe, self._augment, self.example)
        keras_corrections.take_global_gradients(optimizer)
        model.compile(**compiled, auto_scale_loss=False)
        keras_corrections.build_symbolically(model, self.example)
        scope.check(model, placement.strategy)
        program = Program(model, placement.strategy, self.live, recipe, self._augment)
        program.reset(None)
        return program

    def _build_model(self, hp: Hyperparameters, seed: int) -> keras.Model:
        # Keras draws the seeds of initialisers and random layers from `random`. Seeding TensorFlow as well
        # would empty its kernel cache and cost seconds per trial; an author's own draws come from these two.
        random.seed(seed)
        np.random.seed(seed)
        model = self.model(hp)
        if not isinstance(model, keras.Model):
            raise TypeError(f"model() returned {type(model).__name__}, expected a keras.Model")
        if not model.built:
            model(keras.tree.map_structure(_symbolic, self.example[0]))
        return model

    def _augment(self, x: Any, draws: Draws) -> Any:
        return self.augment(x, self._begun().hp, draws)

    def _train_epoch(self, trial: _Trial) -> EpochReported:
        began = time.perf_counter()
        seed, epoch = trial.assignment.seed, trial.epoch + 1
        rates = schedules.rates(
            trial.schedule,
            peak=trial.peak,
            first=trial.epoch * trial.updates_per_epoch,
            count=trial.updates_per_epoch,
            total=trial.assignment.epochs * trial.updates_per_epoch,
            warmup=trial.warmup,
        )
        with trial.hp.recording(trial.structure.reads):  # a trace for new shapes reads again
            metrics, finite = trial.program.train_epoch(
                trial.train, rates, batch_size=trial.batch_size, seed=seed, epoch=epoch
            )
        trained = time.perf_counter() - began
        if trial.validation is not None:
            held_out = trial.program.evaluate(trial.validation, batch_size=max(trial.batch_size, 256))
            metrics |= {f"val_{name}": value for name, value in held_out.items()}
        trial.epoch = epoch
        trial.train_s += time.perf_counter() - began
        if not finite or not trial.program.weights_finite():
            raise Diverged(f"the loss, a gradient or a weight became NaN or infinite in epoch {epoch}")
        return EpochReported(
            trial=trial.assignment.trial,
            epoch=epoch,
            metrics=metrics,
            time=time.time(),
            time_s=time.perf_counter() - began,
            learning_rate=float(rates[-1]),
            examples_per_s=trial.train.size / trained,
        )


@dataclass
class _Trial:
    assignment: Assignment
    hp: Hyperparameters
    placement: Placement
    dtype: str
    structure: Structure
    program: Program | FitProgram
    train: Split
    validation: Split | None
    batch_size: int
    peak: float
    schedule: schedules.Schedule
    warmup: int
    updates_per_epoch: int
    stopwatch: Stopwatch
    epoch: int = 0
    train_s: float = 0.0


def _shapes(example: Any) -> tuple[object, ...]:
    return tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in keras.tree.flatten(example))


def _symbolic(leaf: Any) -> keras.KerasTensor:
    return keras.KerasTensor((None, *leaf.shape[1:]), dtype=str(leaf.dtype))
