"""Mapping of numbers in [0, 1) to values of a domain, and back.

A searcher that cannot draw from a distribution itself draws a uniform number and maps it here, so that no distribution
or quantum is ever changed or ignored.

An author may state a belief: the value that is probably best, and how certain that is. It changes what is drawn. The
belief is a density relative to the parameter's own distribution. For a number it is a normal density around the value,
on the scale from 0 to 1 on which the parameter is drawn, cut off at the ends; for a choice, the value is more likely
than each other one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import Literal, TypeAlias

from sweep.events import Value
from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Range,
    Tied,
    Uniform,
    find_multiples,
    key,
    list_choices,
    snap,
)

_NORMAL = NormalDist()
_TINY = 2.0**-53  # keeps inverse CDFs finite: 8.2 standard deviations of a normal


def from_unit(domain: Domain, u: float) -> Value:
    """Map a number ``u`` in [0, 1) to a value of the domain, by the inverse of its cumulative distribution.

    The value is always within the domain's bounds and on its quantum; a constant domain has the same value for every
    number. Choices come in their order, each with an interval as long as its probability, and none without one. Raises
    TypeError for a tied domain.
    """
    match domain:
        case Constant(value):
            return value
        case Categorical(values):
            weights = _get_probabilities(domain)
            # choices without probability are left out, or rounding could still draw one
            possible = []
            for i, weight in enumerate(weights):
                if weight > 0:
                    possible.append(i)
            edges = list(accumulate(weights[i] for i in possible))
            # the last edge may be below ``u``, since the sum of the probabilities is rounded
            interval = min(bisect_right(edges, u), len(possible) - 1)
            return values[possible[interval]]
        case IntUniform(low, high, q, log=False):
            # the values are the step times each integer from `first` to `last`
            first, last = find_multiples(low, high, q or 1)
            place = min(int(u * (last - first + 1)), last - first)
            return int(first + place) * (q or 1)
        case Tied():
            raise TypeError("a tied value is computed, not drawn")
        case _:
            return snap(domain, _compute_quantile(domain, u))


def to_unit(domain: Domain, value: Value) -> float:
    """Map a value of a domain to a number in [0, 1) that `from_unit` maps back to it, but for rounding.

    The value must be in the domain (`contains`); that is checked only as far as follows. A value far in the tail of a
    normal distribution gets a number that `from_unit` maps to a less extreme value. A value that stands for an interval
    of numbers, such as a choice, gets one within it. Raises TypeError if the domain is constant or tied, or if a
    numeric domain gets a value that is no number, and ValueError if the value is not among the domain's choices.
    """
    match domain:
        case Categorical(values):
            weights = _get_probabilities(domain)
            index = [key(v) for v in values].index(key(value))
            # the middle of the interval that `from_unit` maps to the value
            return min(sum(weights[:index]) + weights[index] / 2, 1 - _TINY)
        case IntUniform(low, high, q, log=False) if isinstance(value, int | float):
            first, last = find_multiples(low, high, q or 1)
            return (value // (q or 1) - first + 0.5) / (last - first + 1)
        case IntUniform() | Uniform() | LogUniform() | Normal() | LogNormal() | Beta():
            if isinstance(value, int | float):
                return min(max(_compute_cumulative(domain, value), 0.0), 1 - _TINY)
    raise TypeError(f"{value!r} cannot be drawn from {domain}")


def space_out_values(domain: Range, count: int) -> tuple[Value, ...]:
    """Return ``count`` different values, evenly spaced on the scale of the domain, in ascending order.

    For uniform and log-uniform domains, they include both bounds; if ``count`` is 1, the only value is the middle. For
    normal, log-normal and beta distributions, they are the medians of ``count`` intervals of equal probability. All are
    then moved to the nearest value on the domain's quantum or, where several would become equal, to its neighbors.
    There are fewer only if the domain has no more values, or if those that become equal are of an unbounded domain or
    of one with more than `MAX_CHOICES` values.
    """
    possible = list_choices(
        domain
    )  # all values, ascending; None for a continuous or unbounded domain
    if possible is not None and len(possible) <= count:
        return possible
    middles = [(i + 0.5) / count for i in range(count)]
    if count > 1:
        ends = [i / (count - 1) for i in range(count)]  # from 0 to 1, both included
    else:
        ends = middles
    match domain:
        case Normal() | LogNormal() | Beta():
            points = [_compute_quantile(domain, u) for u in middles]
        case IntUniform(low, high, log=True) | LogUniform(low, high):
            points = [_interpolate_on_log_scale(low, high, t) for t in ends]
        case IntUniform(low, high) | Uniform(low, high):
            points = [low + t * (high - low) for t in ends]
    values = [snap(domain, x) for x in _round_points(points)]
    if possible is None:
        return tuple(dict.fromkeys(values))
    # each value has a place in `possible`; where several would have the same, the later ones move to the next free ones
    place_of = {value: place for place, value in enumerate(possible)}
    places: list[int] = []
    for value in values:
        first = places[-1] + 1 if places else 0
        last = len(possible) - (count - len(places))  # the following ones need a place each
        places.append(min(max(place_of[value], first), last))
    return tuple(possible[place] for place in places)


def _round_points(points: list[float]) -> list[float]:
    """Return ascending numbers rounded to 12 digits, so that 0.1 + 0.2 becomes 0.3.

    All are returned unchanged if that would move one by more than a millionth of its distance from a neighbor, as in a
    narrow range of large numbers.
    """
    rounded = [float(f"{x:.12g}") for x in points]
    for (x, near_x), (y, near_y) in pairwise(zip(points, rounded, strict=True)):
        if max(abs(near_x - x), abs(near_y - y)) > 1e-6 * (y - x):
            return points
    return rounded


def _interpolate_on_log_scale(low: float, high: float, t: float) -> float:
    return math.exp(math.log(low) + t * (math.log(high) - math.log(low)))


def _compute_quantile(domain: Range, u: float) -> float:
    """Return the number below which a share ``u`` of the domain's distribution lies, without regard to its quantum.

    Integers that are equally likely must have been handled before.
    """
    # at 0 and 1, a normal distribution has no finite quantile
    inner = min(max(u, _TINY), 1 - _TINY)
    match domain:
        case Uniform(low, high):
            return low + u * (high - low)
        case LogUniform(low, high):
            return _interpolate_on_log_scale(low, high, u)
        case IntUniform(low, high):  # log scale; each integer owns half a unit on both sides
            return _interpolate_on_log_scale(low - 0.5, high + 0.5, u)
        case Normal(mu, sigma):
            return mu + sigma * _NORMAL.inv_cdf(inner)
        case LogNormal(mu, sigma):
            return math.exp(mu + sigma * _NORMAL.inv_cdf(inner))
        case Beta(a, b):
            # its import takes half a second, and only this distribution needs it
            from scipy import special

            return float(special.betaincinv(a, b, inner))


def _compute_cumulative(domain: Range, x: float) -> float:
    """Return the share of the domain's distribution that lies below ``x``, without regard to its quantum.

    It is 0 if a uniform or log-uniform domain has a single value, and may be below 0 or above 1 beyond the bounds of
    the domain. Integers that are equally likely must have been handled before.
    """
    match domain:
        case Uniform(low, high):
            return (x - low) / (high - low) if high > low else 0.0
        case LogUniform(low, high):
            span = math.log(high) - math.log(low)
            return (math.log(x) - math.log(low)) / span if high > low else 0.0
        # log scale, with half a unit on both sides, as in `_compute_quantile`
        case IntUniform(low, high):
            return math.log(x / (low - 0.5)) / math.log((high + 0.5) / (low - 0.5))
        case Normal(mu, sigma):
            return _NORMAL.cdf((x - mu) / sigma)
        case LogNormal(mu, sigma):
            return _NORMAL.cdf((math.log(x) - mu) / sigma) if x > 0 else 0.0
        case Beta(a, b):
            from scipy import special

            return float(special.betainc(a, b, x))


Confidence: TypeAlias = Literal["low", "medium", "high"]
CONFIDENCES: tuple[Confidence, ...] = ("low", "medium", "high")

WIDTHS: Mapping[Confidence, float] = {"low": 0.5, "medium": 0.25, "high": 0.125}
"""Standard deviations on a scale from 0 to 1."""
ODDS: Mapping[Confidence, float] = {"low": 2.0, "medium": 4.0, "high": 8.0}
"""Odds of a choice against each other choice."""


@dataclass(frozen=True, slots=True)
class Belief:
    """The value that an author believes to be best, with the confidence in it.

    It defines a distribution around this value, which replaces the parameter's own distribution.
    """

    value: Value
    confidence: Confidence = "medium"

    def draw(self, domain: Domain, u: float) -> Value:
        """Map a number ``u`` in [0, 1) to a value of ``domain``, by the inverse of the believed distribution.

        A believed value that is not among the choices of a domain has no effect there. Raises the errors of `to_unit`
        for the believed value of any other domain.
        """
        if isinstance(domain, Categorical):
            return from_unit(self._multiply_odds(domain), u)
        around, low, high = self._make_normal(domain)
        quantile = around.inv_cdf(low + u * (high - low))
        return from_unit(domain, min(max(quantile, 0.0), 1 - _TINY))

    def log_density(self, domain: Domain, value: Value) -> float:
        """Return log(b / d), where b is the believed density of a value, and d its density in the domain.

        The logarithm is the natural one. For a domain of choices, that is the ratio of probabilities. Raises the errors
        of `to_unit` for ``value`` and for the believed value, except for a believed value that is not among the
        choices, and ZeroDivisionError for a choice with probability 0.
        """
        if isinstance(domain, Categorical):
            believed = self._multiply_odds(domain).probabilities or ()
            own = _get_probabilities(domain)
            place = [key(one) for one in domain.values].index(key(value))
            return math.log(believed[place] / own[place])
        around, low, high = self._make_normal(domain)
        return math.log(around.pdf(to_unit(domain, value)) / (high - low))

    def _make_normal(self, domain: Domain) -> tuple[NormalDist, float, float]:
        """Return the normal distribution around the believed value, on the scale from 0 to 1.

        The second and third result are its cumulative probabilities at the ends 0 and 1. Raises the errors of
        `to_unit`.
        """
        around = NormalDist(to_unit(domain, self.value), WIDTHS[self.confidence])
        return around, max(around.cdf(0.0), 1e-15), min(around.cdf(1.0), 1 - 1e-15)

    def _multiply_odds(self, domain: Categorical) -> Categorical:
        """Return the domain with the probability of the believed value multiplied by the odds of the confidence.

        All probabilities are then scaled so that they sum to one.
        """
        weights = []
        for value, probability in zip(domain.values, _get_probabilities(domain), strict=True):
            if key(value) == key(self.value):
                odds = ODDS[self.confidence]
            else:
                odds = 1.0
            weights.append(probability * odds)
        total = sum(weights)
        return Categorical(domain.values, tuple(weight / total for weight in weights))


def _get_probabilities(domain: Categorical) -> tuple[float, ...]:
    return domain.probabilities or (1 / len(domain.values),) * len(domain.values)
