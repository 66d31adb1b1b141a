"""A worker: trains one trial after another with one trainable, step by step.

A step trains up to the next point at which the driver may decide: an epoch at which the scheduler can prune, about a
second of epochs, or the end; then a checkpoint is saved if one is due. An exception of a trainable ends only its trial.
This module depends neither on Ray nor on the driver; backends bring an `Order` in and a `Progress` out.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import structs

from sweep import contract, errors, prices
from sweep.backends import (
    Continues,
    Crowded,
    Ends,
    Job,
    Moves,
    Order,
    Outgrown,
    Progress,
    SameData,
    Surroundings,
    WorkerNode,
    checkpoints,
    features,
    inputs,
    memory,
    must_move,
)
from sweep.backends.checkpoints import DiskFault, Manifest, Saver
from sweep.backends.unread import UnreadParameters
from sweep.contract import (
    Apart,
    Assignment,
    Diverged,
    EpochReported,
    Facts,
    Incompatible,
    OtherData,
    Report,
    Stopped,
    Trainable,
)
from sweep.errors import StoppedAtOnce, WorkerLost, first_line
from sweep.events import ERRORED, Inputs, Status, TrialEnded, as_floats, encode
from sweep.functions import load_trainable
from sweep.progress import SHARE, count_units, passes_any
from sweep.state import imports, trials
from sweep.state.recorded_values import describe_stale_names
from sweep.store.features import AWAY_S
from sweep.text import printable

STEP_S = 1.0
BY_TIME = "its minutes end it: how far it comes depends on the machine and on what else runs there"

_State: TypeAlias = tuple[Status, str, str | None]  # status, reason, traceback


@dataclass(slots=True)
class _Trial:
    """The trial that this worker trains now, and its progress here."""

    order: Order
    saver: Saver
    accumulate: int = 1
    begun: bool = False
    since: float = 0.0  # when its training code first ran here, by the monotonic clock
    done: int = 0
    trained_s: float = 0.0  # by its epochs, also in earlier workers, of a trial with minutes
    decided: bool = False  # its last epoch has reached a decision epoch
    paused: bool = False
    moves: bool = False  # another worker continues it
    restored_reports: tuple[EpochReported, ...] = ()  # epochs from a checkpoint, to be reported once more
    history: list[EpochReported] = dataclasses.field(default_factory=list)  # those, and all epochs trained since

    @property
    def number(self) -> int:
        """Number of the trial in the sweep."""
        return self.order.assignment.trial

    @property
    def share(self) -> float:
        """The share of the trial's epochs or minutes that is trained."""
        return self.order.assignment.share_used(self.done, self.trained_s)

    @property
    def units(self) -> int:
        """How far the trial has trained, in the units of the decision epochs."""
        given = self.order.assignment
        return count_units(self.done, None if given.minutes is None else self.share, given.length)

    @property
    def is_whole(self) -> bool:
        """Whether the trial has trained all its epochs, or all its minutes."""
        return self.share >= 1

    def count(self, epoch: EpochReported) -> None:
        """Count an epoch as trained."""
        before = self.units
        self.done = epoch.epoch
        if self.order.assignment.minutes is not None:
            self.trained_s += epoch.time_s
        self.decided = passes_any(self.order.decision_epochs, before, self.units)


class _TooLarge(Exception):
    """The trial ran out of memory and needs another process."""


class _Crowded(Exception):
    """The trial ran out of memory and needs a larger share of a GPU, in another process."""


class Worker:
    """Trains trials in this process.

    Arguments:
        reuse: keep the trainable, and what it compiled, between trials.
        memory_bytes: ask to be replaced if the process has more memory than this after a trial.
        make: creates the trainable, if that is possible only once in a process.
        node: the machine; None if the process also does other things.
    """

    def __init__(
        self,
        job: Job,
        *,
        reuse: bool = True,
        memory_bytes: int | None = None,
        make: Callable[[], Trainable] | None = None,
        node: WorkerNode | None = None,
    ) -> None:
        job.prepare()
        inputs.record_reads(job, is_own_process=node is not None)
        self._stop_receiving = features.start_receiving_messages(job)
        self.job = job
        self._reuse = reuse
        self._memory_bytes = memory_bytes
        self._make = make
        self._node = node or WorkerNode()
        self._alone = node is not None
        self._trainable: Trainable | None = None
        self.surroundings = Surroundings(job.working_folder, alone=node is not None)
        self._taken = 0  # number of trials accepted
        self._declared: Inputs | None = None  # what `depends_on` names, when the first trial began
        self._has_earlier_trials = (
            False  # whether the trainable has had earlier trials, and may still hold memory for them
        )
        self._trial: _Trial | None = None
        self._notices: list[str] = []
        if job.price is None:
            self._price = None
        else:
            self._price = prices.per_gpu_hour(job.price, self._node.labels)
        self._held_since = time.monotonic()  # the present trial's GPU time since then is not yet charged
        if job.price is not None and self._price is None:
            named = ", ".join(f"{name}={value}" for name, value in sorted(self._node.labels.items())) or "none"
            self._notices.append(
                f"resources.price_per_gpu_hour names none of the labels of this node ({named}): its trials have no cost"
            )
        self._unread = UnreadParameters(job)
        self._changed_modules: tuple[str, ...] = ()
        self._stop_seeding = imports.start_seeding(job.data_seed)

    def take(self, order: Order) -> None:
        """Accept a trial in place of the present one; nothing is trained before the next step."""
        self.release()
        self.surroundings.reset()
        self._taken += 1
        self._held_since = time.monotonic()
        self._trial = _Trial(order, self._create_saver(order.assignment.trial), order.assignment.accumulate)
        if not self._reuse:
            self._trainable = None
        self._has_earlier_trials = contract.may_hold_memory(self._trainable)

    def find_hindrance(self, job: Job) -> str | None:
        """Return why another session's trials must not use this process's trainable and data; None if they may."""
        if inputs.list_changed_modules(job):
            return "the code has changed"
        declared = inputs.get_declared_paths(self._trainable)
        read_by_data = inputs.collect_data_inputs(job, declared)
        for read in (inputs.collect_inputs(job, declared), read_by_data, self._declared or Inputs()):
            hindrance = inputs.find_hindrance(read, job.working_folder, job.import_folders)
            if hindrance:
                return hindrance
        return None

    def take_over(self, earlier: Worker) -> None:
        """Use the trainable of a closed worker of another sweep in this process, in place of a new one."""
        self._trainable = earlier._trainable
        self.surroundings = earlier.surroundings
        self.surroundings.keep_outputs()  # those of this session
        self._declared = earlier._declared
        self._taken = earlier._taken

    def close(self) -> None:
        """Release the last trial and stop receiving the driver's messages."""
        self.release()
        self._stop_receiving()
        self._stop_seeding()

    def release(self) -> None:
        """Release the present trial, because the driver has ended it."""
        trial = self._trial
        self._trial = None
        if trial is not None:
            self._clean_up(trial, kept=False)

    @property
    def trainable(self) -> Trainable:
        """The object that trains the trials, created at its first use."""
        with self.surroundings.inside(anyhow=True):
            return self._get_trainable()

    def step(self) -> Progress:
        """Train one step. Exceptions of the trainable are returned as the end of the trial."""
        with self.surroundings.inside(anyhow=True):
            return self._step()

    def _step(self) -> Progress:
        """Train one step inside of the trial's surroundings; return its progress."""
        steps = self.steps()
        try:
            hear = next(steps)
            while True:
                try:
                    self._get_trainable().train(hear)
                except BaseException as error:  # `steps` handles all exceptions of the user's code
                    hear = steps.throw(error)
                else:
                    hear = next(steps)
        except StopIteration as end:
            progress: Progress = end.value
            return progress

    def pause(self) -> None:
        """End the present step of the trial after its present epoch; the next step continues it."""
        if self._trial is not None:
            self._trial.paused = True

    def steps(self) -> Generator[Report, None, Progress]:
        """Train one step, but yield the report function whenever the caller must train.

        The caller trains until the function returns False, and throws any exception into the generator. The caller must
        be inside the trial's surroundings.
        """
        trial = self._trial
        if trial is None:
            raise RuntimeError("the worker has no trial")
        epochs: list[EpochReported] = []
        fault: str | None = None
        incompatible = False
        facts = Facts()
        try:
            self.surroundings.check()
            status, reason, error = yield from self._advance_or_diverge(trial, epochs)
            if status not in (Status.RUNNING, Status.DIVERGED):
                trial.saver.finish()
            facts = self._collect_facts(trial, status)
        except DiskFault as caught:
            fault = f"trial {trial.number}: {caught}"
            status = Status.INTERRUPTED
            reason = fault
            error = None
        except (_TooLarge, _Crowded, Apart) as caught:
            return self._hand_over(trial, caught)
        except (StoppedAtOnce, WorkerLost):
            raise
        except BaseException as caught:  # any error of the user's code is recorded with the trial
            if memory.is_out_of_memory(caught):
                status = Status.OOM
            else:
                status = Status.FAILED
            reason = errors.reason_of(caught)
            error = errors.folded_traceback(caught)
            incompatible = self._is_refused_in_all(trial, caught)
        if status is Status.RUNNING:
            return self._report_running(trial, epochs, facts)
        self._clean_up(trial)
        if status in ERRORED:
            self._trainable = None
            facts = Facts(accumulate=trial.accumulate if trial.accumulate > 1 else None)
        ends_early = status is Status.COMPLETED and not trial.is_whole
        early = ends_early and self._describe_target(trial, epochs) is not None
        end = TrialEnded(
            trial=trial.number,
            status=status,
            reason=reason,
            time=time.time(),
            error=error,
            at_target=early,
            facts=facts,
            regardless=status is Status.FAILED and not self._unread.varying,
            incompatible=incompatible,
        )
        spoilt = self._explain_replacement(status)
        notices = self._take_notices()
        return Ends(epochs=tuple(epochs), facts=facts, notices=notices, spoilt=spoilt, end=end, fault=fault)

    def _hand_over(self, trial: _Trial, cause: Exception) -> Progress:
        """Release a trial that must continue in another process; return the progress that says so."""
        self._clean_up(trial)
        notices = self._take_notices()
        match cause:
            case _TooLarge():
                return Outgrown(notices=notices, spoilt=str(cause), accumulate=trial.accumulate)
            case _Crowded():
                return Crowded(notices=notices, spoilt=str(cause))
            case _:
                return Moves(notices=notices)

    def _report_running(self, trial: _Trial, epochs: list[EpochReported], facts: Facts) -> Progress:
        """Return the progress of a trial that has not ended, which continues here or in another worker."""
        if trial.moves:
            self._clean_up(trial)
            leaves = self._node.leaving()
            return Moves(epochs=tuple(epochs), facts=facts, notices=self._take_notices(), spoilt=leaves)
        notices = self._take_notices()
        if trial.order.known_data is not None and facts.data == trial.order.known_data:
            return SameData(epochs=tuple(epochs), facts=facts, notices=notices)
        return Continues(epochs=tuple(epochs), facts=facts, notices=notices)

    def _explain_replacement(self, status: Status) -> str | None:
        """Return why this process must train no other trial after one with this status; None if it may."""
        if status in ERRORED:
            return f"its trial ended as {status}"
        reason = self._node.leaving() or self._explain_memory()
        if not reason and self._alone:
            return self._describe_stale() or None
        return reason

    def _describe_stale(self) -> str:
        """Return in words what earlier trials have changed in this process that cannot be undone; empty if nothing."""
        return trials.describe_stale() or describe_stale_names(self.surroundings.resisting)

    def _is_refused_in_all(self, trial: _Trial, error: BaseException) -> bool:
        """Return whether an error refuses the trial for a reason that holds for every trial of the search."""
        of_the_search = not trial.order.whole
        return of_the_search and isinstance(error, Incompatible) and self._unread.depends_on_file_alone(error)

    def _explain_memory(self) -> str | None:
        """Return why this process uses too much memory to train another trial; None if it does not."""
        most = self._memory_bytes
        if most is None:
            return None
        used = memory.measure_memory()
        if used <= most:
            return None
        return f"it has {used / 1e9:.1f} GB of memory of its own, its part of the machine is {most / 1e9:.1f} GB"

    def _collect_inputs(self) -> Inputs:
        """Return what the present trial may have read, in this process, its other ranks, and earlier processes."""
        absorb_reads = getattr(self._trainable, "absorb_reads", None)  # of a `Gang`
        if absorb_reads is not None:
            absorb_reads()
        return inputs.collect_inputs(self.job, inputs.get_declared_paths(self._trainable))

    def _add_earlier_inputs(self, read_before: Inputs | None) -> None:
        """Add to the record what the trial had read before its checkpoint was written."""
        if read_before is None:
            read_before = Inputs(unknown=("what they read before their last checkpoint was not recorded",))
        inputs.add_earlier_inputs(read_before, self.job)

    def _note_changed_modules(self) -> None:
        """Add a notice about modules whose code has changed since the session began, once for each."""
        changed = inputs.list_changed_modules(self.job)
        new = []
        for name in changed:
            if name not in self._changed_modules:
                new.append(name)
        self._changed_modules = changed
        if new:
            self._notices.append(
                f"the code has changed: a worker has imported {', '.join(new)} in another version than the sweep began "
                "with; its trials may not compare with the others, and answer for no other sweep's"
            )

    def _take_notices(self) -> tuple[str, ...]:
        """Return the notices for the user that have come up since the last call."""
        self._note_changed_modules()
        notices = tuple(self._notices)
        self._notices = []
        return notices

    def _clean_up(self, trial: _Trial, *, kept: bool = True) -> None:
        """Complete or end the writing of a trial's checkpoints, and undo its changes to the process."""
        try:
            trial.saver.finish(kept=kept)
            checkpoints.delete_local_copy(self.job.folder, trial.number)
        except Exception as error:  # raised by the trainable's own `save`
            self._notices.append(f"trial {trial.number}: {first_line(error)}")
        raised = contract.end_trial(self._trainable)
        if raised:
            self._notices.append(f"trial {trial.number}: {printable(raised)}")
        if self._alone:
            trials.restore_names()
        else:
            trials.record_changes()  # the process's owner may inspect what the last trial has left
        self._notices += trials.take_messages()
        self.surroundings.reset()

    def _advance_or_diverge(self, trial: _Trial, epochs: list[EpochReported]) -> Generator[Report, None, _State]:
        """Train one step; return its state, also if the trainable raises Diverged."""
        try:
            return (yield from self._advance_in_memory(trial, epochs))
        except Diverged as caught:
            return Status.DIVERGED, first_line(caught), None

    def _advance_in_memory(self, trial: _Trial, epochs: list[EpochReported]) -> Generator[Report, None, _State]:
        """Train one step; if memory runs out, train it again with less.

        Tried in this order: without what earlier trials left, with a larger share of the GPU, then with smaller
        micro-batches or in a fresh process.
        """
        asked = trial.order.assignment
        while True:
            try:
                return (yield from self._advance(trial, epochs))
            except Exception as error:
                if not memory.is_out_of_memory(error):
                    raise
                batch = memory.compute_batch_size(asked.params, max(int(asked.devices.gpus), 1) * self.job.workers)
                parts = memory.choose_micro_batches(self._trainable, batch, trial.accumulate)
                if self._has_earlier_trials and self._make is None:
                    self._begin_again(trial, epochs, "without what earlier trials left")
                    continue
                if trial.order.shares and asked.devices.gpus < 1:
                    raise _Crowded("its trial needs more of a GPU") from error
                if parts is None and (self._taken == 1 or trial.order.moved):
                    raise
            # Memory may be fragmented by earlier use, so the whole batch may fit into a fresh process.
            trial.accumulate = parts or asked.accumulate
            self._begin_again(trial, epochs, f"with each batch in {parts} parts" if parts else "in a fresh process")
            if parts is None or self._make is not None:
                raise _TooLarge("its trial does not fit")

    def _begin_again(self, trial: _Trial, epochs: list[EpochReported], how: str) -> None:
        """Discard the trainable and all it holds, so that the trial begins again; ``how`` is for the user."""
        self._notices.append(f"trial {trial.number}: out of memory; again {how}")
        trial.begun = False
        epochs.clear()  # they are trained again in the new way
        self._trainable = None
        self._has_earlier_trials = False
        gc.collect()

    def _advance(self, trial: _Trial, epochs: list[EpochReported]) -> Generator[Report, None, _State]:
        """Train one step of the trial, after beginning it if necessary; return its state."""
        started = time.monotonic()
        stop_reason = ""
        if not trial.begun:
            state = self._prepare(trial, epochs)
            if state is not None:
                return state
        if not self._is_done(trial, epochs):
            trial.paused = False
            try:
                yield lambda epoch: self._process_epoch(trial, epoch, epochs, started)
            except Stopped as stopped:
                stop_reason = first_line(str(stopped))
        if epochs:
            self._note_unread_parameters(trial)
        return self._conclude_step(trial, epochs, stop_reason)

    def _prepare(self, trial: _Trial, epochs: list[EpochReported]) -> _State | None:
        """Begin the trial; return its state if this step must not train it, otherwise None."""
        if self.job.stop_file.exists():
            return Status.INTERRUPTED, "stopped before it began", None
        if self._node.leaving():
            trial.moves = True
            return Status.RUNNING, "", None
        try:
            self._begin(trial)
        except contract.NotBegun:
            return Status.INTERRUPTED, "stopped before it began", None
        epochs.extend(trial.restored_reports)
        if self._is_done(trial, epochs):
            return None
        # The driver must decide about epochs from a checkpoint before more is trained, and about data that it knows.
        known_data = trial.order.known_data
        if epochs or (known_data is not None and self._get_trainable().facts().data == known_data):
            return Status.RUNNING, "", None
        return None

    def _note_unread_parameters(self, trial: _Trial) -> None:
        """Add notices about parameters and settings that the trainable has not read in its epochs."""
        self._notices += self._unread.report_unread(trial.order.assignment.params)
        read = contract.list_read_settings(self._trainable)
        if read is not None:
            self._notices += self._unread.report_unread_settings(read)

    def _conclude_step(self, trial: _Trial, epochs: list[EpochReported], stop_reason: str) -> _State:
        """Return the state of the trial after its training in a step, and save it if necessary.

        ``stop_reason`` is why the trainable has stopped by itself, if it has and said so.
        """
        reason = self._describe_divergence(epochs)
        if reason:
            return Status.DIVERGED, reason, None
        if not trial.done:
            raise RuntimeError("the trainable returned without having reported an epoch")
        if trial.is_whole:
            return self._complete(trial, epochs, "")
        reached = self._describe_target(trial, epochs)
        if reached is not None:
            return self._complete(trial, epochs, reached)
        if not trial.paused:
            why = f": {stop_reason}" if stop_reason else ""
            return self._complete(trial, epochs, f"the trainable stopped after epoch {trial.done}{why}")
        if self.job.stop_file.exists():
            self._save(trial, epochs)
            return Status.INTERRUPTED, "the sweep was stopped", None
        self._save_if_due(trial, epochs)
        return Status.RUNNING, "", None

    def _save_if_due(self, trial: _Trial, epochs: list[EpochReported]) -> None:
        """Save the trial if it moves, if it may be pruned or paused now, or if a checkpoint is due."""
        if trial.moves:
            self._save(trial, epochs)
            return
        decided = trial.decided  # it may be pruned, and its checkpoints deleted
        if decided and trial.order.waits:
            self._save(trial, epochs)
        elif trial.saver.is_due([*map(self._loss, epochs)]):
            self._save(trial, epochs, beside=not decided)
        elif decided:
            trial.saver.settle()

    def _begin(self, trial: _Trial) -> None:
        """Begin the trial with the trainable, or continue it from its newest intact checkpoint."""
        declared = inputs.get_declared_paths(self._get_trainable())  # an invalid one ends the trial before it trains
        if self._declared is None:
            self._declared = inputs.collect_declared_inputs(self.job, declared)
        trial.saver.finish(kept=False)
        trial.done = 0
        trial.trained_s = 0.0
        trial.decided = False
        trial.restored_reports = ()
        trial.paused = False
        kept = checkpoints.fetch_checkpoints(self.job.folder, trial.number, AWAY_S)
        while True:
            with checkpoints.raising_disk_faults():
                path = next(kept, None)
            trainable = self._get_trainable()
            trial.since = time.monotonic()
            if path is None:
                trainable.begin(self._make_assignment(trial))
                break
            try:
                manifest = checkpoints.read_verified_manifest(path)
            except checkpoints.Damaged as error:
                self._notices.append(f"trial {trial.number}: {path.name} is unusable ({error})")
                continue
            trial.accumulate = max(trial.accumulate, manifest.accumulate)
            trainable.begin(self._make_assignment(trial))
            try:
                done = trainable.restore(path)
                if done != manifest.epoch:
                    raise ValueError(f"restored epoch {done}, expected {manifest.epoch}")
            except OtherData:  # the logged epochs would not belong to this trial either
                raise
            except Exception as error:  # whatever is wrong with it, the one before may work
                if memory.is_out_of_memory(error):
                    raise
                self._notices.append(f"trial {trial.number}: {path.name} is unusable ({first_line(error)})")
                continue
            trial.done = done
            trial.trained_s = manifest.trained_s
            trial.decided = passes_any(trial.order.decision_epochs, trial.units - 1, trial.units)
            trial.restored_reports = manifest.reports
            self._add_earlier_inputs(manifest.inputs)
            break
        trial.history = [*trial.restored_reports]
        trial.saver = self._create_saver(trial.number, trial.done, trial.restored_reports)
        trial.begun = True

    def _process_epoch(self, trial: _Trial, epoch: EpochReported, epochs: list[EpochReported], began: float) -> bool:
        """Check and record an epoch that the trainable has reported; return whether to train another in this step."""
        if epoch.epoch != trial.done + 1:
            raise ValueError(f"epoch {epoch.epoch} was reported after epoch {trial.done}; they come one by one")
        epoch = structs.replace(
            epoch,
            trial=trial.number,
            metrics=as_floats(epoch.metrics),
            measures=as_floats(epoch.measures) | self._cost(trial, epoch),
        )
        trial.count(epoch)
        if trial.order.assignment.minutes is not None:
            epoch = structs.replace(epoch, measures={**epoch.measures, SHARE: trial.share})
        encode(epoch)  # what the log would refuse is this trial's failure, not the sweep's
        epochs.append(epoch)
        trial.history.append(epoch)
        trial.moves = contract.can_save(self._trainable) and (
            self._node.leaving() is not None or must_move(self.job, trial.order, epoch)
        )
        go_on = (
            not trial.decided
            and not self._is_done(trial, epochs)
            and time.monotonic() - began < STEP_S
            and not self._describe_divergence(epochs[-1:])
            and not self.job.stop_file.exists()
            and not trial.moves
        )
        trial.paused = not go_on
        return go_on

    def _cost(self, trial: _Trial, epoch: EpochReported) -> dict[str, float]:
        """Return the cost of the trial's GPUs since its last epoch, or since this worker got it; {} without a price.

        If several trials are trained together, each pays its part.
        """
        since = self._held_since
        self._held_since = time.monotonic()
        if self._price is None:
            return {}
        gpus = trial.order.assignment.devices.gpus * self.job.workers
        gpu_hours = (self._held_since - since) / 3600 * gpus
        return {prices.COST: gpu_hours * self._price / epoch.measures.get("together", 1)}

    def _complete(self, trial: _Trial, epochs: list[EpochReported], reason: str) -> _State:
        """Return the state of a completed trial, after saving it unless better checkpoints leave no room for it."""
        to_beat = trial.order.to_beat
        if to_beat is None or (epochs and self._loss(epochs[-1]) < to_beat):
            self._save(trial, epochs)
        return Status.COMPLETED, reason, None

    def _is_done(self, trial: _Trial, epochs: list[EpochReported]) -> bool:
        """Return whether the trial has trained all its epochs or minutes, or has reached the target."""
        return trial.is_whole or self._describe_target(trial, epochs) is not None

    def _describe_target(self, trial: _Trial, epochs: list[EpochReported]) -> str | None:
        """Return a text that the trial's last epoch has reached the target; None if it has not."""
        if trial.order.whole:
            return None
        if not epochs:
            return None
        return self.job.objective.describe_reached(self.job.target, epochs[-1].metrics)

    def _describe_divergence(self, epochs: list[EpochReported]) -> str:
        """Return a text on the first loss or objective that is not finite; empty if all are."""
        return next(filter(None, map(self.job.objective.explain_divergence, epochs)), "")

    def _save(self, trial: _Trial, epochs: list[EpochReported], *, beside: bool = False) -> None:
        """Save the trial at its last epoch, if its trainable can save; with ``beside``, without waiting for it."""
        if not contract.can_save(self._trainable):
            return  # such a trial begins again when it is resumed
        if epochs:
            loss = self._loss(epochs[-1])
        else:
            loss = math.inf
        # The log in an object store may lack earlier steps too, so a checkpoint there contains all epochs up to it.
        reports = tuple(epochs if self.job.store is None else trial.history)
        manifest = Manifest(trial.done, trial.accumulate, loss, reports, self._collect_inputs(), trial.trained_s)
        trial.saver.save(self._get_trainable(), manifest, beside=beside)

    def _create_saver(self, trial: int, epoch: int = 0, reports: tuple[EpochReported, ...] = ()) -> Saver:
        """Return the saver for a trial's checkpoints, of which that of ``epoch`` exists if it continues from one."""
        best = min(map(self._loss, reports), default=math.inf)
        job = self.job
        folder = checkpoints.get_trial_folder(job.folder, trial)
        sender = features.make_sender(job, folder, trial)
        pause_s = STEP_S * job.together  # all trials together save at most one checkpoint a second
        return Saver(folder, job.checkpoint_every_s, job.checkpoint_keep, pause_s, best, epoch, sender)

    def _loss(self, epoch: EpochReported) -> float:
        """Return the loss by which checkpoints of the trial are compared."""
        return self.job.objective.ranking_loss(epoch.metrics)

    def _collect_facts(self, trial: _Trial, status: Status) -> Facts:
        """Return the facts to be logged about the trial: those of its trainable, its inputs, its checkpoint."""
        if not trial.begun or self._trainable is None:
            return Facts()
        facts = structs.replace(
            self._trainable.facts(),
            inputs=self._collect_inputs(),
            other_code=inputs.list_changed_modules(self.job),
            lived_s=time.monotonic() - trial.since,
        )
        stale = self._describe_stale()
        if not stale and trial.order.assignment.minutes is not None:
            stale = BY_TIME
        if stale:
            numerics = {"differs": stale, **facts.numerics}
            facts = structs.replace(facts, reproducible=False, numerics=numerics)
        if trial.saver.blocked_s:
            facts = structs.replace(facts, overhead_s={**facts.overhead_s, "checkpoint": trial.saver.blocked_s})
        if trial.accumulate > 1:
            facts = structs.replace(facts, accumulate=trial.accumulate)
        is_kept = status is Status.INTERRUPTED or (status is Status.COMPLETED and trial.saver.epoch == trial.done)
        if is_kept and (newest := checkpoints.list_newest_first(self.job.folder, trial.number)):
            facts = structs.replace(facts, checkpoint=str(newest[0].relative_to(self.job.folder)))
        encode(TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=0.0, facts=facts))
        return facts

    def _make_assignment(self, trial: _Trial) -> Assignment:
        """Return the trial's assignment for the trainable, with parameters that record which of them are read."""
        if self.job.profile and trial.number == 0:
            profile = self.job.folder / "profile"
        else:
            profile = None
        return dataclasses.replace(
            trial.order.assignment,
            params=self._unread.wrap_params(trial.order.assignment.params),
            accumulate=trial.accumulate,
            shared=self.job.shared_folder,
            stop_file=self.job.stop_file,
            profile=profile,
        )

    def _load_trainable(self) -> Callable[[], Trainable]:
        """Import the job's class or function; return a function that creates its trainable."""
        job = self.job
        return load_trainable(job.trainable, job.import_folders, job.given, seed=job.data_seed)

    def _get_trainable(self) -> Trainable:
        """Return the trainable, which the first call creates."""
        if self._trainable is None:
            self._trainable = (self._make or self._load_trainable())()
            self.surroundings.keep_import_effects()
        return self._trainable
