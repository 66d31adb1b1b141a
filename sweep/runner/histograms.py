"""How the values of a parameter are spread over the configurations that a plan looks at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sweep.events import Params, Value
from sweep.space.domains import IntUniform, LogNormal, LogUniform, choices, key
from sweep.space.space import Parameter, Space

BINS = 12
MOST_VALUES = 12  # shown one by one


@dataclass(frozen=True, slots=True)
class Bin:
    """Configurations whose value is ``low``, or lies from ``low`` up to ``high``."""

    low: Value
    high: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """One parameter in ``of`` configurations; without those in which it is absent, bins may sum to less."""

    name: str
    bins: tuple[Bin, ...]
    of: int

    @property
    def present(self) -> int:
        """Configurations that have the parameter."""
        return sum(bin.count for bin in self.bins)


def histograms(space: Space, configurations: Sequence[Params]) -> tuple[Histogram, ...]:
    """Of every parameter that is not the same in all configurations, in file order."""
    found = [_histogram(parameter, configurations) for parameter in space.parameters]
    return tuple(one for one in found if len(one.bins) > 1 or 0 < one.present < one.of)


def _histogram(parameter: Parameter, configurations: Sequence[Params]) -> Histogram:
    values = [params[parameter.name] for params in configurations if parameter.name in params]
    distinct = {key(value): value for value in values}
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    continuous = choices(parameter.domain) is None and len(distinct) == len(values) > 3
    if len(numbers) < len(values) or (len(distinct) <= MOST_VALUES and not continuous):
        bins = _by_value(parameter, values)
    else:
        bins = _by_range(numbers, log=_logarithmic(parameter, numbers))
    return Histogram(parameter.name, tuple(bins), len(configurations))


def _by_value(parameter: Parameter, values: Sequence[Value]) -> Iterator[Bin]:
    counts: dict[str, int] = {}
    numbers = sorted(value for value in values if isinstance(value, int | float))
    order = [*(choices(parameter.domain) or ()), *numbers, *values]
    for value in order:
        counts.setdefault(key(value), 0)
    for value in values:
        counts[key(value)] += 1
    known = {key(value): value for value in order}
    for text, count in counts.items():
        if count or len(counts) <= MOST_VALUES:
            yield Bin(known[text], None, count)


def _by_range(numbers: Sequence[float], *, log: bool) -> Iterator[Bin]:
    low, high = min(numbers), max(numbers)
    scaled = (math.log(low), math.log(high)) if log else (low, high)
    edges = [scaled[0] + (scaled[1] - scaled[0]) * step / BINS for step in range(BINS + 1)]
    edges = [low, *(math.exp(edge) if log else edge for edge in edges[1:-1]), high]
    for index, (left, right) in enumerate(pairwise(edges)):
        last = index == BINS - 1
        yield Bin(left, right, sum(left <= number and (number < right or last) for number in numbers))


def _logarithmic(parameter: Parameter, numbers: Sequence[float]) -> bool:
    """Whether a logarithmic scale shows it best: where it was drawn on one, and a computed value of wide range."""
    match parameter.domain:
        case LogUniform() | LogNormal() | IntUniform(log=True):
            return min(numbers) > 0
    return not parameter.drawn and min(numbers) > 0 and max(numbers) >= 100 * min(numbers)
