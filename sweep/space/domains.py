"""The sets of values that a parameter can take.

`Domain` is a closed union of plain data, and every function on it is a `match`. A quantum ``q`` means
``round(x / q) * q`` as in W&B sweeps, but kept within the bounds, computed exactly in decimals, and giving integers if
``q`` is one. Drawing values is the task of `sweep.space.draws`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import median_high
from typing import Protocol, TypeAlias, TypeVar

from sweep.events import Params, Value, is_number
from sweep.space.expressions import Expression

MAX_CHOICES = 10_000
"""Maximum number of values of a domain that is not treated as continuous."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A single value, never searched."""

    value: Value


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of several values of any kind, equally likely or with ``probabilities`` that sum to one."""

    values: tuple[Value, ...]
    probabilities: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _require("a categorical domain has values", bool(self.values))
        if self.probabilities is not None:
            _require("each value has a probability", len(self.probabilities) == len(self.values))
            _require("probabilities are not negative", min(self.probabilities) >= 0)
            _require(
                "probabilities sum to one", math.isclose(sum(self.probabilities), 1, abs_tol=1e-6)
            )


@dataclass(frozen=True, slots=True)
class IntUniform:
    """Integers from ``low`` to ``high``, both included, or the multiples of ``q`` among them.

    They are equally likely; with ``log``, their logarithms are spread uniformly.
    """

    low: int
    high: int
    q: int | None = None
    _: KW_ONLY
    log: bool = False

    def __post_init__(self) -> None:
        _require_range(self.low, self.high, self.q)
        _require("a log scale starts at 1 or above", not self.log or self.low >= 1)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Real numbers between ``low`` and ``high``."""

    low: float
    high: float
    q: float | None = None

    def __post_init__(self) -> None:
        _require_range(self.low, self.high, self.q)


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Numbers whose logarithm is uniform, between the real bounds ``low`` and ``high``.

    W&B's ``inv_log_uniform`` (log(1/X) uniform) is the same distribution, because log(1/X) = -log X. Its exponents min
    and max correspond to low = exp(-max) and high = exp(-min) here.
    """

    low: float
    high: float
    q: float | None = None

    def __post_init__(self) -> None:
        _require_range(self.low, self.high, self.q)
        _require("a log scale starts above 0", self.low > 0)


@dataclass(frozen=True, slots=True)
class Normal:
    """Normally distributed numbers, unbounded."""

    mu: float = 0.0
    sigma: float = 1.0
    q: float | None = None

    def __post_init__(self) -> None:
        _require(
            "mu is finite and sigma positive", math.isfinite(self.mu) and 0 < self.sigma < math.inf
        )
        _require_quantum(self.q)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Positive numbers whose logarithm is normal with ``mu`` and ``sigma``."""

    mu: float = 0.0
    sigma: float = 1.0
    q: float | None = None

    def __post_init__(self) -> None:
        _require("sigma is positive", self.sigma > 0)
        _require("exp(mu + 9 sigma) is a finite number", abs(self.mu) + 9 * self.sigma < 700)
        _require_quantum(self.q)


@dataclass(frozen=True, slots=True)
class Beta:
    """Numbers between 0 and 1 with the beta distribution."""

    a: float
    b: float
    q: float | None = None

    def __post_init__(self) -> None:
        _require("a and b are positive", 0 < self.a < math.inf and 0 < self.b < math.inf)
        _require_range(0, 1, self.q)


@dataclass(frozen=True, slots=True)
class Tied:
    """A value that an expression computes from other parameters; never drawn."""

    expression: Expression


Range: TypeAlias = IntUniform | Uniform | LogUniform | Normal | LogNormal | Beta
"""The numeric domains."""

Domain: TypeAlias = Constant | Categorical | Range | Tied


def key(value: Value | Params) -> str:
    """Return a canonical text of a value or of a trial's parameters, which is JSON.

    Values have equal texts if they have the same content and the same types: ``1``, ``1.0`` and ``true`` differ. The
    order of a mapping does not matter. Raises TypeError for a value that JSON does not have.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def configuration_key(params: Params) -> str:
    """Return a canonical text of a configuration, the same whether it was read from a log or from a table.

    1 and 1.0 are equal here, except inside of lists and mappings, because a table stores integers as floats if their
    column also has floats. Parameters that are None are left out, because a table has None where a log has no entry.
    The order of the parameters does not matter. The text is no JSON.
    """
    known = sorted((name, value) for name, value in params.items() if value is not None)
    return repr([(name, _normalize_value(value)) for name, value in known])


class _HasParams(Protocol):
    @property
    def params(self) -> Params: ...


HasParams = TypeVar("HasParams", bound=_HasParams)


def group_by_configuration(trials: Iterable[HasParams]) -> dict[str, list[HasParams]]:
    """Return lists of trials with equal parameters, by their `configuration_key`.

    The lists are in the order of the first trial of each, and the trials of a list in their own order.
    """
    groups: dict[str, list[HasParams]] = {}
    for trial in trials:
        groups.setdefault(configuration_key(trial.params), []).append(trial)
    return groups


def _normalize_value(value: Value) -> object:
    if type(value) is float and value.is_integer():
        return int(value)
    if isinstance(value, list | dict):
        return (key(value),)
    return value


def contains(domain: Domain, value: Value) -> bool:
    """Return whether a value is in a domain; True for every value of a tied domain.

    A value of a numeric domain is a finite number within its bounds and on its quantum. A float is in no `IntUniform`
    domain, even if it is whole. A constant or a choice must equal the value and have the same type, and a choice a
    probability above 0.
    """
    match domain:
        case Constant() | Categorical():
            return key(value) in map(key, list_choices(domain) or ())
        case Tied():
            return True
    if not is_number(value):
        return False
    low, high = get_domain_bounds(domain)
    if isinstance(domain, IntUniform) and not isinstance(value, int):
        return False
    return low <= value <= high and snap(domain, value) == value


def list_choices(domain: Domain) -> tuple[Value, ...] | None:
    """Return all values of a domain, without duplicates and without choices of probability 0.

    Choices are in their own order, numbers ascending; a constant is the only value of its domain. Returns None if the
    domain is tied, continuous or unbounded, or has more than `MAX_CHOICES` values and is no list.
    """
    match domain:
        case Constant(value):
            return (value,)
        case Categorical(values, probabilities):
            weights = probabilities or (1.0,) * len(values)
            possible = {}  # by key, so that each stands there once
            for one, weight in zip(values, weights, strict=True):
                if weight > 0:
                    possible[key(one)] = one
            return tuple(possible.values())
        case Tied():
            return None
    q = get_quantum(domain)
    low, high = get_domain_bounds(domain)
    if q is None or math.isinf(low) or math.isinf(high):
        return None
    first, last = find_multiples(low, high, q)  # of `q`, as whole factors
    if last - first >= MAX_CHOICES:
        return None
    return tuple(_multiple(k, q) for k in range(int(first), int(last) + 1))


def snap(domain: Range, x: float) -> int | float:
    """Return the value of a numeric domain that is nearest to the finite number ``x``.

    It lies within the domain's bounds and on its quantum; halfway between two multiples of the quantum, it is the one
    with the even factor. With a quantum, it is an int if the quantum is an int, and otherwise a float. Without a
    quantum, a number within the bounds is returned as it is, and one beyond a bound becomes that bound.
    """
    q = get_quantum(domain)
    low, high = get_domain_bounds(domain)
    if q is None:
        return min(max(x, low), high)
    first, last = find_multiples(low, high, q)  # of `q`, as whole factors
    if isinstance(x, int) and isinstance(q, int):
        # exact, while a quotient of integers is a float, which is not exact beyond 2^53
        nearest = round(Fraction(x, q))
    else:
        nearest = round(x / q)
    return _multiple(min(max(nearest, first), last), q)


def get_domain_bounds(domain: Range) -> tuple[float, float]:
    """Return the lower and the upper bound of a numeric domain; infinite where it has none.

    A quantum is not considered, so that a bound need not be a value of the domain.
    """
    match domain:
        case Normal():
            return -math.inf, math.inf
        case LogNormal():
            return 0.0, math.inf
        case Beta():
            return 0.0, 1.0
        case IntUniform(low, high) | Uniform(low, high) | LogUniform(low, high):
            return low, high


def get_finite_bounds(domain: Range, sigmas: float) -> tuple[float, float]:
    """Return the bounds of a numeric domain, or for unbounded ones the mean -+ ``sigmas`` standard deviations.

    For a log-normal domain, these are computed for the logarithm, and their exponentials are returned. A quantum is not
    considered.
    """
    match domain:
        case Normal(mu, sigma):
            return mu - sigmas * sigma, mu + sigmas * sigma
        case LogNormal(mu, sigma):
            return math.exp(mu - sigmas * sigma), math.exp(mu + sigmas * sigma)
    return get_domain_bounds(domain)


def get_quantum(domain: Range) -> float | None:
    """Return the step between neighboring values of a numeric domain; None if it is continuous.

    It is 1 for integers without another step.
    """
    if isinstance(domain, IntUniform) and domain.q is None:
        return 1
    return domain.q


def is_log(domain: Domain | None, numbers: Collection[float]) -> bool:
    """Return whether values of a parameter are best shown on a logarithmic scale.

    ``domain`` is the parameter's domain, or None if unknown; ``numbers`` are the values. The result is False if a
    number is 0 or negative, and otherwise True for a logarithmic domain, False for another numeric one. For a list, a
    constant, a tied or an unknown domain, it is True if the numbers span at least a factor of ten and their median lies
    in the lowest two fifths of the span. Raises ValueError if ``numbers`` is empty.
    """
    low = min(numbers)
    high = max(numbers)
    if low <= 0:
        return False
    match domain:
        case LogUniform() | LogNormal() | IntUniform(log=True):
            return True
        case IntUniform() | Uniform() | Normal() | Beta():
            return False
    return high >= 10 * low and median_high(numbers) - low < 0.4 * (high - low)


@lru_cache(maxsize=1024, typed=True)
def find_multiples(low: float, high: float, q: float) -> tuple[float, float]:
    """Return the first and the last integer k with low <= k * q <= high.

    The last is smaller than the first if there is none. The arithmetic is decimal, in which 0.7 / 0.1 is 7. An infinite
    bound is returned in place of the integer. Results are cached.
    """
    step = Fraction(str(q))
    first, last = low, high
    if math.isfinite(low):
        first = math.ceil(Fraction(str(low)) / step)
    if math.isfinite(high):
        last = math.floor(Fraction(str(high)) / step)
    return first, last


def _multiple(k: float, q: float) -> int | float:
    if isinstance(q, int):
        return int(k) * q
    return float(int(k) * Fraction(str(q)))


def _require(rule: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"not so: {rule}")


def _require_quantum(q: float | None) -> None:
    _require("q is positive", q is None or 0 < q < math.inf)


def _require_range(low: float, high: float, q: float | None) -> None:
    _require("low <= high, both finite", -math.inf < low <= high < math.inf)
    _require_quantum(q)
    if q is not None:
        first, last = find_multiples(low, high, q)
        _require(f"a multiple of {q} lies between {low} and {high}", first <= last)
