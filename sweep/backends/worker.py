"""A worker: trains one trial after another with one trainable, step by step.

A step trains up to the next point at which the driver may decide: an epoch at which the scheduler can prune, about a
second of epochs, or the end; then a checkpoint is saved if one is due. An exception of a trainable ends only its trial.

A step has three parts: `Worker.begin_step` begins the trial if it is new here, then the trainable trains and calls
`Worker.report` after each epoch, then `Worker.end_training` says what has become of the trial. `Worker.step` does all
three. They are apart because a `WorkerGroup` trains the trials of several workers at once: it begins the steps of all,
lets one program train all trials, and ends the training of each.

This module depends neither on Ray nor on the driver; backends bring an `Order` in and a `Progress` out.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
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
from sweep.errors import StoppedAtOnce, TrainableError, WorkerLost, first_line
from sweep.events import ERRORED, Inputs, Status, TrialEnded, as_floats, encode
from sweep.functions import load_trainable
from sweep.progress import SHARE, count_units, passes_any
from sweep.state import imports, trials
from sweep.state.recorded_values import describe_stale_names
from sweep.store.features import AWAY_S
from sweep.text import printable

STEP_S = 1.0
BY_TIME = "its minutes end it: how far it comes depends on the machine and on what else runs there"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a step has ended: the status of its trial, and why."""

    status: Status  # RUNNING if the trial continues
    reason: str = ""
    traceback: str | None = None
    fault: str | None = None  # why the whole sweep cannot continue
    incompatible: bool = False  # all other trials would fail for the same reason


@dataclass(frozen=True, slots=True)
class _Retry:
    """How to train a trial again that ran out of memory."""

    how: str  # in words, for the user
    accumulate: int  # number of micro-batches for each batch
    elsewhere: bool = False  # train it in another process


@dataclass(slots=True)
class _Trial:
    """The trial that this worker trains now, and its progress here."""

    order: Order
    saver: Saver
    accumulate: int = 1
    begun: bool = False
    began_here: float = 0.0  # when its training code first ran here, by the monotonic clock
    done: int = 0
    # seconds of its epochs, also in earlier workers, if its minutes are limited
    trained_s: float = 0.0
    epochs: list[EpochReported] = dataclasses.field(default_factory=list)  # of the present step
    step_began: float = 0.0  # when its training began, by the monotonic clock
    error: BaseException | None = None  # raised by the training of the step
    decided: bool = False  # its last epoch has reached a decision epoch
    paused: bool = False  # its training has returned, or will after this epoch, to be continued in another step
    moves: bool = False  # another worker continues it
    # epochs from a checkpoint, to be reported once more
    restored_reports: tuple[EpochReported, ...] = ()
    # `restored_reports`, and the epochs since
    history: list[EpochReported] = dataclasses.field(default_factory=list)

    @property
    def number(self) -> int:
        """Number of the trial in the sweep."""
        return self.order.assignment.trial

    @property
    def share(self) -> float:
        """Share of the trial's epochs or minutes, whichever is larger, that is trained; from 0 to 1."""
        return self.order.assignment.share_used(self.done, self.trained_s)

    @property
    def units(self) -> int:
        """Number of units that the trial has trained: epochs or hundredths of its minutes, as decision epochs count."""
        given = self.order.assignment
        return count_units(self.done, None if given.minutes is None else self.share, given.length)

    @property
    def is_whole(self) -> bool:
        """Whether the trial has trained all its epochs or all its minutes."""
        return self.share >= 1

    def count(self, epoch: EpochReported) -> None:
        """Set `done` to the number of ``epoch``, and `decided` to whether it has passed a decision epoch.

        If the trial's minutes are limited, the epoch's seconds are added to `trained_s`. The epoch itself is not kept.
        """
        units_before = self.units
        self.done = epoch.epoch
        if self.order.assignment.minutes is not None:
            self.trained_s += epoch.time_s
        self.decided = passes_any(self.order.decision_epochs, units_before, self.units)

    def reset(self) -> None:
        """Reset the trial's progress before it begins in this process; the present step's epochs and `history` stay."""
        self.done = 0
        self.trained_s = 0.0
        self.decided = False
        self.restored_reports = ()
        self.paused = False

    def raise_error(self) -> None:
        """Raise the error of the step's training and forget it; do nothing if there is none."""
        error = self.error
        self.error = None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame, which would keep the error and all that it holds in memory


_Part: TypeAlias = Callable[[_Trial], _Outcome | None]
"""A part of a step; it returns the outcome of the step, or None if the trial must be trained now."""


class _TooLarge(Exception):
    """The trial ran out of memory and needs another process."""


class _Crowded(Exception):
    """The trial ran out of memory and needs a larger share of a GPU, in another process."""


class Worker:
    """Trains trials in this process.

    Arguments:
        reuse: keep the trainable, and what it compiled, between trials.
        memory_bytes: ask to be replaced if the process has more memory than this after a trial.
        make: creates the trainable in place of the job's own, one that belongs to other processes or trials as well;
            then no other one is created after memory ran out.
        node: the machine; None if the process does not only train trials.
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
        job.prepare()  # before messages of the driver arrive, which are files in the job's folder
        inputs.record_reads(job, is_own_process=node is not None)
        self._stop_receiving = features.start_receiving_messages(job)
        self.job = job
        self._reuse = reuse
        self._memory_bytes = memory_bytes
        # creates a trainable that belongs to other processes or trials as well; None: this worker creates its own
        self._make_shared_trainable = make
        self._node = node or WorkerNode()
        self._trains_only = node is not None
        self._trainable: Trainable | None = None
        self.surroundings = Surroundings(job.working_folder, alone=node is not None)
        self._trials_taken = 0  # number of trials accepted
        # what `depends_on` names, as it was when the first trial began
        self._declared_inputs: Inputs | None = None
        # whether the trainable has had earlier trials, and may still hold memory for them
        self._has_earlier_trials = False
        self._trial: _Trial | None = None
        self._notices: list[str] = []
        if job.price is None:
            self._price = None
        else:
            self._price = prices.per_gpu_hour(job.price, self._node.labels)
        # the present trial's GPU time since then is not yet charged
        self._held_since = time.monotonic()
        if job.price is not None and self._price is None:
            named = (
                ", ".join(f"{name}={value}" for name, value in sorted(self._node.labels.items()))
                or "none"
            )
            self._notices.append(
                f"resources.price_per_gpu_hour names none of the labels of this node ({named}): its trials have no cost"
            )
        self._unread = UnreadParameters(job)
        self._changed_modules: tuple[str, ...] = ()
        self._stop_seeding = imports.start_seeding(job.data_seed)

    def take(self, order: Order) -> None:
        """Release the present trial, if any, and accept ``order``; nothing is trained before the next step.

        What the trial before has changed in the process is undone. If the worker does not reuse its trainable, the
        present trainable is discarded.
        """
        self.release()
        self.surroundings.reset()
        self._trials_taken += 1
        self._held_since = time.monotonic()
        self._trial = _Trial(
            order, self._create_saver(order.assignment.trial), order.assignment.accumulate
        )
        if not self._reuse:
            self._trainable = None
        # After the trainable was discarded, because a new one has had no trials.
        self._has_earlier_trials = contract.may_hold_memory(self._trainable)

    def find_hindrance(self, job: Job) -> str | None:
        """Return why trials of the session ``job`` must not use this process's trainable and data; None if they may.

        They must not if the code has changed, if a file, folder or variable that was read here has changed, if a module
        has drawn random numbers under another seed, or if it is not known what was read. Raises TrainableError for an
        invalid ``depends_on``.
        """
        if inputs.list_changed_modules(job):
            return "the code has changed"
        declared = inputs.get_declared_paths(self._trainable)
        read_by_data = inputs.collect_data_inputs(job, declared)
        # `collect_inputs` has the present fingerprints of declared files, `_declared_inputs` those of the first trial.
        for read in (
            inputs.collect_inputs(job, declared),
            read_by_data,
            self._declared_inputs or Inputs(),
        ):
            hindrance = inputs.find_hindrance(
                read, job.working_folder, job.import_folders, job.data_seed
            )
            if hindrance:
                return hindrance
        return None

    def take_over(self, earlier: Worker) -> None:
        """Use the trainable of ``earlier``, a closed worker of another session in this process, instead of a new one.

        Its working folder, settings and number of trials are taken over too, but not its standard streams. Call it
        before the first trial.
        """
        self._trainable = earlier._trainable
        self.surroundings = earlier.surroundings
        self.surroundings.keep_outputs()  # those of this session
        self._declared_inputs = earlier._declared_inputs
        self._trials_taken = earlier._trials_taken

    def close(self) -> None:
        """Release the present trial, if any; stop receiving the driver's messages and seeding imported modules.

        The trainable is kept, for `take_over` of another worker.
        """
        self.release()
        self._stop_receiving()
        self._stop_seeding()

    def release(self) -> None:
        """Give up the present trial, because the driver wants it here no longer; do nothing if there is none.

        Cleans up after the trial as `_clean_up` does: its changes to the process are undone, and uploads of its
        checkpoints that have not begun are dropped. Errors of that become notices.
        """
        trial = self._trial
        self._trial = None
        if trial is not None:
            self._clean_up(trial, kept=False)

    @property
    def trainable(self) -> Trainable:
        """Object that trains the trials; it is created if there is none now, with the trial's settings.

        Raises what importing or creating it raises.
        """
        with self.surroundings.inside(anyhow=True):
            return self._get_trainable()

    def step(self) -> Progress:
        """Train one step and return its progress.

        An error of the trainable is not raised: the trial ends with it, or continues in another process. Raises
        RuntimeError if there is no trial, and passes `StoppedAtOnce` and `WorkerLost` on.
        """
        with self.surroundings.inside(anyhow=True):
            return self._step()

    def _step(self) -> Progress:
        """Train one step as `step` does, and return its progress; the caller must be inside the surroundings."""
        progress = self.begin_step()
        while progress is None:
            progress = self.end_training(self._train())
        return progress

    def _train(self) -> BaseException | None:
        """Let the trainable train until it returns; return what its creation or training raised, or None."""
        try:
            self._get_trainable().train(self.report)
        except BaseException as error:  # `end_training` handles all exceptions of the user's code
            return error
        return None

    # ---- the parts of a step, for a caller that trains the trials of several workers together

    def begin_step(self) -> Progress | None:
        """Begin a step; return its progress if it is over already, or None if the caller must train the trial now.

        To train, the caller lets the trainable train with `report` until the trainable ends, as it does after `report`
        has returned False. Then it calls `end_training`, which returns the step's progress, or None if the trial must
        be trained once more. The caller must be inside the trial's surroundings. `_step` does this for one trial,
        `WorkerGroup` for several. Raises RuntimeError if there is no trial.
        """
        trial = self._get_trial()
        trial.epochs = []
        return self._run(trial, self._start_step)

    @property
    def report(self) -> Report:
        """Function to which the trainable reports the epochs of the present trial; see `_record_epoch`.

        It returns whether to train another epoch. Raises RuntimeError if there is no trial.
        """
        return partial(self._record_epoch, self._get_trial())

    def pause(self) -> None:
        """Record that the trainable returns because the step is over, although the trial may train on.

        `report` records this itself when it returns False. A caller that trains several trials together must call this
        method for the trials that were stopped by the report of another trial. Raises RuntimeError if there is no
        trial.
        """
        self._get_trial().paused = True

    def end_training(self, error: BaseException | None) -> Progress | None:
        """Conclude the step after the trainable returned (``error`` is None) or raised ``error``; return its progress.

        None is returned if memory ran out and the trial has begun again; the caller must then train it once more.
        Raises RuntimeError if there is no trial, and passes `StoppedAtOnce` and `WorkerLost` on.
        """
        trial = self._get_trial()
        trial.error = error
        return self._run(trial, self._conclude_training)

    # ---- internals

    def _get_trial(self) -> _Trial:
        """Return the present trial. Raises RuntimeError if there is none."""
        if self._trial is None:
            raise RuntimeError("the worker has no trial")
        return self._trial

    def _run(self, trial: _Trial, part: _Part) -> Progress | None:
        """Run a part of a step; return the step's progress if it is over, or None if the trial must be trained now.

        If memory runs out, the trial may begin again, here or in another process, and `Apart` moves it to another
        worker. `DiskFault` interrupts it. Any other exception ends it, except `StoppedAtOnce` and `WorkerLost`, which
        are raised.
        """
        facts = Facts()
        try:
            outcome = self._run_within_memory(trial, part)
            if outcome is None:
                return None
            # A running trial goes on while its checkpoint is written. The checkpoints of a diverged one are deleted: an
            # error of writing them must not end it in another way, and becomes a notice in `_clean_up`.
            if outcome.status not in (Status.RUNNING, Status.DIVERGED):
                trial.saver.finish()  # the facts name the last checkpoint, and the time that it took
            facts = self._collect_facts(trial, outcome.status)
        # it is not the trial's failure: once there is space, the sweep can be resumed
        except DiskFault as error:
            fault = f"trial {trial.number}: {error}"
            outcome = _Outcome(Status.INTERRUPTED, fault, fault=fault)
        except (_TooLarge, _Crowded, Apart) as error:
            return self._hand_over(trial, error)
        except (StoppedAtOnce, WorkerLost):
            raise
        except BaseException as error:  # any error of the user's code is recorded with the trial
            outcome = self._describe_failure(trial, error)
        if outcome.status is Status.RUNNING:
            return self._report_running(trial, facts)
        return self._end(trial, outcome, facts)

    def _describe_failure(self, trial: _Trial, error: BaseException) -> _Outcome:
        """Return the outcome of a step that ``error``, raised by the user's code, has ended.

        Its status is OOM if ``error`` says that memory is out, otherwise FAILED.
        """
        return _Outcome(
            Status.OOM if memory.is_out_of_memory(error) else Status.FAILED,
            errors.reason_of(error),
            traceback=errors.folded_traceback(error),
            incompatible=self._is_refused_in_all(trial, error),
        )

    def _end(self, trial: _Trial, outcome: _Outcome, facts: Facts) -> Ends:
        """Clean up after a trial that has ended or was interrupted; return the progress with its end.

        If it ended with an error, the trainable is discarded, and the facts have only the number of micro-batches.
        """
        self._clean_up(trial)
        status = outcome.status
        if status in ERRORED:
            self._trainable = None  # the error may have left it in any state
            facts = Facts(accumulate=trial.accumulate if trial.accumulate > 1 else None)
        is_early = status is Status.COMPLETED and not trial.is_whole
        end = TrialEnded(
            trial=trial.number,
            status=status,
            reason=outcome.reason,
            time=time.time(),
            error=outcome.traceback,
            at_target=is_early and self._describe_target(trial) is not None,
            facts=facts,
            # without having read a parameter that varies: each trial would fail
            regardless=status is Status.FAILED and not self._unread.varying,
            incompatible=outcome.incompatible,
        )
        return Ends(
            epochs=tuple(trial.epochs),
            facts=facts,
            spoilt=self._explain_replacement(status),
            notices=self._take_notices(),
            end=end,
            fault=outcome.fault,
        )

    def _hand_over(self, trial: _Trial, cause: Exception) -> Progress:
        """Clean up a trial that must continue in another process, and return the `Progress` for the driver.

        It is `Outgrown` for a ``cause`` of type _TooLarge, `Crowded` for _Crowded, and `Moves` for `Apart`.
        """
        self._clean_up(trial)
        notices = self._take_notices()
        match cause:
            case _TooLarge():
                return Outgrown(notices=notices, spoilt=str(cause), accumulate=trial.accumulate)
            case _Crowded():
                return Crowded(notices=notices, spoilt=str(cause))
            case _:  # `Apart`: this process can still be used
                return Moves(notices=notices)

    def _report_running(self, trial: _Trial, facts: Facts) -> Progress:
        """Return the progress of a trial that has not ended: `Moves`, `SameData` or `Continues`.

        It is `Moves` if another worker must continue the trial (`_Trial.moves`); the trial is then cleaned up here. It
        is `SameData` if earlier sweeps have results on the data that the trial has loaded (`Order.earlier_data`, which
        is emptied, so that this comes once), and otherwise `Continues`. The notices that wait for the user are moved
        into the result.
        """
        epochs = tuple(trial.epochs)
        if trial.moves:
            self._clean_up(trial)
            # None if the trial moves only because it has another share of a GPU; then other trials may come here.
            leaving_reason = self._node.leaving()
            return Moves(
                epochs=epochs, facts=facts, notices=self._take_notices(), spoilt=leaving_reason
            )
        notices = self._take_notices()
        if facts.data in trial.order.earlier_data:
            trial.order = dataclasses.replace(trial.order, earlier_data=())
            return SameData(epochs=epochs, facts=facts, notices=notices)
        return Continues(epochs=epochs, facts=facts, notices=notices)

    def _explain_replacement(self, status: Status) -> str | None:
        """Return why this process must train no other trial after one that ended with ``status``; None if it may.

        The reasons are an error, a node that is taken away, too much memory and, in a process that only trains, changes
        of earlier trials that cannot be undone.
        """
        if status in ERRORED:
            return f"its trial ended as {status}"
        reason = self._node.leaving() or self._explain_memory()
        if not reason and self._trains_only:  # any other process cannot be replaced
            return self._describe_stale() or None
        return reason

    def _describe_stale(self) -> str:
        """Return in words what earlier trials have changed in this process that cannot be undone; ``""`` if nothing."""
        return trials.describe_stale() or describe_stale_names(self.surroundings.resisting)

    def _is_refused_in_all(self, trial: _Trial, error: BaseException) -> bool:
        """Return whether an error is an `Incompatible` that would refuse every trial of the search alike.

        That is decided by `UnreadParameters.depends_on_file_alone`. Always False for a trial of the baseline or the
        confirmation, whose order is `Order.whole`.
        """
        of_the_search = not trial.order.whole
        return (
            of_the_search
            and isinstance(error, Incompatible)
            and self._unread.depends_on_file_alone(error)
        )

    def _explain_memory(self) -> str | None:
        """Return why this process uses too much memory to train another trial; None if it does not or has no limit."""
        most = self._memory_bytes
        if most is None:
            return None
        used = memory.measure_memory()
        if used <= most:
            return None
        return f"it has {used / 1e9:.1f} GB of memory of its own, its part of the machine is {most / 1e9:.1f} GB"

    def _collect_inputs(self) -> Inputs:
        """Return what the trials of this process have read so far: here, on other ranks and in earlier processes.

        The reads of other ranks are asked for, which may take seconds. Raises TrainableError for an invalid
        ``depends_on``.
        """
        # a method of `Gang`, a class that cannot be imported here because it needs Ray
        absorb_reads = getattr(self._trainable, "absorb_reads", None)
        if absorb_reads is not None:
            absorb_reads()
        return inputs.collect_inputs(self.job, inputs.get_declared_paths(self._trainable))

    def _add_earlier_inputs(self, read_before: Inputs | None) -> None:
        """Record what the trial had read before its checkpoint was written; if that is None, record it as unknown."""
        if read_before is None:
            read_before = Inputs(
                unknown=("what they read before their last checkpoint was not recorded",)
            )
        inputs.add_earlier_inputs(read_before, self.job)

    def _note_changed_modules(self) -> None:
        """Add a notice about modules whose code has changed since the session began, if there are any new ones."""
        changed = inputs.list_changed_modules(self.job)
        new = []
        for name in changed:
            if name not in self._changed_modules:  # otherwise there was a notice already
                new.append(name)
        self._changed_modules = changed
        if new:
            self._notices.append(
                f"the code has changed: a worker has imported {', '.join(new)} in another version than the sweep began "
                "with; its trials may not compare with the others, and answer for no other sweep's"
            )

    def _take_notices(self) -> tuple[str, ...]:
        """Return the notices for the user since the last call, with those about changed code, and remove them."""
        self._note_changed_modules()
        notices = tuple(self._notices)
        self._notices = []
        return notices

    def _clean_up(self, trial: _Trial, *, kept: bool = True) -> None:
        """Wait for the trial's checkpoints, tell its code that it has ended, and undo its changes to the process.

        Unless ``kept``, uploads are not waited for, and those that have not begun are dropped. If checkpoints are in an
        object store, their local files are deleted. In a process that does more than train trials, changes to modules
        are only recorded. Errors of saving, and of the trial's code at its end, become notices.
        """
        try:
            trial.saver.finish(kept=kept)
            checkpoints.delete_local_copy(self.job.folder, trial.number)
        except Exception as error:  # of the disk or the trainable's own `save`: the trial is over and cannot fail now
            self._notices.append(f"trial {trial.number}: {first_line(error)}")
        # runs code of the trial, so its changes are undone after that
        raised = contract.end_trial(self._trainable)
        if raised:
            self._notices.append(f"trial {trial.number}: {printable(raised)}")
        if self._trains_only:
            trials.restore_names()
        else:
            trials.record_changes()  # the process's owner may inspect what the last trial has left
        self._notices += trials.take_messages()
        self.surroundings.reset()

    def _run_within_memory(self, trial: _Trial, part: _Part) -> _Outcome | None:
        """Run a part of a step; if memory runs out, let the trial begin again in the way that `_choose_retry` says.

        Return what the part returns: the outcome of the step, or None if the trial must be trained now. If the part
        raises `Diverged`, that is the outcome.

        Raises:
            _TooLarge: if the trial must begin again in another process.
            _Crowded: if it needs a larger share of a GPU, in another process.
            Exception: what the part raises, if that is another error, or if nothing is left to try.
        """
        while True:
            try:
                return part(trial)
            except Diverged as error:
                return _Outcome(Status.DIVERGED, first_line(error))
            except Exception as error:
                if not memory.is_out_of_memory(error):
                    raise
                retry = self._choose_retry(trial)
                if retry is None:
                    raise
            # No longer in the `except` block, since the error keeps what the trial has allocated.
            self._begin_again(trial, retry)
            part = self._prepare_training  # whichever part ran out of memory, the trial begins anew

    def _choose_retry(self, trial: _Trial) -> _Retry | None:
        """Return how to train a trial again after it ran out of memory; None if nothing is left to try.

        The first of these that is possible is chosen: without what earlier trials left, with a larger share of the GPU
        (raises _Crowded), with smaller micro-batches, in a fresh process. The last one is not if this process has had
        no other trial, or if the trial has come here from another process.
        """
        asked = trial.order.assignment
        # this worker alone cannot replace a trainable that belongs to other processes or trials as well
        is_trainable_shared = self._make_shared_trainable is not None
        if self._has_earlier_trials and not is_trainable_shared:
            return _Retry("without what earlier trials left", trial.accumulate)
        # it has a part of a GPU, and the driver may give it a larger one
        if trial.order.shares and asked.devices.gpus < 1:
            raise _Crowded("its trial needs more of a GPU")
        # Each process trains one replica on each of its GPUs; without a whole GPU, it trains one.
        batch = memory.compute_batch_size(
            asked.params, max(int(asked.devices.gpus), 1) * self.job.workers
        )
        parts = memory.choose_micro_batches(self._trainable, batch, trial.accumulate)
        if parts is not None:
            return _Retry(f"with each batch in {parts} parts", parts, elsewhere=is_trainable_shared)
        # this process is fresh, or the trial has come here from another
        if self._trials_taken == 1 or trial.order.moved:
            return None
        # Memory may be fragmented by earlier use, so the whole batch may fit into a fresh process.
        return _Retry("in a fresh process", asked.accumulate, elsewhere=True)

    def _begin_again(self, trial: _Trial, retry: _Retry) -> None:
        """Discard the trainable and the step's epochs, so that the trial begins again as ``retry`` says; add a notice.

        Raises:
            _TooLarge: if it is to begin again in another process.
        """
        self._notices.append(f"trial {trial.number}: out of memory; again {retry.how}")
        trial.accumulate = retry.accumulate
        trial.begun = False
        trial.epochs.clear()  # they are trained again in the new way
        self._trainable = None
        self._has_earlier_trials = False
        gc.collect()  # parts of a model refer to one another, so that their memory is not freed before
        if retry.elsewhere:
            raise _TooLarge("its trial does not fit")

    def _start_step(self, trial: _Trial) -> _Outcome | None:
        """Return the result of `_prepare_training`; raise FileNotFoundError before if the working folder is gone."""
        self.surroundings.check()
        return self._prepare_training(trial)

    def _prepare_training(self, trial: _Trial) -> _Outcome | None:
        """Prepare the training of a step, and begin the trial if it has not begun here.

        Return None if the trial must be trained now, otherwise the outcome of the step.
        """
        trial.step_began = time.monotonic()
        if not trial.begun:
            outcome = self._prepare_trial(trial)
            if outcome is not None:
                return outcome
        if self._is_done(trial):  # its checkpoint is of its last epoch
            return self._conclude_step(trial)
        trial.paused = False
        return None

    def _prepare_trial(self, trial: _Trial) -> _Outcome | None:
        """Begin the trial; return the outcome of the step if it must not train now, otherwise None.

        It must not if the sweep was stopped, if another worker must begin it, because this node is taken away, if it
        has epochs from a checkpoint to report, or if it has loaded data for which there are earlier results. None is
        also returned if its checkpoint is of its last epoch.
        """
        if self.job.stop_file.exists():
            return _Outcome(Status.INTERRUPTED, "stopped before it began")
        if self._node.leaving():
            trial.moves = True  # another worker begins or continues it, as nothing was done here
            return _Outcome(Status.RUNNING)
        try:
            self._begin_trial(trial)
        except contract.NotBegun:
            return _Outcome(Status.INTERRUPTED, "stopped before it began")
        trial.epochs.extend(trial.restored_reports)
        if self._is_done(trial):
            return None
        # before more is trained, the driver must decide about epochs from a checkpoint and data of earlier results
        earlier_data = trial.order.earlier_data
        if trial.epochs or (earlier_data and self._get_trainable().facts().data in earlier_data):
            return _Outcome(Status.RUNNING)
        return None

    def _conclude_training(self, trial: _Trial) -> _Outcome:
        """Return the outcome of a step after its training. Raises the training's error, unless it is `Stopped`."""
        stop_reason = ""
        try:
            trial.raise_error()
        except Stopped as stopped:
            stop_reason = first_line(str(stopped))
        return self._conclude_step(trial, stop_reason)

    def _note_unread_parameters(self, trial: _Trial) -> None:
        """Add notices about parameters and settings that no trial of this worker has read, each once."""
        self._notices += self._unread.report_unread(trial.order.assignment.params)
        read = contract.list_read_settings(self._trainable)
        if read is not None:
            self._notices += self._unread.report_unread_settings(read)

    def _conclude_step(self, trial: _Trial, stop_reason: str = "") -> _Outcome:
        """Return the outcome of a step that trains no more epochs, after saving the trial if necessary.

        The trial has diverged if a loss or objective of the step is not finite. It is completed if it has trained all
        its epochs or minutes, has reached the target, or its trainable has returned by itself. It is interrupted if the
        sweep stops; otherwise it runs on. Notices about unread parameters may be added.

        ``stop_reason`` is the message with which the trainable has raised `Stopped`, or ``""``. Raises RuntimeError if
        the trial has never reported an epoch, DiskFault if the checkpoint cannot be written, and any exception of the
        trainable's own ``save``.
        """
        if trial.epochs:
            self._note_unread_parameters(trial)
        reason = self._describe_divergence(trial.epochs)
        if reason:  # first, because a trial whose last epoch is NaN has not completed
            return _Outcome(Status.DIVERGED, reason)
        if not trial.done:
            raise RuntimeError("the trainable returned without having reported an epoch")
        if trial.is_whole:
            return self._complete(trial, "")
        reached = self._describe_target(trial)
        if reached is not None:
            return self._complete(trial, reached)
        if not trial.paused:  # it has returned although `report` had asked for another epoch
            why = f": {stop_reason}" if stop_reason else ""
            return self._complete(trial, f"the trainable stopped after epoch {trial.done}{why}")
        if self.job.stop_file.exists():
            self._save(trial)  # to be resumed from here
            return _Outcome(Status.INTERRUPTED, "the sweep was stopped")
        self._save_if_due(trial)
        return _Outcome(Status.RUNNING)

    def _save_if_due(self, trial: _Trial) -> None:
        """Save the trial if it moves, if it may pause now, or if a checkpoint is due.

        At a decision epoch, wait until its checkpoints are complete, and if it may pause, also until they are uploaded.
        Raises DiskFault, and any exception of the trainable's own ``save``.
        """
        if trial.moves:
            self._save(trial)
            return
        # It may be pruned now, and its checkpoints deleted, which must not be half written then.
        is_at_decision = trial.decided
        if is_at_decision and trial.order.waits:
            self._save(trial)
            trial.saver.settle()
            trial.saver.settle_uploads()  # if it pauses now, any worker may continue it at once
        elif trial.saver.is_due([*map(self._loss, trial.epochs)]):
            self._save(trial, beside=not is_at_decision)
        elif is_at_decision:
            trial.saver.settle()

    def _begin_trial(self, trial: _Trial) -> None:
        """Begin the trial with the trainable, or continue it from its newest checkpoint that can be restored.

        Unusable checkpoints are skipped with a notice. Raises DiskFault if the checkpoints in an object store cannot be
        fetched, OtherData if the data have changed, TrainableError for an invalid ``depends_on`` and for a copy of
        another trial without a usable checkpoint, and any other error of creating the trainable or of its ``begin``.
        """
        # an invalid one ends the trial before it trains
        declared = inputs.get_declared_paths(self._get_trainable())
        # only once: the data that the first trial loads from these files are reused
        if self._declared_inputs is None:
            self._declared_inputs = inputs.collect_declared_inputs(self.job, declared)
        # if it begins again here, its last checkpoint may still be being written
        trial.saver.finish(kept=False)
        trial.reset()
        newest_first = checkpoints.fetch_checkpoints(self.job.folder, trial.number, AWAY_S)
        is_restored = False
        unusable: list[str] = []  # names of those that cannot be restored
        reason = "there is none"  # why no checkpoint was restored
        while not is_restored:
            with checkpoints.raising_disk_faults():
                path = next(newest_first, None)
            # after the download, and anew for each checkpoint that is tried
            trial.began_here = time.monotonic()
            if path is None:  # none was saved, or all are unusable
                if trial.order.copied:
                    raise TrainableError(
                        f"it is a copy of another trial, whose checkpoint cannot be restored ({reason})"
                    )
                self._get_trainable().begin(self._make_assignment(trial))
                break
            reason = self._restore(trial, path, unusable)
            is_restored = not reason
            if not is_restored:
                self._notices.append(f"trial {trial.number}: {path.name} is unusable ({reason})")
        trial.history = [*trial.restored_reports]
        trial.saver = self._create_saver(
            trial.number, trial.done, trial.restored_reports, tuple(unusable)
        )
        trial.begun = True

    def _restore(self, trial: _Trial, path: Path, unusable: list[str]) -> str:
        """Begin the trial and restore it from the checkpoint in the folder ``path``; return why that is not possible.

        Return "" if it was restored; then ``trial`` has the checkpoint's epoch and reports. Otherwise, the checkpoint's
        name is added to ``unusable``, unless the disk cannot read it now; the trial has not begun if its files are
        damaged. Raises what the trainable's ``begin`` raises, OtherData, and an error of ``restore`` that says that
        memory is out.
        """
        try:
            manifest = checkpoints.read_verified_manifest(path)
        except checkpoints.Damaged as error:
            if not isinstance(error, checkpoints.Unreadable):
                unusable.append(path.name)
            return str(error)
        # Before `begin`, which gets this number: with fewer micro-batches, it has run out of memory before.
        trial.accumulate = max(trial.accumulate, manifest.accumulate)
        trainable = self._get_trainable()
        trainable.begin(self._make_assignment(trial))
        try:
            done = trainable.restore(path)
            if done != manifest.epoch:
                raise ValueError(f"restored epoch {done}, expected {manifest.epoch}")
        except OtherData:  # the older checkpoints and the logged epochs are of the other data, too
            raise
        except Exception as error:  # whatever is wrong with it, the one before may work
            if memory.is_out_of_memory(error):
                raise
            unusable.append(path.name)
            return first_line(error)
        trial.done = done
        trial.trained_s = manifest.trained_s
        # As in `count`, except that a checkpoint does not say where the epoch before ended: only the last unit counts.
        trial.decided = passes_any(trial.order.decision_epochs, trial.units - 1, trial.units)
        trial.restored_reports = manifest.reports
        self._add_earlier_inputs(manifest.inputs)
        return ""

    def _record_epoch(self, trial: _Trial, epoch: EpochReported) -> bool:
        """Check and record an epoch that the trainable has reported; return whether to train another in this step.

        The cost since the last epoch and, if the trial's minutes are limited, the share of its epochs or minutes that
        it has trained are added to the measures. `_must_pause` says when the step ends. Raises ValueError if its number
        does not follow the last one or a number is too large for a float, and StoreError if the log could not hold it.
        """
        if epoch.epoch != trial.done + 1:
            raise ValueError(
                f"epoch {epoch.epoch} was reported after epoch {trial.done}; they come one by one"
            )
        epoch = structs.replace(
            epoch,
            trial=trial.number,
            metrics=as_floats(epoch.metrics),
            measures=as_floats(epoch.measures) | self._cost(trial, epoch),
        )
        trial.count(epoch)  # first, because `trial.share` includes this epoch
        if trial.order.assignment.minutes is not None:
            epoch = structs.replace(epoch, measures={**epoch.measures, SHARE: trial.share})
        encode(epoch)  # what the log would refuse is this trial's failure, not the sweep's
        trial.epochs.append(epoch)
        trial.history.append(epoch)
        trial.moves = self._must_move(trial, epoch)  # before the next line, which asks for it
        trial.paused = self._must_pause(trial)
        return not trial.paused

    def _must_move(self, trial: _Trial, epoch: EpochReported) -> bool:
        """Return whether another worker must continue the trial after its last ``epoch``.

        It must if this node is taken away, or if the driver has given it another share of a GPU (unless it has only a
        few seconds left to train). False in any case if its trainable cannot save.
        """
        if not contract.can_save(self._trainable):
            return False
        return self._node.leaving() is not None or must_move(self.job, trial.order, epoch)

    def _must_pause(self, trial: _Trial) -> bool:
        """Return whether the step ends after the trial's last epoch.

        It does if the driver may decide, the trial is done, diverged, stopped or moves, the step took a second, or each
        epoch is to be saved (`Job.checkpoint_every_s` is 0), since only the last epoch of a step can be.
        """
        return (
            trial.decided
            or self._is_done(trial)
            or time.monotonic() - trial.step_began >= STEP_S
            or bool(self._describe_divergence(trial.epochs[-1:]))
            or self.job.stop_file.exists()
            or trial.moves
            or (self.job.checkpoint_every_s == 0 and contract.can_save(self._trainable))
        )

    def _cost(self, trial: _Trial, epoch: EpochReported) -> dict[str, float]:
        """Return the cost of the trial's GPUs since the last call, or since this worker got it, as a measure by name.

        If ``epoch`` says that several trials were trained together, each pays an equal part. The mapping is empty if no
        price is known. Each call begins a new period.
        """
        held_since = self._held_since
        self._held_since = time.monotonic()
        if self._price is None:
            return {}
        gpus = trial.order.assignment.devices.gpus * self.job.workers
        gpu_hours = (self._held_since - held_since) / 3600 * gpus
        return {prices.COST: gpu_hours * self._price / epoch.measures.get("together", 1)}

    def _complete(self, trial: _Trial, reason: str) -> _Outcome:
        """Save a completed trial if its loss is below `Order.to_beat` or that is None; return the trial's outcome.

        Otherwise its checkpoint would not be kept, because enough other trials are better. ``reason`` is that of the
        outcome, ``""`` for a trial that has trained all its epochs or minutes. Raises what `_save` raises.
        """
        to_beat = trial.order.to_beat
        if to_beat is None or (trial.epochs and self._loss(trial.epochs[-1]) < to_beat):
            self._save(trial)
        return _Outcome(Status.COMPLETED, reason)

    def _is_done(self, trial: _Trial) -> bool:
        """Return whether the trial has trained all its epochs or minutes, or has reached the target."""
        return trial.is_whole or self._describe_target(trial) is not None

    def _describe_target(self, trial: _Trial) -> str | None:
        """Return a text if the last epoch of the step has reached the sweep's target; otherwise None.

        None also if the step has no epochs, the sweep has no target, or the order is to train the trial to its end
        (`Order.whole`).
        """
        if trial.order.whole or not trial.epochs:
            return None
        return self.job.objective.describe_reached(self.job.target, trial.epochs[-1].metrics)

    def _describe_divergence(self, epochs: Sequence[EpochReported]) -> str:
        """Return a text on the first loss or objective in ``epochs`` that is not finite; ``""`` if all are finite."""
        return next(filter(None, map(self.job.objective.explain_divergence, epochs)), "")

    def _save(self, trial: _Trial, *, beside: bool = False) -> None:
        """Save the trial at its last epoch; do nothing if its trainable cannot save, or if that epoch is saved already.

        With ``beside``, the files are completed in a thread while training continues, and errors of that are raised by
        a later call of the saver. Raises DiskFault, and any exception of the trainable's own ``save``.
        """
        if not contract.can_save(self._trainable):
            return  # such a trial begins again when it is resumed
        if trial.epochs:
            loss = self._loss(trial.epochs[-1])
        else:
            loss = math.inf
        # The log in an object store may lack earlier steps too, so a checkpoint there contains all epochs up to it.
        reports = tuple(trial.epochs if self.job.store is None else trial.history)
        manifest = Manifest(
            trial.done, trial.accumulate, loss, reports, self._collect_inputs(), trial.trained_s
        )
        trial.saver.save(self._get_trainable(), manifest, beside=beside)

    def _create_saver(
        self,
        trial: int,
        epoch: int = 0,
        reports: tuple[EpochReported, ...] = (),
        unusable: tuple[str, ...] = (),
    ) -> Saver:
        """Return a new saver of the checkpoints of the trial with the number ``trial``.

        If the trial continues from a checkpoint, ``epoch`` is its epoch and ``reports`` are the epochs that it
        contains. ``unusable`` are the names of the trial's checkpoints that could not be restored.
        """
        best = min(map(self._loss, reports), default=math.inf)
        job = self.job
        folder = checkpoints.get_trial_folder(job.folder, trial)
        sender = features.make_sender(job, folder, trial, unusable)
        pause_s = STEP_S * job.together  # all trials together save at most one checkpoint a second
        return Saver(
            folder,
            job.checkpoint_every_s,
            job.checkpoint_keep,
            pause_s,
            best,
            epoch,
            sender,
            unusable,
        )

    def _loss(self, epoch: EpochReported) -> float:
        """Return the loss by which checkpoints of the trial are compared; infinity if the objective is not finite."""
        return self.job.objective.ranking_loss(epoch.metrics)

    def _collect_facts(self, trial: _Trial, status: Status) -> Facts:
        """Return the facts to be logged about the trial: those of its trainable, its inputs, its checkpoint.

        They are empty if the trial has not begun here. The checkpoint is named only where ``status`` says that it is
        kept: for an interrupted trial, and for a completed one that was saved at its end. They say that the trial is
        not reproducible if earlier trials have changed this process, or if its minutes are limited. Raises StoreError
        if the log could not hold them, and TrainableError for an invalid ``depends_on``.
        """
        if not trial.begun or self._trainable is None:
            return Facts()
        facts = structs.replace(
            self._trainable.facts(),
            inputs=self._collect_inputs(),
            other_code=inputs.list_changed_modules(self.job),
            lived_s=time.monotonic() - trial.began_here,
        )
        stale = self._describe_stale()
        if not stale and trial.order.assignment.minutes is not None:
            stale = BY_TIME
        if stale:
            # the trainable's own reason takes precedence
            numerics = {
                "differs": stale,
                **facts.numerics,
            }
            facts = structs.replace(facts, reproducible=False, numerics=numerics)
        if trial.saver.blocked_s:
            facts = structs.replace(
                facts, overhead_s={**facts.overhead_s, "checkpoint": trial.saver.blocked_s}
            )
        if trial.accumulate > 1:
            facts = structs.replace(facts, accumulate=trial.accumulate)
        is_kept = status is Status.INTERRUPTED or (
            status is Status.COMPLETED and trial.saver.epoch == trial.done
        )
        last = trial.saver.find_last_checkpoint()
        if is_kept and last is not None:
            facts = structs.replace(facts, checkpoint=str(last.relative_to(self.job.folder)))
        # Facts that the log cannot hold are an error of this trial here, and of the whole sweep in the driver.
        encode(TrialEnded(trial=0, status=Status.COMPLETED, reason="", time=0.0, facts=facts))
        return facts

    def _make_assignment(self, trial: _Trial) -> Assignment:
        """Return the assignment for the trainable; its parameters are a mapping that records which of them are read.

        The record of names read begins anew. The assignment has the present number of micro-batches, the folder of
        shared data, the stop file and, for trial 0 of a job with a profile, the folder of that.
        """
        if self.job.profile and trial.number == 0:  # one trial is enough for a profile
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
        """Return a function that creates the trainable, after importing its code; raise what the import raises."""
        job = self.job
        return load_trainable(job.trainable, job.import_folders, job.given, seed=job.data_seed)

    def _get_trainable(self) -> Trainable:
        """Return the trainable, which is created if there is none now. Raises what importing or creating it raises.

        Later trials begin with the settings and the working folder that creating it has left.
        """
        if self._trainable is None:
            self._trainable = (self._make_shared_trainable or self._load_trainable())()
            self.surroundings.keep_import_effects()
        return self._trainable
