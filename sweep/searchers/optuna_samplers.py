"""Optuna's samplers as we use them: every setting that matters is written out, none hangs on a default of a release."""

from __future__ import annotations

from typing import Literal, TypeAlias

from optuna import samplers
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from sweep.searchers import optuna_domains
from sweep.space.space import Space

Method: TypeAlias = Literal["tpe", "gp", "nsga2"]


def build(method: Method, space: Space, seed: int, *, objectives: int) -> BaseSampler:
    """A sampler for one trial; its random state and all else that it keeps begin with the seed."""
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
    """What every trial has, by name, in the order in which Optuna draws it."""
    known = {p.name: optuna_domains.distribution(p.domain) for p in space.parameters if p.drawn and not p.when}
    return {name: distribution for name, distribution in sorted(known.items()) if not distribution.single()}
