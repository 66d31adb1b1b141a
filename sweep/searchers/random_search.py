"""Random search: independent draws from each parameter's own distribution."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from sweep.events import Params
from sweep.searchers.novelty import first_new, uniform_draws
from sweep.searchers.streams import Stream
from sweep.space.domains import key
from sweep.space.space import Space


def build(space: Space, seed: int) -> Stream:
    """A searcher whose n-th draw has a random generator of its own, by seed and n."""
    return Stream(_points(space, seed), ends=space.finite())


def _points(space: Space, seed: int) -> Iterator[Params]:
    tried: set[str] = set()
    for number in count():
        point = first_new(space, uniform_draws(seed, number), tried)
        if point is None:
            return
        tried.add(key(point))
        yield point
