"""Random search: independent draws from each parameter's own distribution."""

from __future__ import annotations

from collections.abc import Iterable

from sweep.events import Params
from sweep.searchers.novelty import first_new, uniform_draws, uniform_numbers
from sweep.searchers.streams import Stream
from sweep.space.space import Space


def build(space: Space, seed: int, first: Iterable[Params] = ()) -> Stream:
    """A searcher whose n-th point, unless it is of ``first``, has a random generator of its own, by seed and n."""
    return Stream(
        lambda number, tried: first_new(space, uniform_draws(seed, number), tried, uniform_numbers(seed, number)),
        first,
    )
