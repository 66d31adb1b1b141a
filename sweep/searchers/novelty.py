"""How every searcher avoids points that violate a constraint or were tried before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TypeAlias

import numpy as np

from sweep.errors import SweepError
from sweep.events import Params, Value
from sweep.space.domains import key
from sweep.space.draws import from_unit
from sweep.space.space import Parameter, Space

MAX_ATTEMPTS = 1000

Draw: TypeAlias = Callable[[Parameter], Value]
"""Chooses the value of one parameter after the other, for one point."""


def first_new(space: Space, draws: Iterable[Draw], tried: Collection[str]) -> Params | None:
    """The first feasible point of up to `MAX_ATTEMPTS` draws whose `key` is not among ``tried``.

    Where all of them fail, a finite space is searched through in the order of its grid. None means that
    the space is exhausted. Raises `SweepError` if it has hardly a feasible point.
    """
    size = space.cardinality()
    if size is not None and len(tried) >= size and next(_untried(space, tried), None) is None:
        return None
    feasible = False
    for draw in islice(draws, MAX_ATTEMPTS):
        params = space.feasible(draw)
        if params is not None and key(params) not in tried:
            return params
        feasible |= params is not None
    if size is not None:
        return next(_untried(space, tried), None)
    if feasible:  # infinite by name only, like a coarsely quantized normal
        return None
    rules = ", ".join(constraint.text for constraint in space.constraints)
    raise SweepError(f"none of {MAX_ATTEMPTS:,} draws meets the constraints ({rules}); loosen them")


def uniform_draws(seed: int, number: int) -> Iterator[Draw]:
    """Endless independent draws from each parameter's own distribution, by seed and number."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number])))
    while True:
        yield lambda parameter: from_unit(parameter.domain, rng.random())


def _untried(space: Space, tried: Collection[str]) -> Iterator[Params]:
    return (params for params in space.points() if key(params) not in tried)
