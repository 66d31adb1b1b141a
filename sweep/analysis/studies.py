"""Sweeps as Optuna studies, read once or followed while they run, for Optuna's importances, plots and samplers."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sweep.analysis.differences import list_varying_parameters
from sweep.analysis.live_status import LogReader
from sweep.analysis.sweep_rows import Sweep, Trial, make_sweep
from sweep.errors import InputError, StoreError
from sweep.events import (
    EpochReported,
    Event,
    NoteWritten,
    Params,
    Status,
    TrialStarred,
    TrialStarted,
    Value,
)
from sweep.searchers import optuna_study
from sweep.searchers.optuna_study import Axis, StudiedTrial
from sweep.space import Space
from sweep.space.domains import Domain, Tied
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import (
    Ended,
    Interrupted,
    Ledger,
    Reopened,
    Reported,
    Started,
    Steered,
    Tested,
    TrialState,
    naming,
)
from sweep.store.sweep_info import Objectives

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from sweep.store.tables import Tables


def of(folder: ResultsFolder) -> Study:
    """Read a sweep and return it as an Optuna study in memory; `convert_sweep` says what its trials have.

    Raises `StoreError` if it cannot be read, and `InputError` if it has no objective.
    """
    from sweep.store import reading

    (first_metric, _), *_ = objectives(folder)
    return convert_sweep(
        folder, reading.read_tables(folder, ["trial", "epoch", f"metric.{first_metric}"])
    )


def convert_sweep(folder: ResultsFolder, read: Tables) -> Study:
    """Return a sweep as an Optuna study, from tables that have its trials and the first objective's metric.

    Each trial of the sweep becomes a trial of the study, also each repeat of a configuration. Its user attributes hold
    its number, repeat, seed and fold in the sweep, its status with the reason, its other metrics as last reported
    (``metric.NAME``), those on the test data (``test.NAME``), a person's note and star, and parameters that are
    computed from others (``param.NAME``). Interrupted trials are WAITING, and running ones too if no process runs the
    sweep. Raises `StoreError` if sweep.json cannot be read, and `InputError` if the sweep has no objective.
    """
    sweep = make_sweep(folder, read, as_logged=True)  # `make_study` is told whether it runs
    space = read_space(folder)
    return optuna_study.make_study(
        folder.name,
        objectives(folder),
        find_searched_parameters(space, [trial.params for trial in sweep.trials]),
        read_studied_trials(sweep, read, space),
        alive=folder.is_running(),
    )


def objectives(folder: ResultsFolder) -> Objectives:
    """Return the objectives of a sweep as pairs of metric and goal.

    Raises `InputError` if it has none, as a study needs at least one, and `StoreError` if its sweep.json cannot be
    read.
    """
    found = folder.read_info().objectives
    if not found:
        raise InputError.one(str(folder.info), "names no objective, and a study has one at least")
    return found


def read_space(folder: ResultsFolder) -> Space | None:
    """Return the search space of a sweep as it is now, after all changes.

    Returns None if sweep.json lacks it, or this version of sweep refuses the sweep file. Raises `StoreError` if
    sweep.json cannot be read.
    """
    info = folder.read_info()
    if "parameters" not in info.spec:
        return None
    try:
        return parse_spec(info.spec_text, str(folder.info)).space
    except InputError:  # the results of another version's sweep can still be shown
        return None


def find_searched_parameters(
    space: Space | None, seen: Sequence[Params]
) -> dict[str, Domain | None]:
    """Return the parameters that are searched, with their domains, by name.

    These are the parameters of the space that are neither constant nor computed from others. If the space is unknown
    (None), they are those whose values differ between trials or that some trials lack, with None as their domain.
    ``seen`` has the parameters of the sweep's trials.
    """
    if space is None:
        return dict.fromkeys(list_varying_parameters(seen))
    return {parameter.name: parameter.domain for parameter in space.parameters if parameter.drawn}


def read_studied_trials(sweep: Sweep, read: Tables, space: Space | None) -> Iterator[StudiedTrial]:
    """Yield the trials of a sweep, in the order of their numbers, in the form from which Optuna's trials are made.

    ``read`` has the tables of the sweep, with the first objective of all epochs. The sweep must have an objective.
    Without a ``space``, the attributes of the trials lack the computed parameters.
    """
    from sweep.store import reading

    by_epoch = _read_values_by_epoch(read, sweep.objectives[0][0])
    times = reading.read_columns(read.trials, ("started_at", "ended_at"))
    for trial, started, ended in zip(sweep.trials, *times.values(), strict=True):
        yield StudiedTrial(
            params=trial.params,
            status=Status(trial.status),
            reason=trial.status_reason,
            started=started.timestamp(),
            ended=None if ended is None else ended.timestamp(),
            metrics=trial.metrics,
            epochs=trial.epochs,
            by_epoch=by_epoch.get(trial.trial, {}),
            notes={
                **make_trial_attributes(space, trial),
                **_list_tested(trial.tested),
                **list_marks(trial.note, starred=trial.starred),
            },
        )


MARKS = frozenset({"note", "starred"})
"""Names of the attributes of `list_marks`."""


def list_marks(note: str, *, starred: bool) -> dict[str, Value]:
    """Return the attributes of a study's trial for a person's marks: ``note`` if not empty, and ``starred`` if set."""
    marks: dict[str, Value] = {}
    if note:
        marks["note"] = note
    if starred:
        marks["starred"] = True
    return marks


def make_trial_attributes(space: Space | None, trial: Trial | TrialStarted) -> dict[str, Value]:
    """Return the attributes of a study's trial: its number, id, repeat, seed and fold, and its computed parameters.

    The names are ``trial``, ``trial_id``, ``repeat``, ``seed``, ``fold`` (only in a cross-validation) and
    ``param.NAME``. If the space is unknown, there are no computed parameters.
    """
    noted: dict[str, Value] = {
        "trial": trial.trial,
        "trial_id": trial.trial_id,
        "repeat": trial.repeat,
        "seed": trial.seed,
    }
    if trial.fold is not None:
        noted["fold"] = trial.fold
    for parameter in () if space is None else space.parameters:
        if isinstance(parameter.domain, Tied) and parameter.name in trial.params:
            noted[f"param.{parameter.name}"] = trial.params[parameter.name]
    return noted


def _list_tested(tested: Mapping[str, float]) -> dict[str, Value]:
    """Return the attributes of a study's trial for its finite metrics on the test data, by the name ``test.NAME``."""
    return {f"test.{name}": value for name, value in tested.items() if math.isfinite(value)}


def _read_values_by_epoch(read: Tables, objective: str) -> Mapping[int, dict[int, float]]:
    """Return the values of an objective by trial and epoch, as they were reported, also NaN and infinite ones.

    Epochs without a value are left out, and so are trials without any. Empty if the table lacks the objective.
    """
    values = defaultdict[int, dict[int, float]](dict)
    name = f"metric.{objective}"
    if name in read.metrics.column_names:
        columns = (read.metrics[column].to_pylist() for column in ("trial", "epoch", name))
        for trial, epoch, value in zip(*columns, strict=True):
            if value is not None:
                values[trial][epoch] = value
    return values


class FollowedSweep:
    """A running sweep as trials of an Optuna study; each call of `trials` first reads what is new. Thread-safe.

    An error while reading is passed to ``say``, once, and the trials stay as they were. The constructor reads the sweep
    for the first time, and raises `StoreError` or `InputError`.
    """

    def __init__(self, folder: ResultsFolder, say: Callable[[str], None], name: str = "") -> None:
        self.name = name or folder.name
        self.objectives = objectives(folder)
        self._folder = folder
        self._say = say
        self._said = ""
        self._lock = threading.Lock()
        self._load()

    @property
    def notes(self) -> Mapping[str, Value]:
        """A description of the sweep by key: ``results``, its folder, ``state``, and keys of the sweep file.

        These are ``description``, ``trainable``, ``method``, ``epochs`` and ``repeats``, if the sweep file has them.
        The state, "running" or "not running", says whether a process ran the sweep when the trials were last read.
        Raises `StoreError` if sweep.json cannot be read.
        """
        spec = self._folder.read_info().spec
        keys = ("description", "trainable", "method", "epochs", "repeats")
        described: dict[str, Value] = {}
        for key in keys:
            value = spec.get(key)
            if isinstance(value, str | int) and value:
                described[key] = value
        described["results"] = str(self._folder.path)
        if self._alive:
            described["state"] = "running"
        else:
            described["state"] = "not running"
        return described

    def trials(self) -> list[FrozenTrial]:
        """Read the log and return all trials in the state that it has now, in the order in which they were added.

        If the sweep cannot be read, they are returned as they were, and ``say`` is called with the error, unless the
        call before had the same error.
        """
        with self._lock:
            try:
                self._follow()
                self._said = ""
            except (StoreError, InputError) as error:
                if str(error) != self._said:
                    self._say(str(error))
                self._said = str(error)
            return list(self._frozen.values())

    def _load(self) -> None:
        """Discard all trials, read the sweep from its tables, and follow the log from where the tables end."""
        from sweep.store import reading

        # The space before the tables, so that a change in between is found by the next call.
        self._spec = self._folder.read_info().spec
        self._space = read_space(self._folder)
        objective = f"metric.{self.objectives[0][0]}"
        read = reading.read_tables(self._folder, ["trial", "epoch", objective])
        # as the log says, because its later events continue from there
        sweep = make_sweep(self._folder, read, as_logged=True)
        studied_trials = read_studied_trials(sweep, read, self._space)
        # what the study tells about each trial, by number
        self._told: dict[int, StudiedTrial] = {}
        # The ledger, which takes the later events, starts with the trials in the tables.
        self._ledger = Ledger(keep_epochs=False)
        for trial, studied in zip(sweep.trials, studied_trials, strict=True):
            self._told[trial.trial] = studied
            self._ledger.trials[trial.trial] = _make_state(trial, studied)
        # trials that have changed since they were converted; kept if the log cannot be read for a moment
        self._changed: set[int] = set()
        self._follower: LogReader | None = LogReader(self._folder, read.history.log_bytes)
        self._frozen: dict[int, FrozenTrial] = {}  # the trials in Optuna's form, by number
        self._alive = self._folder.is_running()
        self._convert_all()

    def _follow(self) -> None:
        """Read the new events of the log and convert the trials that have changed.

        Running trials are also converted if the process of the sweep has begun or ended. If the log was replaced, the
        sweep file was changed, or an event was out of order at the last call, read the whole sweep again. Raises
        `StoreError` if the sweep cannot be read, as when its log is damaged, or if an event is out of order.
        """
        follower = self._follower
        # the same set, so that what is added stays there if an error is raised below
        changed = self._changed
        while True:
            # None if the log was replaced, or if an event was out of order at the last call
            events = follower.more() if follower else None
            if events is None:
                self._load()
                return
            if not events:
                break
            # No follower while these events are observed: if one is out of order, the next call reads everything again.
            self._follower = None
            with naming(self._folder.log):
                for event in events:
                    self._observe(event, changed)
            self._follower = follower
        if self._folder.read_info().spec != self._spec:  # the sweep file was changed
            self._load()
            return
        alive = self._folder.is_running()
        if alive != self._alive:
            self._alive = alive
            # running trials of a sweep that no process runs are WAITING
            changed |= {
                number for number, told in self._told.items() if told.status is Status.RUNNING
            }
        self._convert_changed(changed)
        changed.clear()

    def _observe(self, event: Event, changed: set[int]) -> None:
        """Update the trial that an event is about, and add its number to ``changed``.

        Starts, epochs, ends, interruptions, tests, notes and stars count; all other events change nothing. Raises
        `OutOfOrder` if the event cannot follow the earlier ones.
        """
        match self._ledger.observe(event):
            case Started(trial, start):
                self._told[trial.number] = StudiedTrial(
                    params=start.params,
                    status=trial.status,
                    reason="",
                    started=start.time,
                    ended=None,
                    metrics={},
                    epochs=0,
                    by_epoch={},
                    notes=make_trial_attributes(self._space, start),
                )
            case Reported(trial, report):
                self._told[trial.number] = self._add_epoch(self._told[trial.number], trial, report)
            case Interrupted(trial, end) | Reopened(trial, end) | Ended(trial, end):
                told = self._told[trial.number]
                self._told[trial.number] = replace(
                    told, status=trial.status, reason=trial.reason, ended=end.time
                )
            case Tested(trial):
                self._renew_notes(trial)
            case Steered(NoteWritten(trial=int(number)) | TrialStarred(trial=number)):
                trial = self._ledger.trials[number]
                self._renew_notes(trial)
            case _:
                return
        changed.add(trial.number)

    def _renew_notes(self, trial: TrialState) -> None:
        """Set the attributes of a trial for its metrics on the test data and a person's marks as they are now."""
        told = self._told[trial.number]
        notes = {name: value for name, value in told.notes.items() if name not in MARKS}
        notes |= _list_tested(trial.tested)
        notes |= list_marks(trial.note, starred=trial.starred)
        self._told[trial.number] = replace(told, notes=notes)

    def _add_epoch(
        self, told: StudiedTrial, trial: TrialState, event: EpochReported
    ) -> StudiedTrial:
        """Return a copy of ``told`` with another reported epoch, ``event``, the metrics of which replace earlier ones.

        It has neither a reason nor an end any more, because an interrupted trial continues by reporting. ``trial`` has
        the state of the trial after the epoch.
        """
        objective = self.objectives[0][0]
        if objective in event.metrics:
            new = {event.epoch: event.metrics[objective]}
        else:
            new = {}
        return replace(
            told,
            status=trial.status,
            reason="",
            ended=None,
            metrics={**told.metrics, **event.metrics},
            epochs=trial.reported,
            by_epoch={**told.by_epoch, **new},
        )

    def _convert_all(self) -> None:
        """Choose for each parameter a distribution that contains the values of all trials, and convert all trials."""
        told = list(self._told.values())
        self._domains: dict[str, Domain | None] = find_searched_parameters(
            self._space, [one.params for one in told]
        )
        self._axes: dict[str, Axis] = optuna_study.make_axes(self._domains, told)
        for number in self._told:
            self._convert(number)

    def _convert_changed(self, changed: set[int]) -> None:
        """Convert the trials with the numbers ``changed``, or all trials if a new one may require other axes.

        That is so if the present axes cannot represent one of its values, or if the search space is unknown.
        """
        new = []  # parameters of the trials that were not converted yet
        for number in changed:
            if number not in self._frozen:
                new.append(self._told[number].params)
        if self._space is None and new:  # which parameters vary is found from the trials
            self._convert_all()
            return
        for params in new:
            for name in self._domains:
                if name in params and not self._axes[name].can_represent(params[name]):
                    self._convert_all()
                    return
        for number in sorted(changed):
            self._convert(number)

    def _convert(self, number: int) -> None:
        """Convert a trial to Optuna's form, in place of the result of an earlier conversion."""
        metrics = [metric for metric, _ in self.objectives]
        frozen = optuna_study.make_frozen_trial(
            self._told[number], self._axes, metrics, alive=self._alive
        )
        frozen.number = number
        self._frozen[number] = frozen


def _make_state(trial: Trial, studied: StudiedTrial) -> TrialState:
    """Return the `TrialState` of a trial in the tables, as if a ledger had read its events, but without its metrics.

    ``studied`` has its parameters and the time of its start.
    """
    start = TrialStarted(
        trial=trial.trial,
        trial_id=trial.trial_id,
        params=studied.params,
        seed=trial.seed,
        repeat=trial.repeat,
        fold=trial.fold,
        time=studied.started,
        role=trial.role,
    )
    return TrialState(
        start,
        trial.status,
        trial.status_reason,
        epoch=trial.epochs,
        reported=trial.epochs,
        tested=trial.tested,
        note=trial.note,
        starred=trial.starred,
    )
