"""Points that meet the constraints of a space.

If random points hardly ever meet the constraints, points are repaired and then moved at random. For this, a point is a
number from 0 to 1 for each drawn parameter, on the scale of its distribution. Repairing moves one or two of them at a
time downhill in `Space.distance`. Repaired points lie at the border of the feasible region; a Gibbs walk with slice
sampling (Neal 2003), whose target is the space's own distribution under the constraints, moves them away from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sweep.events import Params, Value
from sweep.space.draws import from_unit, to_unit
from sweep.space.expressions import UndefinedError
from sweep.space.search_space import Space

DRAWS = 4000
"""Number of random points tried to meet the constraints before points are repaired.

If 1 in 1,000 points meets them, all of these fail with a probability of 1 in 50.
"""

_STARTS = 10  # points that are repaired before a walk starts from the witness
_STEPS = 1500  # maximum steps of a repair
_STALLED = 400  # steps without progress after which a repair is given up
_ROUNDS = 4  # rounds of a walk over all decisive parameters
_WALKS = 40  # number of walks from the witness


def find_feasible_point(space: Space) -> dict[str, Value] | None:
    """Return a point that meets the constraints, always the same one; None if none was found."""
    numbers = random.Random(0)  # not cryptographic; any fixed sample works
    return next(_draw_points(space, numbers.random), None) or next(_repaired(space, numbers.random), None)


def estimate_feasible_fraction(space: Space) -> float:
    """Estimate the fraction of random points that meet the constraints, from a fixed sample."""
    return sum(1 for _ in _draw_points(space, random.Random(0).random)) / DRAWS


def _draw_points(space: Space, uniform: Callable[[], float]) -> Iterator[dict[str, Value]]:
    for _ in range(DRAWS):
        params = space.feasible(lambda parameter: from_unit(parameter.domain, uniform()))
        if params is not None:
            yield params


def near(space: Space, start: Params, uniform: Callable[[], float], *, walk: bool = True) -> Iterator[dict[str, Value]]:
    """Yield up to a few dozen points that meet the constraints: first near ``start``, or with ``walk`` anywhere.

    ``uniform`` draws numbers from [0, 1). The points depend only on ``start`` and ``uniform``. At least one is yielded
    if the space has a `find_feasible_point`.
    """
    first = _Point.at(space, start, uniform)
    if first.repair():
        if not walk:
            yield first.params()
        first.walk()
        yield first.params()
    yield from _repaired(space, uniform, walk=True)
    known = find_feasible_point(space)
    if known is None:
        return
    last = _Point.at(space, known, uniform)
    for _ in range(_WALKS):
        yield last.params()
        last.walk()


def _repaired(space: Space, uniform: Callable[[], float], *, walk: bool = False) -> Iterator[dict[str, Value]]:
    for _ in range(_STARTS):
        point = _Point.at(space, {}, uniform)
        if point.repair():
            if walk:
                point.walk()
            yield point.params()


@dataclass(slots=True)
class _Point:
    space: Space
    units: dict[str, float]
    decisive: tuple[str, ...]  # drawn parameters that the constraints depend on
    uniform: Callable[[], float]

    @classmethod
    def at(cls, space: Space, params: Params, uniform: Callable[[], float]) -> _Point:
        """Return a point with the values of ``params``, and random numbers for the parameters that it lacks."""
        drawn = []
        for parameter in space.parameters:
            if parameter.drawn:
                drawn.append(parameter)
        constrained = _list_constrained_parameters(space)
        units = {}
        for parameter in drawn:
            name = parameter.name
            if name in params:
                units[name] = to_unit(parameter.domain, params[name])
            else:
                units[name] = uniform()
        return cls(space, units, tuple(name for name in units if name in constrained), uniform)

    def params(self) -> dict[str, Value]:
        return self.space.complete(lambda parameter: from_unit(parameter.domain, self.units[parameter.name]))

    def distance(self, moved: Mapping[str, float]) -> float:
        units = {**self.units, **moved}
        try:
            params = self.space.complete(lambda parameter: from_unit(parameter.domain, units[parameter.name]))
        except UndefinedError:
            return 1e9
        return self.space.distance(params)

    def repair(self) -> bool:
        """Move downhill until the constraints hold; return whether they do."""
        best = self.distance({})
        stalled = 0
        for _ in range(_STEPS):
            if best == 0 or stalled > _STALLED or not self.decisive:
                break
            stuck = stalled > _STALLED // 3  # otherwise it stays near its start
            moved = dict.fromkeys((self._any(), self._any()), 0.0)
            for name in moved:
                if stuck and self.uniform() < 0.3:
                    moved[name] = self.uniform()
                else:
                    moved[name] = self._step(self.units[name])
            there = self.distance(moved)
            if there < best or (stuck and there == best):
                self.units |= moved
            stalled = 0 if there < best else stalled + 1
            best = min(there, best)
        return best == 0

    def walk(self) -> None:
        """Redraw the decisive parameters one by one, each from the values that the others allow."""
        for name in self.decisive * _ROUNDS:
            here, low, high = self.units[name], 0.0, 1.0
            for _ in range(60):  # each step halves the range on average; below 1e-16 the value is unchanged
                there = low + self.uniform() * (high - low)
                if self.distance({name: there}) == 0:
                    self.units[name] = there
                    break
                if there < here:
                    low = there
                else:
                    high = there

    def _any(self) -> str:
        return self.decisive[int(self.uniform() * len(self.decisive))]

    def _step(self, unit: float) -> float:
        far = 10 ** (-8 * self.uniform())
        if self.uniform() < 0.5:
            if unit + far < 1:
                return unit + far
            return unit + (1 - unit) / 2
        return unit - far if unit > far else unit / 2


def _list_constrained_parameters(space: Space) -> set[str]:
    """Return the parameters that constraints and ties depend on, directly or through other parameters."""
    named: set[str] = set().union(*(c.names for c in space.constraints))
    for parameter in reversed(space.parameters):  # a parameter's dependencies precede it
        if parameter.name in named or not parameter.drawn:
            named |= parameter.needs
    return named
