"""From the method named in a sweep file to its searcher."""

from __future__ import annotations

from sweep.errors import InputError, did_you_mean
from sweep.searchers import grid, random_search
from sweep.searchers.contract import Searcher
from sweep.searchers.repeats import Repeated
from sweep.space.objectives import Objective
from sweep.space.space import Space

METHODS = ("grid", "random", "sobol", "tpe", "bayes", "gp", "cmaes", "nsga2")


def build(method: str, space: Space, objectives: tuple[Objective, ...], seed: int, repeats: int = 1) -> Searcher:
    """The searcher of a method; with several ``repeats`` it suggests each configuration as often.

    Raises `InputError` for an unknown method, one whose package is missing, or one that cannot optimize
    these objectives.
    """
    inner = _over_configurations(method, space, objectives, seed)
    return Repeated(inner, repeats) if repeats > 1 else inner


def _over_configurations(method: str, space: Space, objectives: tuple[Objective, ...], seed: int) -> Searcher:
    match method:
        case "grid":
            return grid.build(space)
        case "random":
            return random_search.build(space, seed)
        case "sobol":
            from sweep.searchers import sobol

            return sobol.build(space, seed)
        case "tpe" | "bayes":
            from sweep.searchers.optuna_search import OptunaSearcher

            return OptunaSearcher("tpe", space, objectives, seed)
        case "cmaes":
            from sweep.searchers.cmaes_search import CmaesSearcher

            return CmaesSearcher(space, objectives, seed)
        case "gp" | "nsga2":
            from sweep.searchers.optuna_search import OptunaSearcher

            return OptunaSearcher(method, space, objectives, seed)
        case _:
            raise InputError.one("method", f"unknown method {method!r}", did_you_mean(method, METHODS))
