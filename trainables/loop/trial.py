"""A trial that trains epoch by epoch, with all state that a checkpoint must hold."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from sweep.contract import Assignment, Diverged, EpochReported
from sweep.hyperparameters import Hyperparameters, Reads
from sweep.patience import Plateau, is_exhausted
from sweep.standard_hyperparameters import LENGTHS
from trainables import keras_private
from trainables.data import residence
from trainables.data.chunks import make_examples
from trainables.data.passes import Chunk, Examples, HeldOut, Walk, get_batch_size
from trainables.devices.gauges import Gauges
from trainables.devices.placement import Placement
from trainables.loop import hooks
from trainables.loop.cache import Structure
from trainables.loop.hooks import AuthorHooks, Callbacks, HookSettings
from trainables.loop.program import Evaluated, Program, Trained
from trainables.loop.stopwatch import Stopwatch
from trainables.numbers.live import settling
from trainables.recipe import groups, refusals, schedules
from trainables.recipe.phases import Span
from trainables.recipe.rates import compute_scheduled_rate, get_own_rate
from trainables.recipe.refusals import Refused
from trainables.recipe.schedules import Reduction
from trainables.state import attributes, checkpoint
from trainables.state.author_globals import HookChanges

_LAYER_PART_CLASSES = (keras.constraints.Constraint, keras.regularizers.Regularizer)
"""Classes of objects in layers' attributes that may have live hyperparameters."""


class TrialSetting(NamedTuple):
    """The parts of a trial that all its phases share."""

    assignment: Assignment
    hp: Hyperparameters
    placement: Placement
    dtype: str
    train: Examples
    validation: Examples | None
    stopwatch: Stopwatch
    reads: tuple[Reads, ...]  # hyperparameters read for its data and phases
    callbacks: Callbacks


class Spent(NamedTuple):
    """Time that an epoch took; if several trials were trained together, each trial's equal share of it."""

    train_s: float
    time_s: float  # including validation
    trials: int = 1  # how many were trained together


@dataclass
class TrialClock:
    """The seconds that a trial's epochs took; schedules depend on them if the trial is limited by minutes."""

    trained_s: float = 0.0  # all epochs so far, also those before a restart
    epoch_s: float = 0.0  # the last epoch
    phase_s: float = 0.0  # the epochs of all previous phases

    def add(self, time_s: float) -> None:
        """Add the seconds of an epoch to `trained_s`, and set `epoch_s` to them."""
        self.trained_s += time_s
        self.epoch_s = time_s

    def shares(self, budget_s: float) -> tuple[float, float]:
        """Return the fractions of the phase's time that are used at the start and at the end of the next epoch.

        The phase's time is what previous phases have left of ``budget_s`` seconds. Both fractions are 1 if they have
        left none; otherwise they may exceed 1. The next epoch is expected to take as long as the last one; the first
        epoch, 0 seconds.
        """
        left_s = budget_s - self.phase_s
        if left_s <= 0:
            return 1.0, 1.0
        used_s = self.trained_s - self.phase_s
        return used_s / left_s, (used_s + self.epoch_s) / left_s


@dataclass
class ReadyTrial:
    """A trial with its data and program, ready to train in one of its phases."""

    assignment: Assignment
    hp: Hyperparameters
    placement: Placement
    dtype: str
    structure: Structure
    program: Program
    walk: Walk
    held_out: HeldOut | None
    reads: tuple[Reads, ...]  # all hyperparameters read to prepare it
    peak: float | None  # highest learning rate; None if the author's optimizer has its own schedule
    schedule: schedules.Schedule
    warmup: int  # in updates
    reduction: Reduction | None
    stopwatch: Stopwatch
    gauges: Gauges
    hooks: AuthorHooks
    callbacks: Callbacks
    # what hooks and callbacks have changed in the author's modules
    hook_changes: HookChanges | None = None
    span: Span = field(default_factory=Span)  # the present phase
    compile_s: float = 0.0
    rate_scale: float = 1.0
    # learning rate set by a hook or a callback, in place of the schedule
    rate_set: float | None = None
    # which layers are trainable, if a hook or a callback has set it
    frozen: list[bool] | None = None
    lost: str = ""  # what could not be restored from a checkpoint
    stopped: str = ""  # why the author's code ends the trial
    epoch: int = 0
    train_s: float = 0.0
    clock: TrialClock = field(default_factory=TrialClock)
    together: int = 1  # largest number of trials that it was trained with at once
    waited: Plateau = field(init=False)
    held: Reads = field(init=False)  # hyperparameters that the trial's programs depend on

    def __post_init__(self) -> None:
        self.waited = Plateau(self.assignment.maximize)
        self.held = {
            name: was for name, was in self.structure.reads.items() if name not in self.span.changes
        }

    def prepare(self) -> None:
        """Choose the batch size of validation, and compile updates with XLA if the trial uses it.

        Replaces `held_out` by data with the training's batch size if larger batches would give other metrics. Times are
        added to the stopwatch's parts ``build`` and ``xla``. Raises Refused if XLA must compile and cannot.
        """
        self.stopwatch.begin()
        if self.held_out is not None:
            self.held_out = self._choose_batches(self.held_out)
            self.stopwatch.lap("build")
        self._compile_updates()

    def _choose_batches(self, data: HeldOut) -> HeldOut:
        """Return validation or test data, with the training's batch size if larger batches would give other metrics.

        It also has that size if the program always validates so, see `Program.validates_as_it_trains`. A batch size of
        validation that the trial sets is kept in any case. ``data`` is not changed, but returned or copied.
        """
        program = self.program
        with self.placement.replicas.scope(), self.hp.recording(self.structure.reads):
            as_trained = program.validates_as_it_trains
            as_trained = as_trained or program.depends_on_batch_size(
                data, seed=self.assignment.seed
            )
        if as_trained:
            return data.in_training_batches
        return data

    def _compile_updates(self) -> None:
        """Compile updates with XLA if the trial uses it, and add the time to the stopwatch's part ``xla``.

        No time is added if nothing was compiled. Raises Refused if XLA must compile and cannot.
        """
        self.stopwatch.begin()
        with self.placement.replicas.scope(), self.hp.recording(self.structure.reads):
            if self.program.compile_updates(self.walk):
                self.stopwatch.lap("xla")

    @property
    def finished(self) -> bool:
        """Whether no further epoch is to be trained.

        True if all epochs are done or the minutes are used up, if the author's code has stopped the trial, or if the
        objective has not improved for ``training.patience`` epochs.
        """
        patience_is_exhausted = is_exhausted(self.waited, self.assignment.training)
        return bool(self.stopped) or patience_is_exhausted or self.share >= 1

    @property
    def share(self) -> float:
        """The share of its budget of epochs and minutes that the trial has used, from 0 to 1."""
        return self.assignment.share_used(self.epoch, self.clock.trained_s)

    @property
    def phase_is_over(self) -> bool:
        """Whether the epochs of the present phase are done, another phase follows and the trial is not finished."""
        return self.span.last is not None and self.epoch >= self.span.last and not self.finished

    @property
    def extends(self) -> bool:
        """Whether the trial can go on with more epochs and give the numbers of a trial that was planned with them.

        False if its epochs are not all done, if it is limited by minutes, if its optimizer has a schedule of its own,
        or if the author's code or the learning rates depend on the number of epochs or updates. Callbacks other than
        those of `hooks.OF_ANY_LENGTH` count as depending on it.
        """
        if self.assignment.minutes is not None or self.callbacks.may_depend_on_trial_length:
            return False
        # The author's code may have read the number of epochs, as one of the names in `LENGTHS`.
        read = {name for reads in self.reads for name in reads} | set(self.program.live_names)
        if not read.isdisjoint(LENGTHS) or self.epoch < self.assignment.epochs:
            return False
        if self.peak is None:  # the author's schedule may depend on the number of epochs
            return False
        if self.span.last is not None:  # its rates follow the length of the phase, which stays
            return True
        updates = (self.epoch - self.span.first) * self.walk.per_epoch
        count = self.walk.per_epoch
        return not schedules.depends_on_trial_length(
            self.schedule, updates=updates, count=count, warmup=self.warmup
        )

    def rates(self) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """Return the learning rate of each update in the next epoch, with shape (updates in an epoch,).

        The schedule's rates are multiplied by the factors of `scale_rate` and of the plateau schedule. If a hook or
        callback has set a rate, all updates have that one instead. If the optimizer has a schedule of its own, only the
        last element is a rate and the others are NaN. If the loop does not set the rate, the values have no effect.
        """
        epoch_of_phase = max(self.epoch - self.span.first, 0) + 1  # the next epoch, from 1
        if self.rate_set is not None:
            return np.full(self.walk.per_epoch, self.rate_set, np.float32)
        if self.peak is None:  # the optimizer has a schedule of its own
            rates = np.full(self.walk.per_epoch, np.nan, np.float32)
            last_update = epoch_of_phase * self.walk.per_epoch - 1
            rates[-1] = compute_scheduled_rate(self.program.parts.optimizer, last_update)
            return rates
        plateau_scale = self.reduction.scale if self.reduction else 1.0
        return schedules.compute_rates(
            self.schedule,
            peak=self.peak * self.rate_scale * plateau_scale,
            epoch=epoch_of_phase,
            count=self.walk.per_epoch,
            epochs=self.span.length(self.assignment.epochs),
            warmup=self.warmup,
            by_time=self._shares_by_time(),
        )

    def _shares_by_time(self) -> tuple[float, float] | None:
        """Return the fractions of the phase's minutes used at the start and at the expected end of the next epoch.

        None if the trial is not limited by minutes, or if the phase ends after a number of epochs, before the trial.
        """
        minutes = self.assignment.minutes
        last = self.span.last
        if minutes is None or (last is not None and last < self.assignment.epochs):
            return None
        return self.clock.shares(60 * minutes)

    def train_epoch(self) -> EpochReported:
        """Train and validate one epoch, call hooks and callbacks, and return the epoch's report.

        Counts the epoch and its time, even if it has diverged. Raises Diverged if a loss, a gradient or a weight is not
        finite (the epoch is then not validated), and Refused if a hook or callback makes a change that is not allowed.
        Errors of the author's code are passed on, and the epoch does not count if they come before its end.
        """
        with self.gauges.ending():
            return self._train_and_conclude()

    def _train_and_conclude(self) -> EpochReported:
        """Do what `train_epoch` does; the caller must stop the gauges."""
        began = time.perf_counter()
        epoch = self.epoch + 1
        has_hooks = bool(self.hooks or self.callbacks)
        if has_hooks:
            self._begin_epoch(epoch)
        rates = self.rates()
        if has_hooks:
            settings_before = HookSettings.of(self.program)
        else:
            settings_before = None  # tells `conclude` that it has none to call
        self.gauges.begin()
        trained = self._train(rates, epoch)
        evaluated = None
        # The optimizer has a schedule of its own. Which rate it used last follows from its count of updates, because
        # a batch may have several updates, and some may have been skipped.
        if self.peak is None:
            optimizer = self.program.parts.optimizer
            rates[-1] = compute_scheduled_rate(
                optimizer, max(int(optimizer.iterations.numpy()) - 1, 0)
            )
        train_s = time.perf_counter() - began
        if self.held_out is not None and trained.finite:
            with self.placement.replicas.scope(), _running_eagerly(self.assignment.training):
                evaluated = self.program.evaluate(
                    self.held_out, seed=self.assignment.seed, epoch=epoch
                )
        spent = Spent(train_s, time.perf_counter() - began)
        return self.conclude(rates, trained, evaluated, spent, settings_before)

    def conclude(
        self,
        rates: np.ndarray[Any, Any],
        trained: Trained,
        evaluated: Evaluated | None,
        spent: Spent,
        settings_before: HookSettings | None = None,
    ) -> EpochReported:
        """Count the epoch that was just trained, call the hooks for its end, and return its report.

        ``rates`` has the learning rate of each update, and ``evaluated`` is None without validation. Metrics of
        validation are reported as ``val_<name>``. The objective is passed to the patience rule and the plateau
        schedule. Hooks and callbacks are only called if ``settings_before``, the settings before the epoch, is given.
        They may change the reported metrics, and Refused is raised if they make a change that is not allowed. Raises
        Diverged, after the epoch was counted and before they are called, if ``trained`` is not finite.
        """
        epoch = self.epoch + 1
        metrics = trained.metrics
        if evaluated is not None:
            metrics = metrics | {f"val_{name}": value for name, value in evaluated.metrics.items()}
        if evaluated is None:
            loss_std = math.nan
        else:
            loss_std = evaluated.loss_std
        self.epoch = epoch
        self.train_s = self.train_s + spent.time_s
        self.clock.add(spent.time_s)
        if not trained.finite:
            raise Diverged(
                f"the loss, a gradient or a weight became NaN or infinite in epoch {epoch}"
            )
        if settings_before is not None:
            if trained.rate is not None:  # a callback has set it during the epoch
                self.rate_set = trained.rate
            # The loop has set rates during the epoch; what hooks set is a difference from the rates at its end.
            present = HookSettings.of(self.program)
            metrics = self._end_epoch(epoch, metrics, replace(settings_before, rates=present.rates))
        else:
            self._observe_objective(metrics)
        return EpochReported(
            trial=self.assignment.trial,
            epoch=epoch,
            metrics=metrics,
            time=time.time(),
            time_s=spent.time_s,
            learning_rate=self._find_last_rate(rates, trained),
            examples_per_s=trained.examples / spent.train_s,
            measures=self._collect_measures(epoch, trained, loss_std, spent, updates=len(rates)),
        )

    def _collect_measures(
        self, epoch: int, trained: Trained, loss_std: float, spent: Spent, *, updates: int
    ) -> dict[str, float]:
        """Return the measured columns of an epoch that had ``updates`` updates, and end the measurement of the gauges.

        ``compile_s`` is 0 except in the first epoch of a phase. ``validation_examples`` is only in the first epoch,
        ``validation_loss_std`` only if ``loss_std`` is not NaN, and ``passes`` only if the trial sets
        ``steps_per_epoch`` and the examples of a pass are counted.
        """
        measures = {
            "step_s": (spent.train_s - trained.wait_s) / updates,
            "data_wait_s": trained.wait_s,
            "validation_s": spent.time_s - spent.train_s,
            "compile_s": self.compile_s if epoch == self.span.first + 1 else 0.0,
        }
        if epoch == 1 and self.held_out:
            measures["validation_examples"] = float(self.held_out.size)
        if not math.isnan(loss_std):
            measures["validation_loss_std"] = loss_std
        if self.walk.steps and self.walk.data.counted:
            measures["passes"] = self.walk.count_passes(epoch)
        return measures | self.gauges.end(spent.trials)

    def _find_last_rate(self, rates: np.ndarray[Any, Any], trained: Trained) -> float | None:
        """Return the learning rate of the last update; None if training does not use the trial's optimizer.

        It is the last of ``rates``, unless a callback has set another one.
        """
        if self.program.optimizer_is_idle:
            return None
        if trained.rate is None:
            return float(rates[-1])
        return trained.rate

    def test(self, data: Any) -> dict[str, float]:
        """Return the loss and metrics of the trial's model on test data, by names without ``val_``.

        ``data`` is the third part of what the author's `data` returns. All of it is used, even if ``validation_steps``
        is set. The model has the weights that it has now; averages are used as in validation. Raises DataError if
        ``data`` is not valid data.
        """
        replicas = self.placement.replicas
        with replicas.scope(), self.hp.recording(self.structure.reads):
            whole = make_examples(residence.map_block_arrays(data), replicas, "test data")
            held_out = HeldOut.all_of(
                self.hp, whole, self.walk.batch_size, self.assignment.accumulate
            )
            held_out = self._choose_batches(held_out)
            return self.program.evaluate(
                held_out, seed=self.assignment.seed, epoch=self.epoch
            ).metrics

    def try_rates(self, rates: Sequence[float]) -> Iterator[float]:
        """Train one update at each rate, each on the next batch, and yield the loss of its batch before the update.

        An update is trained when its loss is asked for. Stops after the first loss that is not finite, which is yielded
        as NaN. This changes the weights of the trial's program, which stay changed until the session begins another
        trial. Only for programs whose `kept` is True; others raise NotImplementedError.
        """
        program, walk = self.program, self.walk
        program.state.will_train()
        for number, (rate, chunk) in enumerate(
            zip(rates, _iterate_whole_batches(walk), strict=False)
        ):
            loss = program.one_update(
                chunk, rate, batch_size=walk.batch_size, seed=walk.seed, number=number
            )
            yield loss
            if not np.isfinite(loss):
                return

    def _begin_epoch(self, epoch: int) -> None:
        """Call hooks and callbacks before an epoch (from 1); what they set applies to this epoch.

        Before the first epoch, those for the beginning of the training are called as well. Raises Refused for a change
        that is not allowed, see `_applying_changes`.
        """
        program = self.program
        program.state.will_train()  # hooks may assign variables
        with self.placement.replicas.scope():
            hooks.show_rate(program, float(self.rates()[0]))
            with self._applying_changes(HookSettings.of(program), "on_epoch_begin"):
                if self.epoch == 0:
                    self.callbacks.train_begin()
                    self.hooks.train_begin()
                self.callbacks.epoch_begin(epoch)
                self.hooks.epoch_begin(epoch)

    def _end_epoch(
        self, epoch: int, metrics: dict[str, float], settings_before: HookSettings
    ) -> dict[str, float]:
        """Call callbacks and then hooks after an epoch, and return the metrics, changed and extended by them.

        What they set on the model and optimizer since ``settings_before`` applies from the next epoch on. The
        objective's value is also passed to the patience rule and the plateau schedule. If the trial ends, callbacks are
        told so. Raises Refused for a change that is not allowed.
        """
        with self._applying_changes(settings_before, "on_epoch_end"):
            metrics = self.callbacks.epoch_end(epoch, metrics, saving=self._saving)
            if self.program.model.stop_training:
                self.stopped = "a Keras callback has set stop_training"
            with self.placement.replicas.scope():
                metrics = self.hooks.epoch_end(epoch, metrics)
            # before `finished`, which depends on it by the patience rule
            self._observe_objective(metrics)
            # A hook may have set `stop_training` just now; `stopped` follows it when this block ends.
            if self.finished or self.program.model.stop_training:
                self.callbacks.train_end(metrics)
        return metrics

    @contextmanager
    def _applying_changes(self, settings_before: HookSettings, hook: str) -> Iterator[None]:
        """Apply what hooks and callbacks set inside the block: the learning rate, trainable layers and stop_training.

        Changes are found by a comparison with ``settings_before``. ``hook`` is the method's name, which is recorded as
        the reason if the trial is stopped. If the block raises, nothing is applied. In any case, `model.stop_training`
        is set back to False, and the program becomes `spent` if its next trial would inherit a change. As in
        `Model.fit`, what `model.evaluate` counts in the block counts in no epoch. Raises Refused for a setting that
        would have no effect, for a learning rate beside lr_schedule plateau, and if the block has created variables.
        """
        program = self.program
        attributes_before = attributes.digest_layer_attributes(program.networks)
        try:
            yield
            if program.model.stop_training:
                self.stopped = self.stopped or f"{hook}() has set model.stop_training"
        finally:  # also if a hook raises, because other trials may use the program
            # A program that is `spent` is used for no other trial.
            program.spent = (
                program.spent
                or hooks.affects_next_trial(program, settings_before)
                or attributes.digest_layer_attributes(program.networks) != attributes_before
            )
            program.model.stop_training = False
        with self.placement.replicas.scope():
            program.reset_metrics()
        hooks.refuse_created_variables(program, hook)
        rate = hooks.find_set_rate(program, settings_before)
        if rate is not None and self.reduction:
            raise Refused(
                "model.optimizer.learning_rate was set, which lr_schedule plateau sets too; leave out one"
            )
        if rate is not None:
            self.rate_set = rate
        if hooks.have_layers_changed(program, settings_before):
            self._set_trainable_layers(list(HookSettings.of(program).layers))

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Give the model the values with which it is saved, inside the block.

        It has the weights that it is validated with, and live hyperparameters (kept in variables) become numbers. Both
        are put back after the block.
        """
        program = self.program
        layers = keras_private.flatten_layers(program.model)
        # all objects whose attributes may be live hyperparameters
        owners = [*layers, *keras.tree.flatten(program.parts.options.get("loss"))]
        for layer in layers:
            owners += [
                value for value in vars(layer).values() if isinstance(value, _LAYER_PART_CLASSES)
            ]
        for optimizer in program.optimizers:
            owners += groups.list_parts(optimizer)
        with self.placement.replicas.scope(), self.swapping_average(), settling(owners):
            yield

    @contextmanager
    def swapping_average(self) -> Iterator[None]:
        """Give the model its averaged weights inside the block, if it is validated with averages.

        It gets its own weights back after the block.
        """
        average = getattr(self.program, "average", None)
        with average.swapping() if average else nullcontext():
            yield

    def _set_trainable_layers(self, layers: list[bool]) -> None:
        """Record which layers are trainable, and trace and compile training again for them.

        ``layers`` has one value per layer, True if it is trainable, in the order of `HookSettings.layers`. The caller
        has already set the layers so.
        """
        self.frozen = layers
        with self.placement.replicas.scope(), self.hp.recording(self.structure.reads):
            self.program.trace_anew(self.walk.data)
        self._compile_updates()

    def scale_rate(self, factor: float) -> None:
        """Multiply all later learning rates by ``factor``, including one that a hook or callback has set.

        It applies from the next call of `rates` on, and is multiplied with the factors of earlier calls. Raises Refused
        if the loop does not set the learning rate, as with a schedule of the optimizer's own.
        """
        if self.peak is None or self.program.sets_no_rate:
            raise Refused(
                "scale_rate() has no effect: the optimizer brings a schedule or a rate of its own"
            )
        self.rate_scale *= float(factor)
        if self.rate_set is not None:
            self.rate_set = self.rate_set * float(factor)

    def state(self) -> dict[str, Any]:
        """Return the trial's progress as plain values for a checkpoint, without the program's variables.

        ``frozen`` has for each layer whether it is trainable, or None if no hook or callback has set that. ``left`` has
        what they have changed in the author's modules. The keys ``order``, ``reduction``, ``callbacks``, ``left`` and
        ``clock`` are left out if they do not apply to the trial.
        """
        state: dict[str, Any] = {
            "epoch": self.epoch,
            "phase": self.span.number,
            "waited": self.waited.state(),
            "stopped": self.stopped,
            "rate_scale": self.rate_scale,
            "rate_set": self.rate_set,
            "frozen": self.frozen,
        }
        order = self.walk.data.order
        if order:
            state["order"] = order
        if self.reduction:
            state["reduction"] = self.reduction.state()
        if self.callbacks:
            state["callbacks"] = self.callbacks.state()
        if self.hook_changes is not None:
            state["left"] = self.hook_changes.state()
        if self.assignment.minutes is not None:
            state["clock"] = asdict(self.clock)
        return state

    def restore(self, about: checkpoint.About) -> None:
        """Restore the progress that `state` returned for a checkpoint, so that the trial continues after that epoch.

        The program's variables are not restored, and the trial must be in the checkpoint's phase already. If a hook or
        a callback had frozen or unfrozen layers, training is traced again, and no other trial uses the program. Sets
        `lost` to what could not be restored. For a trial that does not train, callbacks and the changes by hooks are
        not restored. Raises CheckpointError, when some of the progress is restored already, if the trial must begin
        again: if the callbacks cannot be restored, or if it would go on with examples in another order.
        """
        # A trial that does not train, but only gives its model, needs no callbacks and no order of examples.
        if self.callbacks and self.assignment.trains:
            self.callbacks.restore(about.get("callbacks"))
        if self.hook_changes is not None and self.assignment.trains and "left" in about:
            self.lost = self.hook_changes.restore(about["left"])
        self.epoch = int(about["epoch"])
        self.stopped = str(about.get("stopped", ""))
        self.rate_scale = float(about.get("rate_scale", 1.0))
        self.rate_set = about.get("rate_set")
        if about.get("frozen"):  # a hook or a callback has set which layers are trainable
            self.program.spent = True  # other trials would inherit which layers are trainable
            hooks.set_trainable_layers(self.program, about["frozen"])
            self._set_trainable_layers(about["frozen"])
        self.waited.restore(about["waited"])
        self.clock = TrialClock(**about.get("clock", {}))
        if (
            self.assignment.trains
            and not self.finished
            and about.get("order", "") != self.walk.data.order
        ):
            raise checkpoint.CheckpointError(
                "its examples came in an order that is not drawn any more; it begins anew"
            )
        if self.reduction:
            self.reduction.restore(about["reduction"])

    def continue_from(self, before: ReadyTrial) -> None:
        """Copy progress from ``before``, the same trial in the previous phase.

        That is the epoch, times, the factor of the learning rate, patience, the reasons in `lost` and `stopped`, and
        recorded reads. A learning rate that a hook or callback has set is not copied: each phase has an optimizer and a
        schedule of its own.
        """
        self.epoch = before.epoch
        self.train_s = before.train_s
        self.lost = before.lost
        self.stopped = before.stopped
        self.rate_scale = before.rate_scale
        self.waited = before.waited
        self.reads = (*before.reads, *self.reads)
        self.held = self.held | before.held
        self.clock = replace(before.clock, phase_s=before.clock.trained_s)

    def _train(self, rates: np.ndarray[tuple[int], np.dtype[np.float32]], epoch: int) -> Trained:
        """Train one epoch with ``rates``, a learning rate for each update, and return the result without validation.

        Hyperparameters that are read while tracing are added to the structure. Epoch 1 is profiled if the assignment
        asks for it.
        """
        # Traces belong to the scope they were made in. A new shape is traced again, with new reads.
        with self.placement.replicas.scope(), self.hp.recording(self.structure.reads):
            if epoch == 1:
                profile_into = self.assignment.profile
            else:
                profile_into = None
            with _running_eagerly(self.assignment.training):
                return self.program.train_epoch(
                    self.walk, rates, epoch=epoch, profile_into=profile_into
                )

    def _observe_objective(self, metrics: dict[str, float]) -> None:
        """Pass the objective's value to the patience rule and the plateau schedule; do nothing if it is missing.

        If the assignment names no objective, it is ``val_loss`` or, without validation, ``loss``.
        """
        objective = self.assignment.objective or (
            "val_loss" if self.held_out is not None else "loss"
        )
        value = metrics.get(objective)
        if value is not None:
            self.waited.count_epoch(value)
            if self.reduction:
                self.reduction.update(value)


def highest_rate(
    hp: Hyperparameters, batch_size: int, structure: Structure, program: Program
) -> float | None:
    """Return the highest learning rate of the trial's schedule; None if the optimizer has a schedule of its own.

    It is scaled as ``lr_scaling`` says for ``batch_size``. If the loop does not set the learning rate, the optimizer's
    present rate is returned. Raises Refused for hyperparameters that the author's optimizers would ignore, and
    ValueError or TypeError for a wrong hyperparameter of the rate.
    """
    own = get_own_rate(program.parts.optimizer)
    refusals.check_own_optimizers(
        program.model, hp, structure.made_with, idle=program.optimizer_is_idle
    )
    if program.optimizer_is_idle:
        return own
    if own is None or program.sets_no_rate:
        refusals.check_rates(hp, read=structure.keeps_rate)
        return own
    return schedules.compute_peak_rate(hp, batch_size, own if structure.keeps_rate else None)


def global_batch_size(hp: Hyperparameters, placement: Placement, data: Examples) -> int:
    """Return the number of examples in a batch of all replicas together, from the hyperparameters; by default 32.

    Raises DataError if the data come in batches of another size, and ValueError or TypeError if ``batch_size`` and
    ``per_replica_batch_size`` are both set, or one is wrong.
    """
    size = get_batch_size(hp, int(placement.replicas.number))
    data.check_batch_size(size)
    return size


def check_eager(training: Mapping[str, object], placement: Placement, micro_batches: int) -> None:
    """Raise Refused if ``training.run_eagerly`` is true with several replicas or micro-batches, or with jit_compile.

    ``training`` is the block of the sweep file. Only ``jit_compile: true`` is refused; ``auto`` is not.
    """
    if training.get("run_eagerly") is not True:
        return
    parts = int(placement.replicas.number) * micro_batches
    if parts > 1:
        raise Refused(
            f"training.run_eagerly is true, and a batch is computed in {parts} parts (replicas, micro_batches); debug "
            "on one device, in one part"
        )
    if training.get("jit_compile") is True:
        raise Refused(
            "training.run_eagerly and training.jit_compile are true, expected one of them"
        )


@contextmanager
def _running_eagerly(training: Mapping[str, object]) -> Iterator[None]:
    """Run compiled functions op by op inside the block if ``training.run_eagerly`` is true.

    Breakpoints and prints in the author's methods then see numbers. This is a setting of the process; its old value is
    set again after the block. If the process runs eagerly already, it goes on doing so.
    """
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(before or training.get("run_eagerly") is True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def _iterate_whole_batches(walk: Walk) -> Iterator[Chunk]:
    """Yield chunks whose first ``batch_size`` examples are the next batch, pass after pass without end.

    The rest of a chunk that is no whole batch is left out, but a chunk with fewer examples than a batch is yielded. A
    chunk keeps its length (its order is rotated), so that one trace serves all.
    """
    pass_number = 0
    while True:
        pass_number += 1
        for chunk in walk.data.chunks(walk.batch_size, walk.seed, pass_number):
            whole_batches = len(chunk.order) // walk.batch_size
            for batch in range(max(whole_batches, 1)):
                yield Chunk(chunk.tensors, np.roll(chunk.order, -batch * walk.batch_size))
