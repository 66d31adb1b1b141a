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

    At most `DRAWS` random points are tried, then `_STARTS` points that are repaired. The search may fail although some
    points meet the constraints.
    """
    numbers = random.Random(0)  # not cryptographic; any fixed sample works
    return next(_draw_points(space, numbers.random), None) or next(
        _generate_repaired_points(space, numbers.random), None
    )


def estimate_feasible_fraction(space: Space) -> float:
    """Return the fraction of `DRAWS` random points of a space that meet the constraints, from 0 to 1.

    The points are drawn from the parameters' distributions with a fixed seed. The result may be 0 although some points
    meet the constraints. Points at which a tied value has no result do not meet them.
    """
    return sum(1 for _ in _draw_points(space, random.Random(0).random)) / DRAWS


def _draw_points(space: Space, uniform: Callable[[], float]) -> Iterator[dict[str, Value]]:
    """Draw `DRAWS` random points by numbers from ``uniform``, in [0, 1), and yield those that meet the constraints.

    Points at which a tied value has no result are left out.
    """
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
    """Yield at most `_STARTS` points that meet the constraints, repaired from as many random points.

    With ``walk``, they are then moved at random within the feasible region. Random points that cannot be repaired are
    left out. ``uniform`` draws numbers from [0, 1).
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
    units: dict[str, float]  # by the names of all drawn parameters, also of those that do not apply
    decisive: tuple[str, ...]  # drawn parameters that the constraints depend on
    uniform: Callable[[], float]

    @classmethod
    def from_params(cls, space: Space, params: Params, uniform: Callable[[], float]) -> _Point:
        """Return the point with the values of ``params``, and with random values for parameters that it lacks.

        Values of parameters that are not drawn are ignored; the others must lie in the domains of the space's
        parameters. ``uniform`` draws numbers from [0, 1), also for later moves of the point.
        """
        constrained = _list_constrained_parameters(space)
        units = {}
        for parameter in space.parameters:
            name = parameter.name
            if not parameter.drawn:
                continue
            if name in params:
                units[name] = to_unit(parameter.domain, params[name])
            else:
                units[name] = uniform()
        return cls(space, units, tuple(name for name in units if name in constrained), uniform)

    def params(self) -> dict[str, Value]:
        """Return the values at the point (`Space.complete`), also if they do not meet the constraints."""
        return self.space.complete(
            lambda parameter: from_unit(parameter.domain, self.units[parameter.name])
        )

    def distance(self, moved: Mapping[str, float]) -> float:
        """Return the distance from meeting the constraints with some numbers replaced by ``moved``.

        ``moved`` has numbers from 0 to 1 by parameter. The distance is that of `Space.distance`, and 1e9 if a tied
        value has no result. The point itself is not moved.
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

        There are at most `_STEPS` random steps, and no more after `_STALLED` without progress. A point that does not
        meet the constraints is left where it was nearest to meeting them.
        """
        best = self.distance({})
        stalled = 0  # steps since the last progress
        for _ in range(_STEPS):
            if best == 0 or stalled > _STALLED or not self.decisive:
                break
            # a point without progress for long may move far away; otherwise it stays near its start
            stuck = stalled > _STALLED // 3
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
        are fixed, `_ROUNDS` times in turn. A parameter for which no other value is found keeps its value.
        """
        for name in self.decisive * _ROUNDS:
            here = self.units[name]
            # A number is drawn from this range until one meets the constraints. Each that does not becomes the end of
            # the range on its side of the present number, which meets them.
            low, high = 0.0, 1.0
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
        """Return a number from 0 to 1 moved up or down by a random step, from 1e-8 to 1.

        A step that would leave the range from 0 to 1 is replaced by half of the distance to its end.
        """
        far = 10 ** (-8 * self.uniform())
        if self.uniform() < 0.5:
            if unit + far < 1:
                return unit + far
            return unit + (1 - unit) / 2
        return unit - far if unit > far else unit / 2


def _list_constrained_parameters(space: Space) -> set[str]:
    """Return the names of the parameters that constraints, constants and tied values depend on.

    These are the parameters in constraints and in the expressions of tied values, and those in the conditions of
    constants, of tied values and of all parameters found so far. The search goes once through the file from its end, so
    that the condition of a drawn parameter that stands below the one that needs it may be missed.
    """
    named: set[str] = set().union(*(c.names for c in space.constraints))
    # from the last in the file to the first, as a parameter mostly stands below those that it needs
    for parameter in reversed(space.parameters):
        if parameter.name in named or not parameter.drawn:
            named |= parameter.needs
    return named
