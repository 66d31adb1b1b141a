"""`KerasTrainable`: the author gives data and a model, the rest is done here.

Compiled programs are kept between trials: what `model`, `loss`, `metrics`, `optimizer` and `augment` read as
plain values is the structure of a program, and a trial whose structure is at hand resets it in place.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from sweep.contract import Assignment, Facts, Report
from sweep.hyperparameters import Hyperparameters, Reads
from trainables import checkpoint, class_weights, fingerprint, plateau, precision, preparation, schedules, sharing
from trainables.author import Author
from trainables.data import Split, split, updates
from trainables.devices import Placement, place
from trainables.draws import Draws
from trainables.fit_program import FitProgram
from trainables.gauges import Gauges
from trainables.graph import Recipe
from trainables.live import Live
from trainables.program import Program
from trainables.programs import Programs, Structure
from trainables.stopwatch import Stopwatch
from trainables.trial import Trial

VALIDATION_BATCH = 256


class KerasTrainable(Author):
    """A Keras model and its data, trained as the hyperparameters of a trial say.

    Subclasses define `data` and `model`, and override whatever else of `Author` they want to do their own way.
    """

    def __init__(self) -> None:
        self._programs = Programs()
        self._data: tuple[Placement, Reads, Split, Split | None] | None = None
        self._fingerprint: str | None = None
        self._trial: Trial | None = None

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
        train, validation = self._load(hp, placement, assignment.shared)
        self.example = train.example()
        stopwatch.lap("data")
        batch_size = _batch_size(hp, placement)
        with placement.strategy.scope(), precision.policy(dtype):
            structure, program = self._prepare(hp, placement, dtype, assignment, batch_size)
        stopwatch.lap("build")
        per_epoch = updates(train.size, batch_size)
        reads: Reads = {}
        with hp.recording(reads):
            schedule = self.schedule(hp)
        self._trial = Trial(
            assignment=assignment,
            hp=hp,
            placement=placement,
            dtype=dtype,
            structure=structure,
            program=program,
            train=train,
            validation=validation,
            batch_size=batch_size,
            validation_batch_size=max(max(batch_size, VALIDATION_BATCH) // assignment.accumulate, 1),
            reads=(self._data[1] if self._data else {}, structure.reads, reads),
            peak=schedules.peak_rate(hp, batch_size),
            schedule=schedule,
            warmup=schedules.warmup_updates(hp, per_epoch),
            updates_per_epoch=per_epoch,
            reduction=plateau.reduction(hp, maximize=assignment.maximize),
            stopwatch=stopwatch,
            gauges=Gauges(placement),
        )
        if isinstance(program, Program) and not program.compiled:
            with hp.recording(structure.reads):  # tracing runs `augment`
                program.compile(train, validation)
            stopwatch.lap("compile")

    def train(self, report: Report) -> None:
        """Train epoch by epoch until all are done or the report says to pause; raises Diverged."""
        trial = self._begun()
        while not trial.finished:
            if not report(trial.train_epoch()):
                return

    def save(self, folder: Path) -> Callable[[], None]:
        """Copy an exact checkpoint; the function returned writes it, in any thread."""
        trial = self._begun()
        return checkpoint.save(folder, trial.program.variables, trial.placement.strategy, trial.state())

    def restore(self, folder: Path) -> int:
        """Go on from an exact checkpoint; raises CheckpointError."""
        trial = self._begun()
        trial.restore(checkpoint.restore(folder, trial.program.variables, trial.placement.strategy))
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
            data=self._fingerprint,
            extends=trial.extends,
        )

    # ---- how it is done

    def _begun(self) -> Trial:
        if self._trial is None:
            raise RuntimeError("no trial has begun")
        return self._trial

    def _load(self, hp: Hyperparameters, placement: Placement, shared: Path | None) -> tuple[Split, Split | None]:
        if self._data is not None and self._data[0] is placement and hp.agree(self._data[1]):
            return self._data[2:]
        self._data = None  # two data sets at once may not fit
        (train_data, validation_data), reads = sharing.shared(shared, hp, lambda: self.data(hp), self)
        with hp.recording(reads):
            weights = self.class_weights(hp, class_weights.labels_of(train_data))
        train = split(class_weights.apply(train_data, weights), placement.strategy, "training data")
        validation = None
        if validation_data is not None:
            validation = split(validation_data, placement.strategy, "validation data")
        self._fingerprint = fingerprint.of(train, validation)
        self._data = placement, reads, train, validation
        return train, validation

    def _prepare(
        self, hp: Hyperparameters, placement: Placement, dtype: str, assignment: Assignment, batch_size: int
    ) -> tuple[Structure, Program | FitProgram]:
        """A program of this trial's structure in its initial state; called inside the strategy's scope."""
        fit, accumulate = assignment.training.get("loop") == "fit", assignment.accumulate
        environment = (placement.devices, placement.name, dtype, accumulate, _shapes(self.example))
        held = None if fit else self._programs.find(environment, hp)
        if held is not None:
            self.live = held[1].live
            self.live.set(hp)
            held[1].reset(preparation.build_model(self, hp, assignment.seed))
            return held
        structure = Structure(environment)
        self.live = Live(hp)
        with hp.recording(structure.reads):
            program = preparation.build(
                self,
                hp,
                placement,
                self._recipe(hp, placement, dtype, accumulate, batch_size),
                assignment.seed,
                self._augment,
                fit=fit,
            )
        if isinstance(program, Program):
            self._programs.add(structure, program)
        return structure, program

    def _recipe(
        self, hp: Hyperparameters, placement: Placement, dtype: str, accumulate: int, batch_size: int
    ) -> Recipe:
        replicas = placement.strategy.num_replicas_in_sync
        return preparation.recipe(hp, dtype, accumulate, batch_size=batch_size, replicas=replicas)

    def _augment(self, x: Any, draws: Draws) -> Any:
        return self.augment(x, self._begun().hp, draws)


def _batch_size(hp: Hyperparameters, placement: Placement) -> int:
    """The global batch size: ``batch_size``, or ``per_replica_batch_size`` times the replicas."""
    if "per_replica_batch_size" in hp:
        if "batch_size" in hp:
            raise ValueError("batch_size and per_replica_batch_size are both set, expected one of them")
        size = hp.integer("per_replica_batch_size") * int(placement.strategy.num_replicas_in_sync)
    else:
        size = hp.integer("batch_size", 32)
    if size < 1:
        raise ValueError(f"the batch size is {size}, expected at least 1")
    return size


def _shapes(example: Any) -> tuple[object, ...]:
    return tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in keras.tree.flatten(example))
