"""Search for points that meet the constraints of a space.

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
    """Return a point that meets the constraints, always the same for a space; None if the search finds none.

    The search may fail although some points meet them.
    """
    numbers = random.Random(0)  # not cryptographic; any fixed sample works
    return next(_draw_points(space, numbers.random), None) or next(
        _generate_repaired_points(space, numbers.random), None
    )


def estimate_feasible_fraction(space: Space) -> float:
    """Estimate the fraction of a space that meets the constraints, from `DRAWS` points drawn with a fixed seed.

    The result is from 0 to 1, and may be 0 although some points meet them.
    """
    return sum(1 for _ in _draw_points(space, random.Random(0).random)) / DRAWS


def _draw_points(space: Space, uniform: Callable[[], float]) -> Iterator[dict[str, Value]]:
    """Draw `DRAWS` random points by numbers from ``uniform``, in [0, 1), and yield those that meet the constraints."""
    for _ in range(DRAWS):
        params = space.complete_if_feasible(
            lambda parameter: from_unit(parameter.domain, uniform())
        )
        if params is not None:
            yield params


def generate_feasible_points(
    space: Space, start: Params, uniform: Callable[[], float], *, walk: bool = True
) -> Iterator[dict[str, Value]]:
    """Yield up to a few dozen points that meet the constraints, the first one near ``start`` if possible.

    ``start`` has values of some or all parameters; the others are drawn. ``uniform`` draws numbers from [0, 1). With
    ``walk``, the first point is moved at random within the feasible region; without it, the unmoved point comes first.
    All later points are moved at random, but for the one of `find_feasible_point`, from which the last ones are
    reached. The points depend only on the space, ``start`` and ``uniform``, and may repeat. At least one is yielded if
    `find_feasible_point` finds one for the space.
    """
    first = _Point.from_params(space, start, uniform)
    if first.repair():
        if not walk:
            yield first.params()
        first.walk()
        yield first.params()
    yield from _generate_repaired_points(space, uniform, walk=True)
    # the caller may have tried all points so far; walks from a point that is known to be feasible yield others
    witness = find_feasible_point(space)
    if witness is None:
        return
    walker = _Point.from_params(space, witness, uniform)
    for _ in range(_WALKS):
        yield walker.params()
        walker.walk()


def _generate_repaired_points(
    space: Space, uniform: Callable[[], float], *, walk: bool = False
) -> Iterator[dict[str, Value]]:
    """Yield at most `_STARTS` points that meet the constraints, repaired from random points.

    With ``walk``, they are then moved at random.
    """
    for _ in range(_STARTS):
        point = _Point.from_params(space, {}, uniform)
        if point.repair():
            if walk:
                point.walk()
            yield point.params()


@dataclass(slots=True)
class _Point:
    """A point of a space as numbers from 0 to 1, which can be moved."""

    space: Space
    units: dict[str, float]
    decisive: tuple[str, ...]  # drawn parameters that the constraints depend on
    uniform: Callable[[], float]

    @classmethod
    def from_params(cls, space: Space, params: Params, uniform: Callable[[], float]) -> _Point:
        """Return the point with the values of ``params``, and with random values for parameters that it lacks.

        The values must lie in the domains of the space's parameters. ``uniform`` draws numbers from [0, 1), also for
        later moves of the point.
        """
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
        return self.space.complete(
            lambda parameter: from_unit(parameter.domain, self.units[parameter.name])
        )

    def distance(self, moved: Mapping[str, float]) -> float:
        """Return the distance from meeting the constraints with some numbers replaced by ``moved``.

        It is 1e9 if a tied value has no result.
        """
        units = {**self.units, **moved}
        try:
            params = self.space.complete(
                lambda parameter: from_unit(parameter.domain, units[parameter.name])
            )
        except UndefinedError:
            return 1e9
        return self.space.distance(params)

    def repair(self) -> bool:
        """Move the point step by step nearer to meeting the constraints; return whether it meets them in the end.

        A point that does not is left where it was nearest to meeting them.
        """
        best = self.distance({})
        stalled = 0
        for _ in range(_STEPS):
            if best == 0 or stalled > _STALLED or not self.decisive:
                break
            stuck = stalled > _STALLED // 3  # otherwise it stays near its start
            # one parameter if both draws are the same, else two, since a constraint may need two to change at once
            moved = dict.fromkeys((self._choose_decisive(), self._choose_decisive()), 0.0)
            for name in moved:
                if stuck and self.uniform() < 0.3:
                    moved[name] = self.uniform()
                else:
                    moved[name] = self._move_unit(self.units[name])
            there = self.distance(moved)
            # on a plateau, where small moves change nothing, a stuck point wanders about
            if there < best or (stuck and there == best):
                self.units |= moved
            stalled = 0 if there < best else stalled + 1
            best = min(there, best)
        return best == 0

    def walk(self) -> None:
        """Move the point, which must meet the constraints, at random within the feasible region.

        Each parameter that constraints depend on is drawn from the values that meet the constraints while all others
        are fixed.
        """
        for name in self.decisive * _ROUNDS:
            here, low, high = self.units[name], 0.0, 1.0
            # each step halves the range on average; below 1e-16 the value is unchanged
            for _ in range(60):
                there = low + self.uniform() * (high - low)
                if self.distance({name: there}) == 0:
                    self.units[name] = there
                    break
                if there < here:
                    low = there
                else:
                    high = there

    def _choose_decisive(self) -> str:
        """Return a random one of the parameters that constraints depend on."""
        return self.decisive[int(self.uniform() * len(self.decisive))]

    def _move_unit(self, unit: float) -> float:
        """Return a number from 0 to 1 moved up or down by a random step, from 1e-8 to 1."""
        far = 10 ** (-8 * self.uniform())
        if self.uniform() < 0.5:
            if unit + far < 1:
                return unit + far
            return unit + (1 - unit) / 2
        return unit - far if unit > far else unit / 2


def _list_constrained_parameters(space: Space) -> set[str]:
    """Return the names of all parameters that constraints and tied values depend on, also through other parameters."""
    named: set[str] = set().union(*(c.names for c in space.constraints))
    for parameter in reversed(space.parameters):  # a parameter's dependencies precede it
        if parameter.name in named or not parameter.drawn:
            named |= parameter.needs
    return named
