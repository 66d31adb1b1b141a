"""The search space: parameters in file order, the conditions under which they apply, and constraints between them.

A point of the space is a plain dict of flat, dotted names in file order. Parameters whose condition does not hold are
absent. The space completes, checks and enumerates points; searchers choose the single values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from sweep.errors import InputError
from sweep.events import Params, Value, is_number
from sweep.space.domains import Constant, Domain, Range, Tied, contains, key, list_choices
from sweep.space.draws import space_out_values
from sweep.space.expressions import Expression, UndefinedError
from sweep.space.parameter import Parameter

MAX_ENUMERATED = 100_000
"""Maximum number of combinations that are visited one by one to count a space with conditions, ties or constraints."""

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

    def is_same_as(self, other: Space) -> bool:
        """Return whether ``other`` has equal parameters and constraints, with values of the same types.

        Values such as 1, 1.0 and True are different here, although Python takes them for equal.
        """
        return self == other and repr(self.parameters) == repr(other.parameters)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters, in file order."""
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def has_beliefs(self) -> bool:
        """Whether the author has guessed a best value for any parameter."""
        return any(parameter.belief is not None for parameter in self.parameters)

    @property
    def varying(self) -> dict[str, Domain]:
        """The domains of the parameters that are not constants, by name, in file order.

        Tied and conditional parameters are among them, as are lists with a single value.
        """
        return {
            one.name: one.domain for one in self.parameters if not isinstance(one.domain, Constant)
        }

    @property
    def constant(self) -> tuple[str, ...]:
        """The names of the parameters that have the same value at every point.

        They are the unconditional ones with a single value; tied ones are never among them.
        """
        names = []
        for one in self.parameters:
            if one.when is None and len(list_choices(one.domain) or ()) == 1:
                names.append(one.name)
        return tuple(names)

    @property
    def choosing(self) -> tuple[str, ...]:
        """The names of the parameters that are conditional, or have several values of which one is not a number.

        Code may branch on their values. Tied parameters are only among them if they are conditional.
        """
        numbers = set()
        for one in self.parameters:
            # `list_choices` returns None for a continuum, whose values are all numbers
            if not one.when and all(map(is_number, list_choices(one.domain) or ())):
                numbers.add(one.name)
        return tuple(
            name for name in self.names if name not in numbers and name not in self.constant
        )

    @cached_property
    def _order(self) -> tuple[Parameter, ...]:
        """The parameters in file order, except that each comes after those that it needs.

        Raises ValueError if parameters need unknown ones, or each other in a circle.
        """
        order: list[Parameter] = []
        waiting = list(self.parameters)
        while waiting:
            placed = {parameter.name for parameter in order}
            # the first in the file of those whose needs are all placed
            ready = next((p for p in waiting if p.needs <= placed), None)
            if ready is None:
                raise ValueError(
                    f"parameters wait for unknown ones or in a circle: {[p.name for p in waiting]}"
                )
            order.append(ready)
            waiting.remove(ready)
        return tuple(order)

    def complete(self, draw: Callable[[Parameter], Value]) -> dict[str, Value]:
        """Return a point with a value for every parameter that applies, in file order; constraints are not checked.

        ``draw`` chooses the values of drawn parameters, which are not checked either. It is called once for each of
        them that applies, and after those on which the parameter depends. Tied values are computed. Raises
        `UndefinedError` if a tied value has no result, `ExpressionError` if its expression does not accept the type of
        a value, and the errors of ``draw``.
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

    def complete_if_feasible(self, draw: Callable[[Parameter], Value]) -> dict[str, Value] | None:
        """Return the point that `complete` returns; None if it violates a constraint or a tied value has no result.

        Raises `ExpressionError` if an expression does not accept the type of a value, and the errors of ``draw``.
        """
        try:
            params = self.complete(draw)
        except UndefinedError:
            return None
        return None if self.list_violated(params) else params

    def list_violated(self, params: Params) -> list[str]:
        """Return the texts of the constraints that a point violates; [] if there are none.

        A constraint on an absent parameter does not apply; one without a result is violated. Raises `ExpressionError`
        if a constraint does not accept the type of a value.
        """
        violated = []
        for c in self.constraints:
            if c.names <= params.keys() and not _is_satisfied(c, params):
                violated.append(c.text)
        return violated

    def distance(self, params: Params) -> float:
        """Return how far a point is from meeting the constraints: 0 if it does, less the nearer it is.

        It is the sum of the distances of the single constraints (`Expression.distance`). Constraints on an absent
        parameter do not apply.
        """
        return sum(c.distance(params) for c in self.constraints if c.names <= params.keys())

    def fix(self, values: Params) -> Space:
        """Return a copy of the space in which the parameters named in ``values`` are constants with these values.

        Values are not checked, and unknown names are ignored. A parameter keeps its condition, and a tied one is no
        longer computed.
        """
        domains = {}
        for name, value in values.items():
            domains[name] = Constant(value)
        return Space(
            tuple(replace(p, domain=domains.get(p.name, p.domain)) for p in self.parameters),
            self.constraints,
        )

    def adopt(self, foreign: Params) -> dict[str, Value] | None:
        """Return the parameters of another sweep's trial as a point of this space; None if that is impossible.

        The trial must have a value for every drawn parameter that applies here, and this space must allow it. The point
        must meet the constraints and equal the trial in all parameters that both have; there, 1 and 1.0 differ.
        Parameters that the trial has in addition are left out; constants and tied values that it lacks are added.
        """

        def take_from_trial(parameter: Parameter) -> Value:
            name = parameter.name
            if name not in foreign or not contains(parameter.domain, foreign[name]):
                raise LookupError(name)  # it ends `complete_if_feasible`, and is caught below
            return foreign[name]

        try:
            params = self.complete_if_feasible(take_from_trial)
        except LookupError:
            return None
        if params is None:
            return None
        for name, value in params.items():
            if key(foreign.get(name, value)) != key(value):
                return None
        return params

    def has(self, params: Params) -> bool:
        """Return whether ``params`` is a point of the space: complete, without other parameters, and feasible.

        Parameters that do not apply must be absent, and tied values must be those that their expressions have.
        """
        adopted = self.adopt(params)
        return adopted is not None and key(adopted) == key(params)

    def grid(self) -> Iterator[dict[str, Value]]:
        """Return an iterator over the different points of the grid that meet the constraints.

        The grid has the values of `grid_values` of each parameter, and tied values as computed. The first parameter in
        the file varies slowest; a parameter varies faster than those on which it depends. Iterating raises
        ``ValueError`` if a parameter without ``grid_count`` is continuous or has more than `MAX_CHOICES` values.
        """
        return self._feasible_points(grid_values)

    def grid_size(self) -> int:
        """Return the number of points over which `grid` iterates.

        Raises the errors of `grid`, and `InputError` if more than `MAX_ENUMERATED` combinations would have to be
        checked to count them.
        """
        size = self._count(grid_values)
        if size is None:
            what = f"more than {MAX_ENUMERATED:,} combinations to check against conditions and constraints"
            raise InputError.one("parameters", what, "take fewer values, or method: random")
        return size

    def points(self) -> Iterator[dict[str, Value]]:
        """Return an iterator over all points of a finite space that meet the constraints, in the order of a grid.

        Iterating raises ``ValueError`` if a domain is continuous or has more than `MAX_CHOICES` values. ``grid_count``
        has no effect.
        """
        return self._feasible_points(_all_values)

    @cached_property
    def cardinality(self) -> int | None:
        """The number of different points that meet the constraints; None if infinite or too large to count.

        A space with a drawn parameter that has more than `MAX_CHOICES` values, and is no list, counts as infinite. One
        is too large if more than `MAX_ENUMERATED` combinations would have to be checked one by one.
        """
        if any(p.drawn and list_choices(p.domain) is None for p in self.parameters):
            return None
        return self._count(_all_values)

    def _feasible_points(self, values: _Values) -> Iterator[dict[str, Value]]:
        for params in _combine_values(self._order, values):
            if not self.list_violated(params):
                yield self._in_file_order(params)

    def _count(self, values: _Values) -> int | None:
        """Return the number of points with these ``values`` that meet the constraints; None if too many to count.

        ``values`` returns the values of a parameter; its errors are passed on. Tied parameters, and those on which
        others or constraints depend, are enumerated in at most `MAX_ENUMERATED` combinations; the numbers of values of
        the others are multiplied.
        """
        named = frozenset().union(
            *(c.names for c in self.constraints), *(p.needs for p in self.parameters)
        )
        decisive = []
        for p in self._order:
            if p.name in named or isinstance(p.domain, Tied):
                decisive.append(p)
        free = []  # the other parameters, with the number of their values
        for p in self._order:
            if p not in decisive:
                free.append((p, len(values(p))))
        total = 0
        for visited, params in enumerate(_combine_values(tuple(decisive), values)):
            if visited >= MAX_ENUMERATED:
                return None
            if not self.list_violated(params):
                # each of these can be combined with all values of the free parameters that apply with it
                total += math.prod(size for p, size in free if p.applies(params))
        return total

    def _in_file_order(self, params: Params) -> dict[str, Value]:
        return {name: params[name] for name in self.names if name in params}


def grid_values(parameter: Parameter) -> tuple[Value, ...]:
    """Return the values of a parameter that a grid contains: ``grid_count`` of a numeric domain, or all values.

    Those of a numeric domain are spaced out by `space_out_values`. Raises ``ValueError`` if the parameter has no
    ``grid_count`` and its domain is continuous, tied, or has more than `MAX_CHOICES` values.
    """
    if isinstance(parameter.domain, Range) and parameter.grid_count is not None:
        return space_out_values(parameter.domain, parameter.grid_count)
    return _all_values(parameter)


def _all_values(parameter: Parameter) -> tuple[Value, ...]:
    values = list_choices(parameter.domain)
    if values is None:
        raise ValueError(f"{parameter.name} has too many values to enumerate")
    return values


def _combine_values(order: Sequence[Parameter], values: _Values) -> Iterator[dict[str, Value]]:
    """Return an iterator over all combinations of the parameters' values, the last parameter varying fastest.

    Parameters that do not apply are absent. Each parameter must come after those that it needs in ``order``. ``values``
    returns the values of a parameter that is not tied, and is called for each of these at once. Combinations in which a
    tied value has no result are left out. The same dict is yielded each time; copy it to keep it.
    """
    options = []
    for parameter in order:
        options.append(() if isinstance(parameter.domain, Tied) else values(parameter))
    params: dict[str, Value] = {}  # the present combination

    # yields `params` with each combination of the values from the parameter at `depth` on
    def combine(depth: int) -> Iterator[dict[str, Value]]:
        if depth == len(order):
            yield params
            return
        parameter = order[depth]
        if not parameter.applies(params):
            yield from combine(depth + 1)
            return
        # the one value of a tied parameter, or the values of another one; none for a tied value without a result
        for value in _list_tied_values(parameter.domain, params) or options[depth]:
            params[parameter.name] = value
            yield from combine(depth + 1)
        # the next combination may be one in which it does not apply
        params.pop(parameter.name, None)

    return combine(0)


def _list_tied_values(domain: Domain, params: Params) -> tuple[Value, ...]:
    """Return the value of a tied parameter in a tuple; () if it has no result, or if the domain is not tied.

    Raises `ExpressionError` if its expression does not accept the type of a value.
    """
    if not isinstance(domain, Tied):
        return ()
    try:
        return (domain.expression.evaluate(params),)
    except UndefinedError:
        return ()


def _is_satisfied(constraint: Expression, params: Params) -> bool:
    """Return whether a constraint holds at a point; False if it has no result.

    Raises `ExpressionError` if it does not accept the type of a value, or if the point lacks one of its names.
    """
    try:
        return bool(constraint.evaluate(params))
    except UndefinedError:
        return False
