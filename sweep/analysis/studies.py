"""Sweeps as Optuna studies, read once or followed while they run, for Optuna's importances, plots and samplers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sweep.analysis.differences import list_varying_parameters
from sweep.analysis.live_status import LogReader
from sweep.analysis.sweep_rows import Sweep, Trial, make_sweep
from sweep.errors import InputError, StoreError
from sweep.events import EpochReported, Event, Params, Status, TrialStarted, Value
from sweep.searchers import optuna_study
from sweep.searchers.optuna_study import Axis, StudiedTrial, make_study
from sweep.space import Space
from sweep.space.domains import Domain, Tied
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ended, Interrupted, Ledger, Reopened, Reported, Started, TrialState, naming
from sweep.store.sweep_info import Objectives

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from sweep.store.tables import Tables


def of(folder: ResultsFolder) -> Study:
    """Return the present state of a sweep as a study. Raises `StoreError`, and `InputError` without an objective."""
    from sweep.store import reading

    (first, _), *_ = objectives(folder)
    return of_read(folder, reading.read_tables(folder, ["trial", "epoch", f"metric.{first}"]))


def of_read(folder: ResultsFolder, read: Tables) -> Study:
    """Return the study of a sweep from its tables, which need the trials and the first objective's metric.

    Each trial of the sweep becomes a trial of the study, also each repeat of a configuration. Its user attributes hold
    its number, repeat and seed in the sweep, its status with the reason, its other metrics as last reported
    (``metric.NAME``), and parameters that are computed from others (``param.NAME``). Interrupted trials are WAITING.
    """
    sweep = make_sweep(folder, read)
    space = space_of(folder)
    return make_study(
        folder.name,
        objectives(folder),
        find_searched_parameters(space, [trial.params for trial in sweep.trials]),
        recorded_study(sweep, read, space),
        alive=folder.is_running(),
    )


def objectives(folder: ResultsFolder) -> Objectives:
    """Return the objectives of a sweep. Raises `InputError` if it has none, as a study needs at least one."""
    found = folder.read_info().objectives
    if not found:
        raise InputError.one(str(folder.info), "names no objective, and a study has one at least")
    return found


def space_of(folder: ResultsFolder) -> Space | None:
    """Return the search space of a sweep; None if its sweep.json holds no sweep file. Raises `InputError`."""
    info = folder.read_info()
    if "parameters" not in info.spec:
        return None
    return parse_spec(info.spec_text, str(folder.info)).space


def find_searched_parameters(space: Space | None, seen: Sequence[Params]) -> dict[str, Domain | None]:
    """Return the searched parameters with their domains; if the space is unknown, those that vary, without domains."""
    if space is None:
        return dict.fromkeys(list_varying_parameters(seen))
    return {parameter.name: parameter.domain for parameter in space.parameters if parameter.drawn}


def recorded_study(sweep: Sweep, read: Tables, space: Space | None) -> Iterator[StudiedTrial]:
    """Yield the trials of a sweep in the form in which they are added to its study, by number."""
    from sweep.store import reading

    by_epoch = _by_epoch(read, sweep.objectives[0][0])
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
                **make_trial_attributes(space, trial.trial, trial.trial_id, trial.repeat, trial.seed, trial.params),
                **list_marks(trial.note, starred=trial.starred),
            },
        )


def list_marks(note: str, *, starred: bool) -> dict[str, Value]:
    """Return the attributes of a trial that a person has made; none without."""
    marks: dict[str, Value] = {}
    if note:
        marks["note"] = note
    if starred:
        marks["starred"] = True
    return marks


def make_trial_attributes(
    space: Space | None, trial: int, trial_id: str, repeat: int, seed: int, params: Params
) -> dict[str, Value]:
    """Return the identifying attributes of a trial, and its computed parameters (``param.NAME``)."""
    noted: dict[str, Value] = {"trial": trial, "trial_id": trial_id, "repeat": repeat, "seed": seed}
    for parameter in () if space is None else space.parameters:
        if isinstance(parameter.domain, Tied) and parameter.name in params:
            noted[f"param.{parameter.name}"] = params[parameter.name]
    return noted


def _by_epoch(read: Tables, objective: str) -> Mapping[int, dict[int, float]]:
    values = defaultdict[int, dict[int, float]](dict)
    name = f"metric.{objective}"
    if name in read.metrics.column_names:
        columns = (read.metrics[column].to_pylist() for column in ("trial", "epoch", name))
        for trial, epoch, value in zip(*columns, strict=True):
            if value is not None:
                values[trial][epoch] = value
    return values


class FollowedSweep:
    """One sweep, followed while it runs; `trials` returns its state at each call. Thread-safe.

    Errors of a later look are passed to ``say``, once each, and the previous state is returned. The first look raises
    `StoreError` or `InputError`.
    """

    def __init__(self, folder: ResultsFolder, say: Callable[[str], None], name: str = "") -> None:
        self.name = name or folder.name
        self.objectives = objectives(folder)
        self._folder = folder
        self._space = space_of(folder)
        self._say = say
        self._said = ""
        self._lock = threading.Lock()
        self._load()

    @property
    def notes(self) -> Mapping[str, Value]:
        """A description of the sweep, for the page of its study."""
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
        """Return all trials as they are now, new ones last."""
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
        """Read the sweep completely."""
        from sweep.store import reading

        objective = f"metric.{self.objectives[0][0]}"
        read = reading.read_tables(self._folder, ["trial", "epoch", objective])
        sweep = make_sweep(self._folder, read)
        told = recorded_study(sweep, read, self._space)
        self._told = {trial.trial: one for trial, one in zip(sweep.trials, told, strict=True)}
        self._ledger = Ledger(keep_epochs=False)
        self._ledger.trials = {one.trial: _state(one, self._told[one.trial]) for one in sweep.trials}
        self._follower: LogReader | None = LogReader(self._folder, read.history.log_bytes)
        self._frozen: dict[int, FrozenTrial] = {}
        self._alive = self._folder.is_running()
        self._draw()

    def _follow(self) -> None:
        follower = self._follower
        changed: set[int] = set()
        while (events := follower.more() if follower else None) != []:
            if events is None:
                self._load()
                return
            self._follower = None  # if an event is out of order, the next look reads everything again
            with naming(self._folder.log):
                for event in events:
                    self._observe(event, changed)
            self._follower = follower
        alive = self._folder.is_running()
        if alive != self._alive:
            self._alive = alive
            changed |= {number for number, told in self._told.items() if told.status is Status.RUNNING}
        self._tell(changed)

    def _observe(self, event: Event, changed: set[int]) -> None:
        match self._ledger.observe(event):
            case Started(trial, start):
                known = (start.trial, start.trial_id, start.repeat, start.seed, start.params)
                self._told[trial.number] = StudiedTrial(
                    params=start.params,
                    status=trial.status,
                    reason="",
                    started=start.time,
                    ended=None,
                    metrics={},
                    epochs=0,
                    by_epoch={},
                    notes=make_trial_attributes(self._space, *known),
                )
            case Reported(trial, report):
                self._told[trial.number] = self._reported(self._told[trial.number], trial, report)
            case Interrupted(trial, end) | Reopened(trial, end) | Ended(trial, end):
                told = self._told[trial.number]
                self._told[trial.number] = replace(told, status=trial.status, reason=trial.reason, ended=end.time)
            case _:
                return
        changed.add(trial.number)

    def _reported(self, told: StudiedTrial, trial: TrialState, event: EpochReported) -> StudiedTrial:
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

    def _draw(self) -> None:
        """Convert all trials again, on axes that have room for each."""
        told = list(self._told.values())
        self._domains: dict[str, Domain | None] = find_searched_parameters(self._space, [one.params for one in told])
        self._axes: dict[str, Axis] = optuna_study.make_axes(self._domains, told)
        for number in self._told:
            self._freeze(number)

    def _tell(self, changed: set[int]) -> None:
        new = []
        for number in changed:
            if number not in self._frozen:
                new.append(self._told[number].params)
        if self._space is None and new:
            self._draw()
            return
        if any(
            not self._axes[name].can_represent(params[name])
            for params in new
            for name in self._domains
            if name in params
        ):
            self._draw()
            return
        for number in sorted(changed):
            self._freeze(number)

    def _freeze(self, number: int) -> None:
        metrics = [metric for metric, _ in self.objectives]
        frozen = optuna_study.make_frozen_trial(self._told[number], self._axes, metrics, alive=self._alive)
        frozen.number = number
        self._frozen[number] = frozen


def _state(trial: Trial, told: StudiedTrial) -> TrialState:
    """Return a trial from the tables as a ledger needs it to take in further events."""
    start = TrialStarted(
        trial=trial.trial,
        trial_id=trial.trial_id,
        params=told.params,
        seed=trial.seed,
        repeat=trial.repeat,
        time=told.started,
        role=trial.role,
    )
    return TrialState(start, trial.status, trial.status_reason, epoch=trial.epochs, reported=trial.epochs)
