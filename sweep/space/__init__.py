"""The search space: parameters in file order, the conditions under which they apply, and constraints between them.

A point of the space is a plain dict of flat, dotted names in file order. Parameters whose condition does not hold are
absent. The space completes, checks and enumerates points; searchers choose the single values. Initial configurations,
partial or whole, are completed to points of the space.

If random points hardly ever meet the constraints, points are repaired and then moved at random. For this, a point is a
number from 0 to 1 for each drawn parameter, on the scale of its distribution. Repairing moves one or two of them at a
time downhill in `Space.distance`. Repaired points lie at the border of the feasible region; a Gibbs walk with slice
sampling (Neal 2003), whose target is the space's own distribution under the constraints, moves them away from it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from sweep.errors import InputError
from sweep.events import Params, Value, is_number
from sweep.space.domains import Constant, Domain, Range, Tied, choices, contains, key
from sweep.space.draws import Belief, count_grid, from_unit, to_unit
from sweep.space.expressions import Expression, UndefinedError

MAX_ENUMERATED = 100_000
"""Maximum number of combinations that are visited one by one to count a space with conditions, ties or constraints."""


def same(one: Value, other: Value) -> bool:
    """Return whether two values are equal to a reader of the file: 1 equals 1.0, but not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Tests for one of several values."""

    values: tuple[Value, ...]

    def passes(self, value: Value) -> bool:
        return any(same(value, one) for one in self.values)


@dataclass(frozen=True, slots=True)
class Between:
    """Tests for a number from ``min`` to ``max``, both included."""

    min: float = -math.inf
    max: float = math.inf

    def passes(self, value: Value) -> bool:
        return is_number(value) and self.min <= value <= self.max


Test: TypeAlias = OneOf | Between


@dataclass(frozen=True, slots=True)
class Condition:
    """Tests on other parameters, all of which must pass; an absent parameter passes none."""

    tests: tuple[tuple[str, Test], ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.tests)

    def holds(self, params: Params) -> bool:
        return all(name in params and test.passes(params[name]) for name, test in self.tests)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One hyperparameter: its flat, dotted name, its domain, and the condition under which it applies.

    ``grid_count`` is the number of values that a grid takes from a continuous domain, ``belief`` the author's guess of
    the best value.
    """

    name: str
    domain: Domain
    when: Condition | None = None
    grid_count: int | None = None
    belief: Belief | None = None

    @property
    def needs(self) -> frozenset[str]:
        """The parameters that determine whether this one applies, or its value."""
        tied = self.domain.expression.names if isinstance(self.domain, Tied) else frozenset()
        return tied | (self.when.names if self.when else frozenset())

    @property
    def drawn(self) -> bool:
        """Whether a searcher chooses its value."""
        return not isinstance(self.domain, Constant | Tied)

    @property
    def adaptable(self) -> bool:
        """Whether an evolution strategy can adapt it: a number with more than one value that every trial has."""
        if self.when is not None or not isinstance(self.domain, Range):
            return False
        return from_unit(self.domain, 0.0) != from_unit(self.domain, 1 - 1e-9)

    def applies(self, params: Params) -> bool:
        """Return whether it belongs to a point that has ``params`` so far.

        A tied parameter does not apply if one of its sources is absent.
        """
        tied = not isinstance(self.domain, Tied) or self.domain.expression.names <= params.keys()
        return tied and (self.when is None or self.when.holds(params))


_Values: TypeAlias = Callable[[Parameter], tuple[Value, ...]]


@dataclass(frozen=True)
class Space:
    """All parameters of a sweep and the constraints between them.

    Raises ``ValueError`` if names are duplicate or unknown, or if parameters depend on each other in a cycle.
    """

    parameters: tuple[Parameter, ...]
    constraints: tuple[Expression, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError("two parameters share a name")
        unknown = frozenset().union(*(c.names for c in self.constraints)) - set(self.names)
        if unknown:
            raise ValueError(f"constraints name unknown parameters: {sorted(unknown)}")
        _ = self._order

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names, in file order."""
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def has_beliefs(self) -> bool:
        """Whether the author has guessed a best value for any parameter."""
        return any(parameter.belief is not None for parameter in self.parameters)

    @property
    def varying(self) -> dict[str, Domain]:
        """The parameters that are not constants, with their domains."""
        return {one.name: one.domain for one in self.parameters if not isinstance(one.domain, Constant)}

    @property
    def constant(self) -> tuple[str, ...]:
        """The parameters that every point has with the same value."""
        return tuple(one.name for one in self.parameters if one.when is None and len(choices(one.domain) or ()) == 1)

    @property
    def choosing(self) -> tuple[str, ...]:
        """The parameters that vary and are not numbers in every point; code may branch on these."""
        numbers = {
            one.name for one in self.parameters if not one.when and all(map(is_number, choices(one.domain) or ()))
        }
        return tuple(name for name in self.names if name not in numbers and name not in self.constant)

    @cached_property
    def _order(self) -> tuple[Parameter, ...]:
        """The parameters in file order, except that each follows those that it needs."""
        order: list[Parameter] = []
        waiting = list(self.parameters)
        while waiting:
            placed = {parameter.name for parameter in order}
            ready = next((p for p in waiting if p.needs <= placed), None)
            if ready is None:
                raise ValueError(f"parameters wait for unknown ones or in a circle: {[p.name for p in waiting]}")
            order.append(ready)
            waiting.remove(ready)
        return tuple(order)

    def complete(self, draw: Callable[[Parameter], Value]) -> dict[str, Value]:
        """Return a point; ``draw`` chooses the value of every drawn parameter that applies.

        Raises `UndefinedError` if a tied value has no result.
        """
        params: dict[str, Value] = {}
        for parameter in self._order:
            if parameter.applies(params):
                match parameter.domain:
                    case Constant(value):
                        params[parameter.name] = value
                    case Tied(expression):
                        params[parameter.name] = expression.evaluate(params)
                    case _:
                        params[parameter.name] = draw(parameter)
        return self._in_file_order(params)

    def feasible(self, draw: Callable[[Parameter], Value]) -> dict[str, Value] | None:
        """Return `complete`, or None if a constraint is violated or a tied value has no result."""
        try:
            params = self.complete(draw)
        except UndefinedError:
            return None
        return None if self.violated(params) else params

    def violated(self, params: Params) -> list[str]:
        """Return the violated constraints as text.

        A constraint on an absent parameter does not apply; one without a result is violated.
        """
        return [c.text for c in self.constraints if c.names <= params.keys() and not _holds(c, params)]

    def distance(self, params: Params) -> float:
        """Return the distance to a point that meets the constraints: 0 if it does, smaller the nearer it is."""
        return sum(c.distance(params) for c in self.constraints if c.names <= params.keys())

    def fixed(self, values: Params) -> Space:
        """Return the subspace in which these parameters have these values."""
        domains = {name: Constant(value) for name, value in values.items()}
        return Space(tuple(replace(p, domain=domains.get(p.name, p.domain)) for p in self.parameters), self.constraints)

    def adopt(self, foreign: Params) -> dict[str, Value] | None:
        """Return a trial of another sweep as a point of this space, or None if it is not one.

        The trial must have every drawn parameter that applies here, with a value that is possible here; it must meet
        the constraints, and parameters that both have must be equal.
        """

        def known(parameter: Parameter) -> Value:
            if parameter.name not in foreign or not contains(parameter.domain, foreign[parameter.name]):
                raise LookupError(parameter.name)
            return foreign[parameter.name]

        try:
            params = self.feasible(known)
        except LookupError:
            return None
        same = params is not None and all(key(foreign.get(name, params[name])) == key(params[name]) for name in params)
        return params if same else None

    def grid(self) -> Iterator[dict[str, Value]]:
        """Return all points of the grid without duplicates; the first parameter varies slowest.

        Raises ``ValueError`` if a domain is continuous and its parameter has no ``grid_count``.
        """
        return self._feasible_points(grid_values)

    def grid_size(self) -> int:
        """Return the number of points of the grid.

        Raises the errors of `grid`, and `InputError` if it is too large to count.
        """
        size = self._count(grid_values)
        if size is None:
            what = f"more than {MAX_ENUMERATED:,} combinations to check against conditions and constraints"
            raise InputError.one("parameters", what, "take fewer values, or method: random")
        return size

    def points(self) -> Iterator[dict[str, Value]]:
        """Return all points of a finite space, in the order of a grid."""
        return self._feasible_points(_all_values)

    @cached_property
    def cardinality(self) -> int | None:
        """The number of different points; None if it is infinite or too large to count."""
        if any(p.drawn and choices(p.domain) is None for p in self.parameters):
            return None
        return self._count(_all_values)

    def _feasible_points(self, values: _Values) -> Iterator[dict[str, Value]]:
        for params in _walk(self._order, values):
            if not self.violated(params):
                yield self._in_file_order(params)

    def _count(self, values: _Values) -> int | None:
        """Count the feasible points.

        Only parameters that others or constraints depend on are enumerated; the numbers of values of the others are
        multiplied.
        """
        named = frozenset().union(*(c.names for c in self.constraints), *(p.needs for p in self.parameters))
        decisive = [p for p in self._order if p.name in named or isinstance(p.domain, Tied)]
        free = [(p, len(values(p))) for p in self._order if p not in decisive]
        total = 0
        for visited, params in enumerate(_walk(tuple(decisive), values)):
            if visited >= MAX_ENUMERATED:
                return None
            if not self.violated(params):
                total += math.prod(size for p, size in free if p.applies(params))
        return total

    def _in_file_order(self, params: Params) -> dict[str, Value]:
        return {name: params[name] for name in self.names if name in params}


def grid_values(parameter: Parameter) -> tuple[Value, ...]:
    """Return the values that a grid takes from a parameter. Raises ``ValueError`` if they are infinitely many."""
    if isinstance(parameter.domain, Range) and parameter.grid_count is not None:
        return count_grid(parameter.domain, parameter.grid_count)
    return _all_values(parameter)


def _all_values(parameter: Parameter) -> tuple[Value, ...]:
    values = choices(parameter.domain)
    if values is None:
        raise ValueError(f"{parameter.name} has too many values to enumerate")
    return values


def _walk(order: Sequence[Parameter], values: _Values) -> Iterator[dict[str, Value]]:
    """Yield all combinations as nested loops over ``order``, except those in which a tied value is undefined.

    The yielded dict is reused; copy it to keep it.
    """
    options = [() if isinstance(p.domain, Tied) else values(p) for p in order]
    params: dict[str, Value] = {}

    def loop(depth: int) -> Iterator[dict[str, Value]]:
        if depth == len(order):
            yield params
            return
        parameter = order[depth]
        if not parameter.applies(params):
            yield from loop(depth + 1)
            return
        for value in _tied(parameter.domain, params) or options[depth]:
            params[parameter.name] = value
            yield from loop(depth + 1)
        params.pop(parameter.name, None)

    return loop(0)


def _tied(domain: Domain, params: Params) -> tuple[Value, ...]:
    try:
        return (domain.expression.evaluate(params),) if isinstance(domain, Tied) else ()
    except UndefinedError:
        return ()


def _holds(constraint: Expression, params: Params) -> bool:
    try:
        return bool(constraint.evaluate(params))
    except UndefinedError:
        return False


def completed(
    space: Space, starts: Iterable[Params], complete: Callable[[Space, int, Collection[str]], Params | None]
) -> list[Params]:
    """Return the points that ``starts`` are completed to, without duplicates.

    ``complete`` returns a point of the subspace that a start fixes, or None. It gets the subspace, the position of the
    start and the keys of the earlier points.
    """
    points: list[Params] = []
    tried: set[str] = set()
    for place, start in enumerate(starts):
        point = complete(space.fixed(start), place, tried)
        if point is not None and key(point) not in tried:
            points.append(point)
            tried.add(key(point))
    return points


def on_grid(space: Space, starts: Iterable[Params]) -> list[Params]:
    """Complete each of ``starts`` to the first point of its grid that was not used before."""
    return completed(
        space, starts, lambda part, place, tried: next((p for p in part.grid() if key(p) not in tried), None)
    )


def beside_grid(space: Space, points: Iterable[Params]) -> int:
    """Return how many of these points are not on the grid of the space."""
    values = {
        parameter.name: set(map(key, grid_values(parameter))) for parameter in space.parameters if parameter.drawn
    }
    return sum(any(key(point[name]) not in values[name] for name in point.keys() & values.keys()) for point in points)


DRAWS = 4000
"""Number of random points tried to meet the constraints before points are repaired.

If 1 in 1,000 points meets them, all of these fail with a probability of 1 in 50.
"""

_STARTS = 10  # points that are repaired before a walk starts from the witness
_STEPS = 1500  # maximum steps of a repair
_STALLED = 400  # steps without progress after which a repair is given up
_ROUNDS = 4  # rounds of a walk over all decisive parameters
_WALKS = 40  # number of walks from the witness


def witness(space: Space) -> dict[str, Value] | None:
    """Return a point that meets the constraints, always the same one; None if none was found."""
    numbers = random.Random(0)  # not cryptographic; any fixed sample works
    return next(_drawn(space, numbers.random), None) or next(_repaired(space, numbers.random), None)


def allowed_share(space: Space) -> float:
    """Estimate the share of random points that meet the constraints."""
    return sum(1 for _ in _drawn(space, random.Random(0).random)) / DRAWS


def _drawn(space: Space, uniform: Callable[[], float]) -> Iterator[dict[str, Value]]:
    for _ in range(DRAWS):
        params = space.feasible(lambda parameter: from_unit(parameter.domain, uniform()))
        if params is not None:
            yield params


def near(space: Space, start: Params, uniform: Callable[[], float], *, walk: bool = True) -> Iterator[dict[str, Value]]:
    """Yield up to a few dozen points that meet the constraints: first near ``start``, or with ``walk`` anywhere.

    ``uniform`` draws numbers from [0, 1). The points depend only on ``start`` and ``uniform``. At least one is yielded
    if the space has a `witness`.
    """
    first = _Point.at(space, start, uniform)
    if first.repair():
        if not walk:
            yield first.params()
        first.walk()
        yield first.params()
    yield from _repaired(space, uniform, walk=True)
    known = witness(space)
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
        drawn = [parameter for parameter in space.parameters if parameter.drawn]
        units = {p.name: to_unit(p.domain, params[p.name]) if p.name in params else uniform() for p in drawn}
        return cls(space, units, tuple(name for name in units if name in _named(space)), uniform)

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
        best, stalled = self.distance({}), 0
        for _ in range(_STEPS):
            if best == 0 or stalled > _STALLED or not self.decisive:
                break
            stuck = stalled > _STALLED // 3  # otherwise it stays near its start
            moved = dict.fromkeys((self._any(), self._any()), 0.0)
            for name in moved:
                moved[name] = self.uniform() if stuck and self.uniform() < 0.3 else self._step(self.units[name])
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
                low, high = (there, high) if there < here else (low, there)

    def _any(self) -> str:
        return self.decisive[int(self.uniform() * len(self.decisive))]

    def _step(self, unit: float) -> float:
        far = 10 ** (-8 * self.uniform())
        if self.uniform() < 0.5:
            return unit + far if unit + far < 1 else unit + (1 - unit) / 2
        return unit - far if unit > far else unit / 2


def _named(space: Space) -> set[str]:
    """Return the parameters that constraints and ties depend on, directly or through other parameters."""
    named: set[str] = set().union(*(c.names for c in space.constraints))
    for parameter in reversed(space.parameters):  # a parameter's dependencies precede it
        if parameter.name in named or not parameter.drawn:
            named |= parameter.needs
    return named
