"""Search by Optuna's samplers: tpe, gp, cmaes and nsga2.

No study of Optuna outlives a call: one is made of the observed events whenever it is needed, so that
the same events give the same suggestion, and no trial can stay in it as a running zombie.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweep.errors import InputError
from sweep.events import Event, Params, Status, TrialStarted, Value
from sweep.searchers import optuna_domains
from sweep.searchers.history import History, Record
from sweep.searchers.novelty import Draw, first_new, uniform_draws, uniform_numbers
from sweep.space.domains import contains, key
from sweep.space.objectives import Objective
from sweep.space.space import Parameter, Space

Method: TypeAlias = Literal["tpe", "gp", "cmaes", "nsga2"]

_STUDY = "sweep"
_JUDGED = (Status.COMPLETED, Status.PRUNED)
_SAMPLER_ATTEMPTS = 20  # then random draws, which cost a hundredth
_GP_ATTEMPTS = 2  # each fits the model anew, which takes seconds
_FEWEST_SOURCES = 10  # of which cmaes takes the best tenth to start from


class OptunaSearcher:
    """Suggests what a sampler of Optuna draws, given all trials so far.

    Completed trials count with the metrics they reported last, pruned ones as PRUNED with their values
    by epoch, failed ones as FAIL. Those that diverged or ran out of memory are told as bad: to tpe as
    pruned before any value, which it ranks last (it ranks every completed trial above all pruned ones);
    to the others, which learn little or nothing from pruned trials, as completed, worse than any. An
    objective's `impute` says otherwise: then these three are told alike, by its rule.
    """

    def __init__(self, method: Method, space: Space, objectives: tuple[Objective, ...], seed: int) -> None:
        if method == "gp" and find_spec("torch") is None:
            what = "gp needs the package torch, which is not installed"
            raise InputError.one("method", what, 'pip install "sweep[gp]", or method: tpe')
        if method == "cmaes" and len(objectives) > 1:
            raise InputError.one("method", "cmaes optimizes one objective only", "method: nsga2, or tpe")
        self._method = method
        self._space = space
        self._objectives = objectives
        self._seed = seed
        self._past: list[tuple[_Point, Record]] = []
        self._history = History()
        self._tried: set[str] = set()
        self._points: dict[int, _Point | None] = {}
        self._notes: dict[str, Any] = {}  # what the sampler noted in the study

    def learn(self, past: Iterable[Record]) -> int:
        before = len(self._past)
        for record in past:
            params = self._space.adopt(record.params)
            if params is not None and (record.status not in _JUDGED or self._values(record)):
                self._past.append((self._past_point(params), record))
        return len(self._past) - before

    def suggest(self, number: int) -> Params | None:
        if number in self._history.trials:
            return self._history.trials[number].params
        with _quiet():
            draws = chain(self._sampler_draws(number), uniform_draws(self._seed, number))
            return first_new(self._space, draws, self._tried, uniform_numbers(self._seed, number), walk=False)

    def observe(self, event: Event) -> None:
        if isinstance(event, TrialStarted) and event.trial not in self._history.trials:
            self._tried.add(key(event.params))
            self._points[event.trial] = self._point(event)
        self._history.observe(event)

    def study(self) -> optuna.Study:
        """All trials as a study of Optuna, in the order in which they started."""
        with _quiet():
            return self._study(0)[0]

    def _sampler_draws(self, number: int) -> Iterator[Draw]:
        study, _ = self._study(number)
        for _ in range(_GP_ATTEMPTS if self._method == "gp" else _SAMPLER_ATTEMPTS):
            trial = study.ask()
            yield partial(optuna_domains.draw, trial)
            study.tell(trial, state=TrialState.FAIL)

    def _study(self, number: int) -> tuple[optuna.Study, InMemoryStorage]:
        storage = InMemoryStorage()
        directions = [StudyDirection[objective.goal.upper()] for objective in self._objectives]
        study_id = storage.create_new_study(directions, _STUDY)
        for name, note in self._notes.items():
            storage.set_study_system_attr(study_id, name, note)
        own = [(self._points[trial], record) for trial, record in self._history.trials.items()]
        known = [*self._past, *((point, record) for point, record in own if point)]
        penalties = [_penalty(objective, [record for _, record in known]) for objective in self._objectives]
        told = [self._told(point, record, penalties) for point, record in known]
        for trial in told:
            storage.create_new_trial(study_id, trial)
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        sampler = self._sampler(seed, told[: len(self._past)])
        return optuna.load_study(study_name=_STUDY, storage=storage, sampler=sampler), storage

    def _sampler(self, seed: int, past: list[FrozenTrial]) -> BaseSampler:
        match self._method:
            case "tpe":
                single = len(self._objectives) == 1
                conditional = any(parameter.when for parameter in self._space.parameters)
                return TPESampler(seed=seed, multivariate=single, group=single and conditional)
            case "gp":
                return GPSampler(seed=seed)
            case "cmaes":
                sources = [trial for trial in past if trial.state is TrialState.COMPLETE and trial.params]
                repeated = sources * -(-_FEWEST_SOURCES // max(len(sources), 1))  # the best tenth is the best one
                return CmaEsSampler(seed=seed, consider_pruned_trials=True, source_trials=repeated or None)
            case "nsga2":
                return NSGAIISampler(seed=seed)

    def _point(self, event: TrialStarted) -> _Point | None:
        """The parameters of a trial as Optuna knows them; None if they are from another space."""
        point = _Point()
        for parameter in self._space.parameters:
            name, domain = parameter.name, parameter.domain
            if name in event.params and not contains(domain, event.params[name]):
                return None
            if name in event.params and parameter.drawn:
                point.add(parameter, event.params[name])
        if self._method in ("cmaes", "nsga2"):
            with _quiet():
                self._take_notes(event.trial, point)
        return point

    def _past_point(self, params: Params) -> _Point:
        """A trial of another sweep as this method can use it."""
        point = _Point()
        for parameter in self._space.parameters:
            if parameter.name in params and parameter.drawn:
                point.add(parameter, params[parameter.name])
                known = point.distributions[parameter.name]
                moves = not known.single() and not isinstance(known, CategoricalDistribution)
                if self._method == "cmaes" and (parameter.when or not moves):  # outside of what it adapts
                    point.remove(parameter.name)
        if self._method == "nsga2":
            point.notes = {NSGAIISampler._get_generation_key(): 0}
        return point

    def _take_notes(self, number: int, point: _Point) -> None:
        """Let a sampler note, as it does whenever a trial starts, to which generation it belongs."""
        study, storage = self._study(number)
        trial = study.ask()
        _ = trial.relative_params  # asking alone samples nothing
        study_id = storage.get_study_id_from_name(_STUDY)
        trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        point.notes = storage.get_trial(trial_id).system_attrs
        self._notes = storage.get_study_system_attrs(study_id)

    def _told(self, point: _Point, record: Record, penalties: list[float]) -> FrozenTrial:
        """A trial in Optuna's words."""
        state, values, epochs = self._outcome(record, penalties)
        by_epoch = {}
        if len(self._objectives) == 1:  # Optuna compares pruned trials by a single value only
            reported = {epoch: self._objectives[0].value(metrics) for epoch, metrics in epochs.items()}
            by_epoch = {epoch: value for epoch, value in reported.items() if value is not None}
        return _Template(
            number=-1,
            trial_id=-1,
            state=state,
            value=None,
            values=values,
            params=point.params,
            distributions=point.distributions,
            intermediate_values=by_epoch,
            datetime_start=datetime.fromtimestamp(record.started, UTC),
            datetime_complete=datetime.fromtimestamp(record.ended, UTC) if record.ended is not None else None,
            user_attrs={},
            system_attrs=point.notes,
        )

    def _outcome(
        self, record: Record, penalties: list[float]
    ) -> tuple[TrialState, list[float] | None, Mapping[int, Mapping[str, float]]]:
        match record.status:
            case Status.RUNNING:
                return TrialState.RUNNING, None, record.epochs
            case Status.PRUNED:
                return TrialState.PRUNED, None, record.epochs
            case Status.COMPLETED if values := self._values(record):
                return TrialState.COMPLETE, values, record.epochs
            case Status.FAILED if all(objective.impute is None for objective in self._objectives):
                return TrialState.FAIL, None, record.epochs
        imputed = [_imputed(objective, record) for objective in self._objectives]
        if self._method == "tpe" and all(value is None for value in imputed):
            return TrialState.PRUNED, None, {}
        pairs = zip(imputed, penalties, strict=True)
        return TrialState.COMPLETE, [penalty if value is None else value for value, penalty in pairs], {}

    def _values(self, record: Record) -> list[float]:
        """The final value of every objective; empty if one has none."""
        values = [objective.value(record.last) for objective in self._objectives]
        finite = [value for value in values if value is not None]
        return finite if len(finite) == len(values) else []


@dataclass(slots=True)
class _Point:
    params: dict[str, Any] = field(default_factory=dict)
    distributions: dict[str, BaseDistribution] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)  # of the sampler, about this trial

    def add(self, parameter: Parameter, value: Value) -> None:
        self.distributions[parameter.name] = optuna_domains.distribution(parameter.domain)
        self.params[parameter.name] = optuna_domains.encode(parameter.domain, value)

    def remove(self, name: str) -> None:
        del self.distributions[name], self.params[name]


class _Template(FrozenTrial):
    """A trial that storages copy flat: deep copies of all trials would dominate every suggestion."""

    def __deepcopy__(self, memo: object) -> FrozenTrial:
        return copy.copy(self)


def _imputed(objective: Objective, record: Record) -> float | None:
    """What a trial without a final value counts as by the objective's rule; None for worst of all."""
    reported = [objective.value(metrics) for _, metrics in sorted(record.epochs.items())]
    finite = [value for value in reported if value is not None]
    if not finite or objective.impute in (None, "worst"):
        return None
    return finite[-1] if objective.impute == "latest" else min(finite, key=lambda value: objective.sign * value)


def _penalty(objective: Objective, records: Iterable[Record]) -> float:
    """A value worse than that of any trial: beyond the worst by a tenth of the spread."""
    values = [value for r in records if r.status in _JUDGED and (value := objective.value(r.last)) is not None]
    losses = [objective.sign * value for value in values] or [0.0]
    spread = max(losses) - min(losses)
    return objective.sign * (max(losses) + 0.1 * (spread or abs(max(losses)) or 1.0))


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna's log lines and warnings of experimental features are not for our users."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
