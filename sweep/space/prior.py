"""What an author believes of a parameter: the value that is probably best, and how sure that is.

A belief is a density over a parameter's own distribution: around a number a normal one, cut off at the ends, on the
scale from 0 to 1 on which the parameter is drawn; of choices, one that is likelier than each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

from sweep.events import Value
from sweep.space.domains import Categorical, Domain, key
from sweep.space.draws import from_unit, to_unit

Confidence: TypeAlias = Literal["low", "medium", "high"]
CONFIDENCES: tuple[Confidence, ...] = ("low", "medium", "high")

WIDTHS: Mapping[Confidence, float] = {"low": 0.5, "medium": 0.25, "high": 0.125}
"""Standard deviations, of a scale from 0 to 1."""
ODDS: Mapping[Confidence, float] = {"low": 2.0, "medium": 4.0, "high": 8.0}
"""Of a choice, against each other one."""


@dataclass(frozen=True, slots=True)
class Belief:
    """The value that an author takes for the best."""

    value: Value
    confidence: Confidence = "medium"

    def draw(self, domain: Domain, u: float) -> Value:
        """Return the value at ``u`` in [0, 1) of the believed distribution."""
        if isinstance(domain, Categorical):
            return from_unit(self._weighted(domain), u)
        around, low, high = self._normal(domain)
        return from_unit(domain, min(max(around.inv_cdf(low + u * (high - low)), 0.0), 1 - 2.0**-53))

    def log_density(self, domain: Domain, value: Value) -> float:
        """Return how likely a value is believed to be, against the domain's own distribution: 0 where as likely."""
        if isinstance(domain, Categorical):
            believed, own = self._weighted(domain).probabilities or (), _probabilities(domain)
            place = [key(one) for one in domain.values].index(key(value))
            return math.log(believed[place] / own[place])
        around, low, high = self._normal(domain)
        return math.log(around.pdf(to_unit(domain, value)) / (high - low))

    def _normal(self, domain: Domain) -> tuple[NormalDist, float, float]:
        around = NormalDist(to_unit(domain, self.value), WIDTHS[self.confidence])
        return around, max(around.cdf(0.0), 1e-15), min(around.cdf(1.0), 1 - 1e-15)

    def _weighted(self, domain: Categorical) -> Categorical:
        odds = [ODDS[self.confidence] if key(value) == key(self.value) else 1.0 for value in domain.values]
        weights = [weight * odd for weight, odd in zip(_probabilities(domain), odds, strict=True)]
        return Categorical(domain.values, tuple(weight / sum(weights) for weight in weights))


def _probabilities(domain: Categorical) -> tuple[float, ...]:
    return domain.probabilities or (1 / len(domain.values),) * len(domain.values)
