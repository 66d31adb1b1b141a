"""Search by Optuna's samplers: tpe, gp, cmaes and nsga2. The only module that imports Optuna.

No study of Optuna outlives a call: one is made of the observed events whenever it is needed, so that
the same events give the same suggestion, and no trial can stay in it as a running zombie. What Optuna
cannot draw (other distributions, weights, quanta on a log scale) is a uniform number for `from_unit`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from sweep.errors import InputError
from sweep.events import Event, Params, Status, TrialStarted, Value
from sweep.searchers.history import History, Record
from sweep.searchers.novelty import Draw, first_new, uniform_draws
from sweep.space.domains import (
    Categorical,
    Domain,
    IntUniform,
    LogUniform,
    Uniform,
    choices,
    contains,
    key,
    snap,
)
from sweep.space.draws import from_unit, to_unit
from sweep.space.objectives import Objective
from sweep.space.space import Parameter, Space

Method: TypeAlias = Literal["tpe", "gp", "cmaes", "nsga2"]

_STUDY = "sweep"
_SAMPLER_ATTEMPTS = 20  # then random draws, which cost a hundredth
_UNIT = FloatDistribution(0.0, 1.0)
_PACKAGES = {"gp": "torch", "cmaes": "cmaes"}


class OptunaSearcher:
    """Suggests what a sampler of Optuna draws, given all trials so far.

    Completed trials count with the metrics they reported last, pruned ones as PRUNED with their values
    by epoch, failed ones as FAIL. Those that diverged or ran out of memory are told as bad: to tpe as
    pruned before any value, which it ranks last (it ranks every completed trial above all pruned ones);
    to the others, which learn little or nothing from pruned trials, as completed, worse than any.
    """

    def __init__(self, method: Method, space: Space, objectives: tuple[Objective, ...], seed: int) -> None:
        package = _PACKAGES.get(method)
        if package and find_spec(package) is None:
            what = f"{method} needs the package {package}, which is not installed"
            raise InputError.one("method", what, f"pip install {package}, or method: tpe")
        if method == "cmaes" and len(objectives) > 1:
            raise InputError.one("method", "cmaes optimizes one objective only", "method: nsga2, or tpe")
        self._method = method
        self._space = space
        self._objectives = objectives
        self._seed = seed
        self._history = History()
        self._tried: set[str] = set()
        self._points: dict[int, _Point | None] = {}
        self._notes: dict[str, Any] = {}  # what the sampler noted in the study

    def suggest(self, number: int) -> Params | None:
        if number in self._history.trials:
            return self._history.trials[number].params
        with _quiet():
            draws = chain(self._sampler_draws(number), uniform_draws(self._seed, number))
            return first_new(self._space, draws, self._tried)

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
        for _ in range(_SAMPLER_ATTEMPTS):
            trial = study.ask()
            yield partial(_draw, trial)
            study.tell(trial, state=TrialState.FAIL)

    def _study(self, number: int) -> tuple[optuna.Study, InMemoryStorage]:
        storage = InMemoryStorage()
        directions = [StudyDirection[objective.goal.upper()] for objective in self._objectives]
        study_id = storage.create_new_study(directions, _STUDY)
        for name, note in self._notes.items():
            storage.set_study_system_attr(study_id, name, note)
        penalties = [_penalty(objective, self._history) for objective in self._objectives]
        for trial, record in self._history.trials.items():
            if point := self._points[trial]:
                storage.create_new_trial(study_id, self._told(point, record, penalties))
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        return optuna.load_study(study_name=_STUDY, storage=storage, sampler=self._sampler(seed)), storage

    def _sampler(self, seed: int) -> BaseSampler:
        match self._method:
            case "tpe":
                single = len(self._objectives) == 1
                conditional = any(parameter.when for parameter in self._space.parameters)
                return TPESampler(seed=seed, multivariate=single, group=single and conditional)
            case "gp":
                return GPSampler(seed=seed)
            case "cmaes":
                return CmaEsSampler(seed=seed, consider_pruned_trials=True)
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
                point.distributions[name] = _distribution(domain)
                point.params[name] = _encode(domain, event.params[name])
        if self._method in ("cmaes", "nsga2"):
            with _quiet():
                self._take_notes(event.trial, point)
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
            case Status.FAILED:
                return TrialState.FAIL, None, record.epochs
            case Status.COMPLETED:
                values = [objective.value(record.last) for objective in self._objectives]
                finite = [value for value in values if value is not None]
                if len(finite) == len(values):
                    return TrialState.COMPLETE, finite, record.epochs
        if self._method == "tpe":
            return TrialState.PRUNED, None, {}
        return TrialState.COMPLETE, penalties, {}


@dataclass(slots=True)
class _Point:
    params: dict[str, Any] = field(default_factory=dict)
    distributions: dict[str, BaseDistribution] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)  # of the sampler, about this trial


class _Template(FrozenTrial):
    """A trial that storages copy flat: deep copies of all trials would dominate every suggestion."""

    def __deepcopy__(self, memo: object) -> FrozenTrial:
        return copy.copy(self)


def _distribution(domain: Domain) -> BaseDistribution:
    """Optuna's own distribution, or `_UNIT` where it has none like it."""
    match domain:
        case Categorical(probabilities=None):
            return CategoricalDistribution([key(value) for value in choices(domain) or ()])
        case IntUniform(low, high, None, log=True):
            return IntDistribution(low, high, log=True)
        case IntUniform(low, high, q, log=False):
            return IntDistribution(int(snap(domain, low)), int(snap(domain, high)), step=q or 1)
        case Uniform(low, high, q):
            return FloatDistribution(snap(domain, low), snap(domain, high), step=q)
        case LogUniform(low, high, None):
            return FloatDistribution(low, high, log=True)
        case _:
            return _UNIT


def _encode(domain: Domain, value: Value) -> Any:
    distribution = _distribution(domain)
    if isinstance(distribution, CategoricalDistribution):
        return key(value)
    return to_unit(domain, value) if distribution == _UNIT else value


def _draw(trial: Trial, parameter: Parameter) -> Value:
    name, domain = parameter.name, parameter.domain
    match _distribution(domain):
        case CategoricalDistribution(choices=labels):
            label = trial.suggest_categorical(name, labels)
            return (choices(domain) or ())[labels.index(label)]
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case FloatDistribution(low=low, high=high, step=step, log=log) as distribution:
            number = trial.suggest_float(name, low, high, step=step, log=log)
            if distribution == _UNIT or not isinstance(domain, Uniform | LogUniform):
                return from_unit(domain, number)
            return snap(domain, number)
    raise TypeError(f"{domain} has no distribution")


def _penalty(objective: Objective, history: History) -> float:
    """A value worse than that of any trial: beyond the worst by a tenth of the spread."""
    judged = [r for r in history.trials.values() if r.status in (Status.COMPLETED, Status.PRUNED)]
    values = [value for r in judged if (value := objective.value(r.last)) is not None]
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
