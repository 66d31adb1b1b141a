"""The features that only some sweeps use: when each takes part, and the module that is imported then.

The core of the service runs any sweep (ARCHITECTURE.md lists its modules) and imports none of the modules in the table.
It calls the functions of this module. Each begins with the condition under which its feature takes part, and returns a
substitute if the condition is not met. `lint-imports` checks that the core imports features from here alone.

| feature | takes part | module |
| --- | --- | --- |
| Ray | all but `--inline` | `connecting`, `backends.ray_tune` |
| messages to workers | the results are in an object store | `backends.messages` |
| sharing of GPUs | `resources.gpus: auto` | `gpu_sharing` |
| reuse of results | there are other sweeps, and their trials may answer this one's | `memo` |
| copies in a population | a trial has a parent | `memo` |
| confirmation | `confirm` | `analysis.confirmation` |
| test data | `confirm`, once it is over | `restoring` |
| expected gain | `stop_when.gain` or `gain_per_hour` | `expected_gain` |
| notices | `notify` | `notifying` |
| TPUs | `training.strategy: tpu` | `tpu_check` |
| steering | somebody has made a request, or resumes the sweep with changed settings | `steering`, `steering_requests` |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from sweep.analysis.numbering import Numbering
from sweep.analysis.present_spec import Position
from sweep.backends import Backend, Job, Progress
from sweep.contract import Devices
from sweep.errors import Problem
from sweep.events import (
    EpochReported,
    Event,
    Facts,
    Params,
    SteeringEvent,
    SweepChanged,
    TrialStarted,
)
from sweep.inspection import Source
from sweep.runner.interface import Options, View, say_once
from sweep.searchers import Searcher
from sweep.space.objectives import Objective
from sweep.spec import Spec
from sweep.store.folder import ResultsFolder, folders
from sweep.store.ledger import Change, Ledger
from sweep.store.sweep_info import SweepInfo

MakeFollower: TypeAlias = Callable[[ResultsFolder], AbstractContextManager[object]]
"""A function that makes a reader of a sweep's log, which runs beside a session."""


# ---- Ray and object stores


def open_backend(
    options: Options, job: Job, spec: Spec, source: Source, view: View, leave: Callable[[str], None]
) -> AbstractContextManager[Backend]:
    """Return a context manager that yields what trains the trials: this process or Ray.

    ``view`` shows the steps of the start. ``leave`` is called with the reason, from another thread, if a local Ray
    dies. With `Options.inline`, trials are trained one after the other in this process, for tests and debuggers.
    Entering the context manager raises InputError if Ray does not start or no cluster is at `Options.address`.
    """
    if options.inline:
        return _train_inline(options, job, view)
    from sweep.runner import connecting

    return connecting.connect_to_ray(options, job, spec, source, view, leave)


@contextmanager
def _train_inline(options: Options, job: Job, view: View) -> Iterator[Backend]:
    """Yield the backend that trains in this process, one trial after the other."""
    from sweep.backends.inline import Inline  # trains, which systems without Unix's modules cannot

    with sending_messages(job):
        yield Inline(job=job, reuse=options.reuse, notice=say_once(view.say))


def sending_messages(job: Job) -> AbstractContextManager[None]:
    """Return a context manager that copies two files of the driver to the object store: stop request and GPU shares.

    They are copied whenever they change inside the block. Machines that do not have the results folder read them there.
    Without a store, it does nothing.
    """
    if job.store is None:  # all machines see the results folder
        return nullcontext()
    from sweep.backends import messages

    return messages.sending_messages(job, job.store)


# ---- sharing of GPUs


class DeviceShares(Protocol):
    """Decides which devices each trial gets."""

    @property
    def room(self) -> int | None:
        """Number of trials that can run at once at present; None if the shares are fixed."""

    def connect(
        self, say: Callable[[str], None], share: Callable[[Mapping[int, float]], None]
    ) -> None:
        """Begin to announce decisions with ``say``, and to call ``share`` with the new GPU shares of running trials.

        The shares are by trial: all that are to change, in place of those that ``share`` was called with before. Called
        after the log has been replayed; before that, nothing is announced.
        """

    def devices(self, trial: int, params: Params) -> Devices:
        """Return the devices for a trial that a worker is about to get; ``params`` are the trial's hyperparameters.

        From now on, the trial counts as one that has these devices.
        """

    def observe(self, change: Change) -> None:
        """Update the measurements with a change of the log, new or replayed."""

    def record_step(self, trial: int, progress: Progress) -> None:
        """Update the measurements with what a worker's step says besides its events, such as the trial's structure.

        A trial that its worker has given up no longer has its share. One that ran out of memory on its share of a GPU
        gets twice the share, up to a whole GPU, when it continues, and the user is told so. If shares are fixed,
        nothing is done. Call this before `observe` is called with the changes that the step's events make.
        """

    def set_remaining_trials(self, left: int | None) -> None:
        """Set how many trials of the search and the baseline have not ended, after a change; None if unknown."""


@dataclass(frozen=True, slots=True)
class FixedShares:
    """Gives every trial the devices of the sweep file."""

    given: Devices

    @property
    def room(self) -> None:
        """None, because the shares are fixed."""
        return None

    def connect(
        self, say: Callable[[str], None], share: Callable[[Mapping[int, float]], None]
    ) -> None:
        """Do nothing: no share changes."""

    def devices(self, trial: int, params: Params) -> Devices:
        """Return the devices of the sweep file."""
        return self.given

    def observe(self, change: Change) -> None:
        """Do nothing: no share changes."""

    def record_step(self, trial: int, progress: Progress) -> None:
        """Do nothing."""

    def set_remaining_trials(self, left: int | None) -> None:
        """Do nothing."""


def make_shares(spec: Spec, devices: Devices, at_once: Callable[[float], int]) -> DeviceShares:
    """Return `FixedShares` of ``devices`` or, with ``gpus: auto``, a `Sharing` that chooses GPU shares by measurements.

    ``at_once(gpus)`` returns how many trials fit at once if each has ``gpus`` GPUs.
    """
    if spec.resources.gpus != "auto":
        return FixedShares(devices)
    from sweep.runner.gpu_sharing import Sharing

    return Sharing(devices, at_once, spec.all_trials)


# ---- reuse of results


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an earlier trial, renumbered for the trial that it answers."""

    source: str  # "<sweep>/<trial>" that was trained
    epochs: tuple[EpochReported, ...]
    facts: Facts
    checkpoint: Path | None  # its last checkpoint, if it still exists
    whole: bool  # False: the remaining epochs must be trained from the checkpoint

    @property
    def reason(self) -> str:
        """Where the result is from, in words: the reason of the status of the trial that it answers."""
        sweep, _, trial = self.source.rpartition("/")
        return f"from {sweep}, trial {trial}"


class EarlierResults(Protocol):
    """The results of other sweeps, which may be used for equal trials of this sweep."""

    def recall(
        self, started: TrialStarted, epochs: int, done: int = 0, known_data: Collection[str] = ()
    ) -> Answer | None:
        """Return the result of an equal trial, or of a shorter one with a checkpoint; None if there is none.

        The trial ``started`` is to train ``epochs`` epochs and already has ``done``; a shorter result must have more.
        The fingerprint of the result's data is in ``known_data``. The user may be told why there is none.
        """

    def list_data(self, started: TrialStarted, epochs: int, done: int = 0) -> tuple[str, ...]:
        """Return the fingerprints of the data of all earlier results that `recall` may return; () if there are none.

        The arguments are those of `recall`.
        """

    def hand_over(self, answer: Answer, trial: int) -> str | None:
        """Copy the checkpoints of a result to trial number ``trial`` of this sweep; return the path of the last one.

        The path is relative to the folder of this sweep. Return None if the result has no checkpoint or it cannot be
        copied; in the second case, the user is told so.
        """


def find_earlier_results(
    spec: Spec,
    options: Options,
    folder: ResultsFolder,
    info: SweepInfo,
    notice: Callable[[str], None],
) -> EarlierResults | None:
    """Return the results of the other sweeps beside ``folder``; None if no other has begun, or none are to be used.

    They are not used without `Options.memo`, for populations, and for trials that end after some minutes, in which
    machines train different numbers of epochs. The logs of sweeps with the same code are read now. ``notice`` prints a
    line for the user about results that cannot be used.
    """
    if not options.memo or spec.population is not None or spec.minutes is not None:
        return None
    others = [
        other
        for other in folders(folder.path.parent)
        if other.path != folder.path and other.log.exists()
    ]
    if not others:
        return None
    from sweep.runner.memo import Memo

    return Memo(folder, others, info, spec.objectives[0], notice)


# ---- populations


class Copied(Protocol):
    """The trial and the epoch of which a copy is made."""

    @property
    def trial(self) -> int:
        """Number of the parent in the search."""

    @property
    def epoch(self) -> int:
        """The parent's epoch after which the copy continues."""


@runtime_checkable
class CopyingSearcher(Protocol):
    """A searcher that may make trials copies of others, as in a population. Trials have their numbers in the search."""

    @property
    def waits(self) -> bool:
        """Whether it may suggest further trials later, although it has none now."""

    def parent(self, number: int) -> Copied | None:
        """Return the parent of trial ``number`` of the search; None for a trial that starts from scratch."""


def inherit(folder: ResultsFolder, objective: Objective, started: TrialStarted) -> str:
    """Give a trial that begins as a copy the checkpoint and epochs of its parent; return why that failed, or "".

    ``folder`` is that of the sweep. Do nothing for a trial without a parent, or one that has a checkpoint already.
    Raises StoreError if the log cannot be read.
    """
    if started.parent is None:
        return ""
    from sweep.runner import memo

    return memo.inherit(folder, objective, started)


# ---- confirmation and tests


class Race(Protocol):
    """The state of a confirmation, as the coordinator needs it."""

    @property
    def wanted(self) -> Sequence[tuple[Params, int, int | None]]:
        """The trials to start now, each as (configuration, repeat, fold)."""

    @property
    def over(self) -> str:
        """Why the confirmation has ended; "" while it goes on, or if there is none."""


@dataclass(frozen=True, slots=True)
class NoRace:
    """A sweep that is not confirmed."""

    wanted: tuple[tuple[Params, int, int | None], ...] = ()
    over: str = ""


def find_race(ledger: Ledger, spec: Spec) -> Race:
    """Return the state of the confirmation by the trials so far; `NoRace` if the sweep file has no ``confirm``."""
    if spec.confirm is None:
        return NoRace()
    from sweep.analysis import confirmation

    return confirmation.find_race(ledger, spec)


def evaluate_tests(
    folder: ResultsFolder, spec: Spec, given: object, is_over: Callable[[], bool]
) -> None:
    """Evaluate the models of the confirmation on the test data, each once, and log the results.

    They are those of the finalists that are left and of the baseline (`restoring.list_due_tests`).
    ``given`` is the trainable itself if no module contains it, else None. ``is_over`` returns whether no further
    evaluation may begin. Do nothing if the sweep file has no ``confirm``, while the confirmation is not over, or if the
    trainable has no test data. Raises RefusedError if another process holds the lock of the sweep, and StoreError if
    the log cannot be read or written.
    """
    if spec.confirm is None:
        return
    from sweep.runner import restoring

    restoring.evaluate_tests(folder, spec, given, is_over)


# ---- expected gain


class GainRule(Protocol):
    """Decides whether the search has gained enough to start no more configurations."""

    asks: bool  # False: it learns from events but does not decide

    @property
    def reason(self) -> str | None:
        """Why the search starts no more configurations; None while it does."""

    def observe(self, event: Event) -> None:
        """Observe an event of the search; epochs are counted as in the log, even if trials are limited by minutes."""


def build_gain_rule(spec: Spec, searcher: Searcher, numbering: Numbering) -> GainRule | None:
    """Return the rule of `stop_when.gain` and `gain_per_hour`; None if the sweep file has neither.

    The rule has observed nothing yet. It asks ``searcher`` for the configurations to come, unless the method learns.
    ``numbering`` is that of the sweep's trials from now on.
    """
    if spec.stop_when is None or not spec.stop_when.asks_for_gain:
        return None
    from sweep.runner import expected_gain  # imports scikit-learn's models

    return expected_gain.build_gain_rule(spec, searcher, numbering)


# ---- notices


def check_receivers(spec: Spec) -> None:
    """Raise InputError with all environment variables that `notify` names and that are unset or empty, if any."""
    if not spec.notify:
        return
    from sweep.runner import notifying

    notifying.check_variables(spec)


def list_notifiers(spec: Spec, *, confirming: bool) -> list[MakeFollower]:
    """Return a list with one function, which makes a `Notifier`; [] if the sweep file has no ``notify``.

    ``confirming`` says whether the session only confirms finalists. If it does not, and the sweep file has ``confirm``,
    the notice that the search has ended at a limit is kept back, because a confirmation follows (`tell_withheld_end`).
    """
    if not spec.notify:
        return []
    from sweep.runner.notifying import Notifier

    return [partial(Notifier, spec, is_confirmed_next=spec.confirm is not None and not confirming)]


def tell_withheld_end(spec: Spec, folder: ResultsFolder) -> None:
    """Send the notice that the search has ended, if it was kept back for a confirmation that has not begun.

    Return once it is sent or given up, after about half a minute at the latest. Do nothing if the sweep file has no
    ``notify``. Raises StoreError if the log is damaged.
    """
    if not spec.notify:
        return
    from sweep.runner import notifying

    notifying.tell_withheld_end(spec, folder)


# ---- steering


class SteeringRequest(Protocol):
    """A person's request to change a sweep, with an id by which it is carried out only once."""

    @property
    def id(self) -> str:
        """Identifier of the request, the same whenever it is read."""

    def make_event(self, sweep: Position) -> SteeringEvent:
        """Return the event that carries out the request. Raises InputError if it is refused."""


def make_change(after: Spec, sweep: Position) -> list[SweepChanged]:
    """Return a list with the event, not logged yet, that changes a sweep to ``after``; [] if it is like that already.

    Raises RefusedError, as `steering.make_change` does, if the sweep cannot be changed so.
    """
    if after == sweep.present.spec:
        return []
    from sweep.runner import steering

    return [steering.make_change(after, sweep, "", steering.make_id(), steering.find_user())]


def carry_out_requests(folder: ResultsFolder, steer: Callable[[SteeringRequest], bool]) -> None:
    """Call ``steer``, such as `Coordinator.steer`, for each pending request of `steering`, and delete the request.

    The oldest request is the first. If ``steer`` raises a `SweepError`, the request is answered with it and deleted. If
    it returns False, that request and later ones stay. Requests to stop are not among them (`stop_requests`). Raises
    StoreError if an answer cannot be written.
    """
    if not folder.requests.is_dir():  # nobody has ever made one
        return
    from sweep.runner import steering_requests

    steering_requests.carry_out_requests(folder, steer)


def forget_answers(folder: ResultsFolder) -> None:
    """Delete the answers to requests that earlier sessions have left in the folder; no command waits for them."""
    if not folder.requests.is_dir():
        return
    from sweep.runner import steering_requests

    steering_requests.forget_answers(folder)


# ---- TPUs


def find_tpu_problems(spec: Spec) -> Sequence[Problem]:
    """Return the problems that keep TensorFlow from using TPUs here; [] if it can, or the sweep uses none.

    Another process looks for TPUs, which may take minutes.
    """
    if spec.training.get("strategy") != "tpu":
        return []
    from sweep.runner import tpu_check

    return list(tpu_check.find_problems())
