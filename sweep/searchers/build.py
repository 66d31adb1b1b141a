"""From the method named in a sweep file to its searcher."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.errors import InputError, did_you_mean
from sweep.events import Params
from sweep.searchers import grid, random_search, starts
from sweep.searchers.contract import Factory, Searcher
from sweep.searchers.repeats import Repeated
from sweep.space import starting
from sweep.space.objectives import Objective
from sweep.space.space import Space

METHODS = ("grid", "random", "sobol", "tpe", "bayes", "gp", "cmaes", "nsga2")


def build(
    method: str | Factory,
    space: Space,
    objectives: tuple[Objective, ...],
    seed: int,
    repeats: int = 1,
    start_with: Sequence[Params] = (),
) -> Searcher:
    """The searcher of a method, or of one's own; its first suggestions are ``start_with``, completed.

    With several ``repeats`` it suggests each configuration as often. Raises `InputError` for an unknown method,
    one whose package is missing, or one that cannot optimize these objectives.
    """
    inner = _over_configurations(method, space, objectives, seed, start_with)
    return Repeated(inner, repeats) if repeats > 1 else inner


def _over_configurations(
    method: str | Factory, space: Space, objectives: tuple[Objective, ...], seed: int, start_with: Sequence[Params]
) -> Searcher:
    if method == "grid":
        return grid.build(space, starting.on_grid(space, start_with))
    first = starts.drawn(space, start_with, seed)
    match method:
        case "random":
            return random_search.build(space, seed, first)
        case "sobol":
            from sweep.searchers import sobol

            return sobol.build(space, seed, first)
    inner = _learning(method, space, objectives, seed)
    return starts.Started(inner, first) if first else inner


def _learning(method: str | Factory, space: Space, objectives: tuple[Objective, ...], seed: int) -> Searcher:
    match method:
        case "tpe" | "bayes":
            from sweep.searchers.optuna_search import OptunaSearcher

            return OptunaSearcher("tpe", space, objectives, seed)
        case "cmaes":
            from sweep.searchers.cmaes_search import CmaesSearcher

            return CmaesSearcher(space, objectives, seed)
        case "gp" | "nsga2":
            from sweep.searchers.optuna_search import OptunaSearcher

            return OptunaSearcher(method, space, objectives, seed)
        case str():
            raise InputError.one("method", f"unknown method {method!r}", did_you_mean(method, METHODS))
        case own:
            return own(space, objectives, seed)
