"""Where a search starts: configurations that the user names, in part or whole, completed to points of the space."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from sweep.events import Params
from sweep.space.domains import key
from sweep.space.space import Space, grid_values


def completed(
    space: Space, starts: Iterable[Params], complete: Callable[[Space, int, Collection[str]], Params | None]
) -> list[Params]:
    """The points that ``starts`` become, without repeats.

    ``complete`` finds a point of what a start leaves of the space, given its place and the keys of those before it.
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
    """``starts``, completed by what comes first in the grid."""
    return completed(
        space, starts, lambda part, place, tried: next((p for p in part.grid() if key(p) not in tried), None)
    )


def beside_grid(space: Space, points: Iterable[Params]) -> int:
    """How many of these points the space's grid does not have."""
    values = {
        parameter.name: set(map(key, grid_values(parameter))) for parameter in space.parameters if parameter.drawn
    }
    return sum(any(key(point[name]) not in values[name] for name in point.keys() & values.keys()) for point in points)
