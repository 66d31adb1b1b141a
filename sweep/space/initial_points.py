"""Completion of the initial configurations of a sweep file (``start_with``), which may lack parameters, to points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from sweep.events import Params
from sweep.space.domains import key
from sweep.space.search_space import Space, grid_values


def complete_starts(
    space: Space,
    starts: Iterable[Params],
    complete: Callable[[Space, int, Collection[str]], Params | None],
) -> list[Params]:
    """Complete initial configurations to points of a space; return the points without duplicates, in their order.

    For each start, ``complete`` is called with the subspace in which the start's values are fixed, the position of the
    start, from 0, and the keys (`sweep.space.domains.key`) of the earlier points. It returns a point of the subspace,
    or None to leave out the start. A start whose point equals an earlier one is left out as well.
    """
    points: list[Params] = []
    tried: set[str] = set()
    for place, start in enumerate(starts):
        point = complete(space.fix(start), place, tried)
        if point is not None and key(point) not in tried:
            points.append(point)
            tried.add(key(point))
    return points


def complete_starts_on_grid(space: Space, starts: Iterable[Params]) -> list[Params]:
    """Complete each of ``starts`` to the first point of the grid that has its values and that no earlier start has.

    The values of a start itself need not be on the grid. Starts for which there is no such point are left out. Raises
    ValueError if a parameter that a start does not fix has no ``grid_count`` and is continuous or has more than
    `MAX_CHOICES` values.
    """

    def find_new(part: Space, place: int, tried: Collection[str]) -> Params | None:
        return next((point for point in part.grid() if key(point) not in tried), None)

    return complete_starts(space, starts, find_new)


def count_points_off_grid(space: Space, points: Iterable[Params]) -> int:
    """Return how many of ``points`` have a value of a drawn parameter that is not on the grid of the space.

    1 and 1.0 are different values here. Conditions and constraints are not checked. Raises the errors of `grid_values`.
    """
    values = {}
    for parameter in space.parameters:
        if parameter.drawn:
            values[parameter.name] = set(map(key, grid_values(parameter)))
    count = 0
    for point in points:
        is_off_grid = any(
            key(point[name]) not in values[name] for name in point.keys() & values.keys()
        )
        count += is_off_grid
    return count
