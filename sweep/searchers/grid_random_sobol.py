"""Grid, random and Sobol search: the n-th suggestion is the n-th point of a stream.

A stream is a function of the space and the seed alone, so every suggestion is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from sweep.events import Event, Params, Value
from sweep.searchers.novelty import Draw, first_new, independent_draws, uniform_numbers
from sweep.space import Parameter, Space
from sweep.space.domains import key
from sweep.space.draws import from_unit
from sweep.store.ledger import TrialState


class Stream:
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


def grid_search(space: Space, first: Iterable[Params] = ()) -> Stream:
    """Return a searcher of every combination, once and in the order of the file, after the points of ``first``."""
    points = space.grid()
    return Stream(lambda number, tried: next((p for p in points if key(p) not in tried), None), first)


def random_search(space: Space, seed: int, first: Iterable[Params] = ()) -> Stream:
    """Return a searcher of independent draws from each parameter's own distribution, half of them by the prior.

    The n-th point, unless it is of ``first``, has a random generator of its own, by seed and n.
    """
    return Stream(
        lambda number, tried: first_new(
            space, independent_draws(space, seed, number), tried, uniform_numbers(seed, number)
        ),
        first,
    )


_BLOCK = 64  # a power of two keeps the balance of the sequence


def sobol_search(space: Space, seed: int, first: Iterable[Params] = ()) -> Stream:
    """Return a searcher of a scrambled low-discrepancy sequence, spread more evenly than random draws.

    Owen (1998), "Scrambling Sobol' and Niederreiter-Xing points"; the sequence is SciPy's, scrambled by the seed. It
    begins after the points of ``first``. Each drawn parameter has its own dimension, used or not, and points that are
    infeasible or repeated are skipped.
    """
    draws = _draws(space, seed)
    return Stream(lambda number, tried: first_new(space, draws, tried, uniform_numbers(seed, number)), first)


def _draws(space: Space, seed: int) -> Iterator[Draw]:
    drawn = [parameter.name for parameter in space.parameters if parameter.drawn]
    from scipy.stats import qmc  # which takes half a second

    sequence = qmc.Sobol(max(len(drawn), 1), scramble=True, rng=seed)
    while True:
        for row in sequence.random(_BLOCK).tolist():
            yield partial(_draw, dict(zip(drawn, row, strict=False)))


def _draw(units: Mapping[str, float], parameter: Parameter) -> Value:
    return from_unit(parameter.domain, units[parameter.name])
