"""Sweeps as Optuna studies, for people and programs that work with Optuna, and the importance of parameters.

The searcher's own study (`optuna_search`) holds what helps a sampler to choose. The studies of this module show what
happened: real values on real scales, and the actual state of every trial. Importance is PED-ANOVA over resampled
trials.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean
from types import MappingProxyType
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweep.events import Params, Status, Value, is_number
from sweep.searchers.optuna_storage import VIOLATED, create_frozen_trial, silence_optuna
from sweep.space.domains import (
    Domain,
    IntUniform,
    Range,
    Uniform,
    get_finite_bounds,
    get_quantum,
    is_log,
    key,
    list_choices,
    snap,
)

_WIDE = 4.0  # standard deviations of a normal distribution on its axis; more if values lie beyond
_STATES = {
    Status.RUNNING: TrialState.RUNNING,
    Status.COMPLETED: TrialState.COMPLETE,
    Status.INFEASIBLE: TrialState.COMPLETE,
    Status.PRUNED: TrialState.PRUNED,
    Status.INTERRUPTED: TrialState.WAITING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiedTrial:
    """A trial of a sweep, with the facts that a study shows."""

    params: Params
    status: Status
    reason: str
    started: float  # seconds since 1970
    ended: float | None
    metrics: Mapping[str, float]  # as last reported
    epochs: int
    by_epoch: Mapping[int, float]  # of the first objective
    notes: Mapping[str, Value] = field(default_factory=dict)  # further user attributes


@dataclass(frozen=True, slots=True)
class Axis:
    """The representation of one parameter's values in an Optuna study."""

    distribution: BaseDistribution
    # Optuna's choices, by the key of the value; empty on an axis of numbers
    _choices: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, value: Value) -> Any:
        """Return what stands for a value in Optuna: a number, or a choice of `distribution`, which may be JSON text.

        Raises KeyError if the value is not among the choices of the axis. On an axis of numbers, the value must be a
        number, whole on an axis of integers, and is not checked against the bounds.
        """
        match self.distribution:
            case IntDistribution():
                return int(value)  # type: ignore[arg-type]  # `make_axis` has checked that all are whole
            case FloatDistribution():
                return float(value)  # type: ignore[arg-type]  # or that all are numbers
            case _:
                return self._choices[_find_known_key(value, self._choices)]

    def can_represent(self, value: Value) -> bool:
        """Return whether a value has a representation on this axis.

        It must be one of the choices, where 1 and 1.0 are the same. On an axis of numbers, it must be a number within
        the bounds and, if the axis has steps or integers, on one of them.
        """
        match self.distribution:
            case IntDistribution() | FloatDistribution() as numeric:
                return is_number(value) and numeric._contains(float(value))
            case _:
                return _find_known_key(value, self._choices) in self._choices


def make_axes(
    domains: Mapping[str, Domain | None], trials: Sequence[StudiedTrial]
) -> dict[str, Axis]:
    """Return an axis for each parameter, by name, extended to all values of ``trials``.

    ``domains`` has the domains by the name of the parameter. For an unknown domain (None), the axis is made from the
    values of the trials. Parameters with neither a domain nor a value are left out. Raises ValueError for a tied domain
    of which no trial has a value (`make_axis`).
    """
    axis_by_name = {}
    for name, domain in domains.items():
        values = []
        for trial in trials:
            if name in trial.params:
                values.append(trial.params[name])
        if domain is not None or values:
            axis_by_name[name] = make_axis(domain, values)
    return axis_by_name


def make_axis(domain: Domain | None, seen: Sequence[Value]) -> Axis:
    """Return the axis of a domain, extended so that it can represent all values in ``seen``.

    It is an axis of numbers for a range or an unknown domain (None), unless one of ``seen`` is no number; otherwise it
    has choices: those of the domain, if it is a list or a constant or has at most `MAX_CHOICES` values, then those in
    ``seen``. For an unknown or a tied domain, all comes from ``seen``, and ValueError is raised if that is empty.
    """
    # an axis of numbers, unless a value is no number, such as one from before the domain was changed
    if isinstance(domain, Range) or domain is None:
        numbers = [value for value in seen if is_number(value)]
        if len(numbers) == len(seen):
            return Axis(_make_number_distribution(domain or _make_domain(numbers), numbers))
    if domain is None:
        choices = None
    else:
        choices = list_choices(domain)
    possible = {key(value): value for value in choices or ()}
    for value in seen:
        possible.setdefault(_find_known_key(value, possible), value)
    return Axis(*_make_choice_distribution(possible))


def make_frozen_trial(
    trial: StudiedTrial, known: Mapping[str, Axis], objectives: Sequence[str], *, alive: bool
) -> FrozenTrial:
    """Convert a sweep's trial to an Optuna trial, with its actual state.

    ``known`` has the axes by the name of the parameter; parameters without an axis are left out. ``objectives`` are the
    names of the metrics. ``alive`` says whether a process drives the sweep. Raises the errors of `Axis.encode`.

    An interrupted trial is WAITING, and so is a running one if the sweep is not ``alive``: Optuna starts with such
    trials if somebody continues to optimize the study. A trial that diverged, ran out of memory or failed is FAIL, as
    is a completed one without a finite value for each objective. An infeasible trial with such values is COMPLETE with
    a violated constraint. Pruned trials keep the values that they had reached, if all are finite. With one objective,
    intermediate values are its values by epoch. User attributes hold the trial's notes, the status with its reason, the
    number of epochs, and all finite metrics as last reported. Times are local; an end that is not known is the start.
    The trial's number is -1.
    """
    state = _STATES.get(trial.status, TrialState.FAIL)
    values = []
    for name in objectives:
        values.append(trial.metrics.get(name, math.nan))
    if state is TrialState.RUNNING and not alive:
        state = TrialState.WAITING
    if state is TrialState.COMPLETE and not all(map(math.isfinite, values)):
        state = TrialState.FAIL
    has_values = state in (TrialState.COMPLETE, TrialState.PRUNED) and all(
        map(math.isfinite, values)
    )
    params = {}
    for name, value in trial.params.items():
        if name in known:
            params[name] = known[name].encode(value)
    ended = None
    if state.is_finished():  # Optuna demands an end of these, even if none was logged
        ended = _convert_to_local_time(trial.started if trial.ended is None else trial.ended)
    made = create_frozen_trial(
        state,
        values if has_values else None,
        params,
        {name: known[name].distribution for name in params},
        # Optuna has no intermediate values with several objectives
        dict(trial.by_epoch) if len(objectives) == 1 else {},
        (_convert_to_local_time(trial.started), ended),
    )
    if trial.status is Status.INFEASIBLE:
        # any number above 0 says that it violates a constraint
        made.system_attrs = {VIOLATED: (1.0,)}
    made.user_attrs = {
        **trial.notes,
        "status": trial.status.value,
        "reason": trial.reason,
        "epochs": trial.epochs,
        **{
            f"metric.{name}": value for name, value in trial.metrics.items() if math.isfinite(value)
        },
    }
    return made


def make_study(
    name: str,
    objectives: Sequence[tuple[str, str]],
    domains: Mapping[str, Domain | None],
    trials: Iterable[StudiedTrial],
    *,
    alive: bool = False,
) -> Study:
    """Return an Optuna study in memory with ``trials``, in their order.

    ``objectives`` are pairs of metric and goal, ``minimize`` or ``maximize``. ``domains`` has the domains of the
    searched parameters by name, None where unknown; other parameters of a trial are left out. ``alive`` is True if a
    process drives the sweep; otherwise, trials that were running are WAITING. Trials are converted by
    `make_frozen_trial`, on the axes of `make_axes`, and numbered from 0.
    """
    told_trials = list(trials)
    known = make_axes(domains, told_trials)
    names = [metric for metric, _ in objectives]
    with silence_optuna():
        made = optuna.create_study(
            study_name=name, directions=[StudyDirection[goal.upper()] for _, goal in objectives]
        )
        made.set_metric_names(names)
        made.add_trials(
            [make_frozen_trial(trial, known, names, alive=alive) for trial in told_trials]
        )
    return made


def _make_domain(numbers: Sequence[float]) -> Range:
    """Return the uniform domain from the smallest to the largest number, of integers if all numbers are integers.

    Raises ValueError if ``numbers`` is empty.
    """
    low = min(numbers)
    high = max(numbers)
    if all(isinstance(number, int) for number in numbers):
        return IntUniform(int(low), int(high))
    return Uniform(low, high)


def _make_number_distribution(domain: Range, seen: Sequence[float]) -> BaseDistribution:
    """Return Optuna's distribution from the lowest to the highest value of ``domain`` and ``seen``.

    A domain without a bound ends at `_WIDE` standard deviations from its mean. The distribution is one of integers if
    the domain's step is an integer and all of ``seen`` are whole. Its scale is logarithmic if `is_log` says so of the
    two ends. It keeps the domain's step, except on a log scale or if one of ``seen`` is not on a step or lies outside
    of the domain.
    """
    bounds = []
    for bound in get_finite_bounds(domain, _WIDE):
        bounds.append(snap(domain, bound))
    are_integers = isinstance(get_quantum(domain), int) and all(map(_is_whole, seen))
    # values may lie outside of the domain, if that was changed after their trials
    low = min([*bounds, *seen])
    high = max([*bounds, *seen])
    log = is_log(domain, (low, high))
    step = domain.q
    # Optuna allows no step on a log scale, and no values between the steps
    if log or any(snap(domain, number) != number for number in seen):
        step = None
    if are_integers:
        return IntDistribution(int(low), int(high), log=log, step=1 if step is None else int(step))
    return FloatDistribution(float(low), float(high), log=log, step=step)


def _make_choice_distribution(
    possible: Mapping[str, Value],
) -> tuple[BaseDistribution, Mapping[str, Any]]:
    """Return Optuna's distribution for a parameter with choices, and Optuna's choices by the key of the value.

    ``possible`` has the values by their keys (`sweep.space.domains.key`). If Optuna supports all values, they are the
    choices themselves; otherwise texts stay as they are, and all others become JSON. If some choices would then be
    equal, the keys are the choices instead. Raises ValueError if ``possible`` is empty.
    """
    values = list(possible.values())
    if all(value is None or isinstance(value, str | bool) or is_number(value) for value in values):
        labels: list[Any] = values
    else:
        labels = [_label_choice(value) for value in values]
    # 1, 1.0 and True are equal, and so are "[1]" and the JSON of [1]
    if len(set(labels)) < len(labels):
        labels = list(possible)
    return CategoricalDistribution(labels), dict(zip(possible, labels, strict=True))


def _label_choice(value: Value) -> str:
    """Return the text that stands for a value among Optuna's choices: a string itself, any other value as JSON."""
    if isinstance(value, str):
        return value
    return key(value)


def _find_known_key(value: Value, possible: Mapping[str, Any]) -> str:
    """Return the key under which ``possible`` has a value, or the value's own key if it has none.

    ``possible`` has its entries by the key of a value. A whole number is found even if it is an int here and a float
    there, or the reverse; its own key comes first.
    """
    candidates = [key(value)]
    if is_number(value) and _is_whole(value):
        candidates += [key(int(value)), key(float(value))]
    for candidate in candidates:
        if candidate in possible:
            return candidate
    return candidates[0]


def _is_whole(number: float) -> bool:
    return isinstance(number, int) or number.is_integer()


def _convert_to_local_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds)  # without a time zone, like Optuna's own


FEWEST = 10  # minimum number of trials
POOL = 2000  # maximum number of trials, drawn at random
MOST = 1000  # maximum size of a resample; so ten thousand trials take less than a second
RESAMPLES = 24
BEST = 0.1  # share of the trials that count as good, at least five of them


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of one parameter, as a share of the importance of all."""

    param: str
    share: float  # mean of the resamples
    low: float  # 90 % of the resamples lie between these
    high: float


def compute_importances(
    trials: Sequence[tuple[Params, float]],
    names: Sequence[str],
    domains: Mapping[str, Domain] = MappingProxyType({}),
) -> list[Importance]:
    """Return the importance of the parameters ``names`` for a loss, largest first; [] for fewer than 10 trials.

    Parameters that none of the trials has are left out: nothing is known about them. If none is left, the result is
    [] as well.

    ``trials`` are pairs of parameters and a finite loss; at most `POOL` of them, chosen at random, are used.
    ``domains`` are those that are known, by name; they say which values are on a log scale. Shares are of the sum of
    the importances of all ``names``. All are 0 if no parameter has an effect.

    The method is PED-ANOVA (Watanabe, Bansal, Hutter, IJCAI 2023) as implemented in Optuna, on resamples of the trials
    with replacement (bootstrap). It is used even for parameters that not every trial has. The same trials give the same
    numbers.
    """
    present = set[str]().union(*(params for params, _ in trials))
    names = [name for name in names if name in present]
    if len(trials) < FEWEST or not names:
        return []
    distributions = {}
    for name in names:
        values = []
        for params, _ in trials:
            if name in params:
                values.append(params[name])
        distributions[name] = _make_distribution(values, domains.get(name))
    draws = random.Random(0)
    pool = draws.sample(list(trials), min(len(trials), POOL))
    optuna_trials = []
    for number, (params, loss) in enumerate(pool):
        optuna_trials.append(_make_complete_trial(number, params, loss, distributions))
    storage = _create_storage()
    shares: dict[str, list[float]] = {}  # of each resample, by parameter
    for name in names:
        shares[name] = []
    for _ in range(RESAMPLES):
        resample = draws.choices(optuna_trials, k=min(len(optuna_trials), MOST))
        for name, share in _compute_importance_shares(storage, resample, names).items():
            shares[name].append(share)
    edge = RESAMPLES // 20  # a twentieth of the resamples lies beyond each end of the interval
    found = []
    for name, several in shares.items():
        ordered = sorted(several)
        found.append(Importance(name, fmean(several), ordered[edge], ordered[-1 - edge]))
    return sorted(found, key=lambda one: -one.share)


class _Resample(optuna.Study):
    """A study that returns the given trials, all of them and without copying."""

    def __init__(self, name: str, storage: InMemoryStorage, trials: list[FrozenTrial]) -> None:
        super().__init__(name, storage)
        self._given = trials

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        return self._given


def _compute_importance_shares(
    storage: InMemoryStorage, trials: list[FrozenTrial], names: Sequence[str]
) -> Mapping[str, float]:
    """Return by name the share of each of the parameters ``names`` in the sum of their importances for the loss.

    It is 0 for a parameter that none of ``trials`` has, and for all if no parameter has an effect. ``trials`` must not
    be empty. ``storage`` has the study of `_create_storage`.
    """
    # the share of good trials: at least five are good, but not more than half
    quantile = min(max(BEST, 5 / len(trials)), 0.5)
    present = set[str]().union(*(trial.params for trial in trials))
    present_names = [name for name in names if name in present]
    with silence_optuna():  # also about resamples in which a parameter has only one value
        evaluator = PedAnovaImportanceEvaluator(target_quantile=quantile)
        study = _Resample("importance", storage, trials)
        importances = get_param_importances(
            study, evaluator=evaluator, params=present_names, normalize=False
        )
    total = math.fsum(importances.values())
    if total > 0:
        return {name: float(importances.get(name, 0.0)) / total for name in names}
    return dict.fromkeys(names, 0.0)


def _make_distribution(values: Sequence[Value], domain: Domain | None) -> BaseDistribution:
    """Return a distribution of floats from the lowest to the highest of ``values``, if all are numbers.

    Otherwise, its choices are the texts (`repr`) of the values. ``domain`` says whether the scale is logarithmic
    (`is_log`). ``values`` must not be empty.
    """
    numbers = []
    for value in values:
        if is_number(value):
            numbers.append(float(value))
    if len(numbers) < len(values):
        # texts stand for the values, which may be of several types and could not be sorted
        return CategoricalDistribution(sorted({repr(value) for value in values}))
    return FloatDistribution(min(numbers), max(numbers), log=is_log(domain, numbers))


def _make_complete_trial(
    number: int, params: Params, loss: float, distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """Return a completed Optuna trial with ``loss`` as its value and ``number`` as its number and id.

    It has those parameters that have a distribution in ``distributions`` (`_make_distribution`), by name.
    """
    own = {}  # distributions of the parameters that the trial has
    for name, dist in distributions.items():
        if name in params:
            own[name] = dist
    values: dict[str, float | str] = {}
    for name, dist in own.items():
        if isinstance(dist, FloatDistribution):
            # by way of a text, because the type of a parameter also allows lists; the number stays the same
            values[name] = float(str(params[name]))
        else:
            values[name] = repr(params[name])  # as in `_make_distribution`
    made = create_frozen_trial(TrialState.COMPLETE, [loss], values, own, {}, (None, None))
    made.number = made._trial_id = number  # the evaluator identifies trials by it
    return made


def _create_storage() -> InMemoryStorage:
    """Return a storage in memory with one study, named ``importance``, that has no trials."""
    storage = InMemoryStorage()
    with silence_optuna():
        optuna.create_study(storage=storage, study_name="importance", direction="minimize")
    return storage
