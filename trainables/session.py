"""The `TrialSession`, which trains the trials of one trainable, one after the other.

It keeps compiled programs between trials. The plain hyperparameters that `model`, `loss`, `metrics`, `optimizer` and
`augment` read determine the structure of a program. For another trial of the same structure the program is reset in
place, without compiling.
"""

from __future__ import annotations

import math
import socket
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from sweep import garbage
from sweep.contract import Assignment, Exported, Facts, Group, Report, Stopped
from sweep.hyperparameters import Hyperparameters, Reads, to_json
from sweep.state import imports, trials
from sweep.state.draws import seeding_entropy
from sweep.state.recorded_values import self_changing
from trainables import features
from trainables.data.passes import HeldOut, Walk, may_split_chunks
from trainables.data.sources import Visits
from trainables.devices import parameter_server, precision
from trainables.devices.gauges import Gauges
from trainables.devices.placement import RankJoining, choose_placement
from trainables.loop import building, cache, saving, xla
from trainables.loop.cache import Programs, Structure
from trainables.loop.hooks import AuthorHooks, Callbacks, copy_memory
from trainables.loop.program import Program, ProgramOptions
from trainables.loop.saving import CarriedWeights
from trainables.loop.stopwatch import Stopwatch
from trainables.loop.trial import (
    ReadyTrial,
    TrialSetting,
    check_eager,
    global_batch_size,
    highest_rate,
)
from trainables.numbers.live import Live
from trainables.recipe import author_data, global_settings, phases, refusals, schedules
from trainables.recipe.author import Author
from trainables.recipe.author_data import AuthorData
from trainables.recipe.phases import Span
from trainables.replicas import keras_corrections
from trainables.state import (
    attributes,
    author_globals,
    checkpoint,
    initializers,
    origins,
    program_variables,
    weights,
)

OWN = frozenset(
    {"_session", "memory", "live", "first_example", "_some_targets", "target_traits", "validates"}
)
"""Attributes that this package sets on a trainable; all other attributes belong to its author."""


TIMED_EPOCHS = 10
"""Number of epochs of the last phase that `plan --time` times if only minutes limit the trial."""


class SuspendedTrial(NamedTuple):
    """A suspended trial, with its setting, the epochs of its phases and the author's memory.

    The values of its program's variables are not included.
    """

    trial: ReadyTrial
    setting: TrialSetting
    spans: tuple[Span, ...]
    memory: dict[str, Any]


def _set_lengths(hp: Hyperparameters, assignment: Assignment, per_epoch: int | None = None) -> None:
    """Make the trial's numbers of epochs and updates readable as ``hp.epochs`` and ``hp.updates``.

    ``updates`` is only set if ``per_epoch``, the number of updates in an epoch, is given. If the trial is limited by
    minutes and not by a number of epochs, both count as unknown, and reading them is an error that says so.
    """
    lengths: dict[str, int | None] = {"epochs": assignment.epochs}
    if per_epoch is not None:
        lengths["updates"] = assignment.epochs * per_epoch
    if not assignment.counts_epochs:
        lengths = dict.fromkeys(lengths)
    hp.set_lengths(**lengths)


class TrialSession(RankJoining):
    """Trains, saves, restores and exports the trials of an author's class, as a `sweep.contract.Trainable`.

    The session is not the author's object, so authors may use any names for their attributes and methods.
    """

    def __init__(self, author: Author) -> None:
        refusals.check_backend()
        self._author = author
        self._programs = Programs()
        self.data = AuthorData(OWN)
        """The data of the trials."""
        # what the author's code had before a trial, to which it is set back afterwards
        self._snapshot = author_globals.TrialSnapshot(OWN)
        # what hooks and callbacks of the present trial have changed
        self._hook_changes: author_globals.HookChanges | None = None
        self._number: int | None = None  # of the present trial; None while a program is made
        self._number_read = False  # whether the author's code has read the number
        self.example_read = self.targets_read = False
        """True if `Author.example` and `Author.some_targets`, respectively, were read while a program was made."""
        self._hp: Hyperparameters | None = None
        self._setting: TrialSetting
        self._spans: tuple[Span, ...] = ()
        self._trial: ReadyTrial | None = None
        vars(author)["_session"] = self
        author.memory = {}

    @property
    def depends_on(self) -> object:
        """The author's ``depends_on``: files that a trial depends on besides its code and its data; None if not set."""
        return getattr(self._author, "depends_on", None)

    @property
    def trial(self) -> ReadyTrial:
        """The present trial.

        Raises RuntimeError before the first trial has begun.
        """
        if self._trial is None:
            raise RuntimeError("no trial has begun")
        return self._trial

    @property
    def number(self) -> int:
        """The number of the present trial; that it was read is recorded.

        Raises RuntimeError while data, a model or a step is made or traced, because other trials will also use the
        results.
        """
        if self._number is None or not tf.executing_eagerly():
            raise RuntimeError(
                "trial_number is read where data, a model or a step are made, which later trials use as well; read it "
                "in callbacks(), on_train_begin(), on_epoch_begin() or on_epoch_end()"
            )
        self._number_read = True
        return self._number

    def begin(self, assignment: Assignment) -> None:
        """Prepare a trial for `train`: choose devices, load the data, and build a program or reset a kept one.

        Random numbers follow from the seeds in ``assignment``. The state of the previous trial is discarded.
        Raises: DataError: if the data cannot be used. DeviceError: if the devices cannot be used as asked.
        Incompatible, such as Refused: if the author's code cannot do what is asked. TypeError: if a hyperparameter has
        a wrong type. ValueError: if a hyperparameter has a wrong value. NewProcessNeeded: if the trial needs other
        devices than this process has. NotBegun: if the trial is stopped while its data is counted. NotPutBack: if
        the author's code changes a value in place that is too large to be restored. Any error of the author's code.
        """
        with imports.seed_imports(assignment.data_seed):
            self._begin(assignment)

    def _begin(self, assignment: Assignment) -> None:
        """Prepare a trial up to its first phase, as `begin` says, which seeds the imports of the author's modules."""
        # First undo what the previous trial has left, so that nothing below sees it.
        self._trial = None
        self._author.memory = {}
        self._number = None
        self._hook_changes = None
        program_variables.reset_changed_state(self._author)
        author_globals.end_trial()
        parameter_server.free_server_weights()
        stopwatch = Stopwatch()
        hp = Hyperparameters(assignment.params)
        options = assignment.training
        _set_lengths(hp, assignment)
        if assignment.devices.gpus or "jit_compile" in options:  # nothing is cached otherwise
            from trainables.devices import compile_cache

            compile_cache.enable_caches(options, assignment.devices)
        placement = choose_placement(assignment.devices, options)
        precision.set_determinism(placement, deterministic=options.get("deterministic") is True)
        dtype = precision.choose_policy(str(options.get("precision", "auto")), placement)
        stopwatch.lap("start")
        with global_settings.trial_settings(dtype, trains=assignment.trains):
            train, validation = self.data.load_splits(self._author, hp, placement, assignment)
        self._snapshot.begin(self._author, self.data.loaded, trains=assignment.trains)
        stopwatch.lap("data")
        told: Reads = {}  # hyperparameters that `phases` and `callbacks` read
        with hp.recording(told):
            self._spans = phases.plan_spans(
                self._author.phases(hp), assignment.epochs, self.data.reads
            )
            self._number = assignment.trial  # callbacks() may read it, such as for a file's name
            self._number_read = False
            callbacks = Callbacks.of(self._author, hp, fit=options.get("loop") == "fit")
            ranks = assignment.devices.ranks
            processes = 1 if ranks is None else ranks.workers
            refusals.check_files(callbacks, by_number=self._number_read, processes=processes)
        earlier_reads = self.data.reads, told
        self._setting = TrialSetting(
            assignment, hp, placement, dtype, train, validation, stopwatch, earlier_reads, callbacks
        )
        self._trial = self._enter(self._spans[0])

    def _enter(self, span: Span) -> ReadyTrial:
        """Build or reset the program for one phase of the present trial, and return the trial with initial weights.

        ``span`` has the epochs of the phase and its changes of hyperparameters. The caller assigns the weights of the
        previous phase, and makes the result the present trial. Raises Refused if nothing reads a hyperparameter that
        the phase changes, and the errors of `begin` that concern the program.
        """
        setting = self._setting
        assignment, placement = setting.assignment, setting.placement
        stopwatch, train = setting.stopwatch, setting.train
        stopwatch.begin()
        hp = setting.hp
        # For `hp.live()`. Looks up the author's `live` at each call: it is replaced with each program.
        hp.serve_live(lambda *name, **more: self._author.live.number(*name, **more))
        self._hp = hp = hp.with_changes(span.changes)
        batch_size = global_batch_size(hp, placement, train)
        # in earlier phases, whose times the stopwatch adds up
        compiled_before_s = stopwatch.laps.get("compile", 0.0)
        per_epoch = Walk.of(hp, train, batch_size, assignment.seed).per_epoch
        _set_lengths(hp, assignment, per_epoch)
        settings_of_trial = global_settings.trial_settings(setting.dtype, trains=assignment.trains)
        numbering_of_layers = keras_corrections.keeping_numbering()
        with (
            placement.replicas.scope(),
            settings_of_trial,
            numbering_of_layers,
            garbage.collecting_later(),
        ):
            self._number = None  # other trials may use the program as well
            initializers.seed_initializers(self._snapshot.list_objects(), assignment.seed)
            structure, program = self._prepare(hp, batch_size)
        self._number = assignment.trial
        stopwatch.lap("build")
        program.state.owner = weakref.ref(self._author)
        reads: Reads = {}
        with hp.recording(reads):
            train.visit(Visits.of(hp))
            schedule = self._author.schedule(hp)
            peak = highest_rate(hp, batch_size, structure, program)
            ranks = assignment.devices.ranks
            # which part of each batch this process loads; None: the whole batch
            of_training, of_validation = program.shares(0 if ranks is None else ranks.rank)
            walk = Walk.of(hp, train, batch_size, assignment.seed, of_training)
            held_out = HeldOut.of(
                hp, setting.validation, batch_size, assignment.accumulate, of_validation
            )
        trial = ReadyTrial(
            assignment=assignment,
            hp=hp,
            placement=placement,
            dtype=setting.dtype,
            structure=structure,
            program=program,
            walk=walk,
            held_out=held_out,
            # hooks add what they read to the last one
            reads=(
                *setting.reads,
                structure.reads,
                reads,
            ),
            peak=peak,
            schedule=schedule,
            warmup=schedules.count_warmup_updates(hp, walk.per_epoch),
            reduction=schedules.make_reduction(hp, maximize=assignment.maximize),
            stopwatch=stopwatch,
            gauges=Gauges(placement, assignment.devices),
            span=span,
            compile_s=stopwatch.laps.get("compile", 0.0) - compiled_before_s,
            hooks=AuthorHooks(
                self._author, program.networks, hp, reads, OWN | self.data.left_attributes
            ),
            callbacks=setting.callbacks,
        )
        trial.prepare()
        self._prepare_hooks(trial)
        if len(self._spans) > 1:
            program.check_phases()
        return trial

    def _prepare_hooks(self, trial: ReadyTrial) -> None:
        """Pass the model, the number of epochs and that of updates in an epoch to the author's callbacks.

        The number of epochs is None if only minutes limit the trial. If there are hooks or callbacks, also begins to
        record what they change in the author's modules, or continues to, after the first phase. Raises Refused if the
        phase changes a hyperparameter that nothing reads and there are no hooks.
        """
        assignment, callbacks, program = trial.assignment, trial.callbacks, trial.program
        if trial.hooks or callbacks:
            # All phases of a trial share one object, because a checkpoint holds the changes since the trial began.
            self._hook_changes = self._hook_changes or author_globals.HookChanges(self._author)
            self._hook_changes.enter_phase()
            trial.hook_changes = self._hook_changes
        phases.check_changes(trial.span, trial.hp, hooked=bool(trial.hooks))
        if assignment.counts_epochs:
            epochs = assignment.epochs
        else:
            epochs = None
        callbacks.watch(
            self._author,
            program.networks,
            OWN | self.data.left_attributes,
            epochs=epochs,
            updates=trial.walk.per_epoch,
        )
        program.callbacks = callbacks

    def enter_next_phase(self) -> ReadyTrial:
        """Build or reset the program of the next phase, copy weights and progress to it, and return the trial.

        The result becomes the present trial. Averages of weights are copied as well. Optimizers start in their initial
        state.
        Raises: Refused: if the model of the next phase has weights of other names or shapes, or nothing reads a
        hyperparameter that the phase changes. IndexError: if there is no next phase.
        """
        trial = self.trial
        # copied before the program is reset: the next phase may use it as well
        carried = CarriedWeights(trial.program)
        program_variables.reset_changed_state(self._author)
        following = self._enter(self._spans[trial.span.number + 1])
        carried.assign_to(following.program)
        following.continue_from(trial)
        self._trial = following
        return following

    def train(self, report: Report) -> None:
        """Train epoch by epoch, through all phases, and call ``report`` after each epoch.

        Returns when the trial is finished (by its epochs, minutes or patience). Also returns when ``report`` returns
        False; a further call then continues the trial. Which values of the author's modules the trial has changed is
        recorded once it is finished, to undo them later.
        Raises: Diverged: if a loss, a gradient or a weight becomes NaN or infinite. Stopped: if the author's code has
        ended the trial. Refused: if the next phase does not fit.
        """
        try:
            self._train(report)
        finally:
            if self.trial.finished:
                trials.record_changes()

    def _train(self, report: Report) -> None:
        """Train as `train` says, but without recording what the trial has changed."""
        trial = self.trial
        while not trial.finished:
            if trial.phase_is_over:
                trial = self.enter_next_phase()
            if not report(trial.train_epoch()):
                return
        if trial.stopped:
            raise Stopped(trial.stopped)

    def save(self, folder: Path) -> Callable[[], None]:
        """Copy the state of the trial; return a function that writes it as a checkpoint to ``folder``, from any thread.

        The folder must exist. Tables on parameter servers are written before this returns. Raises Refused if the
        author's ``memory`` is no dictionary of plain values.
        """
        return saving.save(
            folder, self.trial, copy_memory(self._author.memory), self.data.fingerprint
        )

    def restore(self, folder: Path) -> int:
        """Restore the present trial from a checkpoint, in the checkpoint's phase; return the number of epochs trained.

        Also restores the author's ``memory``.
        Raises: CheckpointError: if the checkpoint is damaged or does not fit the trial. OtherData: if the checkpoint
        was made with data of another fingerprint.
        """
        trial = self.trial
        phase, data = checkpoint.read_phase_and_data(folder)
        self.data.check_fingerprint(data, folder.name)
        has_phase = phase < len(self._spans)
        if not has_phase and trial.assignment.trains:
            raise checkpoint.CheckpointError(
                f"it was made in phase {phase + 1}, and phases() has {len(self._spans)} now; the trial begins anew"
            )
        if has_phase and phase != trial.span.number:
            program_variables.reset_changed_state(self._author)
            trial = self._trial = self._enter(self._spans[phase])
        # A trial that does not train stays in its phase if the checkpoint's no longer exists; then this compares the
        # checkpoint with the program of the present phase.
        about = saving.restore(folder, trial)
        self._author.memory = dict(about.get("memory", {}))
        return trial.epoch

    def facts(self) -> Facts:
        """Return where and how the present trial runs, and why another run may give other numbers, if it may.

        Of several such reasons, only the first is given.
        """
        trial = self.trial
        differs = (
            trial.program.differs
            or trial.walk.data.differs
            or trial.lost
            or imports.explain_import_difference(trial.assignment.data_seed)
            or self_changing.describe()
        )
        numerics = precision.describe_numerics(trial.placement) | trial.program.numerics
        if trial.together > 1:
            numerics |= {"fused": f"{trial.together} trials"}
        if differs:
            numerics |= {"differs": differs}
        return Facts(
            started=trial.stopwatch.started,
            node=socket.gethostname(),
            devices=trial.placement.described,
            strategy=trial.placement.name,
            num_replicas=trial.placement.num_replicas,
            precision=trial.dtype,
            numerics=numerics,
            train_s=trial.train_s,
            overhead_s=dict(trial.stopwatch.laps),
            data=self.data.fingerprint,
            data_reads=self.data.follows_from,
            extends=trial.extends,
            structure=to_json(trial.held) if trial.program.kept else None,
            structures=len(self._programs),
            reproducible=not differs,
        )

    # ---- several trials in turns

    def group(self) -> Group:
        """Return a new, empty group whose members are trials of one structure that this session trains together."""
        return features.make_group(self)

    def capture_trial(self) -> SuspendedTrial:
        """Return the present trial with what `resume_trial` needs, so that another trial can begin.

        The values of the program's variables are not included; the caller must copy them.
        """
        return SuspendedTrial(self.trial, self._setting, self._spans, self._author.memory)

    def resume_trial(self, suspended: SuspendedTrial) -> None:
        """Make a suspended trial the present one again, with its live numbers and the author's attributes.

        The values of the program's variables are not changed; the caller must assign them.
        """
        self._trial, self._setting, self._spans, self._author.memory = suspended
        self._number = suspended.trial.assignment.trial
        self._hp = suspended.trial.hp
        author = self._author
        trial = suspended.trial
        if trial.program.kept:
            author.live = trial.program.live
            author.live.set(trial.hp)
        attributes.replace_all(author, OWN, {**self.data.bare, **trial.structure.attributes})

    def fits(self, assignment: Assignment, other: ReadyTrial) -> bool:
        """Return whether a trial that has not begun would use the program and the data of ``other``.

        It would if its devices, fold, micro-batches, way of visiting the data and the hyperparameters that were read
        are the same. If the author's methods have drawn numbers, its seed must be the same, too. Of what `data`,
        `phases` and `callbacks` read, the records of the present trial are used, so ``other`` must be that trial or one
        with the same records. Raises what `global_batch_size` and `Visits.of` raise if a hyperparameter is wrong.
        """
        trained = other.assignment
        if (assignment.devices, assignment.fold) != (trained.devices, trained.fold):
            return False
        if assignment.accumulate != trained.accumulate:
            return False
        if assignment.seed != trained.seed and other.structure.drew:
            return False
        hp = Hyperparameters(assignment.params)
        # Beginning a trial sets the order of the data, which ``other`` reads as well.
        if Visits.of(hp) != Visits.of(other.hp):
            return False
        batch_size = global_batch_size(hp, other.placement, other.walk.data)
        per_epoch = Walk.of(hp, other.walk.data, batch_size, assignment.seed).per_epoch
        _set_lengths(hp, assignment, per_epoch)  # which the recorded reads may include
        return all(
            hp.matches_reads(reads) for reads in (*self._setting.reads, other.structure.reads)
        )

    def try_rates(self, rates: Sequence[float]) -> Iterator[float]:
        """Train one update at each of ``rates`` and yield the loss of its batch before it, for `plan --find-lr`.

        Ends after the first loss that is not finite, which is NaN. The trial cannot be used afterwards. Raises Refused,
        at the first step of the iterator, if the loop does not set the learning rate.
        """
        trial = self.trial
        if not trial.program.kept or trial.peak is None or trial.program.sets_no_rate:
            raise refusals.Refused(
                "the learning rate is not the loop's to set: there is an optimizer with a schedule of its own, or "
                "`training: {loop: fit}`"
            )
        with trial.placement.replicas.scope():
            yield from trial.try_rates(rates)

    def try_phases(self) -> Iterator[int]:
        """Enter the phases one after the other without training, and yield how many of the trial's epochs are in each.

        Phases after the trial's last epoch are left out. If only minutes limit the trial, the last phase has
        `TIMED_EPOCHS`. For `plan --time`, which times epochs between the steps of this iterator. The trial cannot be
        used afterwards.
        """
        epochs = self.trial.assignment.epochs
        if not self.trial.assignment.counts_epochs:
            epochs = self._spans[-1].first + TIMED_EPOCHS
        for span in self._spans:
            if span.first >= epochs:
                continue
            if span.number:  # `begin` has entered the first one
                self._trial = self._enter(span)
                self._trial.epoch = span.first
            yield min(span.length(epochs), epochs - span.first)

    def stop(self, reason: str) -> None:
        """End the trial as completed after the present epoch; the author's `on_epoch_end` calls this.

        `train` then raises Stopped with ``reason``, or with a standard text if it is empty.
        """
        self.trial.stopped = reason or "on_epoch_end() said so"

    def scale_rate(self, factor: float) -> None:
        """Multiply the learning rates of all later epochs by ``factor``; the author's `on_epoch_end` calls this.

        Raises Refused if the loop does not set the learning rate.
        """
        self.trial.scale_rate(factor)

    def trained_model(self) -> keras.Model:
        """Return a new model, made by the author's `model`, with the weights that the trial is validated with.

        If the trial averages weights, the averages are used. A frozen model of `features` is put in front, for which
        `data` may run once more. Raises NotExportable if the new model cannot take over the weights.
        """
        return self._plain().model

    def export(self, folder: Path, formats: Sequence[str] = ("keras", "saved_model")) -> Exported:
        """Write the model into ``folder`` in each of ``formats``: ``keras``, ``saved_model`` or ``onnx``.

        A fresh process then checks the predictions of the files; those of a model that draws random numbers cannot be
        checked. Raises NotExportable if a format is not available, if the model cannot be built again or written, or if
        a file predicts something else.
        """
        trial = self.trial
        features.check_exportable(trial, formats)
        text = self._author.preprocessing(trial.hp)
        return features.export(trial, self._plain(), text, folder, formats)

    def test(self) -> dict[str, float] | None:
        """Return loss and metrics of the trial's model on the test data, by name; None if there are no test data.

        Names have no ``val_`` in front. Test data are the third part of what the author's `data` returns, which is
        called again for them.
        Raises: DataError: if the test data cannot be used. OtherData: if `data` no longer returns the training and
        validation data of the trial.
        """
        trial = self.trial
        # `data` and `features` may call layers, which follow the dtype policy, as for training and validation data
        with global_settings.trial_settings(trial.dtype, trains=False):
            data = self.data.test(self._author, trial.hp, trial.placement, trial.assignment)
        return None if data is None else trial.test(data)

    # ---- internals

    def _plain(self) -> features.Plain:
        """Build the present trial's model again by the author's `model`, without the changes that training needs.

        The model has the weights that the trial is validated with. The author's attributes are restored afterwards.
        """
        author = self._author
        trial = self.trial
        live = self._author.live  # `rebuild_model` replaces it
        seeded = imports.seed_imports(trial.assignment.data_seed)
        with (
            attributes.attributes_replaced(author, OWN, self.data.bare),
            author_globals.without_model_changes(),
            seeded,
            global_settings.trial_settings(trial.dtype, trains=False),
        ):
            try:
                initializers.seed_initializers(self._snapshot.list_objects(), trial.assignment.seed)
                with author_globals.making_model(author):
                    plain = features.rebuild_model(author, trial)
                return features.add_features(author, trial, plain, self.data)
            finally:
                author.live = live

    def _prepare(self, hp: Hyperparameters, batch_size: int) -> tuple[Structure, Program]:
        """Return (structure of the present trial, a program for it in its initial state).

        A kept program is used if one fits; otherwise a program is built, and kept for later trials if its `kept` is
        True. ``hp`` are the hyperparameters with the changes of the present phase. The author's attributes and ``live``
        are afterwards those of the program. Call this inside the strategy's scope.
        """
        # Not the setting's hyperparameters, which lack the changes of this phase, and not its reads.
        assignment, _, placement, dtype, train, validation, stopwatch, _, callbacks = self._setting
        fit = assignment.training.get("loop") == "fit"
        accumulate = assignment.accumulate
        seed = assignment.seed
        shapes = tuple(
            (leaf.shape[1:], str(leaf.dtype))
            for leaf in keras.tree.flatten(self._author.first_example)
        )
        compiles = xla.choose_xla(assignment.training, placement)
        check_eager(
            assignment.training,
            placement,
            hp.integer("micro_batches", 1, standard=True) * accumulate,
        )
        numerics = assignment.training.get("deterministic") is True, compiles
        # What graphs depend on besides hyperparameters; a kept program fits only if all of it is equal.
        of_data = shapes, train.changes_shape, validation is not None, self._author.target_traits
        environment = (placement.devices, placement.name, dtype, accumulate, of_data, numerics)
        key = Structure(environment, *self.data.key)
        served = placement.name == parameter_server.PARAMETER_SERVER
        alone = fit or served or callbacks.want_batches  # other loops, whose programs are not kept
        kept = None if alone else self._reuse_program(key, hp, seed)
        if kept is not None:
            return kept
        record = origins.CreatedVariables(seed)
        # before the program, to compute its share of the memory below
        used = cache.measure_used_bytes(placement)
        # as `data` left them, without those of a model
        attributes.replace_all(self._author, OWN, self.data.bare)
        self._author.live = Live(hp)
        self.example_read = self.targets_read = False
        recording = origins.recording_variables(record, seeds_on_host=not (fit or served))
        with (
            author_globals.making_model(self._author) as changes,
            recording,
            seeding_entropy(seed) as entropy,
        ):
            copies = self._copy_fitted()
            with hp.recording(key.reads):
                made = building.make_author_parts(self._author, hp, seed, record)
                refusals.check_compiled(made.parts.model, assignment.training)
                compiles = xla.follow_author(
                    compiles, made.jit_compile, assignment.training, placement
                )
                recipe = building.make_recipe(
                    hp, dtype, accumulate, batch_size=batch_size, replicas=placement.replicas
                )
                attributes_kept = attributes.get_author_attributes(self._author, OWN)
                if compiles:
                    # part of what XLA compiles, so it must be recorded as read
                    global_batch_size(hp, placement, train)
                wanted = ProgramOptions(
                    placement,
                    recipe,
                    seed,
                    self._present,
                    attributes_kept,
                    compiles,
                    callbacks,
                    fit,
                )
                built = building.build_program(made, wanted)
                stopwatch.lap("build")
                # Inside the block, because tracing runs `augment`, which reads hyperparameters.
                built.compile(train, validation, placement.replicas, loose=may_split_chunks(hp))
            refusals.check_idle_loss(built.idle_numbers)
            stopwatch.lap("compile")
        # Once more, because tracing may have set some. Those of `data` are not the program's, except copies of layers.
        attributes_of_author = attributes.get_author_attributes(self._author, OWN)
        own = {
            name: value
            for name, value in attributes_of_author.items()
            if name not in self.data.left_attributes
        }
        own |= copies
        drew = made.drew or bool(entropy.seeds or entropy.line)
        if entropy.line:  # the author's line whose numbers no seed can set
            built.differs = f"{entropy.line} draws from the machine"
        structure = replace(
            key,
            keeps_rate=made.keeps_rate,
            made_with=made.read,
            drew=drew,
            attributes=own,
            changes=changes,
            example=key.example if self.example_read else None,
            targets=key.targets if self.targets_read else None,
        )
        if built.kept:
            most = cache.compute_room(placement, assignment.devices)
            # weights count towards the memory of the first program
            weights.limit_cache(most.get("host", math.inf) / 2)
            share = cache.compute_share_of_room(used, cache.measure_used_bytes(placement), most)
            self._programs.add(structure, built, share)
        return structure, built

    def _reuse_program(
        self, key: Structure, hp: Hyperparameters, seed: int
    ) -> tuple[Structure, Program] | None:
        """Return (structure, kept program in its initial state) that fits ``key``; None if none can be used.

        Its live numbers are set to ``hp``, and the author's attributes and modules get the values that making the
        program gave them. A program that fits but cannot begin with this seed is dropped.
        """
        kept = self._programs.find(key, hp)
        if kept is None:
            return None
        structure, program = kept
        # First, because `_begin_as_new` may call the author's methods, which read live numbers.
        self._author.live = program.live
        self._author.live.set(hp)
        if not self._begin_as_new(structure, program, hp, seed):
            self._programs.remove(program)
            return None
        attributes.replace_all(self._author, OWN, {**self.data.bare, **structure.attributes})
        structure.changes.redo()
        return kept

    def _copy_fitted(self) -> dict[str, object]:
        """Replace attributes of the author that are layers fitted in `data` (such as Normalization) by copies.

        Each program gets its own copies. Return the copies by attribute name; empty if there are no such layers.
        """
        copies = author_data.copy_fitted_layers(self.data.bare)
        for name, value in copies.items():
            setattr(self._author, name, value)
        return copies

    def _begin_as_new(
        self, structure: Structure, program: Program, hp: Hyperparameters, seed: int
    ) -> bool:
        """Give a kept program the initial values for ``seed``; return False if a new program is needed instead.

        `reset_changed_state` has already reset the program to the start of its first trial. With another seed, the
        author's methods are called again and the program takes over their initial values; this replaces the author's
        attributes. A new program is needed if these methods drew numbers when the program was built, which may be
        constants of the graph, or if `Program.begin_as` returns False.
        """
        if program.parts.record.seed == seed:
            return True
        if structure.drew:
            return False
        record = origins.CreatedVariables(seed)
        attributes.replace_all(self._author, OWN, self.data.bare)
        to_copy = not program.parts.optimizer_copies_weights(program.state)
        with (
            author_globals.making_model(self._author),
            origins.recording_variables(record, to_copy=to_copy),
        ):
            self._copy_fitted()
            return program.begin_as(
                building.make_author_parts(self._author, hp, seed, record).parts
            )

    def _present(self) -> Hyperparameters:
        """Return the hyperparameters of the present trial; programs call this whenever they are traced.

        A program may be traced again in a later trial than the one that it was made for. Raises RuntimeError before the
        first trial has begun.
        """
        if self._hp is None:
            raise RuntimeError("no trial has begun")
        return self._hp
