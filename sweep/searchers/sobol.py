"""Sobol search: a scrambled low-discrepancy sequence, spread more evenly than random draws.

Owen (1998), "Scrambling Sobol' and Niederreiter-Xing points"; the sequence is SciPy's. Each drawn
parameter has its own dimension, used or not, and points that are infeasible or repeated are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from scipy.stats import qmc

from sweep.events import Params, Value
from sweep.searchers.novelty import Draw, first_new, uniform_numbers
from sweep.searchers.streams import Stream
from sweep.space.draws import from_unit
from sweep.space.space import Parameter, Space

_BLOCK = 64  # a power of two keeps the balance of the sequence


def build(space: Space, seed: int, first: Iterable[Params] = ()) -> Stream:
    """A searcher whose scrambling is drawn from the seed; the sequence begins after the points of ``first``."""
    draws = _draws(space, seed)
    return Stream(lambda number, tried: first_new(space, draws, tried, uniform_numbers(seed, number)), first)


def _draws(space: Space, seed: int) -> Iterator[Draw]:
    drawn = [parameter.name for parameter in space.parameters if parameter.drawn]
    sequence = qmc.Sobol(max(len(drawn), 1), scramble=True, rng=seed)
    while True:
        for row in sequence.random(_BLOCK).tolist():
            yield partial(_draw, dict(zip(drawn, row, strict=False)))


def _draw(units: Mapping[str, float], parameter: Parameter) -> Value:
    return from_unit(parameter.domain, units[parameter.name])
