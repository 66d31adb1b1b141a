"""Grid, random and Sobol search, and the search for new feasible points that all searchers share.

Grid, random and Sobol search are streams of points: their n-th suggestion is the n-th point, which depends only on the
space and the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TypeAlias

import numpy as np

from sweep.events import Event, Params, Value
from sweep.space import Parameter, Space
from sweep.space.domains import key
from sweep.space.draws import from_unit
from sweep.space.feasible_points import near
from sweep.store.ledger import TrialState

MAX_ATTEMPTS = 1000
_BLOCK = 64  # rows of a Sobol sequence drawn at once; a power of two keeps it balanced

Draw: TypeAlias = Callable[[Parameter], Value]
"""Returns the value of a parameter. It is called for one parameter of a point after the other."""


def first_new(
    space: Space, draws: Iterable[Draw], tried: Collection[str], uniform: Callable[[], float], *, walk: bool = True
) -> Params | None:
    """Return the first feasible point whose `key` is not in ``tried``, from at most `MAX_ATTEMPTS` draws.

    If all draws fail, a finite space is searched in grid order. In an infinite space, the first draw is moved into the
    feasible region: far into it with ``walk``, otherwise as little as possible. ``uniform`` supplies the random numbers
    for that. Returns None if there is no new point, so that the space counts as exhausted.
    """
    size = space.cardinality
    if size is not None and len(tried) >= size and next(_untried(space, tried), None) is None:
        return None
    feasible = False
    start: dict[str, Value] = {}
    for draw in islice(draws, MAX_ATTEMPTS):
        params = space.feasible(draw if start else partial(_noted, draw, start))
        if params is not None and key(params) not in tried:
            return params
        feasible |= params is not None
    if size is not None:
        return next(_untried(space, tried), None)
    if feasible and not space.constraints:  # infinite in name only, such as a coarsely quantized normal distribution
        return None
    found = near(space, start, uniform, walk=walk)
    return next((params for params in found if key(params) not in tried), None)


def uniform_numbers(seed: int, number: int) -> Callable[[], float]:
    """Return a function that draws independent numbers from [0, 1), seeded by ``seed`` and ``number``."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number]))).random


def _noted(draw: Draw, drawn: dict[str, Value], parameter: Parameter) -> Value:
    value = drawn[parameter.name] = draw(parameter)
    return value


def uniform_draws(seed: int, number: int) -> Iterator[Draw]:
    """Yield independent draws from each parameter's own distribution without end, seeded by ``seed`` and ``number``."""
    uniform = uniform_numbers(seed, number)
    while True:
        yield lambda parameter: from_unit(parameter.domain, uniform())


def believed_draws(seed: int, number: int) -> Iterator[Draw]:
    """Yield draws without end; half follow the author's beliefs, half each parameter's own distribution.

    This is the mix of PriorBand at its lowest rung (Mallik et al., NeurIPS 2023, section 5): wrong beliefs cost at most
    every other trial.
    """
    uniform = uniform_numbers(seed, number)

    def draw_own(parameter: Parameter) -> Value:
        return from_unit(parameter.domain, uniform())

    while True:
        yield partial(_believed, uniform) if uniform() < 0.5 else draw_own


def _believed(uniform: Callable[[], float], parameter: Parameter) -> Value:
    belief = parameter.belief
    return from_unit(parameter.domain, uniform()) if belief is None else belief.draw(parameter.domain, uniform())


def independent_draws(space: Space, seed: int, number: int) -> Iterator[Draw]:
    """Return draws that do not depend on results; half of them follow the author's beliefs, if there are any."""
    return believed_draws(seed, number) if space.has_beliefs else uniform_draws(seed, number)


def _untried(space: Space, tried: Collection[str]) -> Iterator[Params]:
    return (params for params in space.points() if key(params) not in tried)


class PointStream:
    """A searcher that suggests ``first``, then the points that ``point`` returns.

    ``point`` gets the number of a point and the keys of all points before it; it returns None if there are no more.
    """

    def __init__(self, point: Callable[[int, Collection[str]], Params | None], first: Iterable[Params] = ()) -> None:
        self._point = point
        self._points: list[Params] = list(first)
        self._keys: set[str] = set(map(key, self._points))

    foresees = True

    def learn(self, past: Iterable[TrialState]) -> int:
        """Ignore the trials and return 0."""
        return 0

    def suggest(self, number: int) -> Params | None:
        while len(self._points) <= number:
            point = self._point(len(self._points), self._keys)
            if point is None:
                return None
            self._points.append(point)
            self._keys.add(key(point))
        return self._points[number]

    def observe(self, event: Event) -> None:
        """Ignore the event."""


def grid_search(space: Space, seed: int, first: Iterable[Params] = ()) -> PointStream:
    """Return a searcher that suggests ``first``, then all other combinations in the order of the file.

    They are the same for every ``seed``.
    """
    points = space.grid()

    def find_next(number: int, tried: Collection[str]) -> Params | None:
        return next((point for point in points if key(point) not in tried), None)

    return PointStream(find_next, first)


def random_search(space: Space, seed: int, first: Iterable[Params] = ()) -> PointStream:
    """Return a searcher that suggests ``first``, then independent draws from each parameter's distribution.

    If the author has beliefs, half of the draws follow them. Each point has a random generator of its own, seeded by
    the seed and the number of the point.
    """
    return PointStream(
        lambda number, tried: first_new(
            space, independent_draws(space, seed, number), tried, uniform_numbers(seed, number)
        ),
        first,
    )


def sobol_search(space: Space, seed: int, first: Iterable[Params] = ()) -> PointStream:
    """Return a searcher that suggests ``first``, then a scrambled Sobol sequence, more even than random draws.

    Owen (1998), "Scrambling Sobol' and Niederreiter-Xing points"; the sequence is SciPy's, scrambled by the seed. Each
    drawn parameter has its own dimension, even in points that do not use it. Infeasible and repeated points are
    skipped.
    """
    draws = _sobol_draws(space, seed)
    return PointStream(lambda number, tried: first_new(space, draws, tried, uniform_numbers(seed, number)), first)


def _sobol_draws(space: Space, seed: int) -> Iterator[Draw]:
    drawn = [parameter.name for parameter in space.parameters if parameter.drawn]
    from scipy.stats import qmc  # importing it takes half a second

    sequence = qmc.Sobol(max(len(drawn), 1), scramble=True, rng=seed)
    while True:
        for row in sequence.random(_BLOCK).tolist():
            yield partial(_sobol_draw, dict(zip(drawn, row, strict=False)))


def _sobol_draw(units: Mapping[str, float], parameter: Parameter) -> Value:
    return from_unit(parameter.domain, units[parameter.name])
