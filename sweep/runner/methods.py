"""Builds the searcher and scheduler of a sweep, also the user's own, and applies its warm start.

A searcher may be wrapped to begin with starting points and to repeat configurations.

A warm start records the length of each earlier sweep's log, so that every session learns from the same trials even if
an earlier sweep continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import ParamSpec, TypeAlias, TypeVar

from msgspec import structs

from sweep.analysis.numbering import Numbering
from sweep.errors import InputError, Problem, StoreError, SweepError, in_short, refuse
from sweep.events import JUDGED, EpochReported, Event, Params, Status, TrialEnded, TrialStarted
from sweep.functions import load_extension
from sweep.progress import UnitReports
from sweep.schedulers import Scheduler
from sweep.schedulers.early_termination import build_scheduler
from sweep.searchers import Factory, Queueing, Searcher, SpaceChanging
from sweep.searchers.points import first_new, uniform_draws, uniform_numbers
from sweep.space import Space
from sweep.space.domains import key
from sweep.space.early_terminate import Own
from sweep.space.initial_points import complete_starts, complete_starts_on_grid
from sweep.space.objectives import Objective
from sweep.spec import Spec
from sweep.spec.search_methods import METHODS, STANDALONE
from sweep.spec.work import find_max_length
from sweep.store import ledger
from sweep.store import log as store_log
from sweep.store.features import is_url
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ended, Interrupted, Ledger, Started, TrialState
from sweep.store.sweep_info import EarlierSweep
from sweep.text import did_you_mean


class PlannedPoints:
    """Searcher that suggests planned configurations before those of ``inner``.

    These are ``first``, for the first trials, and what a person adds, for the trials that start next.
    """

    def __init__(self, inner: Searcher, first: Sequence[Params]) -> None:
        self.inner = inner
        self._planned: dict[int, Params] = dict(enumerate(first))  # by trial
        self._added: set[str] = set()  # keys of what a person has added
        self._started: set[int] = set()

    @property
    def foresees(self) -> bool:
        """Whether the suggestions of ``inner`` depend on no event; see `Searcher`."""
        return self.inner.foresees

    def learn(self, past: Iterable[TrialState]) -> int:
        """Let ``inner`` learn from trials of other sweeps; return how many of them it used."""
        return self.inner.learn(past)

    def suggest(self, number: int) -> Params | None:
        """Return the configuration of trial ``number``: a planned one, else one of ``inner``; None if that has none.

        Starting points take the place of the suggestions of ``inner`` for the same trials. Configurations that a person
        has added do not, if ``inner`` foresees: its suggestions then move to later trials.
        """
        if number in self._planned:
            return self._planned[number]
        added_before = 0  # number of earlier trials with an added configuration
        # its suggestions are moved back by these, so that none is left out
        if self.inner.foresees:
            added_before = sum(
                trial < number and key(planned) in self._added
                for trial, planned in self._planned.items()
            )
        return self.inner.suggest(number - added_before)

    def observe(self, event: Event) -> None:
        """Let ``inner`` observe an event, and note which trials have started."""
        if isinstance(event, TrialStarted):
            self._started.add(event.trial)
        self.inner.observe(event)

    def enqueue(self, configurations: Sequence[Params]) -> None:
        """Plan added configurations for the trials that start next, after those that were added earlier.

        Starting points that have not started come after all added ones; one that is also added is suggested once.
        Whether ``configurations`` have started before is not checked.
        """
        added = {key(one): one for one in configurations}
        added_earlier = []
        starting_points = []
        for one in self._remove_planned():  # those that wait
            if key(one) in self._added:
                added_earlier.append(one)
            elif key(one) not in added:
                starting_points.append(one)
        self._added |= added.keys()
        self._plan_next([*added_earlier, *added.values(), *starting_points])

    def change_space(self, space: Space) -> None:
        """Make ``inner`` suggest from another space, and drop planned configurations that are not in it.

        Those that are left are planned for the trials that start next. Raises `TypeError` if ``inner`` cannot change
        its space.
        """
        if not isinstance(self.inner, SpaceChanging):
            raise TypeError(f"{type(self.inner).__name__} has no change_space")
        self.inner.change_space(space)
        self._plan_next([one for one in self._remove_planned() if space.has(one)])

    def _remove_planned(self) -> list[Params]:
        """Remove the configurations planned for trials that have not started; return them in order."""
        waiting = []
        for trial in sorted(self._planned):
            if trial not in self._started:
                waiting.append(trial)
        return [self._planned.pop(trial) for trial in waiting]

    def _plan_next(self, points: Iterable[Params]) -> None:
        """Plan ``points``, in order, for the next trials that have not started and have no planned configuration."""
        free = (  # the numbers of such trials, without end
            trial for trial in count() if trial not in self._started and trial not in self._planned
        )
        for trial, point in zip(free, list(points), strict=False):
            self._planned[trial] = point


def complete_starting_points(space: Space, starts: Sequence[Params], seed: int) -> list[Params]:
    """Return ``starts`` as points of ``space``, with a random value for each parameter that they lack.

    The values depend on ``seed``. Duplicates, and starts for which no new point is found, are left out.
    """
    if not starts:
        return []

    def draw_point(part: Space, place: int, tried: Collection[str]) -> Params | None:
        """Return a random point of ``part``, the space with the values of one start, whose key is not in ``tried``.

        ``place`` is the number of the start, by which the draw is seeded. Return None if no such point is found.
        """
        return first_new(part, uniform_draws(seed, place), tried, uniform_numbers(seed, place))

    return complete_starts(space, starts, draw_point)


_WORST_FIRST = (
    Status.DIVERGED,
    Status.OOM,
    Status.INFEASIBLE,
    Status.PRUNED,
    Status.COMPLETED,
    Status.FAILED,
)


Observed: TypeAlias = "list[Event] | tuple[Params, ...] | Space"
"""What a searcher observes: events, configurations that a person has added, or another space."""


@dataclass(slots=True)
class _Result:
    """What the inner searcher of a `Repeated` has observed of one configuration: the means over its trials."""

    trials: int = 0  # number of trials that the means are over; 0: nothing was observed
    epoch: int = 0  # the last epoch that was observed
    has_ended: bool = False  # otherwise the configuration pauses
    # indexes in `Repeated._history` of the lists of events that were observed, one for each time
    places: list[int] = field(default_factory=list)

    def record(self, trials: Sequence[TrialState], events: Sequence[Event]) -> None:
        """Record that the searcher gets ``events`` for a configuration, which stand for all of ``trials``.

        Without an epoch among them, `epoch` stays as it is.
        """
        self.trials = len(trials)
        self.has_ended = all(trial.ended is not None for trial in trials)
        for event in events:
            if isinstance(event, EpochReported):
                self.epoch = event.epoch


class Repeated:
    """Searcher that turns suggested configurations into trials: each configuration is trained several times.

    The inner searcher observes a configuration as one trial: its start when its first trial starts, and the rest once
    all of its trials have ended. The status of that one is the first of diverged, oom, infeasible, pruned, completed
    and failed that any repeat has, so failed repeats are ignored unless all failed. Its metrics are the means over the
    completed, infeasible and pruned repeats, or over all if there are none, for the epochs that all of them have. If
    repeats pause, the searcher observes the epochs that all have, once none is training.

    If the number of repeats changes (`change_numbering`), a configuration may get further trials after the inner
    searcher has observed it. Once these have ended, the mean over all trials takes the place of what was observed
    before. A searcher that learns cannot take back what it has observed, so another one is made, which observes all
    again.
    """

    def __init__(
        self, inner: Searcher, repeats: Numbering | int, make: Callable[[], Searcher] | None = None
    ) -> None:
        """Initialize with ``inner``, the searcher that suggests the configurations.

        Arguments:
            repeats: the number of trials of a configuration, or the numbering of trials.
            make: returns a searcher like ``inner``, which has not observed anything; needed for `change_numbering`.
        """
        self._inner: Searcher | None = inner
        self._make = make
        self._numbering = Numbering(trials_each=repeats) if isinstance(repeats, int) else repeats
        self._ledger = Ledger()
        self._members: dict[int, list[TrialState]] = {}  # trials of each configuration
        # what the inner searcher has observed of each configuration
        self._results: dict[int, _Result] = {}
        # all that the inner searcher has observed; empty without ``make``
        self._history: list[Observed] = []

    @property
    def inner(self) -> Searcher:
        """The searcher over configurations, which is made again here if results that it had observed were replaced.

        The new one then observes all that the old one had. Raises TypeError if it must be made again and ``make`` was
        not given.
        """
        if self._inner is None:
            if self._make is None:
                raise TypeError(
                    "this searcher was made without a way to make its inner searcher again"
                )
            self._inner = self._make()
            for entry in self._history:
                _let_observe(entry, self._inner)
        return self._inner

    @property
    def can_change_numbering(self) -> bool:
        """Whether the number of trials of a configuration may change."""
        return self._make is not None

    @property
    def foresees(self) -> bool:
        """Whether the suggestions of the inner searcher depend on no event; see `Searcher`."""
        return self.inner.foresees

    def learn(self, past: Iterable[TrialState]) -> int:
        """Let the present inner searcher learn from past trials, each as a configuration; return how many it used.

        If the inner searcher is made again, this is not repeated: ``make`` must return one that has learned.
        """
        return self.inner.learn(past)

    def enqueue(self, configurations: Sequence[Params]) -> None:
        """Let the inner searcher suggest added configurations next, each for all of its trials.

        Raises `TypeError` if it cannot.
        """
        if not isinstance(self.inner, Queueing):
            raise TypeError(f"{type(self.inner).__name__} has no enqueue")
        self._let_inner_observe(tuple(configurations))

    def change_space(self, space: Space) -> None:
        """Let the inner searcher suggest from another space; configurations that have begun still get all repeats.

        Raises `TypeError` if it cannot.
        """
        if not isinstance(self.inner, SpaceChanging):
            raise TypeError(f"{type(self.inner).__name__} has no change_space")
        self._let_inner_observe(space)

    def change_numbering(self, numbering: Numbering) -> None:
        """Change the number of trials of each configuration; one that already has more gets no further ones.

        If fewer trials are asked for, some configurations become complete by that; the inner searcher observes their
        results now. If more are asked for, it observes the new means once the further trials have ended. Call it only
        if `can_change_numbering`.
        """
        were_whole = {
            configuration for configuration in self._members if self._is_whole(configuration)
        }
        self._numbering = numbering
        for configuration, trials in self._members.items():
            end = trials[-1].end
            # whole only because fewer trials are asked for now; the results of the others are observed already
            if (
                configuration not in were_whole
                and self._is_whole(configuration)
                and end is not None
            ):
                self._observe_result(configuration, end)

    def suggest(self, number: int) -> Params | None:
        """Return the configuration of trial ``number`` of the search; None if the inner searcher has none for it.

        Trials of one configuration get the same parameters.
        """
        configuration = self._numbering.find(number).configuration
        started = self._members.get(configuration)
        if started:
            return started[0].params
        return self.inner.suggest(configuration)

    def observe(self, event: Event) -> None:
        """Observe an event of a trial; let the inner searcher observe what it means for the trial's configuration.

        Raises `OutOfOrder` if the event cannot follow the events before it.
        """
        match self._ledger.observe(event):
            case Started(trial, start):
                configuration = self._numbering.find(trial.number).configuration
                trials = self._members.setdefault(configuration, [])
                trials.append(trial)
                if len(trials) == 1:
                    self._let_inner_observe([structs.replace(start, trial=configuration, repeat=0)])
            case Ended(trial, end) | Interrupted(trial, end):
                configuration = self._numbering.find(trial.number).configuration
                # trials that were interrupted otherwise go on, and then end or pause
                if (trial.paused or trial.ended is not None) and self._is_whole(configuration):
                    self._observe_result(configuration, end)
            case _:
                pass

    def _is_whole(self, configuration: int) -> bool:
        """Return whether all trials of a configuration have started, and each of them has ended or pauses."""
        trials = self._members[configuration]
        is_complete = len(trials) == self._numbering.count(configuration)
        return is_complete and all(one.paused or one.ended is not None for one in trials)

    def _observe_result(self, configuration: int, end: TrialEnded) -> None:
        """Let the inner searcher observe a configuration as one trial, when all of its trials have ended or pause.

        ``end`` is the end or pause of one of the trials, as a rule the latest, from which that of the configuration is
        made. If the inner searcher has observed the configuration before, it now observes the epochs since then; if the
        configuration had fewer trials then, the means over all trials replace what it has observed. If it has as many
        trials as then and its end was observed, do nothing.
        """
        trials = sorted(self._members[configuration], key=lambda trial: trial.number)
        # what the inner searcher has observed of the configuration so far
        result = self._results.setdefault(configuration, _Result())
        was_observed = result.trials > 0
        if was_observed and result.trials != len(trials):  # `repeats` was raised since then
            self._replace_result(configuration, trials, end)
            return
        if result.has_ended:  # the same trials, all of which had ended: there is nothing new
            return
        # the epochs that the inner searcher lacks, all of them if it has observed none, and the end or pause
        events = list(_summarize_repeats(configuration, trials, end, result.epoch))
        result.record(trials, events)
        # `_let_inner_observe` appends the events to the history, so this will be their index in it
        result.places.append(len(self._history))
        self._let_inner_observe(events)

    def _let_inner_observe(self, entry: Observed) -> None:
        """Let the inner searcher observe an entry of the history, and keep the entry in case it must be made again."""
        if self._make is not None:
            self._history.append(entry)
        if self._inner is not None:
            _let_observe(entry, self._inner)

    def _replace_result(
        self, configuration: int, trials: Sequence[TrialState], end: TrialEnded
    ) -> None:
        """Replace a configuration's result in the history by the means over ``trials``, which are more than before.

        ``end`` is as in `_observe_result`. A searcher whose suggestions depend on results is made again at its next
        use, and observes the changed history.
        """
        events = list(_summarize_repeats(configuration, trials, end, 0))
        # put the new events in place of the first ones, and empty the later entries
        first, *others = self._results[configuration].places
        for place in others:
            # emptied, not removed: the other results know their places by index
            self._history[place] = []
        self._history[first] = events
        self._results[configuration] = _Result(places=[first])
        self._results[configuration].record(trials, events)
        if self._inner is not None and not self._inner.foresees:  # otherwise results change nothing
            self._inner = None


def _let_observe(entry: Observed, searcher: Searcher) -> None:
    """Let a searcher observe an entry of the history: a space, added configurations, or events.

    A space or configurations that the searcher cannot take are skipped.
    """
    if isinstance(entry, Space):
        if isinstance(searcher, SpaceChanging):
            searcher.change_space(entry)
    elif isinstance(entry, tuple):
        if isinstance(searcher, Queueing):
            searcher.enqueue(entry)
    else:
        for event in entry:
            searcher.observe(event)


def _summarize_repeats(
    configuration: int, trials: Sequence[TrialState], last: TrialEnded, after: int
) -> Iterator[Event]:
    """Yield the events of a configuration as those of one trial: the epochs later than ``after``, and its end or pause.

    None of its ``trials`` is running, and ``last`` is an end or pause of one of them. Metrics are averaged over the
    completed, infeasible, pruned and paused ones, or over all if there are none, for the epochs that all of them have.
    The configuration pauses if one of its trials does. Otherwise it ends with the first status in `_WORST_FIRST` that
    one of them has.
    """
    # a failed repeat says nothing about the configuration, unless all have failed
    counted = [trial for trial in trials if trial.status in JUDGED or trial.paused] or trials
    common = set(counted[0].epochs)  # `TrialState.epochs` has the metrics by epoch
    for trial in counted[1:]:
        common &= set(trial.epochs)
    for epoch in sorted(common):
        if epoch > after:
            metrics = _average_metrics([trial.epochs[epoch] for trial in counted])
            yield EpochReported(
                trial=configuration, epoch=epoch, metrics=metrics, time=last.time, time_s=0.0
            )
    if any(trial.paused for trial in trials):
        yield structs.replace(last, trial=configuration, status=Status.INTERRUPTED, waits=True)
        return
    states = {trial.status for trial in trials}
    status = next(state for state in _WORST_FIRST if state in states)
    yield structs.replace(last, trial=configuration, status=status)


def _average_metrics(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return by name the mean of each metric over all rows, one or more; metrics that a row lacks are left out.

    A mean that is no number is NaN: that of both infinities, and that of values whose sum is too large for a float.
    """
    means = {}
    for name in rows[0]:
        if all(name in row for row in rows):
            try:
                means[name] = fmean(row[name] for row in rows)
            except (ValueError, OverflowError):
                means[name] = math.nan
    return means


def build_searcher(
    method: str | Factory,
    space: Space,
    objectives: tuple[Objective, ...],
    seed: int,
    repeats: Numbering | int = 1,
    start_with: Sequence[Params] = (),
) -> Searcher:
    """Return a searcher that suggests configurations by a method, built in or the user's own.

    ``method`` is its name, or a callable that makes the user's own searcher. The searcher first suggests the
    configurations ``start_with``, completed with values for missing parameters, and suggests each configuration for
    ``repeats`` trials, or for as many as a numbering says; that number cannot change later. Population methods are not
    known here; use `searcher`. What a user's own ``method`` raises is passed on.

    Raises:
        InputError: for an unknown method, a missing package, or a method that cannot optimize these objectives.
    """
    inner = _build_without_repeats(method, space, objectives, seed, start_with)
    if isinstance(repeats, int):
        numbering = Numbering(trials_each=repeats)
    else:
        numbering = repeats
    if numbering.is_plain:
        return inner
    return Repeated(inner, numbering)


def _build_without_repeats(
    method: str | Factory,
    space: Space,
    objectives: tuple[Objective, ...],
    seed: int,
    start_with: Sequence[Params],
) -> Searcher:
    """Return a searcher that suggests each configuration once; see `build_searcher`, also for errors."""
    if not isinstance(method, str):
        return PlannedPoints(
            method(space, objectives, seed), complete_starting_points(space, start_with, seed)
        )
    used = METHODS.get(method)
    if used is None or not used.is_standalone:
        known = []
        for one in METHODS.values():
            if one.is_standalone:
                known.append(one.name)
        raise InputError.one("method", f"unknown method {method!r}", did_you_mean(method, known))
    if len(objectives) > 1 and not used.several_objectives:
        others = []
        for one in STANDALONE:
            if one.learns and one.several_objectives:
                others.append(one.name)
        raise InputError.one(
            "method", f"{used.name} optimizes one objective only", f"method: {', or '.join(others)}"
        )
    make_searcher = used.load_searcher()
    # a method that learns takes no starting points, so they are suggested before it is asked
    if used.learns:
        inner: Searcher = make_searcher(space, objectives, seed)
        return PlannedPoints(inner, complete_starting_points(space, start_with, seed))
    if used.enumerates:
        first = complete_starts_on_grid(space, start_with) if start_with else []
    else:
        first = complete_starting_points(space, start_with, seed)
    stream: Searcher = make_searcher(space, seed, first)
    return stream


def can_change_space(searcher: Searcher) -> bool:
    """Return whether a searcher or, if it is one of this module's that wrap another, that one can change its space."""
    while isinstance(searcher, PlannedPoints | Repeated):
        searcher = searcher.inner
    return isinstance(searcher, SpaceChanging)


Given = ParamSpec("Given")
Made = TypeVar("Made")


def check_author_methods(spec: Spec, folders: Sequence[Path]) -> None:
    """Import and build the user's own searcher and scheduler, if the sweep file names any, as a check.

    Raises `InputError` if that fails, and a `SweepError` of the user's own code as it is. ``folders`` are searched
    before the installed modules.
    """
    if ":" in spec.method:
        searcher(spec, folders)
    if isinstance(spec.early_terminate, Own):
        scheduler(spec, folders)


def searcher(spec: Spec, folders: Sequence[Path], repeats: Numbering | int = 1) -> Searcher:
    """Return the searcher that a sweep file asks for, which has learned nothing yet; see `build_searcher`.

    A searcher of the user's own is imported, from ``folders`` before the installed modules; raises `InputError` if it
    cannot be imported or built. ``repeats`` is ignored for a population.
    """
    if spec.population is not None:
        first = complete_starting_points(spec.space, spec.start_with, spec.seed)
        make_population = spec.search_method.load_searcher()
        population: Searcher = make_population(
            spec.space, spec.objectives[0], spec.seed, spec.population, first
        )
        return population
    method: str | Factory = spec.method
    if ":" in spec.method:
        contract = "sweep.searchers.Searcher"
        own = load_extension(
            spec.method, folders, "method", ("foresees", "learn", "suggest", "observe"), contract
        )
        method = _wrap_factory("method", spec.method, own)
    return build_searcher(method, spec.space, spec.objectives, spec.seed, repeats, spec.start_with)


def scheduler(spec: Spec, folders: Sequence[Path]) -> Scheduler:
    """Return a new scheduler for the stopping rule in a checked sweep file, which has observed nothing yet.

    A scheduler of the user's own is imported, from ``folders`` before the installed modules; raises `InputError` if it
    cannot be imported or built. Raises ValueError for a rule that compares a single objective, if the sweep file has
    several and was not checked.
    """
    rule, own = spec.early_terminate, None
    if isinstance(rule, Own):
        contract = "sweep.schedulers.Scheduler"
        found = load_extension(
            rule.target, folders, "early_terminate", ("decision_epochs", "observe"), contract
        )
        own = _wrap_factory("early_terminate", rule.target, found)
    return build_scheduler(rule, spec.objectives[0], find_max_length(spec), own, spec.length)


def _wrap_factory(where: str, target: str, factory: Callable[Given, Made]) -> Callable[Given, Made]:
    """Return a function that calls ``factory`` and turns an `Exception` other than `SweepError` into `InputError`.

    ``where`` is the key of the sweep file, and ``target`` the factory's name in messages.
    """

    def made(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            return factory(*given, **named)
        except SweepError:
            raise
        except Exception as error:
            raise InputError.one(where, f"{target} failed: {in_short(error)}") from error

    return made


def record_warm_start(sweeps: Iterable[str], results: Path) -> list[EarlierSweep]:
    """Return the path and present log length in bytes of each earlier sweep, to be recorded in sweep.json.

    ``sweeps`` are names of sweeps in the folder ``results``, or paths or addresses of sweeps. The path is absolute, or
    the URL of a sweep in an object store. The length is up to the end of the last complete event; 0 if there is no log.

    Raises:
        InputError: naming all that are missing, cannot be read, or are given twice, whose trials would count twice.
    """
    problems: list[Problem] = []
    taken: list[EarlierSweep] = []
    places: dict[str, str] = {}  # the name by which each sweep is given first, by its path
    for number, sweep in enumerate(sweeps):
        try:
            folder = ResultsFolder.open(results, sweep)
            log_bytes = 0
            if folder.log.exists():
                # the end of the last whole event, not of the file: a running sweep may be writing another one
                for _, end in store_log.read_with_ends(folder.log):
                    log_bytes = end
            if folder.store is None:
                place = str(folder.path.resolve())
            else:
                place = folder.place
            if place in places:
                what = f"{sweep} is given twice"
                if places[place] != sweep:
                    what = f"{sweep} is the same sweep as {places[place]}"
                problems.append(Problem(f"warm_start.{number}", what, "name each sweep once"))
            places.setdefault(place, sweep)
            taken.append({"path": place, "log_bytes": log_bytes})
        except (InputError, StoreError) as error:
            if isinstance(error, InputError):
                found = error.problems
            else:
                found = (Problem("", str(error)),)
            for problem in found:
                what = f"{problem.where}: {problem.what}".strip(": ")
                problems.append(Problem(f"warm_start.{number}", what, problem.hint))
    refuse(problems)
    return taken


def learn_warm_start(
    searcher: Searcher,
    taken: Iterable[EarlierSweep],
    notice: Callable[[str], None],
    spec: Spec,
    results: Path,
) -> None:
    """Let a searcher learn from the recorded part of the logs of earlier sweeps.

    ``taken`` comes from `record_warm_start`, and ``spec`` is this sweep's. A sweep that is no longer where it was is
    looked for by its name in ``results``, the folder of this sweep's, which may have been moved with it. ``notice`` is
    called with a line for each earlier sweep that says how many of its trials the searcher used. Raises StoreError if a
    log is gone or damaged; the searcher may have learned from the sweeps before it.
    """
    for earlier in taken:
        path = earlier["path"]
        log_bytes = earlier["log_bytes"]
        if is_url(path):
            folder = ResultsFolder.open(Path(), path)
        else:
            folder = _find_moved(ResultsFolder(Path(path)), results, log_bytes)
        log = folder.log
        # with 0, the earlier sweep had no log yet when this one began
        if log_bytes and not log.exists():
            hint = f"put it back there, or into {results}"
            raise StoreError(
                f"{log} is gone, which this sweep was started from (warm_start); {hint}"
            )
        with ledger.naming(log):
            events = _read_first_events(log, log_bytes)
            past = ledger.list_ended_trials(_translate_units(events, folder, spec))
        used = searcher.learn(past)
        notice(f"warm start: {used} of {len(past)} trials of {folder.place} fit and count")


def _find_moved(folder: ResultsFolder, results: Path, log_bytes: int) -> ResultsFolder:
    """Return the folder of an earlier sweep, which may have been moved from ``folder`` into ``results``.

    The moved folder has the same name and a log of at least ``log_bytes``. Return ``folder`` if it has a log itself, or
    if there is no such folder.
    """
    moved = ResultsFolder(results / folder.name)
    if not folder.log.exists() and moved.log.exists() and moved.log.stat().st_size >= log_bytes:
        return moved
    return folder


def _translate_units(events: Iterator[Event], folder: ResultsFolder, spec: Spec) -> Iterator[Event]:
    """Return the events of an earlier sweep with epochs in the units of `Spec.length`, if either sweep has `minutes`.

    Otherwise, or without a log in ``folder``, return the events unchanged. ``spec`` is this sweep's, and ``folder`` the
    earlier one's. Raises StoreError if its sweep.json cannot be read.
    """
    if not folder.log.exists():
        return events
    before = folder.read_info()
    if spec.minutes is None and before.spec.get("minutes") is None:
        return events
    # None unless trials of the earlier sweep end after a number of epochs, from which their shares then follow
    epochs = before.epochs if isinstance(before.epochs, int) else None
    units = UnitReports(spec.length, epochs)
    return (translated for event in events for translated in units.translate(event))


def _read_first_events(log: Path, log_bytes: int) -> Iterator[Event]:
    """Yield the events that end within the first ``log_bytes`` bytes of a log; none if that is 0, even without a log.

    Raises StoreError if the log is damaged, or missing although ``log_bytes`` is not 0.
    """
    if not log_bytes:
        return
    for event, end in store_log.read_with_ends(log):
        if end > log_bytes:
            return
        yield event
