"""How Optuna knows our domains: by its own distribution, or else as a uniform number.

What Optuna cannot draw (other distributions, weights, quanta on a log scale) is a number from 0 to 1 for
`from_unit`, so that nothing is changed or dropped.
"""

from __future__ import annotations

from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from sweep.events import Value
from sweep.space.domains import Categorical, Domain, IntUniform, LogUniform, Uniform, choices, key, snap
from sweep.space.draws import from_unit, to_unit
from sweep.space.space import Parameter

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
    """A value as Optuna knows it."""
    known = distribution(domain)
    if isinstance(known, CategoricalDistribution):
        return key(value)
    return to_unit(domain, value) if known == UNIT else value


def draw(trial: Trial, parameter: Parameter) -> Value:
    """The value that a sampler of Optuna chooses for a parameter of a trial."""
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
