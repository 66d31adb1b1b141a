"""How much each parameter matters for the score, and how sure that is: PED-ANOVA over resampled trials."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from sweep.events import Params, Value

FEWEST = 10  # trials, below which nothing is said
POOL = 2000  # trials looked at of more
MOST = 1000  # trials of a resample: what keeps ten thousand below a second
RESAMPLES = 24
BEST = 0.1  # what "good" means: among this share of the trials, and not fewer than five of them


@dataclass(frozen=True, slots=True)
class Importance:
    """The share of one parameter in what tells good trials from the others; all shares together are 1."""

    param: str
    share: float  # mean of the resamples
    low: float  # 90 % of the resamples lie between these
    high: float


def importance(trials: Sequence[tuple[Params, float]], names: Sequence[str]) -> list[Importance]:
    """Return the importance of the parameters ``names`` for a loss, the largest first; none of fewer than 10 trials.

    PED-ANOVA (Watanabe, Bansal, Hutter, IJCAI 2023) as Optuna has it, also for parameters that not every trial has,
    on resamples with replacement (bootstrap) of the ``trials``: parameters and loss, finite. The same numbers for the
    same trials.
    """
    if len(trials) < FEWEST or not names:
        return []
    known = {name: _distribution([params[name] for params, _ in trials if name in params]) for name in names}
    draws = random.Random(0)
    pool = draws.sample(list(trials), min(len(trials), POOL))
    frozen = [_frozen(number, params, loss, known) for number, (params, loss) in enumerate(pool)]
    storage = _storage()
    shares: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(RESAMPLES):
        for name, share in _shares(storage, draws.choices(frozen, k=min(len(frozen), MOST)), names).items():
            shares[name].append(share)
    edge = RESAMPLES // 20
    found = []
    for name, several in shares.items():
        ordered = sorted(several)
        found.append(Importance(name, fmean(several), ordered[edge], ordered[-1 - edge]))
    return sorted(found, key=lambda one: -one.share)


class _Resample(optuna.Study):
    """A study of given trials, which it need not copy one by one."""

    def __init__(self, name: str, storage: InMemoryStorage, trials: list[FrozenTrial]) -> None:
        super().__init__(name, storage)
        self._given = trials

    def get_trials(self, deepcopy: bool = True, states: Container[TrialState] | None = None) -> list[FrozenTrial]:
        return self._given


def _shares(storage: InMemoryStorage, trials: list[FrozenTrial], names: Sequence[str]) -> Mapping[str, float]:
    quantile = min(max(BEST, 5 / len(trials)), 0.5)
    known = [name for name in names if any(name in trial.params for trial in trials)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental parts, and resamples in which a parameter has one value
        evaluator = PedAnovaImportanceEvaluator(target_quantile=quantile)
        study = _Resample("importance", storage, trials)
        found = get_param_importances(study, evaluator=evaluator, params=known, normalize=False)
    total = math.fsum(found.values())
    return {name: float(found.get(name, 0.0)) / total if total > 0 else 0.0 for name in names}


def _distribution(values: Sequence[Value]) -> BaseDistribution:
    numbers = _numbers(values)
    if numbers is None:
        return CategoricalDistribution(sorted({repr(value) for value in values}))
    low, high = min(numbers), max(numbers)
    return FloatDistribution(low, high, log=low > 0 and high / low >= 10)


def _numbers(values: Sequence[Value]) -> list[float] | None:
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    return numbers if len(numbers) == len(values) else None


def _frozen(number: int, params: Params, loss: float, known: Mapping[str, BaseDistribution]) -> FrozenTrial:
    own = {name: dist for name, dist in known.items() if name in params}
    values = {
        name: float(str(params[name])) if isinstance(dist, FloatDistribution) else repr(params[name])
        for name, dist in own.items()
    }
    return FrozenTrial(
        number=number,
        trial_id=number,  # the evaluator tells trials apart by it
        state=TrialState.COMPLETE,
        value=loss,
        datetime_start=None,
        datetime_complete=None,
        params=values,
        distributions=own,
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )


def _storage() -> InMemoryStorage:
    """With one study, that has no trials."""
    storage = InMemoryStorage()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # else it prints a line
    try:
        optuna.create_study(storage=storage, study_name="importance", direction="minimize")
    finally:
        optuna.logging.set_verbosity(before)
    return storage
