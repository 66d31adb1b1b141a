"""Optuna's samplers and distributions as we use them: every setting that matters is given, none left to a default.

What Optuna cannot draw (other distributions, weights, quanta on a log scale) is a number from 0 to 1 for `from_unit`,
so that nothing is changed or dropped.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from optuna import samplers
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, GPSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from sweep.events import Value
from sweep.space.domains import Categorical, Domain, IntUniform, LogUniform, Uniform, choices, key, snap
from sweep.space.draws import from_unit, to_unit
from sweep.space.space import Parameter, Space

UNIT = FloatDistribution(0.0, 1.0)


def distribution(domain: Domain) -> BaseDistribution:
    """Optuna's own distribution, or `UNIT` where it has none like it."""
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
            return UNIT


def encode(domain: Domain, value: Value) -> Any:
    """Return a value as Optuna knows it."""
    known = distribution(domain)
    if isinstance(known, CategoricalDistribution):
        return key(value)
    return to_unit(domain, value) if known == UNIT else value


def draw(trial: Trial, parameter: Parameter) -> Value:
    """Return the value that a sampler of Optuna chooses for a parameter of a trial."""
    name, domain = parameter.name, parameter.domain
    match distribution(domain):
        case CategoricalDistribution(choices=labels):
            label = trial.suggest_categorical(name, labels)
            return (choices(domain) or ())[labels.index(label)]
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case FloatDistribution(low=low, high=high, step=step, log=log) as known:
            number = trial.suggest_float(name, low, high, step=step, log=log)
            if known == UNIT or not isinstance(domain, Uniform | LogUniform):
                return from_unit(domain, number)
            return snap(domain, number)
    raise TypeError(f"{domain} has no distribution")


Method: TypeAlias = Literal["tpe", "gp", "nsga2"]


def build_sampler(method: Method, space: Space, seed: int, *, objectives: int) -> BaseSampler:
    """Return a sampler for one trial; its random state and all else that it keeps begin with the seed."""
    match method:
        case "tpe":
            conditional = any(parameter.when for parameter in space.parameters)
            return TPESampler(space, seed, multivariate=objectives == 1, group=objectives == 1 and conditional)
        case "gp":
            return GPSampler(
                seed=seed, n_startup_trials=10, deterministic_objective=False, warn_independent_sampling=False
            )
        case "nsga2":
            return NSGAIISampler(space, seed)


class TPESampler(samplers.TPESampler):
    """Knows what all trials have in common, which Optuna finds out anew by comparing all of them."""

    def __init__(self, space: Space, seed: int, *, multivariate: bool, group: bool) -> None:
        super().__init__(
            seed=seed,
            n_startup_trials=10,
            n_ei_candidates=24,
            multivariate=multivariate,
            group=group,
            constant_liar=True,  # a running trial counts as bad: workers that run at once keep apart
        )
        self._common = common(space) if multivariate and not group else None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return super().infer_relative_search_space(study, trial) if self._common is None else self._common


class NSGAIISampler(samplers.NSGAIISampler):
    """As above; Optuna names what it notes about generations by the name of the class."""

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(seed=seed, population_size=50, mutation_prob=None, crossover_prob=0.9, swapping_prob=0.5)
        self._common = common(space)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._common


def common(space: Space) -> dict[str, BaseDistribution]:
    """Return what every trial has, by name, in the order in which Optuna draws it."""
    known = {p.name: distribution(p.domain) for p in space.parameters if p.drawn and not p.when}
    return {name: distribution for name, distribution in sorted(known.items()) if not distribution.single()}
