"""Grid, random and Sobol search, and how every searcher avoids points that violate a constraint or were tried before.

The n-th suggestion of the first three is the n-th point of a stream. A stream is a function of the space and the seed
alone, so every suggestion is one too.
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
_BLOCK = 64  # rows of a Sobol sequence: a power of two keeps its balance

Draw: TypeAlias = Callable[[Parameter], Value]
"""Chooses the value of one parameter after the other, for one point."""


def first_new(
    space: Space, draws: Iterable[Draw], tried: Collection[str], uniform: Callable[[], float], *, walk: bool = True
) -> Params | None:
    """Return the first feasible point of up to `MAX_ATTEMPTS` draws whose `key` is not among ``tried``.

    Where all of them fail, a finite space is searched through in the order of its grid, and in another one
    the first draw is moved to where the constraints hold: by ``walk`` far into it, else as near as possible.
    ``uniform`` draws the numbers for that. None means that the space is exhausted.
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
    if feasible and not space.constraints:  # infinite by name only, like a coarsely quantized normal
        return None
    found = near(space, start, uniform, walk=walk)
    return next((params for params in found if key(params) not in tried), None)


def uniform_numbers(seed: int, number: int) -> Callable[[], float]:
    """Endless independent numbers from [0, 1), by seed and number."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number]))).random


def _noted(draw: Draw, drawn: dict[str, Value], parameter: Parameter) -> Value:
    value = drawn[parameter.name] = draw(parameter)
    return value


def uniform_draws(seed: int, number: int) -> Iterator[Draw]:
    """Endless independent draws from each parameter's own distribution, by seed and number."""
    uniform = uniform_numbers(seed, number)
    while True:
        yield lambda parameter: from_unit(parameter.domain, uniform())


def believed_draws(seed: int, number: int) -> Iterator[Draw]:
    """Endless draws of which half follow the author's beliefs, and half each parameter's own distribution.

    The mix of PriorBand at its lowest rung (Mallik et al., NeurIPS 2023, section 5): beliefs that are wrong cost at
    most every other trial.
    """
    uniform = uniform_numbers(seed, number)
    while True:
        yield partial(_believed, uniform) if uniform() < 0.5 else lambda one: from_unit(one.domain, uniform())


def _believed(uniform: Callable[[], float], parameter: Parameter) -> Value:
    belief = parameter.belief
    return from_unit(parameter.domain, uniform()) if belief is None else belief.draw(parameter.domain, uniform())


def independent_draws(space: Space, seed: int, number: int) -> Iterator[Draw]:
    """Endless draws that learn nothing, by seed and number; with the author's beliefs, where there are such."""
    return believed_draws(seed, number) if space.has_beliefs else uniform_draws(seed, number)


def _untried(space: Space, tried: Collection[str]) -> Iterator[Params]:
    return (params for params in space.points() if key(params) not in tried)


class PointStream:
    """Suggests ``first``, then point after point, each given its number and the keys of those before it."""

    def __init__(self, point: Callable[[int, Collection[str]], Params | None], first: Iterable[Params] = ()) -> None:
        self._point = point
        self._points: list[Params] = list(first)
        self._keys: set[str] = set(map(key, self._points))

    foresees = True

    def learn(self, past: Iterable[TrialState]) -> int:
        """Nothing to learn."""
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
        """Nothing to learn."""


def grid_search(space: Space, first: Iterable[Params] = ()) -> PointStream:
    """Return a searcher of every combination, once and in the order of the file, after the points of ``first``."""
    points = space.grid()
    return PointStream(lambda number, tried: next((p for p in points if key(p) not in tried), None), first)


def random_search(space: Space, seed: int, first: Iterable[Params] = ()) -> PointStream:
    """Return a searcher of independent draws from each parameter's own distribution, half of them by the prior.

    The n-th point, unless it is of ``first``, has a random generator of its own, by seed and n.
    """
    return PointStream(
        lambda number, tried: first_new(
            space, independent_draws(space, seed, number), tried, uniform_numbers(seed, number)
        ),
        first,
    )


def sobol_search(space: Space, seed: int, first: Iterable[Params] = ()) -> PointStream:
    """Return a searcher of a scrambled low-discrepancy sequence, spread more evenly than random draws.

    Owen (1998), "Scrambling Sobol' and Niederreiter-Xing points"; the sequence is SciPy's, scrambled by the seed. It
    begins after the points of ``first``. Each drawn parameter has its own dimension, used or not, and points that are
    infeasible or repeated are skipped.
    """
    draws = _sobol_draws(space, seed)
    return PointStream(lambda number, tried: first_new(space, draws, tried, uniform_numbers(seed, number)), first)


def _sobol_draws(space: Space, seed: int) -> Iterator[Draw]:
    drawn = [parameter.name for parameter in space.parameters if parameter.drawn]
    from scipy.stats import qmc  # which takes half a second

    sequence = qmc.Sobol(max(len(drawn), 1), scramble=True, rng=seed)
    while True:
        for row in sequence.random(_BLOCK).tolist():
            yield partial(_sobol_draw, dict(zip(drawn, row, strict=False)))


def _sobol_draw(units: Mapping[str, float], parameter: Parameter) -> Value:
    return from_unit(parameter.domain, units[parameter.name])
